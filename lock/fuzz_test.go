package lock

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/lockdog/lockdog/internal/hashslot"
	"github.com/lockdog/lockdog/lock/internal/script"
)

// What a holder says of its trace may be any text.
func FuzzTraceID(f *testing.F) {
	for _, s := range []string{"", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "00-00000000000000000000000000000000-0000000000000000-01", "x y z"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if id := traceID(s); id != "" && len(id) != 32 {
			t.Errorf("%q gives trace id %q", s, id)
		}
	})
}

// FuzzNames checks that all that one lock uses lives in one slot, whatever its name, and that no lock can be named as what another uses.
func FuzzNames(f *testing.F) {
	for _, seed := range [][2]string{
		{"", "a"},
		{"", "{tag}"},
		{"", "a{tag}b"},
		{"", "a{b"},
		{"", "{}"},
		{"", "}{"},
		{"", "{a}{b}"},
		{"", "{{a}}"},
		{"app:", "orders:42"},
		{"{app}:", "orders:42"},
		{"{app}:", "{b}"},
		{"a}", "{b}"},
		{"\xff", "a"},
		{"", ""},
		{"", "lockdog:fence:{27923}"},
		{"lockdog:", "fence:{0}"},
		{"", "{a}:rwlock_timeout:1"},
		{"app:", "job"},
		{"{app}:", "job"},
		{"", "{job}s"},
	} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, prefix, name string) {
		key := prefix + name
		if err := checkName(key); err != nil {
			if !errors.Is(err, ErrInvalid) {
				t.Errorf("%q: %v", key, err)
			}
			return
		}
		if checkBraces("", prefix) != nil || !utf8.ValidString(prefix) {
			return // New refuses the prefix
		}
		lk := &lock{kind: mutexKind, c: &Client{cfg: clientConfig{prefix: prefix}, receipts: newReceipts()}, key: key, cfg: &lockConfig{}}
		lk.counter = lk.c.counterOf(key, lk.cfg)
		all := keysBeside(lk.c, name)
		if len(all) < 15 {
			t.Fatalf("keys beside %q: %q", key, all)
		}
		for _, beside := range all {
			if err := checkName(beside); !errors.Is(err, ErrInvalid) {
				t.Errorf("%q has %q beside it, which another lock may be named: %v", key, beside, err)
			}
		}
		keys := keysOf(lk, "")
		for _, part := range append(all, keys[0], script.Channel(key), script.RWChannel(key), script.SemaphoreChannel(key)) {
			if got, want := hashslot.Of(part), hashslot.Of(key); got != want {
				t.Errorf("%q lives in slot %d, its lock %q in %d", part, got, key, want)
			}
		}
		if !strings.HasPrefix(keys[1], prefix) {
			t.Errorf("the counter %q isn't under the prefix %q", keys[1], prefix)
		}
		if again := keysOf(lk, ""); len(keys) != 2 || keys[0] != key || !slices.Equal(keys, again) {
			t.Errorf("the keys of %q are %q, then %q", key, keys, again)
		}
	})
}
