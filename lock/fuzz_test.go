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
		for _, beside := range keysBeside(lk.c, name) {
			if checkName(beside) == nil {
				t.Errorf("%q has %q beside it, which another lock may be named", key, beside)
			}
		}
		keys := keysOf(lk, "")
		slot := plainSlot(key)
		for _, part := range []string{script.Channel(key), keys[0], keys[1]} {
			if plainSlot(part) != slot || hashslot.Of(part) != slot {
				t.Errorf("%q lives in slot %d (%d), its lock in %d", part, plainSlot(part), hashslot.Of(part), slot)
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

// plainSlot is HASH_SLOT as the cluster specification words it, and CRC-16 bit by bit.
func plainSlot(key string) int {
	if open := strings.IndexByte(key, '{'); open >= 0 {
		if length := strings.IndexByte(key[open+1:], '}'); length > 0 {
			key = key[open+1 : open+1+length]
		}
	}
	var crc uint16
	for _, b := range []byte(key) {
		crc ^= uint16(b) << 8
		for range 8 {
			carry := crc&0x8000 != 0
			crc <<= 1
			if carry {
				crc ^= 0x1021
			}
		}
	}
	return int(crc % 16384)
}
