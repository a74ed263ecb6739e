package lock_test

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockdog/lockdog/lock"
)

// The permits of a Semaphore in all, over every shape of server. Its leases are tested with those of the other kinds.

// mustHave fails the test unless a semaphore has so many permits in all, and so many of them are available.
func mustHave(t *testing.T, s *lock.Semaphore, total, left int) {
	t.Helper()
	n, err := s.Total(t.Context())
	must(t, "Total", err)
	mustBe(t, "total", n, total)
	mustBe(t, "available", available(t, s), left)
}

func permitsEnsured(t *testing.T, w *world) {
	a, b := w.client().Semaphore("a"), w.client().Semaphore("a")
	mustHave(t, a, 0, 0)
	ensure := func(s *lock.Semaphore, n, left int) {
		t.Helper()
		for range 2 { // the second time changes nothing
			must(t, "EnsurePermits", s.EnsurePermits(t.Context(), n))
			mustHave(t, a, n, left)
		}
	}
	ensure(a, 2, 2)
	one, two := try(t, a), try(t, b)
	ensure(b, 2, 0)
	ensure(a, 5, 3)
	ensure(b, 1, -1)
	mustMatch(t, second(a.TryLock(t.Context())), lock.ErrHeld)
	free(t, one)
	mustHave(t, b, 1, 0)
	mustMatch(t, second(b.TryLock(t.Context())), lock.ErrHeld)
	ensure(a, 0, -1)
	must(t, "the lease", two.Err())
	free(t, two)
	mustHave(t, a, 0, 0)
	ensure(b, 1, 1)
	free(t, try(t, a))
	must(t, "AddPermits", a.AddPermits(t.Context(), 2))
	mustHave(t, b, 3, 3)
}

// A larger total wakes those who wait in other clients, one for each permit.
func permitsEnsuredWake(t *testing.T, w *world) {
	c, other := w.client(slow), w.client(slow).Semaphore("a")
	must(t, "EnsurePermits", other.EnsurePermits(t.Context(), 1))
	held := try(t, other)
	first, next := begin(t.Context(), c.Semaphore("a")), begin(t.Context(), c.Semaphore("a"))
	waiting(t, c, 2)
	must(t, "EnsurePermits", other.EnsurePermits(t.Context(), 1))
	always(t, 50*time.Millisecond, func() bool { return len(first)+len(next) == 0 })
	start := time.Now()
	must(t, "EnsurePermits", other.EnsurePermits(t.Context(), 3))
	one, two := granted(t, first), granted(t, next)
	w.wokenSince(start)
	mustHave(t, other, 3, 0)
	for _, l := range []*lock.Lease{held, one, two} {
		free(t, l)
	}
	mustHave(t, other, 3, 3)
}

// After FLUSHALL, EnsurePermits restores the total and wakes the waiters. The release of a lease from before returns
// ErrLost and adds no permit.
func permitsEnsuredAfterAFlush(t *testing.T, w *world) {
	c, other := w.client(slow), w.client(slow).Semaphore("a")
	must(t, "EnsurePermits", other.EnsurePermits(t.Context(), 2))
	old := try(t, other)
	w.raw.flush()
	mustHave(t, other, 0, 0)
	_, err := other.TryLock(t.Context())
	mustMatch(t, err, lock.ErrHeld)
	if !strings.Contains(err.Error(), "EnsurePermits") {
		t.Errorf("%q doesn't say how to have some", err)
	}
	next := begin(t.Context(), c.Semaphore("a"))
	waiting(t, c, 1)
	start := time.Now()
	must(t, "EnsurePermits", other.EnsurePermits(t.Context(), 2))
	l := granted(t, next)
	w.wokenSince(start)
	mustHave(t, other, 2, 1)
	mustMatch(t, old.Release(t.Context()), lock.ErrLost)
	mustHave(t, other, 2, 1)

	w.raw.del(w.key("a")) // the number alone: who holds a permit keeps it
	must(t, "EnsurePermits", other.EnsurePermits(t.Context(), 2))
	mustHave(t, other, 2, 1)
	must(t, "the lease", l.Err())
	free(t, l)
	mustHave(t, other, 2, 2)
}

// Two clients ensure the total while others come and go: no permit is made, and none is lost.
func permitsEnsuredByMany(t *testing.T, w *world) {
	const total = 2
	clients := []*lock.Client{w.client(), w.client()}
	must(t, "EnsurePermits", clients[0].Semaphore("a").EnsurePermits(t.Context(), total))
	var all sync.WaitGroup
	for i := range 4 {
		s := clients[i%2].Semaphore("a")
		all.Go(func() {
			for range 8 {
				if err := s.EnsurePermits(t.Context(), total); err != nil {
					t.Errorf("EnsurePermits: %v", err)
				}
			}
		})
		all.Go(func() {
			for range 4 {
				l, err := s.Lock(t.Context())
				if err != nil {
					t.Errorf("Lock: %v", err)
					return
				}
				if n, err := s.Available(t.Context()); n < 0 || n >= total || err != nil {
					t.Errorf("while one is held %d are left, %v", n, err)
				}
				if err := l.Release(t.Context()); err != nil {
					t.Errorf("Release: %v", err)
				}
			}
		})
	}
	all.Wait()
	mustHave(t, clients[1].Semaphore("a"), total, total)
}

func permitsSetOnce(t *testing.T, w *world) {
	a, b := w.client().Semaphore("a"), w.client().Semaphore("a")
	for i, s := range []*lock.Semaphore{a, b, a} {
		if done, err := s.TrySetPermits(t.Context(), 1+i); done != (i == 0) || err != nil {
			t.Errorf("TrySetPermits, time %d: %v, %v", i+1, done, err)
		}
	}
	l := try(t, a)
	if done, err := b.TrySetPermits(t.Context(), 5); done || err != nil {
		t.Errorf("TrySetPermits when all are taken: %v, %v", done, err)
	}
	mustHave(t, b, 1, 0)
	free(t, l)
	must(t, "EnsurePermits", b.EnsurePermits(t.Context(), 0))
	if done, err := b.TrySetPermits(t.Context(), 5); done || err != nil {
		t.Errorf("TrySetPermits of a semaphore with 0 permits: %v, %v", done, err)
	}
	w.raw.flush()
	if done, err := b.TrySetPermits(t.Context(), 4); !done || err != nil {
		t.Errorf("TrySetPermits after FLUSHALL: %v, %v", done, err)
	}
	mustHave(t, a, 4, 4)
}
