package watchdog_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockdog/lockdog/telemetry"
	"github.com/lockdog/lockdog/watchdog"
)

func TestZeroLease(t *testing.T) {
	t.Parallel()
	e := start(t, &server{})
	var l watchdog.Lease
	if !l.Deadline().IsZero() || !l.NextRenewal().IsZero() || l.Holder() != nil {
		t.Error("a lease that was never watched shows something")
	}
	if l.Loss() != nil || e.Check(&l) || e.Remove(&l) {
		t.Error("a lease that was never watched is live")
	}
	e.StopRenewal(&l)
	e.Verify(&l)
	if got := e.Stats(); got != (watchdog.Stats{}) {
		t.Errorf("stats %+v", got)
	}
}

func TestMissingAndTaken(t *testing.T) {
	t.Parallel()
	for outcome, cause := range map[watchdog.Outcome]telemetry.LossCause{
		watchdog.Missing: telemetry.LossMissing,
		watchdog.Taken:   telemetry.LossTaken,
	} {
		t.Run(outcome.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var order []string
				s := &server{}
				e := start(t, s, func(c *watchdog.Config) {
					c.Done = func(b *watchdog.Batch) {
						if b == nil {
							order = append(order, "losses")
							return
						}
						order = append(order, "batch")
					}
				})
				gone, other := &lock{}, &lock{}
				var asked *watchdog.Loss // before the holder is told
				gone.onRenewal = func(watchdog.Renewal) {
					order = append(order, "renewal")
					asked = gone.Loss()
				}
				gone.onLost = func(watchdog.Loss) { order = append(order, "lost") }
				e.Watch(&gone.Lease, spec(gone))
				e.Watch(&other.Lease, spec(other))
				s.answers(func(l *watchdog.Lease) watchdog.Result {
					if l == &gone.Lease {
						return watchdog.Result{Outcome: outcome}
					}
					return watchdog.Result{Outcome: watchdog.Renewed}
				})
				sleep(e, 5*interval+time.Second)
				if got := strings.Join(order[:3], " "); got != "renewal lost batch" {
					t.Errorf("told in the order %q", got)
				}
				if len(gone.renewals) != 1 || len(gone.losses) != 1 {
					t.Fatalf("%d renewals, %d losses, want 1 each", len(gone.renewals), len(gone.losses))
				}
				if got := gone.losses[0]; got.Cause != cause || got.Batch != gone.renewals[0].Batch || got != *asked {
					t.Errorf("loss %+v, asked before %+v", got, asked)
				}
				if e.Check(&gone.Lease) || e.Remove(&gone.Lease) {
					t.Error("the lost lease is live")
				}
				if got := gone.Loss(); got == nil || got.Cause != cause {
					t.Errorf("Lease.Loss says %+v", got)
				}
				if got := other.Loss(); got != nil {
					t.Errorf("Lease.Loss of a live lease says %+v", got)
				}
				if len(other.renewals) != 5 || !e.Check(&other.Lease) {
					t.Errorf("the other one has %d renewals", len(other.renewals))
				}
			})
		})
	}
}

// TestStopRenewal checks that no renewal starts after StopRenewal has returned, and that one that is in flight then
// doesn't extend the lease.
func TestStopRenewal(t *testing.T) {
	t.Parallel()
	for _, inFlight := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s := &server{before: func(context.Context, *watchdog.Batch) bool { time.Sleep(time.Second); return true }}
			e := start(t, s)
			stopped, other := &lock{}, &lock{}
			e.Watch(&stopped.Lease, spec(stopped))
			e.Watch(&other.Lease, spec(other))
			deadline := stopped.Deadline()
			sleep(e, interval-time.Second)
			if inFlight {
				sleep(e, time.Second+time.Second/2)
			}
			e.StopRenewal(&stopped.Lease)
			e.StopRenewal(&stopped.Lease)
			if !stopped.NextRenewal().IsZero() {
				t.Error("a renewal is planned")
			}
			sleep(e, 2*ttl)
			if len(stopped.renewals) != 0 {
				t.Errorf("in flight %v: renewed: %s", inFlight, stopped.outcomes())
			}
			if len(stopped.losses) != 1 || stopped.losses[0].Cause != telemetry.LossExpired || !stopped.lostAt.Equal(deadline) {
				t.Errorf("in flight %v: losses %+v at %v", inFlight, stopped.losses, stopped.lostAt)
			}
			if len(other.renewals) < 6 || len(other.losses) != 0 {
				t.Errorf("the other one: %s", other.outcomes())
			}
			for i, c := range s.take() {
				if want := 1; c.leases != want && (i > 0 || !inFlight) {
					t.Errorf("call %d is for %d leases", i, c.leases)
				}
			}
		})
	}
}

