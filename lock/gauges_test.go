package lock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/telemetry"
)

// A Multi that was granted a name by message is trusted for less than its lease until its first renewal, and isn't near its end for that.
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
	for name, order := range map[string][2]int{"first": {0, 1}, "second": {1, 0}} {
		t.Run(name+" client in trouble", func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				srv := redistest.StartFake(t)
				s := newScope(t)
				var clients [2]*lock.Client
				var wires [2]*wireTap
				for i := range clients {
					rdb, wire := throughProxy(t, srv)
					clients[i], wires[i] = s.open(t, rdb, lock.WithLease(6*time.Second)), wire
				}
				bad, good := clients[order[0]], clients[order[1]]
				wire := wires[order[0]]
				gauge := func(m telemetry.Metric) float64 { return s.sum(t, m) }

				elder := try(t, bad.Mutex("job:1"))
				aged := time.Now()
				eventually(t, patience, func() bool { return time.Since(aged) > 100*time.Millisecond })
				younger := try(t, good.Mutex("job:2"))
				if age := gauge(telemetry.MetricOldestAge); age < 0.1 {
					t.Errorf("the oldest lock is %v s old, want that of the elder, 0.1 at least", age)
				}
				if n := gauge(telemetry.MetricHeld); n != 2 {
					t.Errorf("%v held, want 2", n)
				}
				connected := func(want float64) {
					t.Helper()
					eventually(t, patience, func() bool {
						return s.series(t, telemetry.MetricPubSubConnected)[""] == want && gauge(telemetry.MetricFailing) == 1-want
					})
				}
				connected(1)

				// The server can't be reached any more from one of them.
				wire.proxy.Refuse(t)
				wire.proxy.CutAll()
				connected(0)
				if err := younger.Err(); err != nil {
					t.Errorf("the other client's lease: %v", err)
				}
				wire.proxy.Accept(t)
				connected(1)

				free(t, elder)
				if age, since := gauge(telemetry.MetricOldestAge), time.Since(aged).Seconds(); age <= 0 || age > since-0.1 {
					t.Errorf("the oldest lock is %v s old, want that of the younger, which was taken %v s ago at most", age, since-0.1)
				}
				free(t, younger)
				if err := bad.Close(t.Context()); err != nil {
					t.Errorf("Close: %v", err)
				}
				l := try(t, good.Mutex("job:3"))
				if n := len(s.series(t, telemetry.MetricOldestAge)); n != 1 {
					t.Errorf("after the Close of one client %d series, want the other's", n)
				}
				free(t, l)
				if err := good.Close(t.Context()); err != nil {
					t.Errorf("Close: %v", err)
				}
				if n := len(s.series(t, telemetry.MetricOldestAge)); n != 0 {
					t.Errorf("%d series of closed clients", n)
				}
			})
		})
	}
}

