package waitgraph_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/lockdog/lockdog/lock/internal/waitgraph"
)

// graph makes a graph of lines such as "1: a b -> c/write": the wait of waiter 1, whose ctx carries leases of a and b, for c. The lease of a has the
// owner "a1"; so "c: c2 c3/read" says who holds c.
func graph(t *testing.T, lines ...string) *waitgraph.Graph {
	t.Helper()
	var g waitgraph.Graph
	for _, line := range lines {
		head, rest, _ := strings.Cut(line, ":")
		holds, awaits, isWait := strings.Cut(rest, "->")
		if !isWait {
			owners, mode, _ := strings.Cut(rest, "/")
			g.SetHolders(head, waitgraph.Holders{Owners: strings.Fields(owners), Mode: strings.TrimSpace(mode)})
			continue
		}
		name, kind, ok := strings.Cut(strings.TrimSpace(awaits), "/")
		if !ok {
			kind = "mutex"
		}
		w := waitgraph.Wait{Waiter: head, Name: name, Kind: strings.TrimSuffix(kind, "!"), Breaks: strings.HasSuffix(awaits, "!")}
		for i, h := range strings.Fields(holds) {
			w.Holds = append(w.Holds, waitgraph.Hold{Name: h, Kind: "mutex", Owner: h + head, Token: int64(10 + i)})
		}
		g.Add(w)
	}
	return &g
}

// text is a cycle as "owner waiter > ...".
func text(c waitgraph.Cycle) string {
	var parts []string
	for _, s := range c {
		parts = append(parts, s.Hold.Owner+" "+s.Wait.Waiter)
	}
	return strings.Join(parts, " > ")
}

func TestGraph_Cycles(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name  string
		lines []string
		want  []string
	}{
		{"nothing", nil, nil},
		{"a chain", []string{"1: a -> b", "2: b -> c", "b: b2", "c: c9"}, nil},
		{"two", []string{"1: a -> b", "2: b -> a", "a: a1", "b: b2"}, []string{"a1 1 > b2 2"}},
		{"two, of several leases", []string{"1: x a y -> b", "2: u b -> a", "a: a1", "b: b2"}, []string{"a1 1 > b2 2"}},
		{"three, and one behind them", []string{"3: c -> a", "1: a -> b", "2: b -> c", "4: d -> a", "a: a1", "b: b2", "c: c3"}, []string{"a1 1 > b2 2 > c3 3"}},
		{"itself", []string{"1: a -> a", "a: a1"}, []string{"a1 1"}},
		{"a holder that nobody knows", []string{"1: a -> b", "2: b -> a", "a: a1", "b: uuid:7"}, nil},
		{"the lease has ended: another holds it", []string{"1: a -> b", "2: b -> a", "a: a7", "b: b2"}, nil},
		{"nobody holds it", []string{"1: a -> b", "2: b -> a", "a:", "b: b2"}, nil},
		{"no holders known", []string{"1: a -> b", "2: b -> a", "a: a1"}, nil},
		{"a wait without leases", []string{"1: -> b", "2: b -> a", "a: a1", "b: b2"}, nil},
		{"one of two waits of one ctx", []string{"1: a -> b", "2: b -> a", "5: a -> c", "a: a1", "b: b2", "c: c9"}, []string{"a1 1 > b2 2"}},
		{"a writer and one of its readers", []string{"1: a -> b/write", "2: b -> a", "3: b -> z", "a: a1", "b: b3 b2 b9/read"}, []string{"a1 1 > b2 2"}},
		{"a reader among readers", []string{"1: a -> b/read", "2: b -> a", "a: a1", "b: b2 b3/read"}, nil},
		{"a reader and the writer", []string{"1: a -> b/read", "2: b -> a", "a: a1", "b: b2/write"}, []string{"a1 1 > b2 2"}},
		{"a semaphore", []string{"1: a -> b/semaphore", "2: b -> a", "a: a1", "b: b2"}, nil},
		{"a latch", []string{"1: a -> b/latch", "2: b -> a", "a: a1", "b: b2"}, nil},
		{"a quorum", []string{"1: a -> b/quorum", "2: b -> a", "a: a1", "b: b2"}, nil},
		{"fair and multi", []string{"1: a -> b/fair", "2: b -> a/multi", "a: a1", "b: b2"}, []string{"a1 1 > b2 2"}},
		{"two apart", []string{"1: a -> b", "2: b -> a", "3: c -> d", "4: d -> c", "a: a1", "b: b2", "c: c3", "d: d4"}, []string{"a1 1 > b2 2", "c3 3 > d4 4"}},
		{
			"two with one in both",
			[]string{"1: a -> x/write", "2: x -> a", "3: x c -> d", "4: d -> a", "a: a1", "x: x2 x3/read", "d: d4"},
			[]string{"a1 1 > x2 2", "a1 1 > x3 3 > d4 4"},
		},
		{"of the same owner, another lock", []string{"1: a -> b", "2: c -> a", "a: a1", "b: c2"}, nil},
	} {
		for range 5 { // in any order
			rand.Shuffle(len(tt.lines), func(i, j int) { tt.lines[i], tt.lines[j] = tt.lines[j], tt.lines[i] })
			g := graph(t, tt.lines...)
			var got []string
			for _, c := range g.Cycles(t.Context(), 100) {
				got = append(got, text(c))
				for _, s := range c { // whoever is in it finds one
					if own := g.Through(s.Wait.Waiter); own.Index(s.Wait.Waiter) < 0 {
						t.Errorf("%s: %s finds %s", tt.name, s.Wait.Waiter, text(own))
					}
				}
			}
			slices.Sort(got)
			if !slices.Equal(got, tt.want) {
				t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
			}
		}
	}
}

