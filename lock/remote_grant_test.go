package lock_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/telemetry"
)

// A release grants the lock to a waiter in another process by a message: see package waitset. No two hold it, however late that message comes.

// inSet waits until n clients wait for a lock.
func inSet(t *testing.T, srv interface {
	Client(testing.TB, ...func(*redis.Options)) *redis.Client
}, job string, n int64,
) {
	t.Helper()
	eventually(t, patience, func() bool { return srv.Client(t).ZCard(t.Context(), "lockdog_wait:{"+job+"}").Val() == n })
}

// The waiter asks nothing more. Its lease is a short one until its first renewal, which comes soon.
func TestGrantByMessage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		srv := redistest.StartFake(t)
		h, s := newScope(t).open(t, srv.Client(t)), newScope(t)
		c := s.open(t, srv.Client(t))
		for round := 1; ; round++ { // one release of many wakes all instead; and this test may be slower than the first renewal
			held := try(t, h.Mutex("job"))
			waiter := begin(t.Context(), c.Mutex("job"))
			inSet(t, srv, "job", 1)
			synctest.Wait() // until the question that put it there is counted
			asked := s.sent(t, telemetry.PurposeAcquire)
			free(t, held)
			l := granted(t, waiter)
			left := time.Until(l.Deadline())
			if (s.sent(t, telemetry.PurposeAcquire) != asked || left > 3*time.Second) && round < 10 {
				free(t, l)
				continue
			}
			if n := s.sent(t, telemetry.PurposeAcquire) - asked; n != 0 {
				t.Errorf("it asked %d times more", n)
			}
			if left > 3*time.Second {
				t.Errorf("the message is trusted for %v", left)
			}
			if l.Token() <= held.Token() {
				t.Errorf("token %d after %d", l.Token(), held.Token())
			}
			eventually(t, patience, func() bool { return time.Until(l.Deadline()) > 20*time.Second })
			if ttl := srv.Client(t).PTTL(t.Context(), "job").Val(); ttl < 20*time.Second {
				t.Errorf("in Redis it has %v left", ttl)
			}
			free(t, l)
			break
		}
		spans := s.spansNamed("acquire job")
		if len(spans) == 0 {
			spans = s.spansNamed("acquire default")
		}
		if last := spans[len(spans)-1]; len(last.Links) == 0 {
			t.Errorf("the acquire has no link to that of the holder before: %+v", last)
		}
	})
}

// A grant by message is believed for a long lease, too: its margin depends on the time for which a message is trusted.
func TestGrantByMessageOfALongLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		srv := redistest.StartFake(t)
		s := newScope(t)
		h, c := newScope(t).open(t, srv.Client(t), lock.WithLease(time.Hour)), s.open(t, srv.Client(t), lock.WithLease(time.Hour))
		const rounds = 10 // one release of many wakes all instead
		asked := 0
		for range rounds {
			held := try(t, h.Mutex("job"))
			waiter := begin(t.Context(), c.Mutex("job"))
			inSet(t, srv, "job", 1)
			synctest.Wait() // until the question that put it there is counted
			before := s.sent(t, telemetry.PurposeAcquire)
			free(t, held)
			free(t, granted(t, waiter))
			asked += s.sent(t, telemetry.PurposeAcquire) - before
		}
		if asked > rounds/2 {
			t.Errorf("of %d waiters %d had to ask after the message", rounds, asked)
		}
	})
}

