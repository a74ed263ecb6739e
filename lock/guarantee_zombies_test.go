package lock_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/telemetry"
)

// A holder that is stuck blocks others for the limit and one lease at most, and is told.
func TestZombiesAreCutOff(t *testing.T) {
	t.Parallel()
	const lease, limit = 9 * time.Second, 4500 * time.Millisecond // between two renewals
	for reason, opt := range map[lock.Reason]lock.LockOption{
		lock.ReasonMaxHold: lock.WithMaxHold(limit), lock.ReasonHeartbeat: lock.WithHeartbeat(limit),
	} {
		t.Run(string(reason), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				srv := redistest.StartFake(t)
				s := newScope(t)
				c := s.open(t, srv.Client(t), lock.WithLease(lease))
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
				if took := time.Since(began); took > limit+lease {
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
