package lock_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/lock/locktest"
)

// wantWaited checks WaitTime. In a bubble it is exact.
func wantWaited(t *testing.T, ctx context.Context, want time.Duration) {
	t.Helper()
	if got := lock.WaitTime(ctx); got != want {
		t.Errorf("waited %v, want %v", got, want)
	}
}

// A wait counts while it lasts, and afterwards; calls that don't wait count as nothing.
func TestWaitTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		srv := locktest.New(t)
		c, other := srv.Client(), srv.NewClient()
		wantWaited(t, t.Context(), 0)
		ctx := lock.TrackWaitTime(t.Context())
		free(t, try(t, c.Mutex("job")))
		l, err := c.Mutex("job").Lock(ctx)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		free(t, l)
		held := try(t, other.Mutex("job"))
		if _, err := c.Mutex("job").TryLock(ctx); !errors.Is(err, lock.ErrHeld) {
			t.Fatal(err)
		}
		wantWaited(t, ctx, 0)

		waits := begin(context.WithoutCancel(ctx), c.Mutex("job"))
		time.Sleep(time.Second)
		wantWaited(t, ctx, time.Second)
		time.Sleep(2 * time.Second)
		free(t, held)
		l = granted(t, waits)
		time.Sleep(10 * time.Second)
		wantWaited(t, ctx, 3*time.Second)

		// A call that waits in vain has waited, and one below Lease.Context is below ctx.
		held = try(t, other.Mutex("report"))
		if _, err := c.Mutex("report", lock.WithWait(2*time.Second)).Lock(l.Context()); !errors.Is(err, lock.ErrHeld) {
			t.Fatal(err)
		}
		wantWaited(t, ctx, 5*time.Second)
		free(t, held)
		free(t, l)
	})
}

// Calls that wait at the same time add up, also of several clients. A TrackWaitTime within another one has a sum of its own.
func TestWaitTimeAddsUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		srv := locktest.New(t)
		a, b, other := srv.NewClient(), srv.NewClient(), srv.NewClient()
		held := []*lock.Lease{try(t, other.Mutex("one")), try(t, other.Mutex("two")), try(t, other.Mutex("three"))}
		outer := lock.TrackWaitTime(t.Context())
		first := begin(outer, a.Mutex("one"))
		time.Sleep(time.Second)
		inner := lock.TrackWaitTime(outer)
		second, third := begin(inner, a.Mutex("two")), begin(inner, b.Mutex("three"))
		time.Sleep(2 * time.Second)
		wantWaited(t, inner, 4*time.Second)
		wantWaited(t, outer, 7*time.Second)
		for _, l := range held {
			free(t, l)
		}
		for _, c := range []<-chan taken{first, second, third} {
			free(t, granted(t, c))
		}
		time.Sleep(time.Second)
		wantWaited(t, inner, 4*time.Second)
		wantWaited(t, outer, 7*time.Second)
		wantWaited(t, t.Context(), 0)
	})
}

// waitsOfEachKind has one call of each kind wait for three seconds, some of them twice: for two names of a Multi. each is told of the ctx that
// call was made with.
func waitsOfEachKind(t *testing.T, each func(kind string, ctx context.Context)) {
	t.Helper()
	ctx := t.Context()
	srv := locktest.New(t)
	c, other := srv.NewClient(), srv.NewClient()
	three := func(kind string, wait func(ctx context.Context) error, open func()) {
		t.Helper()
		failed := make(chan error, 1)
		ctx := lock.TrackWaitTime(t.Context())
		go func() { failed <- wait(ctx) }()
		time.Sleep(3 * time.Second)
		open()
		if err := <-failed; err != nil {
			t.Fatalf("%s: %v", kind, err)
		}
		time.Sleep(time.Second)
		each(kind, ctx)
	}
	locking := func(l lock.Locker) func(ctx context.Context) error {
		return func(ctx context.Context) error {
			lease, err := l.Lock(ctx)
			if err != nil {
				return err
			}
			return lease.Release(ctx)
		}
	}
	for kind, of := range map[string]func(c *lock.Client) lock.Locker{
		"mutex":      func(c *lock.Client) lock.Locker { return c.Mutex("a:mutex") },
		"fair_mutex": func(c *lock.Client) lock.Locker { return c.FairMutex("a:fair") },
		"writer":     func(c *lock.Client) lock.Locker { return c.RWMutex("a:rw") },
		"semaphore":  func(c *lock.Client) lock.Locker { return c.Semaphore("a:permits") },
		"multi":      func(c *lock.Client) lock.Locker { return c.Multi([]string{"a:1", "a:2"}) },
	} {
		if kind == "semaphore" {
			if err := c.Semaphore("a:permits").EnsurePermits(ctx, 1); err != nil {
				t.Fatal(err)
			}
		}
		held := try(t, of(other))
		three(kind, locking(of(c)), func() { free(t, held) })
	}

	writer := try(t, other.RWMutex("a:rw"))
	three("reader", locking(c.RWMutex("a:rw").RLocker()), func() { free(t, writer) })

	// Two names of a Multi that are held by two, one for longer.
	one, two := try(t, other.Mutex("b:1")), try(t, other.Mutex("b:2"))
	time.AfterFunc(time.Second, func() { _ = one.Release(context.Background()) })
	three("multi, name by name", locking(c.Multi([]string{"b:1", "b:2"})), func() { free(t, two) })

	gate := other.Latch("a:latch")
	if _, err := gate.TrySetCount(ctx, 1); err != nil {
		t.Fatal(err)
	}
	three("latch", c.Latch("a:latch").Wait, func() {
		if err := gate.CountDown(ctx); err != nil {
			t.Error(err)
		}
	})
	pool := other.UnleasedSemaphore("a:pool")
	if _, err := pool.TrySetPermits(ctx, 0); err != nil {
		t.Fatal(err)
	}
	three("unleased_semaphore", func(ctx context.Context) error { return c.UnleasedSemaphore("a:pool").Acquire(ctx, 1) }, func() {
		if err := pool.AddPermits(ctx, 1); err != nil {
			t.Error(err)
		}
	})

	servers := []*locktest.Server{locktest.New(t), locktest.New(t), locktest.New(t)}
	over := func() *lock.QuorumMutex {
		var clients []*lock.Client
		for _, s := range servers {
			clients = append(clients, s.NewClient())
		}
		q, err := lock.NewQuorum(clients...)
		if err != nil {
			t.Fatal(err)
		}
		return q.Mutex("a:quorum")
	}
	held := try(t, over())
	three("quorum", locking(over()), func() { free(t, held) })
}

// Every kind counts a wait once, however many members it has.
func TestWaitTimeOfEachKind(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := 0
		waitsOfEachKind(t, func(kind string, ctx context.Context) {
			n++
			// A Quorum pauses before it asks, so that one of several is the first.
			if got := lock.WaitTime(ctx); got < 3*time.Second || got > 3*time.Second+250*time.Millisecond || kind != "quorum" && got != 3*time.Second {
				t.Errorf("%s: waited %v, want 3s", kind, got)
			}
		})
		if n != 10 {
			t.Errorf("%d kinds waited", n)
		}
	})
}
