package lock_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/telemetry"
)

// Promise 2: trust is local and ends early.

// believe asks for the Err of the lease's Context until it has ended. late is how long after the deadline it was still
// live, which must be 0: it goes by the clock, not by a timer. cause is the Context's cause.
func believe(l *lock.Lease) (late time.Duration, cause error) {
	ctx := l.Context()
	for {
		before := time.Now()
		if ctx.Err() != nil {
			return late, context.Cause(ctx)
		}
		// Read after the question: deadlines only move on.
		if past := before.Sub(l.Deadline()); past > 0 {
			late = max(late, past)
		}
		if late > patience {
			return late, errors.New("it never ended")
		}
		// No Gosched: it would have the runtime look at its timers first.
	}
}

// The server hangs, and go-redis with it for longer than the lease: the lease ends at its deadline.
func TestContextEndsAtItsDeadlineThoughRedisHangs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		srv := redistest.StartFake(t)
		rdb := srv.Client(t, answerWithin(20*time.Second))
		s := newScope(t)
		c := s.open(t, rdb, lock.WithLease(1800*time.Millisecond))

		asked, told := try(t, c.Mutex("asked")), try(t, c.Mutex("told"))
		work := told.Context()
		srv.Pause(t)
		time.Sleep(time.Until(asked.Deadline()) - 1)
		if err := context.Cause(asked.Context()); err != nil {
			t.Errorf("before its deadline Context has ended: %v", err)
		}
		time.Sleep(time.Nanosecond)
		mustMatch(t, context.Cause(asked.Context()), lock.ErrLost) // by the clock: whose timer fires first isn't said
		mustBeLost(t, asked, lock.CauseUnreachable)
		await(t, "the Context that nobody asks", work.Done()) // its timer works too
		mustBeLost(t, told, lock.CauseUnreachable)
		mustMatch(t, told.Release(t.Context()), lock.ErrLost)
		if n := s.sum(t, telemetry.MetricLosses, "lockdog.cause=unreachable"); n != 2 {
			t.Errorf("%v losses counted, want 2", n)
		}
		srv.Resume(t)
	})
}

// stuckLogs is a slog.Handler whose reader has stopped reading.
type stuckLogs struct {
	slog.Handler
	stuck   chan struct{} // closed at the first warning
	unblock chan struct{}
	once    *sync.Once
}

func (h stuckLogs) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelWarn }

func (h stuckLogs) Handle(context.Context, slog.Record) error {
	h.once.Do(func() { close(h.stuck) })
	<-h.unblock
	return nil
}