// Removed in flight, a lease hears nothing more, whatever the answer.
func TestRemoveInFlight(t *testing.T) {
	t.Parallel()
	for _, outcome := range []watchdog.Outcome{watchdog.Renewed, watchdog.Failed, watchdog.Missing, watchdog.Moved} {
		synctest.Test(t, func(t *testing.T) {
			s := &server{before: func(context.Context, *watchdog.Batch) bool { time.Sleep(time.Second); return true }}
			s.answers(func(*watchdog.Lease) watchdog.Result { return watchdog.Result{Outcome: outcome, Node: "b"} })
			e := start(t, s)
			l := &lock{}
			e.Watch(&l.Lease, spec(l))
			sleep(e, interval+time.Second/2)
			if !e.Remove(&l.Lease) || e.Remove(&l.Lease) {
				t.Error("Remove is true once")
			}
			e.StopRenewal(&l.Lease)
			sleep(e, 2*ttl)
			if len(l.renewals)+len(l.losses) != 0 || len(s.take()) != 1 {
				t.Errorf("%v: it still heard of %d renewals and %d losses", outcome, len(l.renewals), len(l.losses))
			}
			if got := e.Stats(); got.Leases != 0 || got.Cohorts != 0 {
				t.Errorf("%v: %+v is left", outcome, got)
			}
			again := *new(lock)
			e.Watch(&l.Lease, spec(l)) // a lease is watched once
			e.Watch(&again.Lease, spec(&again))
			if got := e.Stats(); got.Leases != 1 {
				t.Errorf("%d leases", got.Leases)
			}
		})
	}
}

// An answer that comes after the deadline is too late: the lease is lost, as its own clock has said since. A call that
// never returns takes no lease with it that comes after its timeout.
func TestLateAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &server{before: func(context.Context, *watchdog.Batch) bool { time.Sleep(5 * ttl); return true }} // ignores its ctx
		e := start(t, s)
		before, since := &lock{}, &lock{}
		e.Watch(&before.Lease, spec(before))
		deadline := before.Deadline()
		sleep(e, ttl)
		s.up()
		e.Watch(&since.Lease, spec(since))
		sleep(e, 2*ttl)
		if len(since.losses) != 0 || !e.Check(&since.Lease) {
			t.Errorf("losses of the one watched since: %+v", since.losses)
		}
		sleep(e, 4*ttl)
		if len(before.renewals) != 0 || len(before.losses) != 1 ||
			before.losses[0].Cause != telemetry.LossUnreachable || !before.lostAt.Equal(deadline) {
			t.Errorf("renewals %q, losses %+v", before.outcomes(), before.losses)
		}
	})
}

// Strange specs are taken as well as they can be: nothing spins, hangs or outlives what was granted.
func TestStrangeSpecs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		e := start(t, s)
		now, live := time.Now(), map[string]*lock{}
		for name, c := range map[string]struct {
			spec watchdog.Spec
			live bool
		}{
			"interval over lease":  {watchdog.Spec{TTL: ttl, Interval: time.Hour, Margin: margin, Sent: now}, true},
			"tiny interval":        {watchdog.Spec{TTL: ttl, Interval: 1, Margin: margin, Sent: now}, true},
			"negative interval":    {watchdog.Spec{TTL: time.Hour, Interval: -1, Sent: now}, true},
			"sent in the future":   {watchdog.Spec{TTL: ttl, Interval: interval, Sent: now.Add(time.Hour)}, true},
			"sent long ago":        {watchdog.Spec{TTL: ttl, Interval: interval, Sent: now.Add(-time.Hour)}, false},
			"no ttl":               {watchdog.Spec{Interval: interval, Sent: now}, false},
			"margin over lease":    {watchdog.Spec{TTL: ttl, Interval: interval, Margin: time.Hour, Sent: now}, false},
			"alarm in the past":    {watchdog.Spec{TTL: ttl, Interval: interval, Sent: now, Alarm: now.Add(-time.Hour)}, true},
			"granted half way ago": {watchdog.Spec{TTL: ttl, Interval: interval, Sent: now.Add(-15 * time.Second)}, true},
		} {
			l := &lock{}
			c.spec.Holder = l
			e.Watch(&l.Lease, c.spec)
			if name == "sent in the future" && l.Deadline().After(now.Add(ttl)) {
				t.Errorf("%s: trusted for %v", name, l.Deadline().Sub(now))
			}
			sleep(e, time.Second)
			now = now.Add(time.Second)
			if e.Check(&l.Lease) != c.live || (len(l.losses) == 0) != c.live {
				t.Errorf("%s: live is %v, losses %+v", name, !c.live, l.losses)
			}
			if c.live {
				live[name] = l
			}
			if name == "granted half way ago" && len(l.renewals) != 1 {
				t.Errorf("%s: %d renewals", name, len(l.renewals))
			}
		}
		s.take()
		sleep(e, 5*time.Second)
		if calls := s.take(); len(calls) > 5*1100 {
			t.Errorf("%d calls in 5 s", len(calls))
		}
		if !e.Remove(&live["tiny interval"].Lease) { // it has shown what it costs
			t.Error("the lease of a tiny interval was lost")
		}
		delete(live, "tiny interval")
		sleep(e, time.Minute)
		for name, l := range live {
			if !e.Check(&l.Lease) {
				t.Errorf("%s: lost within a minute, %+v", name, l.losses)
			}
		}
	})
}
