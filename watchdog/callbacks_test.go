package watchdog_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockdog/lockdog/telemetry"
	"github.com/lockdog/lockdog/watchdog"
)

func TestAlarms(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := start(t, &server{})
		l := &lock{}
		begun := time.Now()
		sp := spec(l)
		sp.Alarm = begun.Add(time.Second)
		l.onAlarm = func(now time.Time) time.Time {
			switch n := now.Sub(begun); n {
			case time.Second:
				return now.Add(2 * time.Second)
			case 3 * time.Second:
				return now.Add(20 * time.Second)
			default:
				return time.Time{}
			}
		}
		e.Watch(&l.Lease, sp)
		quiet := &lock{} // it asks for none
		e.Watch(&quiet.Lease, spec(quiet))
		sleep(e, 20*time.Second)
		e.Remove(&l.Lease)
		sleep(e, 20*time.Second)
		var got []time.Duration
		for _, at := range l.alarms {
			got = append(got, at.Sub(begun)/time.Second)
		}
		if len(got) != 2 || got[0] != 1 || got[1] != 3 || len(quiet.alarms) != 0 {
			t.Errorf("alarms after %v s, want 1 3; of the other %v", got, quiet.alarms)
		}
	})
}

// If Check and the scheduler meet at the deadline, Lost is called once, and on Check's goroutine if Check is first.
func TestCheckAtTheDeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &server{before: hung}
		const rounds = 40
		lost, told := 0, 0 // told: those that were lost when the engine told that it has told of losses
		e := start(t, s, func(c *watchdog.Config) {
			c.Done = func(b *watchdog.Batch) {
				if b == nil {
					told = lost
				}
			}
		})
		for range rounds {
			l := &lock{onLost: func(watchdog.Loss) { lost++ }}
			e.Watch(&l.Lease, spec(l))
			sleep(e, trust-1)
			if !e.Check(&l.Lease) {
				t.Fatal("not live just before its deadline")
			}
			time.Sleep(1 * time.Nanosecond) // scheduler and Check wake at the same time
			if e.Check(&l.Lease) {
				t.Fatal("live at its deadline")
			}
			synctest.Wait()
			if e.Check(&l.Lease) || len(l.losses) != 1 || l.losses[0].Cause != telemetry.LossUnreachable {
				t.Fatalf("losses %+v", l.losses)
			}
		}
		if told != rounds {
			t.Errorf("%d losses told of, want %d", told, rounds)
		}
	})
}

// A callback that blocks holds up neither renewals nor deadlines, nor what other holders do in time: Lost and Alarm.
func TestBlockedCallback(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		e := start(t, s)
		blocked, other, fixed, gone := &lock{}, &lock{}, &lock{}, &lock{}
		release := make(chan struct{})
		blocked.onRenewal = func(watchdog.Renewal) { <-release }
		e.Watch(&blocked.Lease, spec(blocked))
		e.Watch(&other.Lease, spec(other))
		sleep(e, 5*interval+time.Second)
		if n := len(s.take()); n != 5 {
			t.Errorf("%d calls in five intervals", n)
		}
		if !e.Check(&blocked.Lease) || !e.Check(&other.Lease) {
			t.Error("lost")
		}
		told := 0
		fixed.onLost = func(watchdog.Loss) { told++ }
		gone.onLost = fixed.onLost
		sp := spec(fixed)
		sp.Interval, sp.Alarm = 0, sp.Sent.Add(time.Second)
		e.Watch(&fixed.Lease, sp)
		e.Watch(&gone.Lease, spec(gone))
		s.answers(func(l *watchdog.Lease) watchdog.Result {
			if l == &gone.Lease {
				return watchdog.Result{Outcome: watchdog.Missing}
			}
			return watchdog.Result{Outcome: watchdog.Renewed}
		})
		sleep(e, ttl)
		if e.Check(&fixed.Lease) {
			t.Error("live after its deadline")
		}
		if len(fixed.losses) != 1 || !fixed.lostAt.Equal(fixed.Deadline()) || len(fixed.alarms) != 1 {
			t.Errorf("losses %+v at %v, want one at %v; alarms %v", fixed.losses, fixed.lostAt, fixed.Deadline(), fixed.alarms)
		}
		if len(gone.losses) != 1 || gone.losses[0].Cause != telemetry.LossMissing || told != 0 {
			t.Errorf("losses %+v, want one that is missing; %d losses were told", gone.losses, told)
		}
		close(release)
		sleep(e, 0)
		if len(other.renewals) != 8 || len(gone.renewals) != 1 || told != 2 {
			t.Errorf("afterwards %d and %d renewals, and %d losses, were told", len(other.renewals), len(gone.renewals), told)
		}
	})
}

