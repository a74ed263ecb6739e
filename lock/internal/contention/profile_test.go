package contention_test

import (
	"fmt"
	"math"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockdog/lockdog/lock/internal/contention"
)

// find returns the stack whose innermost frame is in a function of that name.
func find(t *testing.T, s contention.Snapshot, function string) contention.Stack {
	t.Helper()
	for _, st := range s.Stacks {
		if len(st.Frames) > 0 && strings.HasSuffix(st.Frames[0].Function, "."+function) {
			return *st
		}
	}
	return contention.Stack{}
}

// guilty holds, and innocent waits.
func guilty(p *contention.Profile) *contention.Sample   { return p.Sample("orders", "mutex") }
func innocent(p *contention.Profile) *contention.Sample { return p.Sample("orders", "mutex") }

func TestWaitsAndContendedHolds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := contention.New(1)
		h, w := guilty(p), innocent(p)
		h.Granted("a", "b")
		time.Sleep(time.Second) // alone
		s := find(t, p.Snapshot(), "guilty")
		if s.Holds != 0 || s.Hold != 0 || s.Held != 1 {
			t.Errorf("a hold that nobody waits for: %+v", s)
		}
		w.WaitStart("b")
		p.Waiters("b", 1)
		time.Sleep(2 * time.Second)
		s, ws := find(t, p.Snapshot(), "guilty"), find(t, p.Snapshot(), "innocent")
		if s.Holds != 1 || s.Hold != 2*time.Second || ws.Waits != 1 || ws.Wait != 2*time.Second || ws.Waiting != 1 {
			t.Errorf("while it lasts: %+v, %+v", s, ws)
		}
		p.Waiters("a", 1) // and another, which isn't sampled, for the other name
		time.Sleep(time.Second)
		p.Waiters("b", -1)
		w.WaitEnd() // it gives up
		time.Sleep(time.Second)
		p.Waiters("a", -1)
		time.Sleep(time.Minute) // alone again
		h.End()
		h.End()
		w.WaitEnd()
		s, ws = find(t, p.Snapshot(), "guilty"), find(t, p.Snapshot(), "innocent")
		if s.Holds != 1 || s.Hold != 4*time.Second || s.Held != 0 || s.Group != "orders" || s.Kind != "mutex" {
			t.Errorf("held for 4 s while others waited: %+v", s)
		}
		if ws.Waits != 1 || ws.Wait != 3*time.Second || ws.Waiting != 0 || ws.Holds != 0 {
			t.Errorf("waited for 3 s, in vain: %+v", ws)
		}
	})
}

func TestWaitThatEndsInAGrant(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := contention.New(1)
		s := guilty(p)
		s.WaitStart("a")
		p.Waiters("a", 2)
		time.Sleep(time.Second)
		p.Waiters("a", -1)
		s.Granted("a") // the other one waits still
		time.Sleep(time.Second)
		s.WaitEnd()
		s.End()
		got := find(t, p.Snapshot(), "guilty")
		if got.Waits != 1 || got.Wait != time.Second || got.Holds != 1 || got.Hold != time.Second || got.Waiting != 0 || got.Held != 0 {
			t.Errorf("%+v", got)
		}
	})
}

// Of waiters in other clients it isn't known since when they wait.
func TestOthersWaitElsewhere(t *testing.T) {
	t.Parallel()
	for _, here := range []time.Duration{0, 300 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			p := contention.New(1)
			s := guilty(p)
			s.Granted("a")
			time.Sleep(time.Second - here)
			if here > 0 {
				p.Waiters("a", 1)
				time.Sleep(here)
			}
			s.OthersWait()
			s.End()
			s.OthersWait()
			if got := find(t, p.Snapshot(), "guilty"); got.Holds != 1 || got.Hold != time.Second {
				t.Errorf("%v waited for here: %+v", here, got)
			}
		})
	}
}

