package lock_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/telemetry"
)

// The program has filled its pool with commands that block. What is held stays held: renewals have connections of their own.
// What needs one of the pool waits for it, and says that it waited for that.
func TestFullPool(t *testing.T) {
	t.Parallel()
	const (
		conns = 4
		lease = 10 * time.Second
	)
	srv := redistest.Start(t)
	rdb := srv.Client(t, func(o *redis.Options) {
		o.PoolSize, o.MaxActiveConns, o.PoolTimeout = conns, conns, time.Second
	})
	s := newScope(t)
	c := s.open(t, rdb, lock.WithLease(lease))
	var held []*lock.Lease
	for i := range 3 {
		held = append(held, try(t, c.Mutex(fmt.Sprintf("job:%d", i))))
	}
	waiter := begin(t.Context(), newScope(t).open(t, srv.Client(t), lock.WithLease(lease)).Mutex("job:0"))

	unblock := fillPool(t, srv, rdb, conns)
	since, renewals := time.Now(), s.sum(t, telemetry.MetricRenewals, "lockdog.outcome=renewed")

	_, err := c.Mutex("other", lock.WithLease(far)).TryLock(t.Context()) // which would have time for a late answer
	mustMatch(t, err, redis.ErrPoolTimeout)
	span := s.spansNamed("acquire default")[0]
	if got := attrsOf(span); got["error.type"] != "pool" || got["lockdog.outcome"] != "error" {
		t.Errorf("the acquire span says %v, want error.type pool", got)
	}
	if n := s.sum(t, telemetry.MetricErrors, "lockdog.operation=acquire", "error.type=pool"); n != s.sum(t, telemetry.MetricErrors) || n == 0 {
		t.Errorf("errors: %v, want those of acquires that waited for the pool", s.series(t, telemetry.MetricErrors))
	}
	// A caller may have less patience than the pool.
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = c.Mutex("other").Lock(ctx)
	mustMatch(t, err, context.DeadlineExceeded)

	for _, l := range held { // by a call that was made since
		renewedPast(t, l, since.Add(lease))
	}
	mustAllLive(t, held)
	eventually(t, patience, func() bool { return s.sum(t, telemetry.MetricRenewals, "lockdog.outcome=renewed") >= renewals+3 })
	if n := s.sum(t, telemetry.MetricRenewals, "lockdog.outcome=error"); n != 0 {
		t.Errorf("%v renewals failed", n)
	}

	// A release has to wait too, but the lock is renewed no more, and so is free one lease later.
	ctx, cancel = context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	mustMatch(t, held[0].Release(ctx), context.DeadlineExceeded)
	free(t, granted(t, waiter))
	if n := s.sum(t, telemetry.MetricReleases, "lockdog.outcome=error"); n != 1 {
		t.Errorf("%v releases counted as failed, want 1", n)
	}

	unblock()
	for _, l := range held[1:] {
		free(t, l)
	}
	free(t, try(t, c.Mutex("other")))
	if n := s.sum(t, telemetry.MetricLosses); n != 0 {
		t.Errorf("%v losses", n)
	}
}

// fillPool has BLPOPs take all connections of a pool. What it returns ends them.
func fillPool(t *testing.T, srv *redistest.Server, rdb *redis.Client, conns int) (unblock func()) {
	t.Helper()
	blocked := make(chan error, conns)
	for range conns {
		go func() { blocked <- rdb.BLPop(context.Background(), 0, "queue").Err() }()
	}
	eventually(t, patience, func() bool { return srv.Info(t, "clients")["blocked_clients"] == fmt.Sprint(conns) })
	return func() {
		t.Helper()
		feed := srv.Client(t)
		for range conns {
			if err := feed.LPush(context.Background(), "queue", "x").Err(); err != nil {
				t.Fatal(err)
			}
		}
		for range conns {
			if err := await(t, "BLPOP", blocked); err != nil {
				t.Error(err)
			}
		}
	}
}
