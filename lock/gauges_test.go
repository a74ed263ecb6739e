package lock_test

import (
	"context"
	"math"
	"net"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/telemetry"
)

// A lease that was granted by a message is trusted for a short time until its first renewal. The gauge of the worst
// utilization doesn't take it for a lease near its end.
func TestGrantByMessageUsesNoMarginUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		srv := redistest.StartFake(t)
		holder, s := newScope(t).open(t, srv.Client(t)), newScope(t)
		waiter := s.open(t, srv.Client(t))
		var got *lock.Lease
		for range 10 { // one release in 64 grants nothing
			l := try(t, holder.Mutex("job"))
			next := begin(t.Context(), waiter.Multi([]string{"job"}))
			waiting(t, waiter, 1)
			time.Sleep(time.Second)
			free(t, l)
			if got = granted(t, next); time.Until(got.Deadline()) < 5*time.Second {
				break
			}
			free(t, got)
		}
		if left := time.Until(got.Deadline()); left > 5*time.Second {
			t.Fatalf("it is trusted for %v: no message has granted it", left)
		}
		time.Sleep(100 * time.Millisecond)
		if used := s.sum(t, telemetry.MetricWorstUtilization); used > 0.01 {
			t.Errorf("%v of the lease is used up after 100 ms; want 0.003", used)
		}
		free(t, got)
	})
}

// Two clients of one process report to one MeterProvider, and don't hide each other: whichever was made last.
func TestGaugesOfTwoClientsDoNotHideEachOther(t *testing.T) {
	t.Parallel()
	for _, first := range []int{0, 1} {
		synctest.Test(t, func(t *testing.T) {
			srv := redistest.StartFake(t)
			s := newScope(t)
			var clients [2]*lock.Client
			var wires [2]*wireTap
			for i := range clients {
				rdb, wire := throughProxy(t, srv)
				clients[i], wires[i] = s.open(t, rdb, lock.WithLease(6*time.Second)), wire
			}
			bad, good, wire := clients[first], clients[1-first], wires[first]
			gauge := func(m telemetry.Metric, want float64) {
				t.Helper()
				if got := s.sum(t, m); math.Abs(got-want) > 1e-6 {
					t.Errorf("%s of client %d in trouble: %v, want %v", m.Name, first, got, want)
				}
			}
			connected := func(want float64) {
				t.Helper()
				eventually(t, patience, func() bool {
					return s.series(t, telemetry.MetricPubSubConnected)[""] == want && s.sum(t, telemetry.MetricFailing) == 1-want
				})
			}

			elder := try(t, bad.Mutex("job:1"))
			time.Sleep(time.Second)
			younger := try(t, good.Mutex("job:2"))
			gauge(telemetry.MetricOldestAge, 1)
			gauge(telemetry.MetricHeld, 2)
			connected(1)

			// The server can't be reached any more from one of them.
			wire.proxy.Refuse(t)
			wire.proxy.CutAll()
			connected(0)
			must(t, "the other client's lease", younger.Err())
			wire.proxy.Accept(t)
			connected(1)

			before := s.sum(t, telemetry.MetricOldestAge)
			free(t, elder)
			gauge(telemetry.MetricOldestAge, before-1)
			free(t, younger)
			must(t, "Close", bad.Close(t.Context()))
			l := try(t, good.Mutex("job:3"))
			mustBe(t, "series", len(s.series(t, telemetry.MetricOldestAge)), 1)
			free(t, l)
			must(t, "Close", good.Close(t.Context()))
			mustBe(t, "series", len(s.series(t, telemetry.MetricOldestAge)), 0)
		})
	}
}

