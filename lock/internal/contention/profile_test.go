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
			return st
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
		is := func(when string, holder, waiter contention.Counts) {
			t.Helper()
			for function, want := range map[string]contention.Counts{"guilty": holder, "innocent": waiter} {
				if got := find(t, p.Snapshot(), function).Counts; got != want {
					t.Errorf("%s: %s: %+v, want %+v", when, function, got, want)
				}
			}
		}
		h.Granted("a", "b")
		time.Sleep(time.Second)
		is("alone", contention.Counts{Held: 1}, contention.Counts{})
		w.WaitStart("b")
		p.Waiters("b", 1)
		time.Sleep(2 * time.Second)
		is("while it lasts", contention.Counts{Held: 1, Holds: 1, Hold: 2 * time.Second}, contention.Counts{Waiting: 1, Waits: 1, Wait: 2 * time.Second})
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
		is("afterwards", contention.Counts{Holds: 1, Hold: 4 * time.Second}, contention.Counts{Waits: 1, Wait: 3 * time.Second})

		if got := find(t, p.Snapshot(), "guilty"); got.Group != "orders" || got.Kind != "mutex" {
			t.Errorf("%+v", got)
		}

		p = contention.New(1)
		w = innocent(p)
		w.WaitStart("a")
		p.Waiters("a", 2)
		time.Sleep(time.Second)
		p.Waiters("a", -1)
		w.Granted("a") // the other one waits still
		time.Sleep(time.Second)
		w.WaitEnd()
		w.End()
		is("granted", contention.Counts{}, contention.Counts{Waits: 1, Wait: time.Second, Holds: 1, Hold: time.Second})
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

// Samples are chosen at random. If two places acquire alternately, every second, fourth or 20th acquire would always be
// of the same place.
func TestChoiceIsRandomAndScaled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { // no time passes, so the rate isn't adapted
		const rate, n = 20, 50_000
		p := contention.New(rate)
		for range n {
			for i, s := range []*contention.Sample{guilty(p), innocent(p)} {
				s.WaitStart([]string{"a", "b"}[i])
				s.WaitEnd()
			}
		}
		for _, f := range []string{"guilty", "innocent"} {
			// A binomial's deviation is sqrt(n * rate) or less, once scaled.
			if got := find(t, p.Snapshot(), f).Waits; math.Abs(float64(got-n)) > 6*math.Sqrt(n*rate) || got%rate != 0 {
				t.Errorf("%s: %d waits; want about %d, scaled by %d", f, got, n, rate)
			}
		}
	})
}

// Many acquires a second are sampled less often, and the figures stay right: of ten times as many acquires, about as many are sampled. When there are
// few again, as many are sampled as rate says.
func TestSamplesPerSecondAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const rate, most = 10, 1000
		p := contention.New(rate)
		// sampled makes acquires for half a minute, each of which waits for no time, and returns how many were sampled and how many were counted.
		sampled := func(perSecond int) (samples, counted int64) {
			before := find(t, p.Snapshot(), "guilty").Waits
			for range 30 * 100 {
				time.Sleep(10 * time.Millisecond)
				for range perSecond / 100 {
					if s := guilty(p); s != nil {
						samples++
						s.WaitStart("a")
						s.WaitEnd()
					}
				}
			}
			return samples, find(t, p.Snapshot(), "guilty").Waits - before
		}
		for _, perSecond := range []int{1000, 20_000, 200_000, 1000} {
			samples, counted := sampled(perSecond)
			want := float64(30 * min(perSecond/rate, most))
			if off := float64(samples) - want; math.Abs(off) > want/10 {
				t.Errorf("%d acquires/s: %d samples; want about %.0f", perSecond, samples, want)
			}
			if off := float64(counted)/float64(30*perSecond) - 1; math.Abs(off) > 0.1 {
				t.Errorf("%d acquires/s: %d counted; want about %d", perSecond, counted, 30*perSecond)
			}
		}
	})
}

// When hardly any acquires come after very many, as when all wait for one lock, the few are sampled as rate says: soon, also if none was sampled yet.
func TestFewAcquiresAfterMany(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const rate, trials, few = 10, 20, 100
		samples := 0
		for range trials {
			p := contention.New(rate)
			for range 20 {
				time.Sleep(100 * time.Millisecond)
				for range 20_000 {
					guilty(p)
				}
			}
			for range few {
				time.Sleep(time.Second)
				if guilty(p) != nil {
					samples++
				}
			}
		}
		// About ten acquires come before it is noticed. At a 200th, as before, there would be a quarter of that.
		if want := trials * (few - 10) / rate; math.Abs(float64(samples-want)) > float64(want)/3 {
			t.Errorf("%d samples; want about %d", samples, want)
		}
	})
}

// However many acquires a sample stands for, what is told of a name is right.
func TestFiguresOfManyAcquires(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const tick, perTick = 10 * time.Millisecond, 400
		const ticks, looks = 25 * time.Second / tick, 200
		p := contention.New(10)
		var held, waits int64 // at the last ticks: at each, few samples stand for all
		var waiting, holding []*contention.Sample
		p.Waiters("a", 1)
		for i := range ticks { // each waits for a tick, and holds for another
			time.Sleep(tick)
			for _, s := range holding {
				s.End()
			}
			for _, s := range waiting {
				s.Granted("a")
			}
			waiting, holding = nil, waiting
			for range perTick {
				if s := guilty(p); s != nil {
					s.WaitStart("a")
					waiting = append(waiting, s)
				}
			}
			if i >= ticks-looks {
				st := find(t, p.Snapshot(), "guilty")
				held, waits = held+st.Held, waits+st.Waiting
			}
		}
		s := p.Snapshot()
		n, st := named(t, s, "a"), find(t, s, "guilty")
		all := float64(perTick) * float64(n.Window/tick)
		for what, got := range map[string]float64{
			"grants": float64(n.Grants), "ticks held": float64(n.Held) / float64(tick), "ticks waited": float64(n.Waited) / float64(tick),
			"waits of the stack": float64(st.Waits), "its ticks waited": float64(st.Wait) / float64(tick),
			"its contended holds": float64(st.Holds), "its contended ticks": float64(st.Hold) / float64(tick),
		} {
			if math.Abs(got/all-1) > 0.1 {
				t.Errorf("%s: %.0f; want about %.0f", what, got, all)
			}
		}
		for what, got := range map[string]int64{"held": held / looks, "waiting": waits / looks} {
			if got < perTick/2 || got > perTick*2 {
				t.Errorf("%s now: %d on average; want about %d", what, got, perTick)
			}
		}
		if n.Samples > n.Grants/2 {
			t.Errorf("%d samples for %d grants", n.Samples, n.Grants)
		}
	})
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
