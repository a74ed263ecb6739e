package watchdog_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockdog/lockdog/telemetry"
	"github.com/lockdog/lockdog/watchdog"
)

// watchBriefly watches a lease that was granted until 2 s from now.
func watchBriefly(e *watchdog.Engine) (l *lock, until time.Time) {
	l = &lock{}
	sp := spec(l)
	sp.Until = time.Now().Add(2 * time.Second)
	e.Watch(&l.Lease, sp)
	return l, sp.Until
}

// A lease that was granted for a short time is renewed early in it, and is one like the others then.
func TestBriefLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		e := start(t, s)
		began := time.Now()
		brief, until := watchBriefly(e)
		if got := brief.Deadline(); !got.Equal(until) {
			t.Errorf("trusted for %v", got.Sub(began))
		}
		sleep(e, 300*time.Millisecond)
		if got, want := brief.outcomes(), "renewed/1 "; got != want {
			t.Fatalf("renewals %q, want %q", got, want)
		}
		if got := brief.renewals[0]; got.Elapsed > 300*time.Millisecond || got.Remaining > 2*time.Second {
			t.Errorf("%+v", got)
		}
		if left := brief.Deadline().Sub(began); left < ttl-time.Second {
			t.Errorf("trusted for %v after its renewal", left)
		}
		sleep(e, interval+time.Second)
		if n := len(brief.renewals); n != 2 {
			t.Errorf("%d renewals", n)
		}
	})
}

// Its end comes early, too, when it can't be renewed.
func TestBriefLeaseIsLost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		e := start(t, s)
		s.answers(func(*watchdog.Lease) watchdog.Result { return watchdog.Result{Err: errDown} })
		brief, until := watchBriefly(e)
		sleep(e, 3*time.Second)
		if len(brief.losses) != 1 || brief.losses[0].Cause != telemetry.LossUnreachable || !brief.lostAt.Equal(until) {
			t.Errorf("%+v at %v", brief.losses, brief.lostAt.Sub(until))
		}
	})
}

// A lease whose renewal is stopped winds down for a whole lease, as any other does.
func TestBriefLeaseIsStopped(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		e := start(t, s)
		brief, _ := watchBriefly(e)
		e.StopRenewal(&brief.Lease)
		sleep(e, ttl-time.Second)
		if got, want := brief.outcomes(), "renewed/1 "; got != want || len(brief.losses) != 0 {
			t.Fatalf("renewals %q, want %q; losses %v", got, want, brief.losses)
		}
		if next := brief.NextRenewal(); !next.IsZero() {
			t.Errorf("it is renewed again in %v", time.Until(next))
		}
		sleep(e, 2*time.Second)
		if len(brief.losses) != 1 || brief.losses[0].Cause != telemetry.LossExpired {
			t.Errorf("%+v", brief.losses)
		}
	})
}
