package lock_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/internal/fakeredis"
	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/telemetry"
)

// TestInvalid checks that invalid arguments and options fail at the first use, and that Redis isn't asked. (What no
// lock can be called or have, whatever its kind: bad input of the conformance suite.)
func TestInvalid(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, ns, ctx := newDesk(t), startNodes(t, 4), t.Context()
		c, undetecting, delayed := d.client(), d.client(lock.WithWaitGraph(0)), d.client(lock.WithTakeoverDelay(time.Second))
		clients := ns.quorum().clients
		twin := newScope(t).open(t, ns.servers[0].Client(t, func(o *redis.Options) { o.Addr, o.DB = ns.wires[0].proxy.Addr(), 1 }))
		quorum := func(of ...*lock.Client) *lock.Quorum {
			q, err := lock.NewQuorum(of...)
			must(t, "NewQuorum", err)
			return q
		}
		quorum(clients...)
		followers := d.client(lock.WithLease(quorumLease), lock.WithLifetime(ctx))
		unalike := quorum(clients[1], clients[2], twin)        // whose lease is the default one
		endless := func(timeout time.Duration) *redis.Client { // whose calls may never return
			return d.sp.Client(t, func(o *redis.Options) { o.ReadTimeout = timeout })
		}
		many := make([]string, 1025)
		for i := range many {
			many[i] = fmt.Sprint(i)
		}
		take := func(l lock.Locker) error { return errorOf(l.TryLock(ctx)) }
		var zero lock.Client
		var none context.Context
		var nobody *lock.Client
		var noQuorum *lock.Quorum
		var noRW *lock.RWMutex
		s, pool, gate := c.UnleasedSemaphore("pool"), c.Semaphore("pool"), c.Latch("gate")
		for _, row := range []struct {
			says string
			err  error
		}{
			{"New", zero.Close(ctx)},
			{"New", take(zero.Mutex("job"))},
			{"ReadTimeout", errorOf(lock.New(endless(-1)))}, // no timeout
			{"ReadTimeout", errorOf(lock.New(endless(-2)))}, // no deadline calls at all
			{"ReadTimeout", errorOf(lock.New(d.sp.Client(t), lock.WithRenewalClient(endless(-1))))},
			{"function", c.Mutex("job").Do(ctx, nil)},
			{"function", errorOf(lock.Do[int](ctx, c.Mutex("job"), nil))},
			{"lock", errorOf(lock.Do(ctx, nil, func(context.Context, *lock.Lease) (int, error) { return 1, nil }))},
			{"WithDeadlockBreaking", take(undetecting.Mutex("job", lock.WithDeadlockBreaking()))},
			{"ReadTimeout of the Redis client", take(c.Mutex("job", lock.WithReplicas(1, time.Hour), lock.WithLease(2*time.Hour)))},

			{"at least one", take(c.Multi(nil))},
			{"at most 1024", take(c.Multi(many))},
			{`"x" is given twice`, take(c.Multi([]string{"x", "y", "x"}))},
			{"name is empty", take(c.Multi([]string{"x", ""}))},
			{"no hash tag", take(c.Multi([]string{"x", "a{b"}))},
			{"contradict", take(c.Multi([]string{"x"}, lock.WithLease(time.Second), lock.WithFixedLease(time.Second)))},
			{"the Client is nil", take(nobody.Multi([]string{"x"}))},
			{"is made by a Client", take((*lock.Multi)(nil))},
			{"is made by a Client", take(&lock.Multi{})},
			{"is made by a Client", errorOf((*lock.Multi)(nil).Inspect(ctx))},
			{"is made by a Client", errorOf((&lock.Multi{}).ForceUnlock(ctx))},
			{"at least one", errorOf(c.Multi(nil).Inspect(ctx))},
			{"at least one", errorOf(c.Multi(nil).ForceUnlock(ctx))},

			{"at least 3 are needed", errorOf(lock.NewQuorum(clients[:2]...))},
			{"client 1 is nil", errorOf(lock.NewQuorum(clients[0], nil, clients[1]))},
			{"client 1 is nil, or not made by New", errorOf(lock.NewQuorum(clients[0], &zero, clients[1]))},
			{"0 and 2 are the same", errorOf(lock.NewQuorum(clients[0], clients[1], clients[0]))},
			{"server " + ns.wires[0].proxy.Addr(), errorOf(lock.NewQuorum(clients[0], clients[1], twin))},
			{"different leases", take(unalike.Mutex("job", lock.WithTakeoverDelay(0)))},
			{"different leases", take(quorum(clients[1], clients[2], delayed).Mutex("job"))},
			{"WithLifetime, and others don't", take(quorum(followers, clients[1], clients[2]).Mutex("job"))},
			{"name is empty", take(unalike.Mutex("", lock.WithLease(time.Second)))},
			{"the Quorum is nil", take(noQuorum.Mutex("job"))},
			{"is made by a Client", take((*lock.QuorumMutex)(nil))},
			{"is made by a Client", errorOf((*lock.QuorumMutex)(nil).Inspect(ctx))},
			{"is made by a Client", errorOf((&lock.QuorumMutex{}).ForceUnlock(ctx))},

			{"is made by a Client", noRW.Do(ctx, noWork)},
			{"is made by a Client", noRW.RDo(ctx, noWork)},
			{"name is empty", c.RWMutex("").RDo(ctx, noWork)},
			{"no hash tag", c.RWMutex("a{b").Do(ctx, noWork)},
			{`"rw": WithMinHold`, take(c.RWMutex("rw", lock.WithMinHold(time.Second)))},
			{`"pool": WithMinHold`, take(c.Semaphore("pool", lock.WithMinHold(time.Second)))},

			{"Acquire(0)", s.Acquire(ctx, 0)},
			{"Acquire(-1)", s.TryAcquire(ctx, -1)},
			{"Acquire(2147483648)", s.Acquire(ctx, math.MaxInt32+1)},
			{"Release(0)", s.Release(ctx, 0)},
			{"Release(-1)", s.Release(ctx, -1)},
			{"AddPermits(-2147483648)", s.AddPermits(ctx, -math.MaxInt32-1)},
			{"TrySetPermits(-1)", errorOf(s.TrySetPermits(ctx, -1))},
			{"is made by a Client", (*lock.UnleasedSemaphore)(nil).Acquire(ctx, 1)},
			{"is made by a Client", (*lock.UnleasedSemaphore)(nil).Release(ctx, 1)},
			{"is made by a Client", (*lock.UnleasedSemaphore)(nil).AddPermits(ctx, 1)},
			{"is made by a Client", errorOf((*lock.UnleasedSemaphore)(nil).Available(ctx))},
			{"is made by a Client", new(lock.UnleasedSemaphore).Acquire(ctx, 1)},
			{"is made by a Client", new(lock.UnleasedSemaphore).Release(ctx, 1)},
			{"the Client is nil", nobody.UnleasedSemaphore("pool").TryAcquire(ctx, 1)},
			{"ctx is nil", s.Acquire(none, 1)},
			{"ctx is nil", s.Release(none, 1)},
			{"WithWait(-1ns)", c.UnleasedSemaphore("pool", lock.WithWait(-1)).Acquire(ctx, 1)},
			{"about leases", c.UnleasedSemaphore("pool", lock.WithFixedLease(time.Second)).Acquire(ctx, 1)},
			{"about leases", c.UnleasedSemaphore("pool", lock.WithTakeoverDelay(time.Second)).TryAcquire(ctx, 1)},
			{"TrySetPermits(-1)", errorOf(pool.TrySetPermits(ctx, -1))},
			{"EnsurePermits(-1)", pool.EnsurePermits(ctx, -1)},
			{"is made by a Client", (*lock.Semaphore)(nil).EnsurePermits(ctx, 1)},
			{"is made by a Client", errorOf(new(lock.Semaphore).Total(ctx))},
			{"is made by a Client", errorOf((*lock.Semaphore)(nil).Lock(ctx))},
			{"is made by a Client", errorOf((*lock.Semaphore)(nil).Available(ctx))},
			{"is made by a Client", errorOf(new(lock.Semaphore).Available(ctx))},
			{"TrySetCount(0)", errorOf(gate.TrySetCount(ctx, 0))},
			{"about leases", c.Latch("gate", lock.WithMaxHold(time.Minute)).Wait(ctx)},
			{"about leases", c.Latch("gate", lock.WithTakeoverDelay(time.Second)).Wait(ctx)},
			{"is made by a Client", (*lock.Latch)(nil).Wait(ctx)},
			{"is made by a Client", errorOf((*lock.Latch)(nil).Count(ctx))},
			{"is made by a Client", new(lock.Latch).CountDown(ctx)},
			{"is made by a Client", errorOf(new(lock.Latch).TrySetCount(ctx, 1))},
		} {
			if !errors.Is(row.err, lock.ErrInvalid) || !strings.Contains(row.err.Error(), row.says) {
				t.Errorf("%v; it should be ErrInvalid, and say %q", row.err, row.says)
			}
		}
		if keys := d.sp.Keys(t); len(keys) != 0 || d.sent(t, telemetry.PurposeAcquire) != 0 || zero.Leases() != nil || zero.Recent() != nil {
			t.Errorf("Redis has %q, and was asked %d times", keys, d.sent(t, telemetry.PurposeAcquire))
		}
		free(t, try(t, unalike.Mutex("job", lock.WithLease(time.Second)))) // one lease for all
		why := errors.New("why")
		dead, cancel := context.WithCancelCause(ctx)
		cancel(why)
		mustMatch(t, errorOf(s.TrySetPermits(dead, 1)), why)
	})
}

