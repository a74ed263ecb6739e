package lock_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockdog/lockdog/lock"
)

// numbers is the suite of what has no leases, a Semaphore and a Latch, over every shape of server. TestSemaphoreOfProcesses has them in
// several processes.
var numbers = theme{"numbers", []behaviour{
	{name: "Semaphore/is set once", test: semaphoreIsSetOnce},
	{name: "Semaphore/all or none", test: semaphoreAllOrNone},
	{name: "Semaphore/Resize", test: semaphoreResize},
	{name: "Semaphore/woken by a release of another client", test: semaphoreWakes},
	{name: "Semaphore/first come, first served", test: semaphoreInTurn},
	{name: "Semaphore/who leaves is passed over", test: semaphoreLeaver},
	{name: "Semaphore/no more than there are", test: semaphoreLimits},
	{name: "Semaphore/WithWait and ctx", test: semaphoreWaitEnds},
	{name: "Semaphore/hears of nothing", test: semaphoreNet},
	{name: "Latch/never set", test: latchNeverSet},
	{name: "Latch/is set once", test: latchIsSetOnce},
	{name: "Latch/opens for all", test: latchOpensForAll},
	{name: "Latch/WithWait and ctx", test: latchWaitEnds},
	{name: "Latch/hears of nothing", test: latchNet},
	{name: "Close/waiters", test: numbersClose},
	{name: "bad input", test: badNumbers},
	{name: "bad input/no number", test: noNumbers},
}}

// permitsLeft fails the test unless so many permits are left.
func permitsLeft(t *testing.T, s *lock.Semaphore, want int) {
	t.Helper()
	mustBe(t, "permits", available(t, s), want)
}

func semaphoreIsSetOnce(t *testing.T, w *world) {
	a, b := w.client().Semaphore("a"), w.client().Semaphore("a")
	permitsLeft(t, a, 0)
	mustMatch(t, a.TryAcquire(t.Context(), 1), lock.ErrHeld)
	for i, s := range []*lock.Semaphore{a, b, a} {
		if done, err := s.SetPermits(t.Context(), 2+i); done != (i == 0) || err != nil {
			t.Errorf("SetPermits, time %d: %v, %v", i+1, done, err)
		}
	}
	permitsLeft(t, b, 2)
	must(t, "TryAcquire", a.TryAcquire(t.Context(), 2))
	if done, err := b.SetPermits(t.Context(), 5); done || err != nil {
		t.Errorf("SetPermits when all are taken: %v, %v", done, err)
	}
	permitsLeft(t, b, 0)
}

func semaphoreAllOrNone(t *testing.T, w *world) {
	a, b := w.client().Semaphore("a"), w.client().Semaphore("a")
	must(t, "Release", a.Release(t.Context(), 3))
	must(t, "TryAcquire", b.TryAcquire(t.Context(), 2))
	err := a.TryAcquire(t.Context(), 2)
	var held *lock.HeldError
	if !errors.As(err, &held) || held.Name != "a" || held.Owner != "" {
		t.Errorf("%v", err)
	}
	permitsLeft(t, a, 1)
	must(t, "Release", a.Release(t.Context(), 2)) // another's
	must(t, "TryAcquire", a.TryAcquire(t.Context(), 3))
	permitsLeft(t, a, 0)
}

func semaphoreResize(t *testing.T, w *world) {
	s := w.client().Semaphore("a")
	must(t, "Resize", s.Resize(t.Context(), 2))
	must(t, "TryAcquire", s.TryAcquire(t.Context(), 2))
	must(t, "Resize", s.Resize(t.Context(), -1))
	permitsLeft(t, s, -1)
	next := acquiring(t.Context(), w.client().Semaphore("a"), 1)
	must(t, "Release", s.Release(t.Context(), 1))
	permitsLeft(t, s, 0)
	must(t, "Release", s.Release(t.Context(), 1))
	must(t, "Acquire", await(t, "Acquire", next))
	permitsLeft(t, s, 0)
}

// slow has a net so wide that who is woken within half of it was woken by a message: ten seconds.
var slow = lock.WithWatchdog(far)

// wokenSince fails the test if it was the net.
func wokenSince(t *testing.T, start time.Time) {
	t.Helper()
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("woken after %v", took)
	}
}

// A release of another client is heard.
func semaphoreWakes(t *testing.T, w *world) {
	c, other := w.client(slow), w.client(slow).Semaphore("a")
	next := acquiring(t.Context(), c.Semaphore("a"), 2)
	waiting(t, c, 1)
	must(t, "Release", other.Release(t.Context(), 1))
	permitsLeft(t, other, 1)
	start := time.Now()
	must(t, "Release", other.Release(t.Context(), 1))
	must(t, "Acquire", await(t, "Acquire", next))
	wokenSince(t, start)
	permitsLeft(t, other, 0)
	waiting(t, c, 0)
}

