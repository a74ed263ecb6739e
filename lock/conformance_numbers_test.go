package lock_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/lockdog/lockdog/lock"
)

// numbers is the suite of what has no leases, an UnleasedSemaphore and a Latch, and of the total of a Semaphore, over every shape of server.
var numbers = theme{"numbers", []behaviour{
	{name: "UnleasedSemaphore/is set once", test: unleasedIsSetOnce},
	{name: "UnleasedSemaphore/all or none", test: unleasedAllOrNone},
	{name: "UnleasedSemaphore/AddPermits", test: unleasedAddPermits},
	{name: "UnleasedSemaphore/woken by a release of another client", test: unleasedWakes},
	{name: "UnleasedSemaphore/WithWait and ctx", test: unleasedWaitEnds},
	{name: "Semaphore/is set once", test: permitsSetOnce, alone: true},
	{name: "Semaphore/EnsurePermits", test: permitsEnsured},
	{name: "Semaphore/EnsurePermits wakes", test: permitsEnsuredWake},
	{name: "Semaphore/EnsurePermits after FLUSHALL", test: permitsEnsuredAfterAFlush, alone: true},
	{name: "Semaphore/EnsurePermits by many", test: permitsEnsuredByMany},
	{name: "Latch/is set once", test: latchIsSetOnce},
	{name: "Latch/opens for all", test: latchOpensForAll},
	{name: "Latch/WithWait and ctx", test: latchWaitEnds},
	{name: "Close/waiters", test: numbersClose},
	{name: "bad input", test: badNumbers},
}}

// permitsLeft fails the test unless so many permits are left.
func permitsLeft(t *testing.T, s *lock.UnleasedSemaphore, want int) {
	t.Helper()
	mustBe(t, "permits", available(t, s), want)
}

func unleasedIsSetOnce(t *testing.T, w *world) {
	a, b := w.client().UnleasedSemaphore("a"), w.client().UnleasedSemaphore("a")
	permitsLeft(t, a, 0)
	mustMatch(t, a.TryAcquire(t.Context(), 1), lock.ErrHeld)
	for i, s := range []*lock.UnleasedSemaphore{a, b, a} {
		if done, err := s.TrySetPermits(t.Context(), 2+i); done != (i == 0) || err != nil {
			t.Errorf("TrySetPermits, time %d: %v, %v", i+1, done, err)
		}
	}
	permitsLeft(t, b, 2)
	must(t, "TryAcquire", a.TryAcquire(t.Context(), 2))
	if done, err := b.TrySetPermits(t.Context(), 5); done || err != nil {
		t.Errorf("TrySetPermits when all are taken: %v, %v", done, err)
	}
	permitsLeft(t, b, 0)
}