// Do returns when its ctx ends, also where Redis doesn't answer the release; the lock is given back when it does again.
func TestDoReturnsWithItsCtx(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sp := redistest.StartFake(t)
		rdb, e := throughProxy(t, sp)
		c := newScope(t).open(t, rdb, lock.WithKeyPrefix(sp.Prefix()), lock.WithLease(far))
		free(t, try(t, c.Mutex("job")))
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		start := time.Now()
		err := c.Mutex("job").Do(ctx, func(context.Context, *lock.Lease) error {
			e.set(redistest.When(redistest.Up, redistest.Drop))
			return nil
		})
		mustMatch(t, err, context.DeadlineExceeded)
		mustMatch(t, err, lock.ErrUnconfirmed)
		if took := time.Since(start); took > patience/3 {
			t.Errorf("it took %v", took)
		}
		e.set(nil)
		free(t, granted(t, begin(t.Context(), c.Mutex("job"))))
	})
}

// Work that goes on after Close has given its lease up is only in time until the lease ends.
func TestDo_OutlivesClose(t *testing.T) {
	t.Parallel()
	for _, late := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			const lease = 30 * time.Second
			c := newScope(t).open(t, redistest.StartFake(t).Client(t), lock.WithLease(lease))
			err := c.Mutex("job").Do(t.Context(), func(context.Context, *lock.Lease) error {
				ended, cancel := context.WithCancel(t.Context())
				cancel()
				_ = c.Close(ended)
				if late {
					time.Sleep(lease)
				}
				return nil
			})
			mustMatch(t, err, lock.ErrClosed)
			if errors.Is(err, lock.ErrLost) != late || errors.Is(err, lock.ErrUnconfirmed) == late {
				t.Errorf("after the lease's end %v: %v", late, err)
			}
		})
	}
}