// Who wants many isn't overtaken by who wants few.
func semaphoreInTurn(t *testing.T, w *world) {
	c := w.client()
	s := c.Semaphore("a")
	first := acquiring(t.Context(), s, 3)
	waiting(t, c, 1)
	second := acquiring(t.Context(), s, 1)
	waiting(t, c, 2)
	must(t, "Release", s.Release(t.Context(), 2))
	always(t, 50*time.Millisecond, func() bool { return len(first)+len(second) == 0 })
	must(t, "Release", s.Release(t.Context(), 2))
	must(t, "the first", await(t, "Acquire", first))
	must(t, "the second", await(t, "Acquire", second))
	permitsLeft(t, s, 0)
}

func semaphoreLeaver(t *testing.T, w *world) {
	c := w.client(slow)
	s := c.Semaphore("a")
	ctx, cancel := context.WithCancel(t.Context())
	leaver := acquiring(ctx, s, 1)
	waiting(t, c, 1)
	next := acquiring(t.Context(), s, 1)
	waiting(t, c, 2)
	cancel()
	mustMatch(t, await(t, "the leaver", leaver), context.Canceled, lock.ErrHeld)
	must(t, "Release", w.client().Semaphore("a").Release(t.Context(), 1))
	must(t, "Acquire", await(t, "Acquire", next))
	permitsLeft(t, s, 0)
}

func semaphoreLimits(t *testing.T, w *world) {
	const most = 3
	clients := []*lock.Client{w.client(), w.client()}
	must(t, "Release", clients[0].Semaphore("a").Release(t.Context(), most))
	var inside atomic.Int64
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			s := clients[i%2].Semaphore("a")
			for range 4 {
				if err := s.Acquire(context.Background(), 1+i%2); err != nil {
					t.Errorf("Acquire: %v", err)
					return
				}
				if n := inside.Add(int64(1 + i%2)); n > most {
					t.Errorf("%d inside", n)
				}
				<-time.After(time.Millisecond)
				inside.Add(-int64(1 + i%2))
				if err := s.Release(context.Background(), 1+i%2); err != nil {
					t.Errorf("Release: %v", err)
				}
			}
		})
	}
	all.Wait()
	permitsLeft(t, clients[1].Semaphore("a"), most)
}

func semaphoreWaitEnds(t *testing.T, w *world) {
	c := w.client()
	waitEnds(t, c, func(ctx context.Context, opts ...lock.LockOption) error {
		return c.Semaphore("a", opts...).Acquire(ctx, 1)
	})
	permitsLeft(t, c.Semaphore("a"), 0)
	if keys := w.raw.keys(); len(keys) != 0 {
		t.Errorf("left behind: %v", keys)
	}
}

// waitEnds is how a wait ends that is for nothing.
func waitEnds(t *testing.T, c *lock.Client, wait func(ctx context.Context, opts ...lock.LockOption) error) {
	t.Helper()
	start := time.Now()
	err := outwaited(100*time.Millisecond, func(d time.Duration) error { return wait(t.Context(), lock.WithWait(d)) })
	mustMatch(t, err, lock.ErrHeld)
	if took := time.Since(start); took < 100*time.Millisecond {
		t.Errorf("waited %v only", took)
	}
	why := errors.New("why")
	ctx, cancel := context.WithCancelCause(t.Context())
	got := make(chan error, 1)
	go func() { got <- wait(ctx) }()
	waiting(t, c, 1)
	cancel(why)
	mustMatch(t, await(t, "the wait", got), lock.ErrHeld, why)
	mustMatch(t, wait(ctx), why)
	waiting(t, c, 0)
}

// A lost message hangs nobody: whoever hears of nothing asks again.
func semaphoreNet(t *testing.T, w *world) {
	c := w.client()
	next := acquiring(t.Context(), c.Semaphore("a"), 1)
	waiting(t, c, 1)
	w.raw.setString(w.key("a"), "1")
	must(t, "Acquire", await(t, "Acquire", next))
}

func latchNeverSet(t *testing.T, w *world) {
	l := w.client().Latch("a")
	must(t, "Wait", l.Wait(t.Context()))
	must(t, "CountDown", l.CountDown(t.Context()))
	mustBe(t, "count", count(t, l), 0)
}

func latchIsSetOnce(t *testing.T, w *world) {
	a, b := w.client().Latch("a"), w.client().Latch("a")
	for i, l := range []*lock.Latch{a, b} {
		if done, err := l.Set(t.Context(), 2+i); done != (i == 0) || err != nil {
			t.Errorf("Set, time %d: %v, %v", i+1, done, err)
		}
	}
	mustBe(t, "count", count(t, b), 2)
	must(t, "CountDown", b.CountDown(t.Context()))
	must(t, "CountDown", a.CountDown(t.Context()))
	mustBe(t, "count", count(t, b), 0)
	if done, err := b.Set(t.Context(), 1); !done || err != nil {
		t.Errorf("Set of an open latch: %v, %v", done, err)
	}
}

