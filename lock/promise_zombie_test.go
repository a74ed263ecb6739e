package lock_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/telemetry"
)

// Promise 9: reentrancy is opt-in and travels in ctx. Promise 10: zombies are cut off.

func TestReentryTakesNoRoundTrip(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		srv := redistest.StartFake(t)
		rdb := srv.Client(t)
		c := newScope(t).open(t, rdb)
		m := c.Mutex("job", lock.WithReentrancy())
		outer := try(t, m)
		work := outer.Context()
		before := srv.Commands(t)

		if _, err := c.Mutex("job").Lock(work); err == nil {
			t.Fatal("re-entered without WithReentrancy")
		} else {
			mustMatch(t, err, lock.ErrDeadlock)
		}
		ictx, cancel := context.WithCancel(work)
		inner, err := m.Lock(ictx)
		if err != nil {
			t.Fatal(err)
		}
		if inner.Token() != outer.Token() || inner.Owner() != outer.Owner() {
			t.Error("the inner lease is another grant")
		}
		cancel() // ends the inner permission only
		_ = mustBeCanceled(t, inner, lock.ReasonContext)
		if err := work.Err(); err != nil {
			t.Errorf("an inner ctx that ended has ended the outer one: %v", context.Cause(work))
		}
		second, err := m.TryLock(work)
		if err != nil {
			t.Fatal(err)
		}
		free(t, inner)
		free(t, outer)
		after := srv.Commands(t).Since(before)
		if after["evalsha"] != 0 || after["eval"] != 0 {
			t.Errorf("re-entry and releases of all but the last lease sent %v", after)
		}
		if rdb.Exists(t.Context(), "job").Val() != 1 {
			t.Error("the lock is free though the last lease isn't released")
		}
		free(t, second)
		if rdb.Exists(t.Context(), "job").Val() != 0 {
			t.Error("the lock is held though the last lease is released")
		}
		// The ctx of a released lease is no way in: this is a new grant.
		again, err := m.TryLock(context.WithoutCancel(work))
		if err != nil || again.Token() <= outer.Token() {
			t.Fatalf("with the ctx of a released lease: %v", err)
		}
		free(t, again)
	})
}

// A holder that is stuck blocks others for the limit and one lease at most, and is told.
func TestZombiesAreCutOff(t *testing.T) {
	t.Parallel()
	const limit = 750 * time.Millisecond // between two renewals
	for reason, opt := range map[lock.Reason]lock.LockOption{
		lock.ReasonMaxHold: lock.WithMaxHold(limit), lock.ReasonHeartbeat: lock.WithHeartbeat(limit),
	} {
		t.Run(string(reason), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				srv := redistest.StartFake(t)
				s := newScope(t)
				c := s.open(t, srv.Client(t), lock.WithWatchdog(renewedLease))
				other := newScope(t).open(t, srv.Client(t))
				began := time.Now()
				l := try(t, c.Mutex("job", opt))
				next := begin(t.Context(), other.Mutex("job"))
				_ = mustBeCanceled(t, l, reason)
				if held := time.Since(began); held != limit {
					t.Errorf("it was cut off after %v, want %v", held, limit)
				}
				// It is renewed no more: whoever waits has it when the lease has run out, though nobody released it.
				latest := l.Deadline()
				after := granted(t, next)
				if took := time.Since(began); took > limit+renewedLease {
					t.Errorf("the next got in after %v", took)
				}
				await(t, "the lease", l.Ended())
				if l.Deadline().After(latest) {
					t.Error("renewed after it was cut off")
				}
				var canceled *lock.CanceledError // the loss says why it wasn't renewed
				if !errors.As(l.Err(), &canceled) || canceled.Reason != reason {
					t.Errorf("it ended with %v", l.Err())
				}
				free(t, after)
				if n := s.sum(t, telemetry.MetricCancellations); n != 1 {
					t.Errorf("%v cancellations counted, want 1", n)
				}
				if n := s.sum(t, telemetry.MetricLosses); n != 0 {
					t.Errorf("%v losses counted: a cancellation is none", n)
				}
			})
		})
	}
}

const renewedLease = 1500 * time.Millisecond
