package lock_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/telemetry"
)

// A holder has vanished if it let its lease run out. One that renewed and released hasn't, also if a waiter finds the
// lock free before it gets the message of the release.
func TestVanishedIsWhoDidNotRenew(t *testing.T) {
	t.Parallel()
	const lease = 30 * time.Second
	// The lease that the waiter sees first ends after 30 s, and was renewed by then.
	for _, released := range []time.Duration{time.Second, lease - 2500*time.Microsecond, lease + 100*time.Millisecond, lease + lease/3, 3*lease - time.Millisecond} {
		t.Run(released.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, srv := newScope(t), redistest.StartFake(t)
				held := try(t, open(t, srv.Client(t), lock.WithLease(lease)).Mutex("job:1"))
				next := begin(t.Context(), open(t, srv.Client(t), lock.WithMeterProvider(s.meter), lock.WithLease(lease)).Mutex("job:1"))
				time.Sleep(released)
				del(t, srv, "job:1") // the message of the release is on its way
				got := <-next        // patience is too little
				if got.err != nil {
					t.Fatal(got.err)
				}
				free(t, got.Lease)
				if n := s.sum(t, telemetry.MetricTakeovers); n != 0 {
					t.Errorf("taken over from a holder that has released: %v", s.series(t, telemetry.MetricTakeovers))
				}
				_ = held.Release(t.Context())
			})
		})
	}
	for _, left := range []time.Duration{lease, 2 * time.Second, 50 * time.Millisecond} {
		t.Run("vanished, "+left.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, srv := newScope(t), redistest.StartFake(t)
				rdb := srv.Client(t)
				must(t, "HSET", rdb.HSet(t.Context(), "job:1", "gone:1", "1").Err())
				must(t, "PEXPIRE", rdb.PExpire(t.Context(), "job:1", left).Err())
				start := time.Now()
				l, err := open(t, srv.Client(t), lock.WithMeterProvider(s.meter)).Mutex("job:1").Lock(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if late := time.Since(start) - left; late > 300*time.Millisecond {
					t.Errorf("granted %v after the lease", late)
				}
				if n := s.sum(t, telemetry.MetricTakeovers, "lockdog.reason=expired"); n != 1 {
					t.Errorf("takeovers: %v", s.series(t, telemetry.MetricTakeovers))
				}
				free(t, l)
			})
		})
	}
}