// A cycle of MaxDepth waits is found, and each of its waits finds the same one. A longer cycle isn't found. A lock with
// more than MaxHolders holders is in no cycle.
func TestGraph_Bounds(t *testing.T) {
	t.Parallel()
	ring := func(n int) *waitgraph.Graph {
		var lines []string
		for i := range n {
			lines = append(lines, fmt.Sprintf("%02d: l%02d -> l%02d", i, i, (i+1)%n), fmt.Sprintf("l%02d: l%02d%02d", i, i, i))
		}
		return graph(t, lines...)
	}
	g := ring(waitgraph.MaxDepth)
	want := g.Through("00")
	if len(want) != waitgraph.MaxDepth || want[0].Wait.Waiter != "00" || len(g.Cycles(t.Context(), 100)) != 1 {
		t.Fatalf("%d cycles, %s", len(g.Cycles(t.Context(), 100)), text(want))
	}
	if got := g.Through("07"); got.Key() != want.Key() || got.Index("07") != 7 {
		t.Errorf("%s", text(got))
	}
	if got := ring(waitgraph.MaxDepth+1).Cycles(t.Context(), 100); got != nil {
		t.Errorf("%s", text(got[0]))
	}

	for holders, blocks := range map[int]bool{waitgraph.MaxHolders: true, waitgraph.MaxHolders + 1: false} {
		g := graph(t, "1: a -> b/write", "2: b -> a", "a: a1")
		g.SetHolders("b", waitgraph.Holders{Owners: append(make([]string, holders-1), "b2"), Mode: "read"})
		if c := g.Through("1"); (c != nil) != blocks {
			t.Errorf("%d holders: %s", holders, text(c))
		}
	}
}

// The search for the cycle of one of many waits that carry the same lease takes only a few steps: waits for the same
// lock are followed once.
func TestGraph_ManyWaitsOfALease(t *testing.T) {
	const many = 2000
	g := graph(t, "a: a", "b: b")
	for i := range many {
		g.Add(waitgraph.Wait{Waiter: fmt.Sprintf("1-%04d", i), Name: "b", Kind: "mutex", Holds: []waitgraph.Hold{{Name: "a", Owner: "a"}}})
		g.Add(waitgraph.Wait{Waiter: fmt.Sprintf("2-%04d", i), Name: "a", Kind: "mutex", Holds: []waitgraph.Hold{{Name: "b", Owner: "b"}}})
	}
	allocs := testing.AllocsPerRun(1, func() {
		for i := range many {
			own := fmt.Sprintf("1-%04d", i)
			if got := text(g.Through(own)); got != "a "+own+" > b 2-0000" {
				t.Fatal(got)
			}
		}
	})
	if allocs > 50*many {
		t.Errorf("%v allocations for %d waits", allocs, many)
	}
}

func TestCycle_Victim(t *testing.T) {
	t.Parallel()
	step := func(owner string, token int64, breaks bool) waitgraph.Step {
		return waitgraph.Step{Wait: waitgraph.Wait{Waiter: "w" + owner, Breaks: breaks}, Hold: waitgraph.Hold{Owner: owner, Token: token}}
	}
	for _, tt := range []struct {
		cycle waitgraph.Cycle
		want  int
	}{
		{nil, -1},
		{waitgraph.Cycle{step("a", 1, false), step("b", 2, false)}, -1},
		{waitgraph.Cycle{step("a", 1, true), step("b", 2, false)}, 0},
		{waitgraph.Cycle{step("a", 1, true), step("b", 2, true), step("c", 3, false)}, 1},
		{waitgraph.Cycle{step("a", 9, true), step("b", 2, true)}, 0},
		{waitgraph.Cycle{step("a", 5, true), step("b", 5, true)}, 1},
	} {
		if got := tt.cycle.Victim(); got != tt.want {
			t.Errorf("%v: %d, want %d", tt.cycle, got, tt.want)
		}
	}
}
