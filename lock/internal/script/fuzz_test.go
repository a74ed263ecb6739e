package script

import (
	"encoding/binary"
	"errors"
	"strconv"
	"strings"
	"testing"

	"github.com/lockdog/lockdog/lock/internal/redisfail"
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
		{0xff, 0, 1},                             // released
		{0xff, 0, 2},                             // released, and others wait
		{0xff, 0, 3},                             // a stray number
		{0xff, 2, 0, 6, 0, 0, 0, 0, 0, 0},        // granted, or handed over, at the time that is the token
		{0, 1, 0, 5, 0, 9},                       // granted, released, renewed
		{0, 0, 0, 5, 0, 9, 24, 'a', 'b', 'c', 3}, // held by abc
		{0, 2, 0, 5, 0, 9},                       // late, handed over
		{0, 0, 0, 5, 0, 1},                       // taken
		{0, 5, 0, 1},                             // one renewed
		{0, 5, 0, 3, 0, 2, 0, 0, 0, 3, 0, 2, 0, 4, 0, 3, 0, 6, 24, 'E', 'R', 'R', 0, 8, 5}, // three renewed, and five others
		append([]byte{0, 5, 0, 9, 7*8 + 3}, "@lockdog"+"\x0a7"+"\x0aO\x0a1"...),
		{0, 1, 5, 6},
		{0, 1, 0, 5, 0, 7, 0, 8}, // several granted
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		reply := someReply(data)
		if text := unreadable(reply).Error(); len(text) > len(ErrReply.Error())+2+4*80 { // of 80 characters
			t.Errorf("an error of %d bytes: %s", len(text), text)
		}
		fuzzAcquire(t, reply)
		fuzzRelease(t, reply)
		fuzzInspect(t, reply)
		fuzzWaits(t, reply)
		list, _ := reply.([]any)
		renewed, _ := number(reply, 1)
		for _, n := range []int{0, 1, 8, len(list) - 1, int(min(renewed, 100)) + len(list)/2 - 1} { // the last is of renewals
			if n >= 0 {
				fuzzRenew(t, reply, n)
			}
			if n > 0 {
				fuzzMulti(t, reply, n)
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

func fuzzAcquire(t *testing.T, reply any) {
	t.Helper()
	r, err := ParseAcquire(reply)
	if n, ok := reply.(int64); ok && n > LeastTime {
		if err != nil || !r.Granted || r.Token != n || r.Now != n {
			t.Errorf("%d read as %+v, %v", n, r, err)
		}
		return
	}
	word, isNumber := number(reply, 0)
	switch {
	case err != nil:
		if !errors.Is(err, ErrReply) || r != (AcquireReply{}) {
			t.Errorf("%v: %v, %+v", reply, err, r)
		}
		return
	case r.Granted:
		if token, ok := number(reply, 2); !isNumber || word != 1 || !ok || r.Token != token || r.Late {
			t.Errorf("%v read as a grant: %+v", reply, r)
		}
	case r.Late:
		if word != 2 {
			t.Errorf("%v read as late", reply)
		}
	default:
		if !isNumber || word != 0 || r.Token != 0 || r.Remaining < Millis(-1) {
			t.Errorf("%v read as held: %+v", reply, r)
		}
	}
	if now, ok := number(reply, 1); !ok || r.Now != now {
		t.Errorf("%v: time %d", reply, r.Now)
	}
}

func fuzzWaits(t *testing.T, reply any) {
	t.Helper()
	w, err := ParseWaitsWrite(reply)
	word, _ := number(reply, 0)
	now, hasNow := number(reply, 1)
	switch want := (WaitsWriteReply{Now: now, Late: word == 2, Known: word == 1}); {
	case err != nil && (!errors.Is(err, ErrReply) || w != WaitsWriteReply{}):
		t.Errorf("%v: %v, %+v", reply, err, w)
	case err == nil && (w != want || !hasNow || word < 0 || word > 2):
		t.Errorf("%v read as %+v", reply, w)
	}
	list, _ := reply.([]any)
	for _, n := range []int{1, len(list), len(list) + 1} {
		age, texts, err := ParseWaitsRead(reply, n)
		if err == nil && (len(texts) != n || age < 0 || age > WaitsLife) || err != nil && (!errors.Is(err, ErrReply) || texts != nil) {
			t.Errorf("%v: %v, %q, %v", reply, age, texts, err)
		}
	}
	if mode, owners, err := ParseHolders(reply); err != nil && (!errors.Is(err, ErrReply) || mode != "" || owners != nil) || err == nil && len(owners) != len(list)-1 {
		t.Errorf("%v: %q, %q, %v", reply, mode, owners, err)
	}
}

func fuzzRelease(t *testing.T, reply any) {
	t.Helper()
	got, err := ParseRelease(reply)
	if err != nil {
		if !errors.Is(err, ErrReply) || got != (ReleaseReply{}) {
			t.Errorf("%v: %v, %+v", reply, err, got)
		}
		return
	}
	if n, ok := reply.(int64); ok {
		want := ReleaseReply{Outcome: Done}
		if n > LeastTime {
			want = ReleaseReply{Outcome: HandedOver, Token: n, Now: n}
		} else if want.OthersWait = n == 2; n != 1 && n != 2 {
			t.Fatalf("%d read as %+v", n, got)
		}
		if got != want {
			t.Errorf("%d read as %+v", n, got)
		}
		return
	}
	word, _ := number(reply, 0)
	now, hasNow := number(reply, 1)
	third, isNumber := number(reply, 2)
	want := ReleaseReply{Now: now}
	switch {
	case word == 1:
		want.Outcome = Done
		if list := reply.([]any); len(list) > 2 {
			if text, ok := list[2].(string); ok {
				want.Refused = redisfail.ReplyError(text)
			}
		}
	case word == 2 && isNumber:
		want.Outcome, want.Token = HandedOver, third
	case word == 0 && isNumber && third == 0:
		want.Outcome = Missing
	case word == 0 && isNumber:
		want.Outcome = Taken
	case word == 3:
		want.Late = true
	case word == 4:
		want.Outcome, want.GrantedRemotely = Done, true
	case word == 5 && isNumber:
		want.Outcome, want.Token, want.OthersWait = HandedOver, third, true
	default:
		t.Fatalf("%v read as %+v", reply, got)
	}
	if got != want || !hasNow {
		t.Errorf("%v read as %+v", reply, got)
	}
}

func fuzzRenew(t *testing.T, reply any, n int) {
	t.Helper()
	r, err := ParseRenew(reply, n)
	if err != nil {
		if !errors.Is(err, ErrReply) || r.results != nil || r.Now != 0 {
			t.Errorf("%v: %v, %+v", reply, err, r)
		}
		return
	}
	list := reply.([]any)
	told := make(map[int]any) // what is told of leases, from 0 on
	for i := 2; i < len(list); i += 2 {
		told[int(list[i].(int64)-1)] = list[i+1]
	}
	if r.Now != list[0] || list[1] != int64(n-len(told)) || len(list) != 2+2*len(told) {
		t.Fatalf("%v read as %+v, for %d leases", reply, r, n)
	}
	for i := range n {
		outcome, err := r.At(i)
		v, other := told[i]
		delete(told, i)
		if !other && (outcome != Renewed || err != nil) {
			t.Errorf("lease %d of %v read as %d, %v", i, reply, outcome, err)
		}
		if !other {
			continue
		}
		var refused redisfail.ReplyError
		switch v := v.(type) {
		case int64:
			if known := v >= 0 && v <= 3; known != (err == nil) || known && int64(outcome) != v || !known && !errors.Is(err, ErrReply) {
				t.Errorf("%d read as %d, %v", v, outcome, err)
			}
		case string:
			if !errors.As(err, &refused) || string(refused) != v {
				t.Errorf("%q read as %d, %v", v, outcome, err)
			}
		default:
			if !errors.Is(err, ErrReply) {
				t.Errorf("%v read as %d, %v", v, outcome, err)
			}
		}
		if err != nil && outcome != RenewMissing {
			t.Errorf("%v read as %d, %v", v, outcome, err)
		}
	}
	if len(told) > 0 {
		t.Errorf("%v tells of leases that aren't there: %v", reply, told)
	}
}

func fuzzInspect(t *testing.T, reply any) {
	t.Helper()
	h, err := ParseInspect(reply)
	if err != nil {
		if !errors.Is(err, ErrReply) || h != (InspectReply{}) {
			t.Errorf("%v: %v, %+v", reply, err, h)
		}
		return
	}
	if !h.Held {
		if h != (InspectReply{}) {
			t.Errorf("free, and yet %+v", h)
		}
		return
	}
	fields := reply.([]any)[2:]
	found := false
	for i := 0; i+1 < len(fields); i += 2 {
		found = found || fields[i] == h.Owner && fields[i] != MetaField
	}
	// An owner without a name is one for Redis; it is read as none where another follows.
	if !found || h.Token < 0 || h.Remaining < Millis(-1) {
		t.Errorf("%v read as %+v", reply, h)
	}
}

// fuzzMulti: of several locks all are granted, each with its token, or one is in the way.
func fuzzMulti(t *testing.T, reply any, n int) {
	t.Helper()
	r, err := ParseMultiAcquire(reply, n)
	switch {
	case err != nil:
		if !errors.Is(err, ErrReply) || r.Granted || r.Late || r.Now != 0 {
			t.Errorf("%v: %v, %+v", reply, err, r)
		}
	case !r.Late && (r.Granted && len(r.Tokens) != n || !r.Granted && (r.At < 0 || r.At >= n)):
		t.Errorf("%v read as %+v, for %d locks", reply, r, n)
	}
	list, _ := reply.([]any)
	all, err := ParseMultiRelease(reply, n)
	if now, ok := number(reply, 0); (err == nil) != (ok && len(list) == 1+n) || err == nil && all.Now != now {
		t.Errorf("%v read as %+v, %v", reply, all, err)
	}
	if err != nil {
		return
	}
	for i, v := range list[1:] {
		got, err := all.At(i)
		word, isNumber := v.(int64)
		known := isNumber && word >= 0 && word <= 2
		if one, ok := v.([]any); ok { // released, and perhaps a step was refused
			known = len(one) == 2 && one[0] == int64(1)
		}
		if (err == nil) != known || err != nil && got != (ReleaseReply{}) {
			t.Errorf("%#v read as %+v, %v", v, got, err)
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
		token, traceparent := ParseMeta(s)
		if token < 0 {
			t.Errorf("%q gives token %d", s, token)
		}
		if token > 0 && token <= 1<<53 {
			if again, _ := ParseMeta(strings.TrimSuffix(strconv.FormatInt(token, 10)+" "+traceparent, " ")); again != token {
				t.Errorf("%q gives %d, and that %d", s, token, again)
			}
		}
	})
}
