package lock_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/telemetry"
)

// How the leases of several locks live and end.

// The lease is trusted for as long as all of its locks are.
func TestMultiDeadlineIsTheNearest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCorner(t)
		a, _ := c.client()
		b, _ := c.client(lock.WithLease(far))
		held := try(t, b.Mutex("b"))
		start := time.Now()
		next := begin(t.Context(), a.Multi([]string{"a", "b"}, lock.WithFixedLease(far)))
		waiting(t, a, 1)
		time.Sleep(brief / 2)
		free(t, held)
		l := granted(t, next)
		if d := l.Deadline().Sub(start); d != far-far/100-2*time.Millisecond { // its first lock was had at once
			t.Errorf("the deadline is %v after the call", d)
		}
		free(t, l)
	})
}

// The loss of one is the loss of all, and says whose it was. The others are renewed no more, also if nobody releases them.
func TestMultiLosesAll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCorner(t)
		a, _ := c.client()
		l := try(t, a.Multi([]string{"a", "b", "c"}))
		c.rdb.Del(t.Context(), c.key("b"))
		mustBeLost(t, l, lock.CauseMissing)
		var lost, of *lock.LostError
		if err := l.Err(); !errors.As(err, &lost) || !errors.As(lost.Unwrap(), &of) || of.Name != "b" {
			t.Errorf("the loss doesn't say whose: %v", err)
		}
		eventually(t, patience, func() bool { return len(a.Leases()) == 0 && !c.exists("a") && !c.exists("c") })
	})
}

// A lock that is lost while Lock waits for another is taken again.
func TestMultiStartsAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCorner(t)
		a, s := c.client()
		c.hold("b")
		next := begin(t.Context(), a.Multi([]string{"a", "b"}))
		for range 2 {
			waiting(t, a, 1)
			eventually(t, patience, func() bool { return c.exists("a") })
			losses := s.sum(t, telemetry.MetricMembersLost)
			c.rdb.Del(t.Context(), c.key("a"))
			eventually(t, patience, func() bool { return s.sum(t, telemetry.MetricMembersLost) > losses })
		}
		if n := s.sum(t, telemetry.MetricLosses); n != 0 {
			t.Errorf("%v losses of what nobody had", n)
		}
		eventually(t, patience, func() bool { return c.exists("a") })
		if _, err := a.Mutex("b").ForceUnlock(t.Context()); err != nil {
			t.Fatal(err)
		}
		l := granted(t, next)
		if l.Err() != nil || l.Context().Err() != nil || len(l.Tokens()) != 2 {
			t.Errorf("%v, %v", l.Err(), l.Tokens())
		}
		free(t, l)
	})
}

// The limits on a hold count from when all are held, and not while one waits with some of them.
func TestMultiLimitsCountFromTheWhole(t *testing.T) {
	t.Parallel()
	const most = 2 * brief
	for _, limit := range []struct {
		reason lock.Reason
		opt    lock.LockOption
	}{
		{lock.ReasonMaxHold, lock.WithMaxHold(most)},
		{lock.ReasonHeartbeat, lock.WithHeartbeat(most)},
	} {
		t.Run(string(limit.reason), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := newCorner(t)
				a, s := c.client()
				b, _ := c.client(lock.WithLease(far))
				held := try(t, b.Mutex("b"))
				next := begin(t.Context(), a.Multi([]string{"a", "b", "c"}, limit.opt))
				waiting(t, a, 1)
				time.Sleep(3 * brief)
				if n := s.sum(t, telemetry.MetricCancellations); n != 0 {
					t.Errorf("%v were canceled while it waited", n)
				}
				free(t, held)
				l, start := granted(t, next), time.Now()
				if limit.reason == lock.ReasonHeartbeat {
					for range 10 {
						time.Sleep(brief / 4)
						l.Heartbeat()
					}
					if l.Context().Err() != nil {
						t.Errorf("canceled though its heart beats: %v", context.Cause(l.Context()))
					}
					start = time.Now()
				}
				_ = mustBeCanceled(t, l, limit.reason)
				if took := time.Since(start); took != most {
					t.Errorf("canceled %v after the grant, the limit is %v", took, most)
				}
				free(t, l)
			})
		})
	}
}