// If a subscription fails because the server is gone, the error is counted as one of the network, although lockdog then
// closes the connection itself.
func TestSubscriptionErrors(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		srv := redistest.StartFake(t)
		s := newScope(t)
		rdb := srv.Client(t, func(o *redis.Options) { o.DialTimeout = time.Second })
		c := s.open(t, rdb, lock.WithLease(far))
		l := try(t, c.Mutex("job"))
		next := begin(t.Context(), c.Mutex("job"))
		asleep(t, c, 1)
		srv.Kill(t)
		const subscribing = "lockdog.operation=subscribe"
		eventually(t, patience, func() bool { return s.sum(t, telemetry.MetricErrors, subscribing) >= 5 })
		if n := s.sum(t, telemetry.MetricErrors, subscribing, "error.type=_OTHER"); n > 0 {
			t.Errorf("%v are of no kind: %v", n, s.series(t, telemetry.MetricErrors))
		}
		srv.Restart(t, redistest.LoseData)
		granted(t, next)
		mustMatch(t, l.Release(t.Context()), lock.ErrLost)
	})
}

// A Mutex that meets a read-write lock's key names its holder. A read-write lock that meets a Mutex's is refused, and leaves that alone.
func TestMutexOfAReadWriteLocksName(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, ctx := open(t, redistest.StartFake(t).Client(t), lock.WithLease(far)), t.Context()
		l, rw := try(t, c.RWMutex("job").RLocker()), c.RWMutex("job")
		for name, m := range map[string]lock.Locker{"mutex": c.Mutex("job"), "fair": c.FairMutex("job"), "multi": c.Multi([]string{"job"})} {
			_, err := m.TryLock(ctx)
			var held *lock.HeldError
			if !errors.As(err, &held) || held.Owner != l.Owner() {
				t.Errorf("%s: %v; want %s", name, err, l.Owner())
			}
		}
		if h, err := c.Mutex("job").Inspect(ctx); err != nil || h.Owner != l.Owner() {
			t.Errorf("Inspect: %+v, %v; want %s", h, err, l.Owner())
		}
		free(t, l)
		l = try(t, c.Mutex("job"))
		for i, err := range []error{errorOf(rw.TryLock(ctx)), errorOf(rw.TryRLock(ctx)), errorOf(rw.Inspect(ctx)), errorOf(rw.ForceUnlock(ctx))} {
			if !errors.Is(err, lock.ErrInvalid) {
				t.Errorf("%d: %v", i, err)
			}
		}
		free(t, l)
	})
}

