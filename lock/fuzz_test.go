package lock

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/lockdog/lockdog/internal/hashslot"
	"github.com/lockdog/lockdog/lock/internal/redisfail"
	"github.com/lockdog/lockdog/lock/internal/script"
	"github.com/lockdog/lockdog/watchdog"
)

// What a server refuses a lease with, and what a holder says of its trace, may be any text.
func FuzzRefusal(f *testing.F) {
	for _, s := range []string{"", "ERR", "WRONGTYPE Operation against a key", "NOPERM", "-", "ERR user_script:1: -READONLY"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		results, _, err := readRenewals([]any{int64(1), int64(0), int64(1), s}, 1)
		if err != nil || results[0].Err == nil {
			t.Fatalf("%q read as %v, %v", s, results, err)
		}
		if want := redisfail.IsWrongType(redisfail.ReplyError(s)); (results[0].Outcome == watchdog.Taken) != want || !want && results[0].Outcome != watchdog.Failed {
			t.Errorf("%q read as %+v", s, results[0])
		}
		redisfail.Classify(results[0].Err)
	})
}

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

// What the renew script says of a lease is what the watchdog is told.
func TestReadRenewals(t *testing.T) {
	t.Parallel()
	results, now, err := readRenewals([]any{
		int64(7), int64(1), int64(1), int64(0), int64(3), int64(2), int64(4), int64(3), int64(5), int64(4), int64(6), "NOPERM", int64(7), "WRONGTYPE x", int64(8), nil,
	}, 8)
	if err != nil || now != 7 {
		t.Fatalf("%d, %v", now, err)
	}
	want := []watchdog.Outcome{watchdog.Missing, watchdog.Renewed, watchdog.Taken, watchdog.Failed, watchdog.Failed, watchdog.Failed, watchdog.Taken, watchdog.Failed}
	for i, r := range results {
		if r.Outcome != want[i] || (r.Err == nil) != (i < 3) {
			t.Errorf("result %d read as %+v", i, r)
		}
	}
	if !errors.Is(results[3].Err, redisfail.ErrLate) || !errors.Is(results[4].Err, script.ErrReply) || !errors.Is(results[7].Err, script.ErrReply) {
		t.Errorf("%+v", results)
	}
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
