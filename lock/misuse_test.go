package lock_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/telemetry"
)

// What is given wrongly is refused with an error that says so, and leaves nothing behind.
func TestMisuse(t *testing.T) {
	t.Parallel()
	sp := redistest.Shared(t)
	s := newScope(t)
	c := s.open(t, sp.Client(t), lock.WithKeyPrefix(sp.Prefix()), lock.WithWatchdog(ttl))
	ctx := t.Context()

	var zero lock.Client
	_, err := zero.Mutex("job").TryLock(ctx)
	mustMatch(t, err, lock.ErrInvalid)
	mustMatch(t, zero.Close(ctx), lock.ErrInvalid)
	if zero.Leases() != nil || zero.Recent() != nil {
		t.Error("a Client that New didn't make has leases")
	}

	mustMatch(t, c.Mutex("job").Do(ctx, nil), lock.ErrInvalid)
	_, err = lock.Do[int](ctx, c.Mutex("job"), nil)
	mustMatch(t, err, lock.ErrInvalid)
	if n := s.sent(t, telemetry.PurposeAcquire); n != 0 {
		t.Errorf("%d calls to acquire for no work", n)
	}

	l := try(t, c.Mutex("job"))
	mustMatch(t, l.Release(nil), lock.ErrInvalid) //nolint:staticcheck // what comes of it is the point
	mustMatch(t, l.Err(), lock.ErrReleased)
	free(t, try(t, c.Mutex("job")))
}

// Do returns when its ctx ends, also where Redis doesn't answer the release; the lock is given back when it does again.
func TestDoReturnsWithItsCtx(t *testing.T) {
	t.Parallel()
	sp := redistest.Shared(t)
	rdb, e := throughProxy(t, sp)
	c := newScope(t).open(t, rdb, lock.WithKeyPrefix(sp.Prefix()), lock.WithWatchdog(far))
	free(t, try(t, c.Mutex("job")))
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	start := time.Now()
	err := c.Mutex("job").Do(ctx, func(context.Context, *lock.Lease) error {
		e.set(redistest.When(redistest.Up, redistest.Drop))
		return nil
	})
	mustMatch(t, err, context.DeadlineExceeded)
	if took := time.Since(start); took > patience/3 {
		t.Errorf("it took %v", took)
	}
	e.set(nil)
	free(t, granted(t, begin(t.Context(), c.Mutex("job"))))
}

// A subscription that can't be had is an error of the network, not of the client's that closes its connection then.
func TestSubscriptionErrors(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	s := newScope(t)
	rdb := srv.Client(t, func(o *redis.Options) { o.DialerRetries, o.DialTimeout = 1, time.Second })
	c := s.open(t, rdb, lock.WithWatchdog(far))
	l := try(t, c.Mutex("job"))
	next := begin(t.Context(), c.Mutex("job"))
	asleep(t, c, 1)
	srv.Kill(t)
	const subscribing = "lockdog.operation=subscribe"
	eventually(t, patience, func() bool { return s.sum(t, telemetry.MetricErrors, subscribing) >= 5 })
	if n := s.sum(t, telemetry.MetricErrors, subscribing, "error.type=other"); n > 0 {
		t.Errorf("%v are of no kind: %v", n, s.series(t, telemetry.MetricErrors))
	}
	srv.Restart(t, redistest.LoseData)
	granted(t, next)
	mustMatch(t, l.Release(t.Context()), lock.ErrLost)
}