// Where subscriptions are refused a log line says so once, and the gauge that is alerted on is 0 although there is a connection.
func TestRefusedSubscriptionIsSeen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		srv := redistest.StartFake(t)
		srv.SetRefusal(func(cmd string, _ ...string) string {
			if cmd == "SUBSCRIBE" {
				return "NOPERM User app has no permissions to run the 'subscribe' command"
			}
			return ""
		})
		s := newScope(t)
		c := s.open(t, srv.Client(t), lock.WithLease(far))
		l := try(t, c.Mutex("job"))
		next := begin(t.Context(), c.Mutex("job"))
		eventually(t, patience, func() bool { return len(s.records(t, subscriptionRefused)) == 1 })
		// It is tried again after 5 s; before that come a PONG of the connection, and the answers to UNSUBSCRIBE for waiters that left.
		other := try(t, c.Mutex("other"))
		for end := time.Now().Add(7 * time.Second); time.Now().Before(end); {
			_, err := c.Mutex("other", lock.WithWait(100*time.Millisecond)).Lock(t.Context())
			mustMatch(t, err, lock.ErrHeld)
			if n := s.sum(t, telemetry.MetricPubSubConnected); n != 0 {
				t.Fatal("the subscription is said to stand")
			}
		}
		if n := len(s.records(t, subscriptionRefused)); n != 1 {
			t.Errorf("logged %d times", n)
		}
		srv.SetRefusal(nil)
		eventually(t, patience, func() bool {
			return len(s.records(t, subscriptionTaken)) == 1 && s.sum(t, telemetry.MetricPubSubConnected) == 1
		})
		free(t, other)
		free(t, l)
		free(t, granted(t, next))
	})
}

// panickyLogs is a slog.Handler that panics at errors.
type panickyLogs struct{ slog.Handler }

func (panickyLogs) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelError }
func (panickyLogs) Handle(context.Context, slog.Record) error        { panic("the log") }

