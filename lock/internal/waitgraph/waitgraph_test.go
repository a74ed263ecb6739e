package waitgraph_test

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockdog/lockdog/lock/internal/waitgraph"
)

const traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

var some = []waitgraph.Wait{
	{
		Waiter: "orders/1:0123456789abcdef-7", Name: "b<&>\u2028 ü", Kind: "mutex", Since: time.UnixMicro(1_700_000_000_123_456), Traceparent: traceparent, Breaks: true,
		Holds: []waitgraph.Hold{{Name: "a", Kind: "write", Owner: "orders/1:0123456789abcdef-6:write", Token: 1 << 52}, {Name: "c", Kind: "multi", Owner: "orders/1:0123456789abcdef-5"}},
	},
	{Waiter: "orders/1:0123456789abcdef-8", Name: "a", Kind: "read", Since: time.UnixMicro(1)},
}

func TestEncode_IsDecoded(t *testing.T) {
	t.Parallel()
	text := waitgraph.Encode(some)
	got, err := waitgraph.Decode(text)
	if err != nil || !reflect.DeepEqual(got, some) {
		t.Fatalf("%s:\n%+v, %v, want\n%+v", text, got, err, some)
	}
	// The format is what other versions, and the reader of package fleet, rely on.
	one := waitgraph.Encode([]waitgraph.Wait{{Waiter: "w", Name: "<n>", Kind: "mutex", Since: time.UnixMicro(5), Holds: []waitgraph.Hold{{"h", "fair", "o", 6}}}})
	if want := `[{"w":"w","n":"<n>","k":"mutex","s":5,"h":[{"n":"h","k":"fair","o":"o","t":6}]}]`; one != want {
		t.Errorf("%s, want %s", one, want)
	}
}

func TestEncode_IsBounded(t *testing.T) {
	t.Parallel()
	w := some[1]
	// encoded is what is left of many waits with so many leases.
	encoded := func(name, owner string) (text string, waits []waitgraph.Wait) {
		hold := waitgraph.Hold{Name: name, Kind: "mutex", Owner: owner, Token: 1}
		w.Holds = slices.Repeat([]waitgraph.Hold{hold}, 2*waitgraph.MaxHolds)
		text = waitgraph.Encode(slices.Repeat([]waitgraph.Wait{w}, 2*waitgraph.MaxWaits))
		waits, err := waitgraph.Decode(text)
		if err != nil || len(waits) == 0 || len(waits[0].Holds) != waitgraph.MaxHolds {
			t.Fatalf("%d waits, %v", len(waits), err)
		}
		return text, waits
	}
	if _, got := encoded("n", "o"); len(got) != waitgraph.MaxWaits {
		t.Errorf("%d waits", len(got))
	}
	// Long names may take more room than a text has: then there are fewer waits, and not one text that nobody reads.
	long, longer := strings.Repeat("\x02", 512), strings.Repeat("\x01", 1024)
	if text, got := encoded(longer, long); len(got) != 1 {
		t.Errorf("%d bytes: %d waits", len(text), len(got))
	}
	if text, got := encoded("n", long); len(got) < 4 || len(text) > 1<<18 || len(text) < 1<<17 {
		t.Errorf("%d bytes: %d waits", len(text), len(got))
	}

	// Longer names in the first wait fill the text to the byte, or by so much too much that the last wait is left out.
	w.Holds = slices.Repeat([]waitgraph.Hold{{Name: strings.Repeat("n", 300), Kind: "mutex", Owner: "o", Token: 1}}, 14)
	all := slices.Repeat([]waitgraph.Wait{w}, waitgraph.MaxWaits)
	room := 1<<18 - len(waitgraph.Encode(all))
	for more := room - 3; more <= room+3; more++ {
		all[0].Holds = slices.Clone(w.Holds)
		for i, left := 0, more; left > 0; i++ {
			n := min(left, 700)
			all[0].Holds[i].Name += strings.Repeat("n", n)
			left -= n
		}
		if _, err := waitgraph.Decode(waitgraph.Encode(all)); err != nil {
			t.Errorf("%d more bytes: %v", more, err)
		}
	}
}

