package watchdog_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockdog/lockdog/telemetry"
	"github.com/lockdog/lockdog/watchdog"
)

// A lease that is first granted for a short time (Spec.Until) is renewed early in that time, and then like the others.
// If it can't be renewed, it ends at Until. After StopRenewal it is renewed once all the same, so its holder has a
// whole lease to wind down.
func TestBriefLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		e := start(t, s)
		began := time.Now()
		until := began.Add(2 * time.Second)
		brief, failing, stopped := &lock{}, &lock{}, &lock{}
		s.answers(func(l *watchdog.Lease) watchdog.Result {
			if l == &failing.Lease {
				return watchdog.Result{Err: errDown}
			}
			return watchdog.Result{Outcome: watchdog.Renewed}
		})
		for _, l := range []*lock{brief, failing, stopped} {
			sp := spec(l)
			sp.Until = until
			e.Watch(&l.Lease, sp)
			if got := l.Deadline(); !got.Equal(until) {
				t.Errorf("trusted for %v", got.Sub(began))
			}
		}
		e.StopRenewal(&stopped.Lease)
		sleep(e, 300*time.Millisecond)
		for _, l := range []*lock{brief, stopped} {
			if got, want := l.outcomes(), "renewed/1 "; got != want {
				t.Fatalf("renewals %q, want %q", got, want)
			}
			if got := l.renewals[0]; got.Elapsed > 300*time.Millisecond || got.Remaining > 2*time.Second {
				t.Errorf("%+v", got)
			}
			if left := l.Deadline().Sub(began); left < ttl-time.Second {
				t.Errorf("trusted for %v after its renewal", left)
			}
		}
		sleep(e, interval+time.Second)
		if n := len(brief.renewals); n != 2 {
			t.Errorf("%d renewals", n)
		}
		if len(failing.losses) != 1 || failing.losses[0].Cause != telemetry.LossUnreachable || !failing.lostAt.Equal(until) {
			t.Errorf("%+v at %v", failing.losses, failing.lostAt.Sub(until))
		}
		if next := stopped.NextRenewal(); !next.IsZero() || len(stopped.losses) != 0 {
			t.Errorf("it is renewed again in %v; losses %v", time.Until(next), stopped.losses)
		}
		sleep(e, ttl-interval)
		if len(stopped.renewals) != 1 || len(stopped.losses) != 1 || stopped.losses[0].Cause != telemetry.LossExpired {
			t.Errorf("stopped: renewals %q, %+v", stopped.outcomes(), stopped.losses)
		}
	})
}

// A lease that is granted while the call for others hangs doesn't wait for that call longer than it may: it is renewed in time by another one.
func TestWatchWhileACallHangs(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		spec func(*watchdog.Spec)
		by   time.Duration // since it is watched
	}{
		"brief":               {func(sp *watchdog.Spec) { sp.Until = sp.Sent.Add(2 * time.Second) }, 250 * time.Millisecond},
		"its grant took long": {func(sp *watchdog.Spec) { sp.Sent = sp.Sent.Add(-7 * time.Second) }, interval - 7*time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &server{before: hung}
				e := start(t, s)
				stuck, l := &lock{}, &lock{}
				e.Watch(&stuck.Lease, spec(stuck))
				sleep(e, interval)
				if n := len(s.take()); n != 1 {
					t.Fatalf("%d calls, want one that hangs", n)
				}
				s.up()
				sp := spec(l)
				c.spec(&sp)
				e.Watch(&l.Lease, sp)
				sleep(e, c.by)
				if got, want := l.outcomes(), "renewed/1 "; got != want {
					t.Errorf("renewals %q in %v, want %q", got, c.by, want)
				}
			})
		})
	}
}

// A lease that is granted while the call for others hangs doesn't wait for the pause after that call either.
func TestWatchWhileACallFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		e := start(t, s)
		stuck, l := &lock{}, &lock{}
		e.Watch(&stuck.Lease, spec(stuck))
		s.down()
		sleep(e, interval+8*time.Second) // the pauses are seconds long by now
		s.set(hung, nil)
		for s.take(); len(s.take()) == 0; {
			sleep(e, time.Millisecond)
		}
		const by = 5500 * time.Millisecond // after the call's timeout
		sp := spec(l)
		sp.Sent = sp.Sent.Add(by - interval)
		e.Watch(&l.Lease, sp)
		sleep(e, by)
		if n := len(s.take()); n != 1 {
			t.Errorf("%d calls in %v, want one", n, by)
		}
	})
}