// A panic in a hook of the program's client is the call's error, wherever the call is made, and what the call took is given back. The log of it may
// panic, too.
func TestHookThatPanics(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sp := redistest.StartFake(t)
		rdb := sp.Client(t, func(o *redis.Options) { o.ContextTimeoutEnabled = true })
		var on atomic.Bool
		rdb.AddHook(fakeredis.Tap{Down: func(cmd redis.Cmder) error {
			if on.Load() && isEval(cmd) {
				panic("boom")
			}
			return nil
		}})
		s := newScope(t)
		tries := func(c *lock.Client) {
			for range 2 { // the first is sent by a worker, the second by its caller
				on.Store(true)
				_, err := c.Mutex("job").TryLock(t.Context())
				mustMention(t, err, "panic", "boom")
				on.Store(false)
				eventually(t, patience, func() bool {
					l, err := c.Mutex("job").TryLock(t.Context())
					return err == nil && l.Release(t.Context()) == nil
				})
			}
		}
		tries(s.open(t, rdb, lock.WithKeyPrefix(sp.Prefix()), lock.WithLease(far)))
		tries(open(t, rdb, lock.WithKeyPrefix(sp.Prefix()), lock.WithLease(far), lock.WithLogger(slog.New(panickyLogs{slog.DiscardHandler}))))
		s.mu.Lock()
		defer s.mu.Unlock()
		if !strings.Contains(s.text.String(), "lockdog: survived a panic") || !strings.Contains(s.text.String(), "misuse_test.go") {
			t.Error("the log doesn't say where it was")
		}
	})
}

// The hooks of the program's client see every call, as redisotel's do for its spans.
func TestHooksSeeEveryCall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, heeds := range []bool{false, true} {
			srv := redistest.StartFake(t)
			rdb := srv.Client(t, func(o *redis.Options) { o.ContextTimeoutEnabled = heeds })
			var seen atomic.Int64
			rdb.AddHook(fakeredis.Tap{Up: func(cmd redis.Cmder) error {
				if isEval(cmd) {
					seen.Add(1)
				}
				return nil
			}})
			c := newScope(t).open(t, rdb, lock.WithLease(far))
			for range 20 {
				free(t, try(t, c.Mutex("job")))
			}
			sent := srv.Commands(t)
			if n := sent["evalsha"] + sent["eval"]; seen.Load() != n {
				t.Errorf("ContextTimeoutEnabled %v: the hook saw %d of %d scripts", heeds, seen.Load(), n)
			}
		}
	})
}

// Defaults of New that limit leases say nothing to what has none, whatever it is given itself.
func TestLeaselessKindsIgnoreDefaults(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rdb := redistest.StartFake(t)
		for _, defaults := range [][]lock.Option{
			{lock.WithFixedLease(time.Second)},
			{lock.WithMaxHold(time.Minute), lock.WithHeartbeat(time.Minute), lock.WithTakeoverDelay(time.Second)},
		} {
			c := newScope(t).open(t, rdb.Client(t), append(defaults, lock.WithKeyPrefix(rdb.Prefix()))...)
			for _, opt := range []lock.LockOption{lock.WithLease(5 * time.Minute), lock.WithGroup("g"), lock.WithWait(0)} {
				must(t, "Wait", c.Latch("open", opt).Wait(t.Context()))
				if _, err := c.UnleasedSemaphore("pool", opt).Available(t.Context()); err != nil {
					t.Error(err)
				}
			}
		}
	})
}

// Each of these leases was taken in two Contexts, so 2^40 ways lead back to the first ones. The search for a deadlock
// visits each lease once.
func TestDeadlockIsSeenThroughManyForks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := open(t, redistest.StartFake(t).Client(t))
		in := func(ctx, follows context.Context, name string) *lock.Lease {
			l, err := c.Mutex(name, lock.WithLifetime(follows)).TryLock(ctx)
			must(t, "TryLock", err)
			return l
		}
		a, b := try(t, c.Mutex("a")), try(t, c.Mutex("b"))
		for i := range 40 {
			a, b = in(a.Context(), b.Context(), fmt.Sprint("a", i)), in(b.Context(), a.Context(), fmt.Sprint("b", i))
		}
		free(t, in(a.Context(), b.Context(), "another"))
		for _, name := range []string{"a", "b", "a0", "b38"} {
			_, err := c.Mutex(name).TryLock(a.Context())
			mustMatch(t, err, lock.ErrDeadlock)
		}
	})
}