func unleasedAllOrNone(t *testing.T, w *world) {
	a, b := w.client().UnleasedSemaphore("a"), w.client().UnleasedSemaphore("a")
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

func unleasedAddPermits(t *testing.T, w *world) {
	s := w.client().UnleasedSemaphore("a")
	must(t, "AddPermits", s.AddPermits(t.Context(), 2))
	must(t, "TryAcquire", s.TryAcquire(t.Context(), 2))
	must(t, "AddPermits", s.AddPermits(t.Context(), -1))
	permitsLeft(t, s, -1)
	next := acquiring(t.Context(), w.client().UnleasedSemaphore("a"), 1)
	must(t, "Release", s.Release(t.Context(), 1))
	permitsLeft(t, s, 0)
	must(t, "Release", s.Release(t.Context(), 1))
	must(t, "Acquire", await(t, "Acquire", next))
	permitsLeft(t, s, 0)
}

// slow makes waiters ask again by themselves only after ten seconds. A waiter that gets in within half of that was
// woken by a message.
var slow = lock.WithLease(far)

// wokenSince fails the test if a waiter with slow wasn't woken by a message, going by the time since start. It only
// checks that in fake time.
func (w *world) wokenSince(start time.Time) {
	w.t.Helper()
	if took := time.Since(start); w.fake && took > 5*time.Second {
		w.t.Errorf("woken after %v", took)
	}
}

// A release of another client is heard, by all who wait.
func unleasedWakes(t *testing.T, w *world) {
	c, d, other := w.client(slow), w.client(slow), w.client(slow).UnleasedSemaphore("a")
	next, second := acquiring(t.Context(), c.UnleasedSemaphore("a"), 2), acquiring(t.Context(), d.UnleasedSemaphore("a"), 2)
	waiting(t, c, 1)
	waiting(t, d, 1)
	must(t, "Release", other.Release(t.Context(), 1))
	permitsLeft(t, other, 1)
	start := time.Now()
	must(t, "Release", other.Release(t.Context(), 3))
	must(t, "Acquire", await(t, "Acquire", next))
	must(t, "Acquire", await(t, "Acquire", second))
	w.wokenSince(start)
	permitsLeft(t, other, 0)
	waiting(t, c, 0)
}

func unleasedWaitEnds(t *testing.T, w *world) {
	c := w.client()
	waitEnds(t, c, "too few permits", func(ctx context.Context, opts ...lock.LockOption) error {
		return c.UnleasedSemaphore("a", opts...).Acquire(ctx, 1)
	})
	permitsLeft(t, c.UnleasedSemaphore("a"), 0)
	if keys := w.raw.keys(); len(keys) != 0 {
		t.Errorf("left behind: %v", keys)
	}
}

// waitEnds checks the error of a wait in vain: if WithWait is over, and if ctx ends.
func waitEnds(t *testing.T, c *lock.Client, says string, wait func(ctx context.Context, opts ...lock.LockOption) error) {
	t.Helper()
	start := time.Now()
	err := outwaited(100*time.Millisecond, func(d time.Duration) error { return wait(t.Context(), lock.WithWait(d)) })
	mustMatch(t, err, lock.ErrHeld)
	mustMention(t, err, `"a"`, says)
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

func latchIsSetOnce(t *testing.T, w *world) {
	a, b := w.client().Latch("a"), w.client().Latch("a")
	for i, l := range []*lock.Latch{a, b} {
		if done, err := l.TrySetCount(t.Context(), 2+i); done != (i == 0) || err != nil {
			t.Errorf("TrySetCount, time %d: %v, %v", i+1, done, err)
		}
	}
	mustBe(t, "count", count(t, b), 2)
	must(t, "CountDown", b.CountDown(t.Context()))
	if done, err := a.TrySetCount(t.Context(), 5); done || err != nil {
		t.Errorf("TrySetCount with one to go: %v, %v", done, err)
	}
	must(t, "CountDown", a.CountDown(t.Context()))
	mustBe(t, "count", count(t, b), 0)
	if done, err := b.TrySetCount(t.Context(), 1); !done || err != nil {
		t.Errorf("TrySetCount of an open latch: %v, %v", done, err)
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
	w.wokenSince(start)
	must(t, "Wait", c.Latch("a").Wait(t.Context()))
}

func latchWaitEnds(t *testing.T, w *world) {
	c := w.client()
	l := closed(t, c, "a", 1)
	waitEnds(t, c, "not open yet", func(ctx context.Context, opts ...lock.LockOption) error { return c.Latch("a", opts...).Wait(ctx) })
	mustBe(t, "count", count(t, l), 1)
}

func numbersClose(t *testing.T, w *world) {
	c := w.client(slow)
	s, l := c.UnleasedSemaphore("a"), closed(t, c, "b", 1)
	permit, opened := acquiring(t.Context(), s, 1), awaiting(t.Context(), l)
	waiting(t, c, 2)
	must(t, "Close", c.Close(t.Context()))
	for what, err := range map[string]error{
		"who waits for a permit": await(t, "Acquire", permit), "who waits for the latch": await(t, "Wait", opened),
		"Acquire": s.Acquire(t.Context(), 1), "Release": s.Release(t.Context(), 1), "TrySetPermits": second(s.TrySetPermits(t.Context(), 1)),
		"Wait": l.Wait(t.Context()), "CountDown": l.CountDown(t.Context()), "TrySetCount": second(l.TrySetCount(t.Context(), 1)),
	} {
		if !errors.Is(err, lock.ErrClosed) {
			t.Errorf("%s: %v", what, err)
		}
	}
	other := w.client()
	permitsLeft(t, other.UnleasedSemaphore("a"), 0)
	mustBe(t, "count", count(t, other.Latch("b")), 1)
}

func badNumbers(t *testing.T, w *world) {
	c := w.client()
	for _, b := range badNameTable {
		s, l := c.UnleasedSemaphore(b.name), c.Latch(b.name)
		for what, err := range map[string]error{
			"TryAcquire": s.TryAcquire(t.Context(), 1), "Acquire": s.Acquire(t.Context(), 1), "Release": s.Release(t.Context(), 1),
			"AddPermits": s.AddPermits(t.Context(), 1), "Available": second(s.Available(t.Context())), "TrySetPermits": second(s.TrySetPermits(t.Context(), 1)),
			"TrySetCount": second(l.TrySetCount(t.Context(), 1)), "CountDown": l.CountDown(t.Context()), "Wait": l.Wait(t.Context()), "Count": second(l.Count(t.Context())),
		} {
			for _, say := range b.says {
				if !errors.Is(err, lock.ErrInvalid) || !strings.Contains(err.Error(), say) {
					t.Errorf("%s of %.40q: %v; it should say %q", what, b.name, err, say)
				}
			}
		}
	}
	if keys := w.raw.keys(); len(keys) != 0 {
		t.Errorf("left behind: %v", keys)
	}
}
