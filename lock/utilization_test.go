package lock_test

import (
	"context"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/internal/fakeredis"
	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/telemetry"
)

// TestWorstUtilization: with leases of any length the gauge says nothing while renewals get through, pages nobody for a blip of a third of
// the lease, whenever it comes, and reaches 0.7 well before a loss. It knows nothing of fixed leases.
func TestWorstUtilization(t *testing.T) {
	t.Parallel()
	for _, lease := range []time.Duration{time.Second, 9 * time.Second, lock.DefaultLease, 5 * time.Minute} {
		t.Run(lease.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { testWorstUtilization(t, lease) })
		})
	}
}

func testWorstUtilization(t *testing.T, lease time.Duration) {
	s, step := newScope(t), lease/50
	var away atomic.Bool
	refuse := func(redis.Cmder) error {
		if away.Load() {
			return syscall.ECONNREFUSED
		}
		return nil
	}
	c := openTapped(t, redistest.StartFake(t), fakeredis.Tap{Up: refuse}, lock.WithTracerProvider(s.tracer), lock.WithMeterProvider(s.meter), lock.WithLease(lease))
	take := func(name string, opts ...lock.LockOption) *lock.Lease {
		t.Helper()
		l, err := c.Mutex(name, opts...).TryLock(context.Background())
		must(t, "TryLock", err)
		return l
	}
	gauge := func(group string) float64 { return s.sum(t, telemetry.MetricWorstUtilization, "lockdog.group="+group) }
	most := func(period time.Duration) (most float64) {
		for range period / step {
			time.Sleep(step)
			most = max(most, gauge("renewed"))
		}
		return most
	}
	fixed := take("fixed:1", lock.WithFixedLease(lease))
	l := take("renewed:1")
	if got := most(lease * 9 / 10); got > 0.36 || gauge("fixed") != 0 || fixed.Err() != nil {
		t.Errorf("renewed: up to %.2f, fixed: %.2f", got, gauge("fixed"))
	}
	for phase := range time.Duration(5) {
		most(phase * lease / 15)
		away.Store(true)
		blip := most(lease / 4) // after a third, and before a pause of up to a tenth
		away.Store(false)
		if blip = max(blip, most(lease)); blip > 0.7 {
			t.Errorf("a blip %d: %.2f", phase, blip)
		}
	}
	away.Store(true)
	var paged time.Duration
	for l.Err() == nil {
		time.Sleep(step)
		if gauge("renewed") > 0.7 {
			paged += step
		}
	}
	if paged < lease/4 {
		t.Errorf("it pages %v before the loss", paged)
	}
	synctest.Wait()
	if got := gauge("renewed"); got != 0 {
		t.Errorf("%.2f after the loss", got)
	}
}
