package lock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/lock/internal/memory"
	"github.com/lockdog/lockdog/telemetry"
)

// TestWorstUtilization: the gauge that pages stays at a third while renewals get through, rises when they don't, and knows nothing of
// fixed leases.
func TestWorstUtilization(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, srv := newScope(t), memory.New()
		c := openHooked(t, srv, hooked{}, lock.WithTracerProvider(s.tracer), lock.WithMeterProvider(s.meter), lock.WithWatchdog(30*time.Second))
		take := func(name string, opts ...lock.LockOption) {
			t.Helper()
			_, err := c.Mutex(name, opts...).TryLock(context.Background())
			must(t, "TryLock", err)
		}
		between := func(name string, least, most float64) {
			t.Helper()
			if got := s.sum(t, telemetry.MetricWorstUtilization, "lockdog.group="+name); got < least || got > most {
				t.Errorf("%s: %.2f, want %.2f to %.2f", name, got, least, most)
			}
		}
		take("fixed:1", lock.WithFixedLease(30*time.Second))
		take("renewed:1")
		for range 29 {
			time.Sleep(time.Second)
			between("fixed", 0, 0)
			between("renewed", 0, 0.34)
		}
		srv.CutOff("renewed:1", srv.Holder("renewed:1"))
		time.Sleep(14 * time.Second) // 23 s after the last one
		between("renewed", 0.7, 0.99)
		time.Sleep(10 * time.Second)
		between("renewed", 0, 0) // it is lost
	})
}
