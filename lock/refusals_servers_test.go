package lock_test

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/telemetry"
)

// What only a real server's state can show of refusals. How each is worded is in package redisfail.

// A Redis that is full grants nothing more, but takes what is given back. What is held is renewed, and can be handed over.
func TestFullRedis(t *testing.T) {
	t.Parallel()
	srv, s := redistest.Start(t), newScope(t)
	rdb, ctx := srv.Client(t), t.Context()
	c, other := s.open(t, rdb, lock.WithLease(10*time.Second)), newScope(t).open(t, srv.Client(t))
	full := func(on bool) {
		t.Helper()
		must(t, "maxmemory", rdb.ConfigSet(ctx, "maxmemory", map[bool]string{true: "1", false: "0"}[on]).Err())
	}
	free(t, try(t, c.Mutex("warm-up")))
	pool, gate, permits := c.UnleasedSemaphore("pool"), closed(t, c, "gate", 1), c.Semaphore("permits")
	must(t, "Release", pool.Release(ctx, 1))
	must(t, "Acquire", pool.Acquire(ctx, 1))
	must(t, "EnsurePermits", permits.EnsurePermits(ctx, 2))
	held := []*lock.Lease{try(t, c.Mutex("kept")), try(t, permits), try(t, c.RWMutex("written")), try(t, c.RWMutex("read").RLocker())}
	l := try(t, c.Mutex("job"))
	heir := begin(ctx, c.Mutex("job"))
	asleep(t, c, 1) // what asks now is refused
	full(true)
	free(t, l)
	heired := granted(t, heir)
	stranger := begin(ctx, other.Mutex("job"))
	waiting(t, other, 1)
	free(t, heired)
	mustMention(t, await(t, "the waiter", stranger).err, "job", "OOM")

	must(t, "Release", other.UnleasedSemaphore("pool").Release(ctx, 1)) // nobody's receipts are there to be deleted
	before := s.refused(t, "acquire", "oom")
	err := errorOf(c.Mutex("free").TryLock(ctx))
	mustMatch(t, err, lock.ErrUnavailable)
	mustMention(t, err, "free", "OOM")
	mustMention(t, errorOf(c.Semaphore("permits").TryLock(ctx)), "permits", "OOM")
	mustMention(t, pool.TryAcquire(ctx, 1), "pool", "OOM")
	mustMention(t, errorOf(c.RWMutex("read").RLocker().TryLock(ctx)), "read", "OOM")
	if n := s.refused(t, "acquire", "oom") - before; n != 4 {
		t.Errorf("%d errors counted as oom, want 4", n)
	}
	mustMatch(t, errorOf(c.RWMutex("written").TryLock(ctx)), lock.ErrHeld)
	must(t, "CountDown", gate.CountDown(ctx))
	must(t, "EnsurePermits", permits.EnsurePermits(ctx, 3))
	must(t, "EnsurePermits", permits.EnsurePermits(ctx, 2))
	for _, l := range held {
		renewedPast(t, l, l.Deadline())
		must(t, "the lease", l.Err())
		free(t, l)
	}
	if n := rdb.Exists(ctx, "job", "kept", "free", "written", "read").Val(); n != 0 {
		t.Errorf("%d locks are left", n)
	}
	full(false)
	mustBe(t, "permits", available(t, pool), 1)
	mustBe(t, "permits with leases", available(t, permits), 2)
	must(t, "Wait", gate.Wait(ctx))
}

// A client leaves a primary that was demoted while it was connected, and connects to the new one. So do renewals,
// although the reply to them is a list with a result for each lock.
func TestDemotedPrimaryIsLeft(t *testing.T) {
	t.Parallel()
	const lease = 10 * time.Second
	rs := redistest.StartReplicated(t, 1)
	before, after := rs.Primary.Client(t), rs.Replicas[0].Client(t)
	var leads atomic.Pointer[redistest.Server] // as a Sentinel says
	leads.Store(rs.Primary)
	s := newScope(t)
	c := s.open(t, rs.Primary.Client(t, func(o *redis.Options) {
		o.Dialer = func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, leads.Load().Addr())
		}
	}), lock.WithLease(lease))
	if _, err := c.Semaphore("permits").TrySetPermits(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	kept := []*lock.Lease{try(t, c.Mutex("job")), try(t, c.RWMutex("rw").RLocker()), try(t, c.Semaphore("permits"))}
	eventually(t, patience, func() bool { return s.sum(t, telemetry.MetricRenewals, "lockdog.outcome=renewed") >= 3 })
	replicated(t, rs.Primary)
	host, port, err := net.SplitHostPort(rs.Replicas[0].Addr())
	if err := errors.Join(err, after.ReplicaOf(t.Context(), "NO", "ONE").Err(), before.ReplicaOf(t.Context(), host, port).Err()); err != nil {
		t.Fatal(err)
	}
	leads.Store(rs.Replicas[0])
	since := time.Now()
	for _, l := range kept {
		renewedPast(t, l, since.Add(lease)) // by a call that was made since
	}
	mustAllLive(t, kept)
	freeAll(t, kept)
}