// A log that blocks for ever holds up no Context: not at the deadline, not at the limit of a hold, not when a renewal finds the key deleted, not
// when the client closes. Nor does it hold up renewals.
func TestContextsEndThoughTheLogBlocks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		srv := redistest.StartFake(t)
		logs := stuckLogs{slog.DiscardHandler, make(chan struct{}), make(chan struct{}), new(sync.Once)}
		c, err := lock.New(srv.Client(t), lock.WithLogger(slog.New(logs)))
		must(t, "New", err)
		began := time.Now()
		ends := func(l *lock.Lease, when time.Time, why lock.Reason) { // "": it is lost
			t.Helper()
			work := l.Context()
			sleepUntil(when.Add(time.Millisecond))
			select {
			case <-work.Done(): // by a timer: nothing asks for Err
				canceled := (*lock.CanceledError)(nil)
				if cause := context.Cause(work); errors.Is(cause, lock.ErrLost) != (why == "") ||
					errors.As(cause, &canceled) != (why != "") || canceled != nil && canceled.Reason != why {
					t.Errorf("%s has ended with %v, want %q", l.Name(), cause, why)
				}
			default:
				t.Errorf("%s has permission to work after %v", l.Name(), time.Since(began))
			}
		}
		first, second := try(t, c.Mutex("first")), try(t, c.Mutex("second"))
		limited := try(t, c.Mutex("limited", lock.WithMaxHold(20*time.Second)))
		silent := try(t, c.Mutex("silent", lock.WithHeartbeat(22*time.Second)))
		all := try(t, c.Multi([]string{"third", "fourth"}))
		both := try(t, c.Multi([]string{"fifth", "sixth"}, lock.WithMaxHold(21*time.Second)))
		srv.Pause(t)
		<-logs.stuck // a renewal has failed
		if time.Since(began) >= 20*time.Second {
			t.Fatalf("the first failure is logged after %v", time.Since(began))
		}
		ends(limited, began.Add(20*time.Second), lock.ReasonMaxHold)
		ends(both, began.Add(21*time.Second), lock.ReasonMaxHold)
		ends(silent, began.Add(22*time.Second), lock.ReasonHeartbeat)
		ends(first, first.Deadline(), "")
		ends(second, second.Deadline(), "")
		ends(all, all.Deadline(), "")
		mustMatch(t, both.Err(), lock.ErrLost) // though its Context had ended before
		if err := limited.Release(t.Context()); err == nil {
			t.Error("a lease that ran out was released")
		}

		srv.Resume(t)
		began = time.Now()
		deleted, closed := try(t, c.Mutex("deleted")), try(t, c.Mutex("closed"))
		must(t, "DEL", srv.Client(t).Del(t.Context(), "deleted").Err())
		asked := try(t, c.Mutex("asked", lock.WithFixedLease(time.Second)))
		sleepUntil(asked.Deadline())
		if asked.Context().Err() == nil || asked.Err() == nil {
			t.Error("it lives at its deadline")
		}
		ends(deleted, began.Add(lock.DefaultLease/3), "")
		again := enter(t, context.WithoutCancel(deleted.Context()), c.Mutex("deleted", lock.WithReentrancy(), lock.WithLifetime(t.Context())))
		if again.Owner() == deleted.Owner() {
			t.Error("a lease joins one that is lost")
		}
		if left := time.Until(closed.Deadline()); left < lock.DefaultLease*9/10 {
			t.Errorf("closed wasn't renewed: %v are left", left)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		began = time.Now()
		done := make(chan error, 1)
		go func() { done <- c.Close(ctx) }()
		ends(closed, began, lock.ReasonClosed)
		if err := <-done; err == nil || time.Since(began) > 6*time.Second {
			t.Errorf("Close returns %v after %v", err, time.Since(began))
		}
		for _, l := range []*lock.Lease{closed, again} {
			mustMatch(t, l.Err(), lock.ErrClosed)
			await(t, "Ended", l.Ended())
		}
		close(logs.unblock)
		synctest.Wait()
		if got := c.Leases(); len(got) > 0 {
			t.Errorf("%d leases are left: %+v", len(got), got)
		}
	})
}

// Each cancellation by Close is counted, also of leases whose holders release them at once.
func TestCloseReportsEachCancellation(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScope(t)
		c := s.open(t, redistest.StartFake(t).Client(t))
		const leases = 100
		var all sync.WaitGroup
		for i := range leases {
			l := try(t, c.Mutex(fmt.Sprint("job ", i)))
			work := l.Context()
			all.Go(func() {
				<-work.Done()
				free(t, l)
			})
		}
		must(t, "Close", c.Close(t.Context()))
		all.Wait()
		if n := s.sum(t, telemetry.MetricCancellations, "lockdog.reason=closed"); n != leases {
			t.Errorf("%v cancellations counted, want %d", n, leases)
		}
	})
}

// slowLog is a log whose writes take a while. It panics at a message, if panics is set.
type slowLog struct {
	slog.Handler
	panics string
}

func (h slowLog) Handle(ctx context.Context, r slog.Record) error {
	time.Sleep(50 * time.Millisecond)
	if h.panics != "" && strings.Contains(r.Message, h.panics) {
		panic("broken log")
	}
	return h.Handler.Handle(ctx, r)
}

// Close waits until the loss of a Multi as a whole is reported, as it does for any lease. It returns also if the logger
// panics.
func TestCloseWaitsForTheReportsOfAMulti(t *testing.T) {
	t.Parallel()
	for _, panics := range []string{"", telemetry.LogLost.Message} {
		synctest.Test(t, func(t *testing.T) {
			srv, s := redistest.StartFake(t), newScope(t)
			c := s.open(t, srv.Client(t), lock.WithLogger(slog.New(slowLog{slog.NewJSONHandler(s, nil), panics})))
			l := try(t, c.Multi(both))
			del(t, srv, "a")
			await(t, "Ended", l.Ended())
			must(t, "Close", c.Close(t.Context()))
			mustMatch(t, l.Err(), lock.ErrLost)
			if n := len(s.records(t, telemetry.LogLost)); n == 0 && panics == "" {
				t.Error("Close has returned, and the loss isn't logged")
			}
			if n := s.sum(t, telemetry.MetricLosses); n != 1 {
				t.Errorf("%v losses are counted", n)
			}
		})
	}
}

