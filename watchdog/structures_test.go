package watchdog

import (
	"cmp"
	"math/bits"
	"math/rand/v2"
	"slices"
	"testing"
	"unsafe"

	"pgregory.net/rapid"
)

// Cohorts are in order, whatever comes and goes.
func TestOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := &group{batch: 4}
		var o order
		var list []*cohort
		times := rapid.Int64Range(0, 60)
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			switch {
			case len(list) == 0 || rapid.IntRange(0, 9).Draw(t, "op") < 5:
				c := &cohort{group: g, due: times.Draw(t, "due")}
				c.leases = make([]*Lease, rapid.IntRange(1, 4).Draw(t, "leases"))
				o.insert(c)
				list = append(list, c)
				slices.SortStableFunc(list, func(a, b *cohort) int { return cmp.Compare(a.due, b.due) })
			case rapid.Bool().Draw(t, "fill"):
				c := rapid.SampledFrom(list).Draw(t, "which")
				c.leases = make([]*Lease, rapid.IntRange(1, 4).Draw(t, "leases"))
			default:
				i := rapid.IntRange(0, len(list)-1).Draw(t, "which")
				o.remove(list[i])
				list = slices.Delete(list, i, i+1)
			}
			compare(t, o, list, times.Draw(t, "at"))
		}
	})
}

func compare(t *rapid.T, o order, list []*cohort, at int64) {
	var room *cohort
	widest := int64(0)
	until := 0
	for i, c := range list {
		if o.nth(i) != c {
			t.Fatalf("cohort %d is another", i)
		}
		if i > 0 {
			widest = max(widest, c.due-list[i-1].due)
		}
		if c.due <= at {
			until++
			if c.hasRoom() {
				room = c
			}
		}
	}
	if o.nth(len(list)) != nil {
		t.Fatal("one too many")
	}
	if got := o.latestWithRoom(at); got != room {
		t.Fatalf("latestWithRoom %d: %v, want %v", at, got, room)
	}
	if got := o.countUntil(at); got != until {
		t.Fatalf("until %d: %d, want %d", at, got, until)
	}
	start, width := o.widestGap()
	if width != widest {
		t.Fatalf("widest gap %d, want %d", width, widest)
	}
	if width > 0 {
		i := slices.IndexFunc(list, func(c *cohort) bool { return c.due > start })
		if i < 1 || list[i-1].due != start || list[i].due != start+width {
			t.Fatalf("no gap of %d at %d", width, start)
		}
	}
	if len(list) == 0 {
		if o.nth(0) != nil || o.firstDue() != never {
			t.Fatal("an empty order shows something")
		}
		return
	}
	if o.nth(0) != list[0] || o.firstDue() != list[0].due || o.lastDue() != list[len(list)-1].due {
		t.Fatal("the ends are wrong")
	}
}

func TestHeap(t *testing.T) {
	type item struct {
		at  int64
		pos int32
	}
	rapid.Check(t, func(t *rapid.T) {
		h := heap[*item]{pos: func(i *item) *int32 { return &i.pos }}
		items := make([]item, 20)
		present := map[*item]bool{}
		for range rapid.IntRange(1, 100).Draw(t, "steps") {
			it := &items[rapid.IntRange(0, len(items)-1).Draw(t, "which")]
			if rapid.IntRange(0, 2).Draw(t, "op") > 0 {
				it.at = rapid.Int64Range(0, 30).Draw(t, "at")
				h.set(it, it.at)
				present[it] = true
			} else {
				h.remove(it)
				delete(present, it)
			}
			least := int64(never)
			for it := range present {
				least = min(least, it.at)
				if e := h.entries[it.pos-1]; e.item != it || e.at != it.at {
					t.Fatal("an item is not where it says")
				}
			}
			if h.Len() != len(present) || h.minAt() != least {
				t.Fatalf("%d items from %d, want %d from %d", h.Len(), h.minAt(), len(present), least)
			}
		}
	})
}

// A queue that is used for long doesn't grow.
func TestPop(t *testing.T) {
	var q []int
	in, out := 0, 0
	for range 10_000 {
		if rand.IntN(100) < 50 {
			q = append(q, in)
			in++
		} else if len(q) > 0 {
			if pop(&q) != out {
				t.Fatal("out of order")
			}
			out++
		}
	}
	if cap(q) > 4096 {
		t.Errorf("the queue grew to %d", cap(q))
	}
}

// The bytes every watched lock pays. The package's documentation has the number.
func TestLeaseSize(t *testing.T) {
	if got := unsafe.Sizeof(Lease{}); got != 112 && bits.UintSize == 64 {
		t.Errorf("a Lease has %d bytes, want 112", got)
	}
}