// TestPanics checks that after a panic in any callback the engine goes on, and serves all other leases.
func TestPanics(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var panics atomic.Int32
		s := &server{}
		e := start(t, s, func(c *watchdog.Config) {
			renew, calls := c.Renew, 0
			c.Renew = func(ctx context.Context, b *watchdog.Batch) {
				renew(ctx, b)
				switch calls++; calls {
				case 2:
					panic("renew")
				case 4:
					runtime.Goexit()
				}
			}
			c.Done = func(*watchdog.Batch) { panic("done") }
			c.Panicked = func(v any, stack []byte) {
				if len(stack) == 0 || v == nil {
					t.Error("a panic without its story")
				}
				panics.Add(1)
				panic("panicked")
			}
		})
		bad, quitter, good := &lock{}, &lock{}, &lock{}
		bad.onRenewal = func(watchdog.Renewal) { panic("renewal") }
		bad.onLost = func(watchdog.Loss) { panic("lost") }
		bad.onAlarm = func(time.Time) time.Time { panic("alarm") }
		quitter.onRenewal = func(watchdog.Renewal) { runtime.Goexit() }
		for _, l := range []*lock{bad, quitter, good} {
			sp := spec(l)
			sp.Alarm = sp.Sent.Add(time.Second)
			e.Watch(&l.Lease, sp)
		}
		sleep(e, 8*interval)
		want := "renewed/1 failed/1 renewed/2 failed/1 renewed/2 renewed/1 "
		if got := good.outcomes(); !strings.HasPrefix(got, want) {
			t.Errorf("renewals %q, want %q", got, want)
		}
		if !errors.Is(good.renewals[1].Result.Err, watchdog.ErrPanicked) || !errors.Is(good.renewals[3].Result.Err, watchdog.ErrPanicked) {
			t.Error("the errors do not tell")
		}
		s.down()
		sleep(e, 2*ttl)
		for _, l := range []*lock{bad, quitter, good} {
			if len(l.losses) != 1 || len(l.alarms) != 1 {
				t.Errorf("%d losses, %d alarms", len(l.losses), len(l.alarms))
			}
		}
		if panics.Load() < 10 {
			t.Errorf("%d panics told of", panics.Load())
		}
	})
}

// Close leaves the leases as they are and is silent afterwards.
func TestClose(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &server{before: hung}
		e := start(t, s)
		l, late, fixed := &lock{}, &lock{}, &lock{}
		e.Watch(&l.Lease, spec(l))
		sp := spec(fixed)
		sp.Interval, sp.Alarm = 0, sp.Sent.Add(interval+time.Hour)
		e.Watch(&fixed.Lease, sp)
		sleep(e, interval+time.Second)
		deadline := l.Deadline()
		if n := len(s.take()); n != 1 {
			t.Fatalf("%d calls are in flight", n)
		}
		e.Close()
		e.Close()
		e.Watch(&late.Lease, spec(late))
		for _, x := range []*lock{l, late} {
			if !e.Check(&x.Lease) {
				t.Error("not live before its deadline")
			}
			e.Verify(&x.Lease)
			e.StopRenewal(&x.Lease)
		}
		if !l.Deadline().Equal(deadline) || late.Deadline().IsZero() {
			t.Error("the deadline changed")
		}
		sleep(e, 2*ttl)
		for _, x := range []*lock{l, late, fixed} {
			if e.Check(&x.Lease) || !e.Remove(&x.Lease) || e.Remove(&x.Lease) {
				t.Error("after its deadline a lease is neither live nor lost")
			}
			if len(x.renewals)+len(x.losses)+len(x.alarms) != 0 {
				t.Error("a callback after Close")
			}
		}
		if len(s.take()) != 0 {
			t.Error("a call after Close")
		}
		if got := e.Stats(); got.Leases != 0 || got.Ticking {
			t.Errorf("%+v", got)
		}
	})
}

// Close waits for the callback that runs, and for the report of a loss; other callbacks that wait are not made.
func TestCloseDuringCallback(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := start(t, &server{})
		a, b, gone := &lock{}, &lock{}, &lock{}
		release := make(chan struct{})
		a.onRenewal = func(watchdog.Renewal) { <-release }
		b.onRenewal = a.onRenewal
		told := false
		gone.onLost = func(watchdog.Loss) { told = true }
		e.Watch(&a.Lease, spec(a))
		e.Watch(&b.Lease, spec(b))
		sp := spec(gone)
		sp.TTL, sp.Interval = interval, 0
		e.Watch(&gone.Lease, sp)
		sleep(e, interval+time.Second)
		closed := make(chan struct{})
		go func() {
			e.Close()
			close(closed)
		}()
		synctest.Wait()
		select {
		case <-closed:
			t.Error("Close did not wait for the callback")
		default:
		}
		close(release)
		<-closed
		if n := len(a.renewals) + len(b.renewals); n != 1 {
			t.Errorf("%d callbacks, want the one that was running", n)
		}
		if !told {
			t.Error("a loss wasn't reported")
		}
	})
}
