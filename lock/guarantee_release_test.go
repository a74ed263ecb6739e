package lock_test

import (
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock"
)

// Promise 4: Release always stops renewal first. (Promise 3, that ctx covers wait and lease: conformance_context_test.go.)

// While the release is on its way the lock is renewed no more, however long that takes.
func TestReleaseStopsRenewalFirst(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sp := redistest.StartFake(t)
		rdb, wire := throughProxy(t, sp)
		renewals, pulse := throughProxy(t, sp)
		c := newScope(t).open(t, rdb, lock.WithKeyPrefix(sp.Prefix()), lock.WithLease(1500*time.Millisecond), lock.WithRenewalClient(renewals))
		l, other := try(t, c.Mutex("released")), try(t, c.Mutex("kept"))
		before := l.Deadline()
		eventually(t, patience, func() bool { return l.Deadline().After(before) }) // so the next renewal is half a second away

		wire.set(redistest.When(redistest.Up, redistest.Hold, wire.script("release", "released")))
		errs := make(chan error, 1)
		go func() { errs <- l.Release(context.Background()) }()
		wire.proxy.AwaitHeld(t, 1)
		// The other lock shows when there would have been one.
		mine, others := pulse.heard("renew", "released"), pulse.heard("renew", "kept")
		eventually(t, patience, func() bool { return pulse.heard("renew", "kept") >= others+2 })
		if n := pulse.heard("renew", "released") - mine; n > 0 {
			t.Errorf("%d renewals were sent while the release was on its way", n)
		}
		wire.set(nil)
		wire.proxy.Release()
		_ = await(t, "Release", errs) // with an error perhaps: it took almost as long as the lease
		mustMatch(t, l.Release(context.Background()), lock.ErrReleased)
		free(t, other)
	})
}

// A release on a dead ctx is tried. The server hangs, and go-redis with it, so it can't succeed; it is bounded by the lease.
func TestReleaseOnDeadContextIsBoundedByTheLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		srv := redistest.StartFake(t)
		rdb := srv.Client(t, answerWithin(20*time.Second))
		c := newScope(t).open(t, rdb)
		dead, cancel := context.WithCancel(t.Context())
		cancel()

		l := try(t, c.Mutex("job", lock.WithLease(1500*time.Millisecond)))
		srv.Pause(t)
		start := time.Now()
		err := l.Release(dead)
		if err == nil {
			t.Error("Release succeeded though nobody answered")
		}
		if took := time.Since(start); took > 1500*time.Millisecond {
			t.Errorf("Release took %v, the lease was 1.5 s", took)
		}
		mustMatch(t, l.Release(dead), lock.ErrReleased)

		srv.Resume(t)
		l = try(t, c.Mutex("other"))
		srv.Pause(t)
		l2ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		start = time.Now()
		mustMatch(t, l.Release(l2ctx), context.DeadlineExceeded) // a live ctx bounds it too
		if took := time.Since(start); took > 300*time.Millisecond {
			t.Errorf("Release took %v, its ctx 300 ms", took)
		}
		srv.Resume(t)
		eventually(t, patience, func() bool { return rdb.Exists(t.Context(), "other").Val() == 0 }) // the client went on trying
	})
}

// A renewal that the network delays past the release neither revives the lock nor lengthens another owner's lease.
func TestLateRenewalChangesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sp := redistest.StartFake(t)
		rdb := sp.Client(t)
		renewals, pulse := throughProxy(t, sp)
		c := newScope(t).open(t, rdb, lock.WithKeyPrefix(sp.Prefix()), lock.WithLease(1500*time.Millisecond), lock.WithRenewalClient(renewals))
		late := func(name string) *lock.Lease {
			l := try(t, c.Mutex(name))
			pulse.set(redistest.When(redistest.Up, redistest.Hold, pulse.script("renew", name)))
			pulse.proxy.AwaitHeld(t, 1)
			return l
		}
		deliver := func(name string) {
			before := pulse.heard("renew", "control")
			pulse.set(nil)
			pulse.proxy.Release()
			control := try(t, c.Mutex("control "+name))
			eventually(t, patience, func() bool { return pulse.heard("renew", "control") > before })
			free(t, control)
		}

		free(t, late("revived"))
		deliver("revived")
		if rdb.Exists(t.Context(), sp.Prefix()+"revived").Val() != 0 {
			t.Error("a late renewal has revived a released lock")
		}

		free(t, late("lengthened"))
		other := newScope(t).open(t, sp.Client(t), lock.WithKeyPrefix(sp.Prefix()))
		l := try(t, other.Mutex("lengthened", lock.WithFixedLease(time.Hour)))
		deliver("lengthened")
		ttl := rdb.PTTL(t.Context(), sp.Prefix()+"lengthened").Val()
		if ttl < 59*time.Minute || ttl > time.Hour {
			t.Errorf("a late renewal has set another owner's lease to %v", ttl)
		}
		free(t, l)
	})
}

// An operation whose ctx ends between two tries says so, and of what the last try failed.
func TestCtxThatEndsBetweenTriesIsTheError(t *testing.T) {
	t.Parallel()
	type call func(ctx context.Context) error
	for what, prepare := range map[string]func(t *testing.T, c *lock.Client) call{
		"Release":            func(t *testing.T, c *lock.Client) call { return try(t, c.Mutex("a")).Release },
		"Release of a Multi": func(t *testing.T, c *lock.Client) call { return try(t, c.Multi([]string{"a", "b"})).Release },
		"CountDown":          func(t *testing.T, c *lock.Client) call { return closed(t, c, "a", 9).CountDown },
		"Count": func(_ *testing.T, c *lock.Client) call {
			return func(ctx context.Context) error { _, err := c.Latch("a").Count(ctx); return err }
		},
		"TryLock": func(_ *testing.T, c *lock.Client) call {
			return func(ctx context.Context) error { _, err := c.Mutex("a").TryLock(ctx); return err }
		},
		"TryLock of a Multi": func(_ *testing.T, c *lock.Client) call {
			return func(ctx context.Context) error { _, err := c.Multi([]string{"a", "b"}).TryLock(ctx); return err }
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				rdb, wire := throughProxy(t, redistest.StartFake(t))
				call := prepare(t, newScope(t).open(t, rdb))
				cause := errors.New("the request is over")
				ctx, cancel := context.WithCancelCause(t.Context())
				defer cancel(nil)
				cuts := 0
				wire.set(redistest.When(redistest.Up, redistest.Cut, redistest.Contains("evalsha"), func(redistest.Chunk) bool {
					if cuts++; cuts == 2 {
						cancel(cause)
					}
					return true
				}))
				err := call(ctx)
				if !errors.Is(err, cause) || !errors.Is(err, io.EOF) {
					t.Errorf("%v; it should say that the request is over, and what failed", err)
				}
			})
		})
	}
}