func latchOpensForAll(t *testing.T, w *world) {
	c, other := w.client(slow), w.client(slow)
	l := closed(t, other, "a", 2)
	var waiters []<-chan error
	for i, of := range []*lock.Client{c, c, c, other} {
		waiters = append(waiters, awaiting(t.Context(), of.Latch("a")))
		waiting(t, of, i%3+1)
	}
	must(t, "CountDown", l.CountDown(t.Context()))
	always(t, 50*time.Millisecond, func() bool {
		open := 0
		for _, wait := range waiters {
			open += len(wait)
		}
		return open == 0
	})
	start := time.Now()
	must(t, "CountDown", l.CountDown(t.Context()))
	for _, wait := range waiters {
		must(t, "Wait", await(t, "Wait", wait))
	}
	wokenSince(t, start)
	must(t, "Wait", c.Latch("a").Wait(t.Context()))
}

func latchWaitEnds(t *testing.T, w *world) {
	c := w.client()
	l := closed(t, c, "a", 1)
	waitEnds(t, c, func(ctx context.Context, opts ...lock.LockOption) error { return c.Latch("a", opts...).Wait(ctx) })
	mustBe(t, "count", count(t, l), 1)
}

func latchNet(t *testing.T, w *world) {
	c := w.client()
	opened := awaiting(t.Context(), closed(t, c, "a", 1))
	waiting(t, c, 1)
	w.raw.del(w.key("a"))
	must(t, "Wait", await(t, "Wait", opened))
}

func numbersClose(t *testing.T, w *world) {
	c := w.client(slow)
	s, l := c.Semaphore("a"), closed(t, c, "b", 1)
	permit, opened := acquiring(t.Context(), s, 1), awaiting(t.Context(), l)
	waiting(t, c, 2)
	must(t, "Close", c.Close(t.Context()))
	for what, err := range map[string]error{
		"who waits for a permit": await(t, "Acquire", permit), "who waits for the latch": await(t, "Wait", opened),
		"Acquire": s.Acquire(t.Context(), 1), "Release": s.Release(t.Context(), 1), "SetPermits": second(s.SetPermits(t.Context(), 1)),
		"Wait": l.Wait(t.Context()), "CountDown": l.CountDown(t.Context()), "Set": second(l.Set(t.Context(), 1)),
	} {
		if !errors.Is(err, lock.ErrClosed) {
			t.Errorf("%s: %v", what, err)
		}
	}
	other := w.client()
	permitsLeft(t, other.Semaphore("a"), 0)
	mustBe(t, "count", count(t, other.Latch("b")), 1)
}

func badNumbers(t *testing.T, w *world) {
	c := w.client()
	for _, b := range badNameTable {
		s, l := c.Semaphore(b.name), c.Latch(b.name)
		for what, err := range map[string]error{
			"TryAcquire": s.TryAcquire(t.Context(), 1), "Acquire": s.Acquire(t.Context(), 1), "Release": s.Release(t.Context(), 1),
			"Resize": s.Resize(t.Context(), 1), "Available": second(s.Available(t.Context())), "SetPermits": second(s.SetPermits(t.Context(), 1)),
			"Set": second(l.Set(t.Context(), 1)), "CountDown": l.CountDown(t.Context()), "Wait": l.Wait(t.Context()), "Count": second(l.Count(t.Context())),
		} {
			for _, say := range b.says {
				if !errors.Is(err, lock.ErrInvalid) || !strings.Contains(err.Error(), say) {
					t.Errorf("%s of %.40q: %v; it should say %q", what, b.name, err, say)
				}
			}
		}
	}
	s, l := c.Semaphore("a"), c.Latch("a")
	for what, err := range map[string]error{
		"TryAcquire(0)": s.TryAcquire(t.Context(), 0), "Acquire(-1)": s.Acquire(t.Context(), -1), "Release(0)": s.Release(t.Context(), 0),
		"Set(0)": second(l.Set(t.Context(), 0)),
	} {
		mustMatch(t, err, lock.ErrInvalid)
		if !strings.Contains(err.Error(), `"a"`) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if keys := w.raw.keys(); len(keys) != 0 {
		t.Errorf("left behind: %v", keys)
	}
}

// What was no number before is that afterwards.
func noNumbers(t *testing.T, w *world) {
	c := w.client()
	w.raw.setString(w.key("a"), "not a number")
	s, l := c.Semaphore("a"), c.Latch("a")
	for what, err := range map[string]error{
		"TryAcquire": s.TryAcquire(t.Context(), 1), "Acquire": s.Acquire(t.Context(), 1), "Release": s.Release(t.Context(), 1),
		"Available": second(s.Available(t.Context())), "Set": second(l.Set(t.Context(), 1)), "CountDown": l.CountDown(t.Context()),
		"Wait": l.Wait(t.Context()), "Count": second(l.Count(t.Context())),
	} {
		if !errors.Is(err, lock.ErrInvalid) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if keys := w.raw.keys(); len(keys) != 1 {
		t.Errorf("left behind: %v", keys)
	}
}