// Every operation is counted once, under one outcome.
func TestOneOutcomePerOperation(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		srv := redistest.StartFake(t)
		rdb := srv.Client(t)
		s := newScope(t)
		c := s.open(t, rdb, lock.WithReentrancy())
		foreign := newScope(t).open(t, rdb)
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		metrics := []telemetry.Metric{
			telemetry.MetricAcquisitions, telemetry.MetricAcquireDuration, telemetry.MetricReleases, telemetry.MetricReleaseDuration,
			telemetry.MetricLosses, telemetry.MetricCancellations, telemetry.MetricHoldDuration, telemetry.MetricErrors,
		}
		look := func() map[string]float64 {
			all := map[string]float64{}
			for _, m := range metrics {
				for set, v := range s.series(t, m) {
					all[m.Name+" "+set] = v
				}
			}
			return all
		}
		// counts checks that fn raises these series by one and no others. All are of group g. What tells of a loss follows on
		// Lease.Ended in a moment.
		counts := func(what string, fn func(), want ...string) {
			t.Helper()
			before := look()
			fn()
			var wrong []string
			right := func() bool {
				after, unseen := look(), slices.Clone(want)
				wrong = nil
				for key, v := range after {
					wanted := 0.0
					if i := slices.Index(unseen, key); i >= 0 {
						wanted, unseen = 1, slices.Delete(unseen, i, i+1)
					}
					if got := v - before[key]; got != wanted {
						wrong = append(wrong, fmt.Sprintf("%s rose by %v, want %v", key, got, wanted))
					}
				}
				for _, key := range unseen {
					wrong = append(wrong, "no "+key)
				}
				return len(wrong) == 0
			}
			tick := time.NewTicker(time.Millisecond)
			defer tick.Stop()
			for deadline := time.Now().Add(patience); !right() && time.Now().Before(deadline); {
				<-tick.C
			}
			for _, w := range wrong {
				t.Errorf("%s: %s", what, w)
			}
		}
		acquired := []string{"lockdog.acquisitions lockdog.group=g,lockdog.outcome=acquired", "lockdog.acquire.duration lockdog.group=g,lockdog.outcome=acquired"}
		failed := func(outcome string, more ...string) []string {
			return append(more, "lockdog.acquisitions lockdog.group=g,lockdog.outcome="+outcome, "lockdog.acquire.duration lockdog.group=g,lockdog.outcome=failed")
		}
		released := func(outcome string, more ...string) []string {
			return append(more, "lockdog.releases lockdog.group=g,lockdog.outcome="+outcome, "lockdog.release.duration lockdog.group=g",
				"lockdog.hold.duration lockdog.group=g")
		}
		m := c.Mutex("g:1")

		var l, inner *lock.Lease
		counts("TryLock", func() { l = try(t, m) }, acquired...)
		counts("re-entry", func() { inner, _ = m.TryLock(l.Context()) }, "lockdog.acquisitions lockdog.group=g,lockdog.outcome=reentered")
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
			_, err := c.Mutex("g:string").TryLock(t.Context())
			mustMatch(t, err, lock.ErrInvalid)
		}, failed("error", "lockdog.errors error.type=_OTHER,lockdog.operation=acquire")...)
		counts("deadlock", func() {
			l := try(t, foreign.Mutex("g:2"))
			_, err := foreign.Mutex("g:2").TryLock(l.Context())
			mustMatch(t, err, lock.ErrDeadlock)
			free(t, l)
		}) // of another scope: nothing here

		counts("fixed lease overrun", func() {
			mustBeLost(t, try(t, c.Mutex("g:3", lock.WithFixedLease(time.Second))), lock.CauseExpired)
		}, append([]string{"lockdog.losses lockdog.cause=expired,lockdog.group=g", "lockdog.hold.duration lockdog.group=g"}, acquired...)...)
		counts("release of a missing lock", func() {
			l := try(t, m)
			rdb.Del(t.Context(), "g:1")
			mustMatch(t, l.Release(t.Context()), lock.ErrLost)
		}, append(released("lost", "lockdog.losses lockdog.cause=missing,lockdog.group=g"), acquired...)...)
		counts("forced unlock", func() {
			l := try(t, m)
			if _, err := foreign.Mutex("g:1").ForceUnlock(t.Context()); err != nil {
				t.Fatal(err)
			}
			mustBeLost(t, l, lock.CauseForced)
		}, append([]string{"lockdog.losses lockdog.cause=forced,lockdog.group=g", "lockdog.hold.duration lockdog.group=g"}, acquired...)...)
		counts("canceled, then released", func() {
			ctx, cancel := context.WithCancel(t.Context())
			l, err := m.Lock(ctx)
			if err != nil {
				t.Fatal(err)
			}
			cancel()
			_ = mustBeCanceled(t, l, lock.ReasonContext)
			free(t, l)
		}, append(released("released", "lockdog.cancellations lockdog.group=g,lockdog.reason=context"), acquired...)...)
		counts("Close", func() {
			try(t, m)
			if err := c.Close(ended); !errors.Is(err, context.Canceled) {
				t.Errorf("Close: %v", err)
			}
		}, append([]string{"lockdog.cancellations lockdog.group=g,lockdog.reason=closed", "lockdog.hold.duration lockdog.group=g"}, acquired...)...)
		for _, gauge := range []telemetry.Metric{telemetry.MetricHeld, telemetry.MetricWaiting, telemetry.MetricWatchdogLeases} {
			if n := s.sum(t, gauge); n != 0 {
				t.Errorf("%s is %v at the end, want 0", gauge.Name, n)
			}
		}
	})
}