func TestDecode_RefusesWhatIsOdd(t *testing.T) {
	t.Parallel()
	hold := `{"n":"h","k":"mutex","o":"o","t":6}`
	wait := func(with string) string { return `[{"w":"w","n":"n","k":"mutex","s":5` + with + `}]` }
	for what, text := range map[string]string{
		"nothing":         "",
		"null":            "null",
		"no list":         `{}`,
		"an empty list":   `[]`,
		"more after it":   wait("") + "x",
		"a second list":   wait("") + wait(""),
		"no waiter":       `[{"n":"n","k":"mutex","s":5}]`,
		"no name":         `[{"w":"w","k":"mutex","s":5}]`,
		"no kind":         `[{"w":"w","n":"n","s":5}]`,
		"no since":        `[{"w":"w","n":"n","k":"mutex"}]`,
		"another type":    `[{"w":1,"n":"n","k":"mutex","s":5}]`,
		"a far future":    `[{"w":"w","n":"n","k":"mutex","s":9007199254740993}]`,
		"a long waiter":   `[{"w":"` + strings.Repeat("w", 513) + `","n":"n","k":"mutex","s":5}]`,
		"a long name":     `[{"w":"w","n":"` + strings.Repeat("n", 1025) + `","k":"mutex","s":5}]`,
		"a long kind":     `[{"w":"w","n":"n","k":"` + strings.Repeat("k", 33) + `","s":5}]`,
		"a traceparent":   wait(`,"t":"x"`),
		"a hold":          wait(`,"h":[{}]`),
		"a negative":      wait(`,"h":[{"n":"h","k":"mutex","o":"o","t":-1}]`),
		"too many holds":  wait(`,"h":[` + strings.Repeat(hold+",", 16) + hold + `]`),
		"too many waits":  "[" + strings.TrimSuffix(strings.Repeat(strings.Trim(wait(""), "[]")+",", waitgraph.MaxWaits+1), ",") + "]",
		"invalid UTF-8":   wait(",\"x\":\"\xff\""),
		"too much of all": wait(`,"x":"` + strings.Repeat("x", 1<<18) + `"`),
	} {
		if got, err := waitgraph.Decode(text); !errors.Is(err, waitgraph.ErrMalformed) || got != nil {
			t.Errorf("%s: %+v, %v", what, got, err)
		}
	}
	if _, err := waitgraph.Decode(wait(`,"added":"later","h":[` + hold + `]`)); err != nil {
		t.Errorf("a later version's key: %v", err)
	}
}

// Whatever is decoded is encoded and decoded to the same, and searching it ends.
func FuzzDecode(f *testing.F) {
	f.Add(waitgraph.Encode(some))
	f.Add(`[{"w":"w","n":"n","k":"mutex","s":5,"h":[{"n":"n","k":"mutex","o":"w","t":6}]}]`)
	f.Add(`[]`)
	f.Add(`[{"w":"\ud800","n":"n","k":"mutex","s":5}]`)
	f.Fuzz(func(t *testing.T, text string) {
		waits, err := waitgraph.Decode(text)
		if err != nil {
			return
		}
		again, err := waitgraph.Decode(waitgraph.Encode(waits))
		if err != nil || !reflect.DeepEqual(waits, again) {
			t.Fatalf("%+v became %+v, %v", waits, again, err)
		}
		var g waitgraph.Graph
		for _, w := range waits {
			g.Add(w)
			for _, h := range w.Holds {
				g.SetHolders(h.Name, waitgraph.Holders{Owners: []string{h.Owner}})
			}
		}
		for _, c := range g.Cycles(t.Context(), 100) {
			c.Victim()
		}
	})
}