// While Redis fails, calls have the outcome error, also if their deadline ends them: so an alert can tell this from a
// lock that is held for long. Exceptions are calls that end within 100 ms, and callers that cancel while Redis is
// silent.
func TestOutcomeSaysThatRedisFailed(t *testing.T) {
	t.Parallel()
	const calls = 6 // one more than an alert wants
	hangs := func(t *testing.T, srv *redistest.Fake) { srv.Pause(t) }
	refuses := func(_ *testing.T, srv *redistest.Fake) {
		srv.SetRefusal(refuseAny([]string{"EVALSHA", "EVAL"}, "LOADING Redis is loading the dataset in memory"))
	}
	for name, tt := range map[string]struct {
		fault   func(*testing.T, *redistest.Fake)
		after   time.Duration // the caller's ctx ends
		cancels bool          // by cancel, not by its deadline
		kind    func(c *lock.Client) lock.Locker
		outcome string
		errors  float64
	}{
		"it hangs, deadline":             {hangs, time.Second, false, mutexOf, "error", calls},
		"it hangs, short deadline":       {hangs, 50 * time.Millisecond, false, mutexOf, "timeout", 0},
		"it hangs, the caller hangs up":  {hangs, time.Second, true, mutexOf, "canceled", 0},
		"it refuses, deadline":           {refuses, time.Second, false, mutexOf, "error", calls},
		"it refuses, caller hangs up":    {refuses, time.Second, true, mutexOf, "error", calls},
		"it hangs, deadline, of a Multi": {hangs, time.Second, false, func(c *lock.Client) lock.Locker { return c.Multi(both) }, "error", calls},
		"too few replicas": {nil, time.Minute, false, func(c *lock.Client) lock.Locker {
			return c.Mutex("job", lock.WithReplicas(1, time.Millisecond), lock.WithWait(time.Millisecond))
		}, "error", calls},
		"too few replicas, deadline": {nil, time.Second, false, func(c *lock.Client) lock.Locker {
			return c.Mutex("job", lock.WithReplicas(1, time.Millisecond))
		}, "error", calls},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				srv, s := redistest.StartFake(t), newScope(t)
				c := s.open(t, srv.Client(t))
				free(t, try(t, c.Mutex("warm")))
				if tt.fault != nil {
					tt.fault(t, srv)
				}
				for range calls {
					ctx, cancel := context.WithTimeout(t.Context(), tt.after)
					if tt.cancels {
						ctx, cancel = context.WithCancel(t.Context())
						time.AfterFunc(tt.after, cancel)
					}
					if _, err := tt.kind(c).Lock(ctx); err == nil {
						t.Error("granted")
					}
					cancel()
				}
				if n := s.sum(t, telemetry.MetricAcquisitions, "lockdog.outcome="+tt.outcome); n != calls {
					t.Errorf("of %d calls %v have the outcome %s: %v", calls, n, tt.outcome, s.series(t, telemetry.MetricAcquisitions))
				}
				if n := s.sum(t, telemetry.MetricErrors, "lockdog.operation=acquire"); n < tt.errors || tt.errors == 0 && n > 0 {
					t.Errorf("%v errors are counted, want %v: %v", n, tt.errors, s.series(t, telemetry.MetricErrors))
				}
				srv.SetRefusal(nil)
				srv.Resume(t)
			})
		})
	}
}

// The same where the lock is contended, so that only the first waiter asks, and every waiter leaves before go-redis gives up.
func TestOutcomeSaysThatRedisFailedToWaiters(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		srv, s := redistest.StartFake(t), newScope(t)
		_ = try(t, newScope(t).open(t, srv.Client(t)).Mutex("job", lock.WithLease(far)))
		c := s.open(t, srv.Client(t))
		const calls = 60
		var all sync.WaitGroup
		for range calls {
			all.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
				defer cancel()
				if _, err := c.Mutex("job").Lock(ctx); err == nil {
					t.Error("granted")
				}
			})
			if time.Sleep(500 * time.Millisecond); len(c.Leases()) == 3 {
				srv.Pause(t)
			}
		}
		all.Wait()
		if n := s.sum(t, telemetry.MetricAcquisitions, "lockdog.outcome=error"); n < calls/2 {
			t.Errorf("of %d calls %v have the outcome error: %v", calls, n, s.series(t, telemetry.MetricAcquisitions))
		}
		srv.Resume(t)
	})
}

// A ctx that ends for a failure of something else, as in an errgroup, says nothing of Redis.
func TestOutcomeOfAnotherFailure(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		srv, s := redistest.StartFake(t), newScope(t)
		_ = try(t, newScope(t).open(t, srv.Client(t)).Mutex("job", lock.WithLease(far)))
		c := s.open(t, srv.Client(t))
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(&net.OpError{Op: "read", Err: syscall.ECONNRESET}) })
		_, err := c.Mutex("job").Lock(ctx)
		mustMatch(t, err, syscall.ECONNRESET)
		if n := s.sum(t, telemetry.MetricAcquisitions, "lockdog.outcome=canceled"); n != 1 || len(s.series(t, telemetry.MetricErrors)) > 0 {
			t.Errorf("%v, errors %v", s.series(t, telemetry.MetricAcquisitions), s.series(t, telemetry.MetricErrors))
		}
	})
}

func mutexOf(c *lock.Client) lock.Locker { return c.Mutex("job") }

