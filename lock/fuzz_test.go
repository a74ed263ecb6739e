package lock

import (
	"encoding/binary"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/lockdog/lockdog/lock/internal/backend"
	"github.com/lockdog/lockdog/lock/internal/script"
	"github.com/lockdog/lockdog/watchdog"
)

// The decoders read what a server says, and a lock's hash, which anybody may write. Whatever that is, they neither panic
// nor believe what isn't there.

// someReply makes a reply, as go-redis might give it, of arbitrary bytes.
func someReply(data []byte) any {
	if len(data) > 0 && data[0] == 0xff {
		v, _ := someValue(data[1:])
		return v
	}
	list := []any{}
	for len(data) > 0 {
		var v any
		v, data = someValue(data)
		list = append(list, v)
	}
	return list
}

// someValue takes one value off the front: a byte for its kind, then the value.
func someValue(data []byte) (any, []byte) {
	if len(data) == 0 {
		return nil, nil
	}
	kind, data := data[0], data[1:]
	take := func(n int) []byte {
		n = min(n, len(data))
		b := data[:n]
		data = data[n:]
		return b
	}
	switch kind % 7 {
	case 0, 1: // small numbers are the words of our scripts
		b := take(1)
		if len(b) == 0 {
			return int64(0), nil
		}
		return int64(int8(b[0])), data
	case 2:
		var b [8]byte
		copy(b[:], take(8))
		return int64(binary.BigEndian.Uint64(b[:])), data
	case 3, 4:
		return string(take(int(kind / 7))), data
	case 5:
		return nil, data
	default:
		return []any{int64(1)}, data
	}
}

// FuzzReplies gives replies, as of a well server and of a sick one, to all that reads them.
func FuzzReplies(f *testing.F) {
	for _, seed := range [][]byte{
		{},
		{0xff, 0, 1},                             // a stray number
		{0xff, 2, 0, 6, 0, 0, 0, 0, 0, 0},        // granted, or handed over, at the time that is the token
		{0, 1, 0, 5, 0, 9},                       // granted, released, renewed
		{0, 0, 0, 5, 0, 9, 24, 'a', 'b', 'c', 3}, // held by abc
		{0, 2, 0, 5, 0, 9},                       // late, handed over
		{0, 0, 0, 5, 0, 1},                       // taken
		{0, 5, 0, 0, 0, 1, 0, 2, 0, 3, 24, 'E', 'R', 'R', 0, 4, 5, 6}, // renewals
		append([]byte{0, 5, 0, 9, 7*8 + 3}, "@lockdog"+"\x0a7"+"\x0aO\x0a1"...),
		{0, 1, 5, 6},
		{0, 1, 0, 5, 0, 7, 0, 8}, // several granted
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		reply := someReply(data)
		if text := unreadable(reply).Error(); len(text) > len(errReply.Error())+2+4*80 { // of 80 characters
			t.Errorf("an error of %d bytes: %s", len(text), text)
		}
		fuzzVerdict(t, reply)
		fuzzFreed(t, reply)
		fuzzHolder(t, reply)
		list, _ := reply.([]any)
		for _, n := range []int{0, 1, 8, len(list) - 1} {
			if n >= 0 {
				fuzzRenewals(t, reply, n)
			}
			if n > 0 {
				fuzzJoint(t, reply, n)
			}
		}
	})
}

// number is what stands at a place of a reply, if that is a number.
func number(reply any, i int) (int64, bool) {
	list, ok := reply.([]any)
	if !ok || i >= len(list) {
		return 0, false
	}
	n, ok := list[i].(int64)
	return n, ok
}

func fuzzVerdict(t *testing.T, reply any) {
	t.Helper()
	v, now, err := readVerdict(reply)
	if n, ok := reply.(int64); ok && n > leastTime {
		if err != nil || !v.granted || v.token != n || now != n {
			t.Errorf("%d read as %+v at %d, %v", n, v, now, err)
		}
		return
	}
	word, isNumber := number(reply, 0)
	switch {
	case err == nil && v.granted:
		if token, ok := number(reply, 2); !isNumber || word != 1 || !ok || v.token != token {
			t.Errorf("%v read as a grant with token %d", reply, v.token)
		}
	case err == nil:
		if !isNumber || word != 0 || v.token != 0 || v.holder.Remaining < millis(-1) {
			t.Errorf("%v read as held: %+v", reply, v)
		}
	case errors.Is(err, errLate):
		if word != 2 || v.granted {
			t.Errorf("%v read as late", reply)
		}
	case !errors.Is(err, errReply) || v.granted || now != 0:
		t.Errorf("%v: %v, %+v, %d", reply, err, v, now)
	}
	if err == nil || errors.Is(err, errLate) {
		if said, ok := number(reply, 1); !ok || now != said {
			t.Errorf("%v: time %d", reply, now)
		}
	}
}