// A choice by turns would always, or never, look at the same one of two acquires that take turns.
func TestChoiceIsRandomAndScaled(t *testing.T) {
	t.Parallel()
	const rate, n = 20, 50_000
	p := contention.New(rate)
	for range n {
		for i, s := range []*contention.Sample{guilty(p), innocent(p)} {
			s.WaitStart([]string{"a", "b"}[i])
			s.WaitEnd()
		}
	}
	for _, f := range []string{"guilty", "innocent"} {
		got := find(t, p.Snapshot(), f).Waits
		// A binomial's deviation is sqrt(n * rate) or less, once scaled.
		if off := math.Abs(float64(got - n)); off > 6*math.Sqrt(n*rate) {
			t.Errorf("%s: %d waits; want about %d", f, got, n)
		}
		if got%rate != 0 {
			t.Errorf("%d isn't scaled by %d", got, rate)
		}
	}
}

func TestOff(t *testing.T) {
	p := contention.New(0)
	if n := testing.AllocsPerRun(100, func() {
		s := p.Sample("g", "k")
		s.WaitStart("a")
		p.Waiters("a", 1)
		s.WaitEnd()
		s.Granted("a")
		s.OthersWait()
		s.End()
		p.Waiters("a", -1)
	}); n != 0 || len(p.Snapshot().Stacks) != 0 {
		t.Errorf("%v allocations of a profile that is off", n)
	}
}

// deep makes as many different stacks as path has values.
func deep(p *contention.Profile, path, depth int) *contention.Sample {
	if depth == 0 {
		return p.Sample("g", "mutex")
	}
	if path&1 == 0 {
		return deep(p, path>>1, depth-1)
	}
	return deep(p, path>>1, depth-1)
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// 20,000 stacks, and a new name for each: the profile keeps 2,000 stacks and 100 names, and no event is lost. Not parallel: it measures the heap.
func TestMemoryIsBounded(t *testing.T) {
	const stacks, most = 20_000, 4 << 20
	before := heap()
	p := contention.New(1)
	for i := range stacks {
		s := deep(p, i, 17)
		name := fmt.Sprintf("name:%d", i)
		p.Waiters(name, 1)
		s.WaitStart(name)
		s.WaitEnd()
		p.Waiters(name, -1)
		s.Granted(name)
		s.End()
	}
	took := int64(heap()) - int64(before)
	t.Logf("%d stacks take %d kB", stacks, took>>10)
	if took > most {
		t.Errorf("%d bytes; want %d at most", took, most)
	}
	s := p.Snapshot()
	var waits, together int64
	for _, st := range s.Stacks {
		waits += st.Waits
		if st.Frames == nil {
			together = st.Waits
		}
	}
	if len(s.Stacks) != 2001 || len(s.Names) != 100 || waits != stacks || together != stacks-2000 {
		t.Errorf("%d stacks, %d names, %d waits, %d of them together", len(s.Stacks), len(s.Names), waits, together)
	}
	if heap() < before+uint64(took)/2 {
		t.Error("the measure is blind")
	}
	runtime.KeepAlive(p)
}

func TestRecordingWhileLookedAt(t *testing.T) {
	t.Parallel()
	p := contention.New(2)
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for i := range 2000 {
				name := fmt.Sprint("n", i%150)
				s := deep(p, i, 11)
				p.Waiters(name, 1)
				s.WaitStart(name)
				s.WaitEnd()
				p.Waiters(name, -1)
				s.Granted(name, "common")
				s.OthersWait()
				s.End()
			}
		})
	}
	all.Go(func() {
		for range 50 {
			p.Snapshot()
		}
	})
	all.Wait()
	for _, s := range p.Snapshot().Stacks {
		if s.Waiting != 0 || s.Held != 0 {
			t.Errorf("%d wait and %d hold after the end", s.Waiting, s.Held)
		}
	}
}

// A goroutine that the program starts with Lock itself has no caller: then lockdog's frame is better than none.
func TestStackWithoutACaller(t *testing.T) {
	t.Parallel()
	p := contention.New(1)
	samples := make(chan *contention.Sample)
	go func() { samples <- guilty(p) }()
	(<-samples).Granted("a")
	got := find(t, p.Snapshot(), "guilty")
	if len(got.Frames) < 2 || strings.Contains(got.Frames[0].Function, "contention.") {
		t.Errorf("%+v", got.Frames)
	}
}