// Every operation is counted once, under one outcome.
func TestOneOutcomePerOperation(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		srv := redistest.StartFake(t)
		rdb := srv.Client(t)
		s := newScope(t)
		c := s.open(t, rdb, lock.WithReentrancy())
		foreign := newScope(t).open(t, rdb)
		look := func() map[string]float64 {
			all := map[string]float64{}
			for _, m := range []telemetry.Metric{
				telemetry.MetricAcquisitions, telemetry.MetricAcquireDuration, telemetry.MetricReleases, telemetry.MetricReleaseDuration,
				telemetry.MetricLosses, telemetry.MetricCancellations, telemetry.MetricHoldDuration, telemetry.MetricErrors,
			} {
				for set, v := range s.series(t, m) {
					all[strings.TrimPrefix(m.Name, "lockdog.")+" "+strings.ReplaceAll(set, "lockdog.", "")] = v
				}
			}
			return all
		}
		// counts checks that fn raises these series by one and no others. All are of group g.
		counts := func(what string, fn func(), want ...string) {
			t.Helper()
			before := look()
			fn()
			synctest.Wait() // what tells of a loss follows on Lease.Ended in a moment
			rose := []string{}
			for key, v := range look() {
				if n := v - before[key]; n == 1 {
					rose = append(rose, key)
				} else if n != 0 {
					t.Errorf("%s: %s rose by %v", what, key, n)
				}
			}
			slices.Sort(rose)
			slices.Sort(want)
			if !slices.Equal(rose, want) {
				t.Errorf("%s: what rose is\n%q, want\n%q", what, rose, want)
			}
		}
		const held = "hold.duration group=g"
		acquired := []string{"acquisitions group=g,outcome=acquired", "acquire.duration group=g,outcome=acquired"}
		failed := func(outcome string, more ...string) []string {
			return append(more, "acquisitions group=g,outcome="+outcome, "acquire.duration group=g,outcome=failed")
		}
		released := func(outcome string, more ...string) []string {
			return append(more, "releases group=g,outcome="+outcome, "release.duration group=g", held)
		}
		m := c.Mutex("g:1")

		var l, inner *lock.Lease
		counts("TryLock", func() { l = try(t, m) }, acquired...)
		counts("re-entry", func() { inner, _ = m.TryLock(l.Context()) }, "acquisitions group=g,outcome=reentered")
		counts("TryLock of a held lock", func() { _, _ = m.TryLock(t.Context()) }, failed("held")...)
		counts("Lock WithWait over", func() { _, _ = c.Mutex("g:1", lock.WithWait(30*time.Millisecond)).Lock(t.Context()) }, failed("timeout")...)
		counts("Lock with a ctx that is canceled", func() {
			ctx, cancel := context.WithCancel(t.Context())
			waiter := begin(ctx, m)
			waiting(t, c, 1)
			cancel()
			await(t, "Lock", waiter)
		}, failed("canceled")...)
		counts("Lock with a ctx whose deadline passes", func() {
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
			defer cancel()
			_, _ = m.Lock(ctx)
		}, failed("timeout")...)
		counts("Release of the inner lease", func() { free(t, inner) })
		counts("Release", func() { free(t, l) }, released("released")...)
		counts("Release again", func() { _ = l.Release(t.Context()) })
		counts("bad name", func() { _, _ = c.Mutex("").TryLock(t.Context()) })
		counts("key of another type", func() {
			rdb.Set(t.Context(), "g:string", "x", 0)
			mustMatch(t, second(c.Mutex("g:string").TryLock(t.Context())), lock.ErrInvalid)
		}, failed("error", "errors error.type=_OTHER,operation=acquire")...)
		counts("deadlock", func() {
			l := try(t, foreign.Mutex("g:2"))
			mustMatch(t, second(foreign.Mutex("g:2").TryLock(l.Context())), lock.ErrDeadlock)
			free(t, l)
		}) // of another scope: nothing here

		counts("fixed lease overrun", func() {
			mustBeLost(t, try(t, c.Mutex("g:3", lock.WithFixedLease(time.Second))), lock.CauseExpired)
		}, append(acquired, "losses cause=expired,group=g", held)...)
		counts("release of a missing lock", func() {
			l := try(t, m)
			rdb.Del(t.Context(), "g:1")
			mustMatch(t, l.Release(t.Context()), lock.ErrLost)
		}, append(released("lost", "losses cause=missing,group=g"), acquired...)...)
		counts("forced unlock", func() {
			l := try(t, m)
			must(t, "ForceUnlock", second(foreign.Mutex("g:1").ForceUnlock(t.Context())))
			mustBeLost(t, l, lock.CauseForced)
		}, append(acquired, "losses cause=forced,group=g", held)...)
		counts("canceled, then released", func() {
			ctx, cancel := context.WithCancel(t.Context())
			l := enter(t, ctx, m)
			cancel()
			_ = mustBeCanceled(t, l, lock.ReasonContext)
			free(t, l)
		}, append(released("released", "cancellations group=g,reason=context"), acquired...)...)
		counts("Close", func() {
			try(t, m)
			ended, cancel := context.WithCancel(t.Context())
			cancel()
			mustMatch(t, c.Close(ended), context.Canceled)
		}, append(acquired, "cancellations group=g,reason=closed", held)...)
		for _, gauge := range []telemetry.Metric{telemetry.MetricHeld, telemetry.MetricWaiting, telemetry.MetricWatchdogLeases} {
			mustBe(t, gauge.Name, s.sum(t, gauge), 0.0)
		}
	})
}