// After a loss by the clock Redis may hold the entry yet: the client gives it back, if it can.
func TestLostLeaseIsGivenBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sp := redistest.StartFake(t)
		rdb := sp.Client(t)
		s := newScope(t)
		c := s.open(t, rdb, lock.WithKeyPrefix(sp.Prefix()))
		l := try(t, c.Mutex("job", lock.WithFixedLease(300*time.Millisecond)))
		// As if this server's clock went slower than ours.
		if err := rdb.PExpire(t.Context(), sp.Prefix()+"job", time.Hour).Err(); err != nil {
			t.Fatal(err)
		}
		mustBeLost(t, l, lock.CauseExpired)
		eventually(t, patience, func() bool { return rdb.Exists(t.Context(), sp.Prefix()+"job").Val() == 0 })
	})
}

// The lease counts from before the request was sent, not from the answer.
func TestDeadlineCountsFromTheRequest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const (
			lease  = 3 * time.Second
			margin = lease/100 + 2*time.Millisecond
			delay  = 200 * time.Millisecond
		)
		sp := redistest.StartFake(t)
		rdb, wire := throughProxy(t, sp)
		c := newScope(t).open(t, rdb, lock.WithKeyPrefix(sp.Prefix()), lock.WithLease(lease))
		m := c.Mutex("job")
		free(t, try(t, m)) // connected, the scripts known
		delayed := redistest.When(redistest.Down, redistest.Delay(delay))
		honest := func(what string, l *lock.Lease) {
			t.Helper()
			// The answer is here, so the request was sent at least the delay ago.
			if latest := time.Now().Add(lease - delay - margin); l.Deadline().After(latest) {
				t.Errorf("%s: the deadline is %v too late", what, l.Deadline().Sub(latest))
			}
		}

		wire.set(delayed)
		l := try(t, m)
		honest("acquire", l)

		renewed := func() {
			t.Helper()
			before := l.Deadline()
			eventually(t, patience, func() bool { return l.Deadline().After(before) })
		}
		wire.set(nil)
		renewed() // the connection for renewals stands
		wire.set(delayed)
		renewed()
		honest("renewal", l)

		for handedOver := false; !handedOver; { // but for a waiter that happens to be asking just then
			wire.set(nil)
			asked := wire.heard("acquire", "job")
			next := begin(t.Context(), m)
			eventually(t, patience, func() bool { return wire.heard("acquire", "job") >= asked+2 }) // again when subscribed
			asleep(t, c, 1)
			asked = wire.heard("acquire", "job")
			wire.set(delayed)
			free(t, l)
			l = granted(t, next)
			honest("grant to a waiter", l)
			handedOver = wire.heard("acquire", "job") == asked
		}
		wire.set(nil)
		free(t, l)
	})
}

// A process that was stopped past its lease doesn't believe in it for a moment when it goes on, though timers are late.
func TestStoppedProcessDoesNotBelieve(t *testing.T) {
	t.Parallel()
	sp := redistest.Shared(t)
	ch := startChild(t, "stopped", sp.Addr(), sp.Prefix())
	ch.expect(t, "held")
	ch.stop(t)
	rdb := sp.Client(t)
	c := newScope(t).open(t, rdb, lock.WithKeyPrefix(sp.Prefix()))
	free(t, granted(t, begin(t.Context(), c.Mutex("job")))) // its lease has run out
	ch.resume(t)
	ch.expect(t, "never late, lost")
	ch.wait(t)
}

// childStopped takes the lock, says so, and believes in it for as long as it may.
func childStopped(addr, prefix string, say func(string, ...any)) error {
	rdb := redis.NewClient(&redis.Options{Addr: addr})
	defer func() { _ = rdb.Close() }()
	c, err := lock.New(rdb, lock.WithKeyPrefix(prefix), lock.WithLease(10*time.Second))
	if err != nil {
		return err
	}
	defer closeSoon(c)
	l, err := c.Mutex("job").TryLock(context.Background())
	if err != nil {
		return err
	}
	runtime.GOMAXPROCS(1) // whoever believes keeps the timers from firing: only the clock can tell
	say("held")
	late, cause := believe(l)
	if late > 0 {
		say("live %v past the deadline", late)
	}
	if !errors.Is(cause, lock.ErrLost) { // as what: TestStoppedProcessIsRefused
		return cause
	}
	say("never late, lost")
	return nil
}