func fuzzFreed(t *testing.T, reply any) {
	t.Helper()
	got, now, err := readFreed(reply)
	if errors.Is(err, errLate) {
		word, _ := number(reply, 0)
		if said, ok := number(reply, 1); word != 3 || !ok || now != said || got != (freed{}) {
			t.Errorf("%v read as late, at %d: %+v", reply, now, got)
		}
		return
	}
	if err != nil {
		if !errors.Is(err, errReply) || got != (freed{}) || now != 0 {
			t.Errorf("%v: %v, %+v, %d", reply, err, got, now)
		}
		return
	}
	if n, ok := reply.(int64); ok {
		want, at := freed{outcome: freedPublished}, int64(0)
		if n > leastTime {
			want, at = freed{outcome: freedHandedOver, token: n}, n
		} else if n != 1 {
			t.Fatalf("%d read as %+v", n, got)
		}
		if got != want || now != at {
			t.Errorf("%d read as %+v at %d", n, got, now)
		}
		return
	}
	word, _ := number(reply, 0)
	third, isNumber := number(reply, 2)
	want := map[int64]freed{1: {outcome: freedPublished}}[word]
	if list, _ := reply.([]any); word == 1 && len(list) > 2 {
		if text, ok := list[2].(string); ok {
			want.untold = scriptError(text)
		}
	}
	switch {
	case word == 2 && isNumber:
		want = freed{outcome: freedHandedOver, token: third}
	case word == 0 && isNumber && third == 0:
		want = freed{outcome: freedMissing}
	case word == 0 && isNumber:
		want = freed{outcome: freedTaken}
	case word != 1:
		t.Fatalf("%v read as %+v", reply, got)
	}
	if said, _ := number(reply, 1); got != want || now != said {
		t.Errorf("%v read as %+v at %d", reply, got, now)
	}
}

func fuzzRenewals(t *testing.T, reply any, n int) {
	t.Helper()
	results, now, err := readRenewals(reply, n)
	if err != nil {
		if !errors.Is(err, errReply) || results != nil || now != 0 {
			t.Errorf("%v: %v, %v, %d", reply, err, results, now)
		}
		return
	}
	list := reply.([]any)
	if len(results) != n || len(list) != n+1 || now != list[0] {
		t.Fatalf("%v read as %v at %d, for %d leases", reply, results, now, n)
	}
	for i, res := range results {
		want := watchdog.Failed
		switch list[i+1] {
		case int64(0):
			want = watchdog.Missing
		case int64(1):
			want = watchdog.Renewed
		case int64(2):
			want = watchdog.Taken
		}
		if res.Outcome != want || (res.Err != nil) != (want == watchdog.Failed) {
			t.Errorf("%#v read as %+v", list[i+1], res)
		}
		if res.Err != nil {
			classify(res.Err)
		}
	}
}

func fuzzHolder(t *testing.T, reply any) {
	t.Helper()
	h, err := readHolder(reply)
	if err != nil {
		if !errors.Is(err, errReply) || h != (Holder{}) {
			t.Errorf("%v: %v, %+v", reply, err, h)
		}
		return
	}
	if !h.Held {
		if h != (Holder{}) {
			t.Errorf("free, and yet %+v", h)
		}
		return
	}
	fields := reply.([]any)[2:]
	found := false
	for i := 0; i+1 < len(fields); i += 2 {
		found = found || fields[i] == h.Owner && fields[i] != metaField
	}
	// An owner without a name is one for Redis; it is read as none where another follows.
	if !found || h.Token < 0 || h.TraceID != "" && len(h.TraceID) != 32 || h.Remaining < millis(-1) {
		t.Errorf("%v read as %+v", reply, h)
	}
}

// fuzzJoint: of several locks all are granted, each with its token, or one is in the way.
func fuzzJoint(t *testing.T, reply any, n int) {
	t.Helper()
	j, now, err := readJoint(reply, n)
	if err != nil {
		if !errors.Is(err, errReply) && !errors.Is(err, errLate) || j.granted || errors.Is(err, errReply) && now != 0 {
			t.Errorf("%v: %v, %+v, %d", reply, err, j, now)
		}
		return
	}
	if j.granted && len(j.tokens) != n || !j.granted && (j.at < 0 || j.at >= n) {
		t.Errorf("%v read as %+v, for %d locks", reply, j, n)
	}
	list, _ := reply.([]any)
	for _, v := range list[1:] {
		got, err := readFreedOne(v)
		if word, isNumber := v.(int64); (err == nil) != (isNumber && word >= 0 && word <= 2) || err != nil && got != (freed{}) {
			t.Errorf("%#v read as %+v, %v", v, got, err)
		}
		if err != nil {
			classify(err)
		}
	}
}

func FuzzParseMeta(f *testing.F) {
	for _, s := range []string{
		"", " ", "7", "-7", "7 ", "1700000000000000 00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
		"9223372036854775808", "7 00-00000000000000000000000000000000-0000000000000000-01", "x y z", "\x00", "+5", "1e9",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		m := parseMeta(s)
		if m.token < 0 {
			t.Errorf("%q gives token %d", s, m.token)
		}
		if m.token > 0 && m.token <= 1<<53 {
			if again := parseMeta(strings.TrimSuffix(strconv.FormatInt(m.token, 10)+" "+m.traceparent, " ")); again.token != m.token {
				t.Errorf("%q gives %+v, and that %+v", s, m, again)
			}
		}
		if id := traceID(m.traceparent); id != "" && len(id) != 32 {
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
		for _, beside := range keysBeside(lk.c, name) {
			if checkName(beside) == nil {
				t.Errorf("%q has %q beside it, which another lock may be named", key, beside)
			}
		}
		keys := twoKeys(lk, "")
		slot := plainSlot(key)
		for _, part := range []string{script.Channel(key), keys[0], keys[1]} {
			if plainSlot(part) != slot || backend.SlotOf(part) != slot {
				t.Errorf("%q lives in slot %d (%d), its lock in %d", part, plainSlot(part), backend.SlotOf(part), slot)
			}
		}
		if !strings.HasPrefix(keys[1], prefix) {
			t.Errorf("the counter %q isn't under the prefix %q", keys[1], prefix)
		}
		if again := twoKeys(lk, ""); len(keys) != 2 || keys[0] != key || !slices.Equal(keys, again) {
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