// A message that comes when its time is over, because the network or the process stood still, is not believed.
func TestLateGrantIsNotTrusted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const lease = 3 * time.Second
		srv := redistest.StartFake(t)
		rdb, wire := throughProxy(t, srv)
		h := newScope(t).open(t, srv.Client(t), lock.WithLease(lease))
		late := newScope(t).open(t, rdb, lock.WithLease(lease))
		other := newScope(t).open(t, srv.Client(t), lock.WithLease(lease))
		held := try(t, h.Mutex("job"))
		first := begin(t.Context(), late.Mutex("job"))
		inSet(t, srv, "job", 1)
		second := begin(t.Context(), other.Mutex("job"))
		inSet(t, srv, "job", 2)
		wire.set(redistest.When(redistest.Down, redistest.Hold, redistest.Contains("message")))
		free(t, held)
		l := granted(t, second) // when the time of the first is over
		wire.set(nil)
		wire.proxy.Release()
		always(t, 300*time.Millisecond, func() bool { return len(first) == 0 })
		if err := l.Context().Err(); err != nil {
			t.Fatalf("the second isn't a holder any more: %v", err)
		}
		free(t, l)
		l = granted(t, first)
		free(t, l)
	})
}

// A waiter leaves while a release of its own client is on its way. That release enters the waiter into the wait set all the same.
func TestGrantToOneWhoLeftBeforeItWasEntered(t *testing.T) {
	t.Parallel()
	for round := range 3 { // one release of many wakes all instead
		t.Run(fmt.Sprint(round), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const job = "job"
				srv := redistest.StartFake(t)
				rdb, wire := throughProxy(t, srv)
				one := newScope(t).open(t, rdb)
				two := newScope(t).open(t, srv.Client(t))
				a := try(t, one.Mutex(job))
				bctx, cancel := context.WithCancel(t.Context())
				b := begin(bctx, one.Mutex(job))
				inSet(t, srv, job, 1)
				c := begin(t.Context(), one.Mutex(job)) // behind b; never asked
				waiting(t, one, 2)
				x := begin(t.Context(), two.Mutex(job))
				inSet(t, srv, job, 2)
				wire.set(redistest.When(redistest.Up, redistest.Hold, wire.script("hand_over", job), redistest.Nth(1)))
				released := make(chan error, 1)
				go func() { released <- a.Release(context.Background()) }()
				wire.proxy.AwaitHeld(t, 1)
				cancel()
				await(t, "Lock", b)
				wire.set(nil)
				wire.proxy.Release()
				if err := await(t, "Release", released); err != nil {
					t.Fatal(err)
				}
				began := time.Now()
				for range 2 {
					select {
					case got := <-x:
						free(t, got.Lease)
					case got := <-c:
						free(t, got.Lease)
					case <-time.After(20 * time.Second):
						t.Fatal("nobody")
					}
				}
				if took := time.Since(began); took > 2*time.Second { // a message is trusted for 3 s
					t.Errorf("those who wait got the lock after %v", took)
				}
			})
		})
	}
}

// Two waiters of a client leave at once, as they have one ctx, while the question of the first is on its way, and granted.
func TestGrantToOneOfTwoWhoLeave(t *testing.T) {
	t.Parallel()
	for round := range 4 {
		t.Run(fmt.Sprint(round), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const job = "job"
				srv := redistest.StartFake(t)
				rdb, wire := throughProxy(t, srv)
				one := newScope(t).open(t, rdb)
				h := newScope(t).open(t, srv.Client(t))
				held := try(t, h.Mutex(job))
				ctx, cancel := context.WithCancel(t.Context())
				a := begin(ctx, one.Mutex(job))
				inSet(t, srv, job, 1)
				b := begin(ctx, one.Mutex(job))
				waiting(t, one, 2)
				c := begin(t.Context(), one.Mutex(job))
				waiting(t, one, 3)
				// a asks, as all are woken, and is granted the lock with b behind it; the reply is late.
				srv.Client(t).Del(t.Context(), "lockdog_wait:{"+job+"}")
				wire.set(redistest.ReplyTo(redistest.Hold, wire.script("acquire", job), redistest.Nth(1)))
				free(t, held)
				wire.proxy.AwaitHeld(t, 1)
				began := time.Now()
				cancel()
				await(t, "Lock", a)
				await(t, "Lock", b)
				wire.set(nil)
				wire.proxy.Release()
				l := granted(t, c)
				if took := time.Since(began); took > 2*time.Second {
					t.Errorf("the third got the lock after %v", took)
				}
				free(t, l)
			})
		})
	}
}
