package lock

import (
	"errors"
	"strings"
	"testing"

	"github.com/lockdog/lockdog/internal/hashslot"
	"github.com/lockdog/lockdog/lock/internal/script"
)

// keysBeside are all keys that a lock of any kind may have in Redis beside its own, but for the leases of a Semaphore: their key ends as names
// do that programs have, and holds what no kind of lock writes over.
func keysBeside(c *Client, name string) []string {
	const owner = "app/1:1baf5f32b89d56cd-3"
	var keys []string
	for _, k := range []*kind{mutexKind, fairKind, writeKind, readKind, semaphoreKind, unleasedSemaphoreKind, latchKind, quorumKind, multiKind} {
		for _, cfg := range []*lockConfig{{}, {redissonTokens: true}} {
			lk := &lock{c: c, kind: k, name: name, key: c.cfg.prefix + name, cfg: cfg}
			lk.counter = c.counterOf(lk.key, cfg)
			keys = append(keys, keysOf(lk, owner)...)
		}
	}
	key := c.cfg.prefix + name
	keys = append(keys, script.WaitersKey(key), script.ReceiptKey(key, owner))
	kept := keys[:0]
	for _, k := range keys {
		if k != key && k != script.PermitsKey(key) {
			kept = append(kept, k)
		}
	}
	return kept
}

// keysOf are the keys of an operation on behalf of an owner.
func keysOf(lk *lock, owner string) []string {
	var r script.Request
	lk.kind.acquire.Args(&r, script.AcquireArgs{Lock: lk.keys(), Owner: owner})
	return r.Keys
}

// No lock can be named as a key that another lock has beside its own, whatever the key prefixes of the clients.
func TestNoLockIsNamedAsAnothersKey(t *testing.T) {
	t.Parallel()
	for _, prefix := range []string{"", "app:", "{app}:"} {
		for _, name := range []string{"job", "{job}s", "a{job}b"} {
			if prefix != "" && name != "job" {
				continue
			}
			keys := keysBeside(&Client{cfg: clientConfig{prefix: prefix}, receipts: newReceipts()}, name)
			if len(keys) < 15 {
				t.Fatalf("keys of %q: %q", name, keys)
			}
			for _, key := range keys {
				if err := checkName(key); !errors.Is(err, ErrInvalid) {
					t.Errorf("%q, which %q with prefix %q has beside its own, is taken for a name: %v", key, name, prefix, err)
				}
			}
		}
	}
}

// Braces are allowed where the first of them give a tag, as Redis reads them: then all keys and channels of the lock are in its slot.
func TestBracesGiveOneTag(t *testing.T) {
	t.Parallel()
	for name, tag := range map[string]string{
		"job": "", "{job}s": "job", "a{job}b": "job", "{a}{b}": "a", "{a}{}": "a", "{a}{": "a", "{a}}": "a", "{{a}}": "{a", "a}{b}": "b",
		"{": "-", "}": "-", "{}": "-", "{job}": "-", "{}{a}": "-", "a{b": "-", "a}b": "-", "}{": "-",
	} {
		err := checkName(name)
		if name == "{job}" && (err == nil || !strings.Contains(err.Error(), `use "job", or add to it, as in "{job}:lock"`)) {
			t.Errorf("%q: %v", name, err)
		}
		if (tag == "-") != errors.Is(err, ErrInvalid) {
			t.Errorf("%q: %v", name, err)
		}
		if err != nil || tag == "" {
			continue
		}
		for _, key := range append(keysBeside(&Client{receipts: newReceipts()}, name), script.Channel(name), script.RWChannel(name), script.SemaphoreChannel(name)) {
			if got := hashslot.Of(key); got != hashslot.Of(tag) {
				t.Errorf("%q has %q in slot %d, its tag %q is in %d", name, key, got, tag, hashslot.Of(tag))
			}
		}
	}
}
