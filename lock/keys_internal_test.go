package lock

import (
	"errors"
	"strings"
	"testing"

	"github.com/lockdog/lockdog/lock/internal/script"
)

// keysBeside returns all keys that a lock of any kind may have in Redis beside its own, except the one with the leases
// of a Semaphore. Programs have names that end like that key, and no other kind of lock overwrites what it holds.
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
	keys = append(keys, script.WaitSetKey(key), script.ReceiptKey(key, owner))
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

// Braces are allowed where the first of them give a tag, as Redis reads them. (That all keys of the lock are in its slot: FuzzNames.)
func TestBracesGiveOneTag(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"job", "{job}s", "a{job}b", "{a}{b}", "{a}{}", "{a}{", "{a}}", "{{a}}", "a}{b}"} {
		if err := checkName(name); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
	for _, name := range []string{"{", "}", "{}", "{job}", "{}{a}", "a{b", "a}b", "}{"} {
		if err := checkName(name); !errors.Is(err, ErrInvalid) {
			t.Errorf("%q: %v", name, err)
		}
	}
	if err := checkName("{job}"); err == nil || !strings.Contains(err.Error(), `use "job", or add to it, as in "{job}:lock"`) {
		t.Errorf("%v", err)
	}
}
