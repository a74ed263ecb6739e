package watchdog_test

import (
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockdog/lockdog/telemetry"
	"github.com/lockdog/lockdog/watchdog"
)

// Faults of some leases only.

// TestOneBadLeaseInABatch checks that a lease whose renewal fails is retried by itself, until it recovers or until its
// deadline, while the others of its batch keep their rhythm.
func TestOneBadLeaseInABatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, sum := &server{}, newTally()
		e := start(t, s)
		bad, recovering := &lock{}, &lock{}
		locks := watch(e, 100, sum)
		e.Watch(&bad.Lease, spec(bad))
		e.Watch(&recovering.Lease, spec(recovering))
		watch(e, 100, sum)
		fails := 4
		s.answers(func(l *watchdog.Lease) watchdog.Result {
			switch {
			case l == &recovering.Lease && fails > 0:
				fails--
				return watchdog.Result{Err: errDown}
			case l == &bad.Lease:
				return watchdog.Result{Err: errDown}
			}
			return watchdog.Result{Outcome: watchdog.Renewed}
		})
		deadline := bad.Deadline()
		sleep(e, 6*interval+time.Millisecond)
		full := 0
		for _, c := range s.take() {
			switch {
			case c.leases >= 200:
				full++
			case c.leases > 2:
				t.Errorf("a call for %d leases", c.leases)
			}
		}
		if full != 6 {
			t.Errorf("the batch was called %d times in six intervals", full)
		}
		if sum.latest > interval || sum.failed+len(sum.lost) > 0 || sum.renewed != 1200 {
			t.Errorf("healthy: %d renewed, after %v at the latest, %d failed, lost %v", sum.renewed, sum.latest, sum.failed, sum.lost)
		}
		if len(bad.losses) != 1 || bad.losses[0].Cause != telemetry.LossUnreachable || !bad.lostAt.Equal(deadline) {
			t.Errorf("bad: %+v, %v after its deadline", bad.losses, bad.lostAt.Sub(deadline))
		}
		if !locks[0].Deadline().After(deadline) {
			t.Error("the healthy ones were not renewed")
		}
		if got, want := recovering.outcomes(), "failed/1 failed/2 failed/3 failed/4 renewed/5 renewed/1 "; !strings.HasPrefix(got, want) {
			t.Errorf("renewals %q, want %q first", got, want)
		}
		sleep(e, 5*interval)
		if calls := s.take(); len(calls) != 5 || calls[0].leases != 201 {
			t.Errorf("calls afterwards: %+v, want 5 of 201 leases", calls)
		}
	})
}

// However many leases fail by themselves, in however many cohorts, their retries share calls and the healthy ones
// are not late.
func TestBadLeasesEverywhere(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, sum := &server{}, newTally()
		e := start(t, s)
		sick := map[*watchdog.Lease]bool{}
		s.answers(func(l *watchdog.Lease) watchdog.Result {
			if sick[l] {
				return watchdog.Result{}
			}
			return watchdog.Result{Outcome: watchdog.Renewed}
		})
		const n = 20_000
		badSum := newTally()
		for range n {
			l := &lock{tally: sum}
			if rand.IntN(200) == 0 {
				l.tally = badSum
				sick[&l.Lease] = true
			}
			e.Watch(&l.Lease, spec(l))
		}
		sleep(e, 4*interval)
		calls, cohorts := s.take(), ceil(n, 256)
		// Each sick lease is tried some eight times.
		if retries := len(calls) - 4*cohorts; retries < 4 || retries > 100 {
			t.Errorf("%d calls more than the %d of four intervals, for %d leases that fail", retries, 4*cohorts, len(sick))
		}
		if got, most := busiest(calls, 100*time.Millisecond), allowed(ceil(len(calls), 4), interval); got > most {
			t.Errorf("%d calls within 100 ms, want %d at most", got, most)
		}
		if sum.latest > interval+100*time.Millisecond || sum.failed+len(sum.lost) > 0 {
			t.Errorf("healthy: renewed after %v at the latest, %d failed, lost %v", sum.latest, sum.failed, sum.lost)
		}
		if got := badSum.lost[telemetry.LossUnreachable]; got != len(sick) {
			t.Errorf("%d of the %d bad ones lost", got, len(sick))
		}
	})
}

// Leases of one cohort have deadlines of their own, and are lost at those.
func TestEachAtItsOwnDeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		s.down()
		e := start(t, s)
		var locks []*lock
		var deadlines []time.Time
		for i := range 20 {
			l := &lock{}
			locks = append(locks, l)
			sp := spec(l)
			sp.Margin = time.Duration(i*i) * 12 * time.Millisecond // some of the later ones end earlier
			e.Watch(&l.Lease, sp)
			deadlines = append(deadlines, l.Deadline())
			sleep(e, 200*time.Millisecond)
		}
		if got := e.Stats().Cohorts; got != 1 {
			t.Fatalf("%d cohorts", got)
		}
		sleep(e, 2*ttl)
		for i, l := range locks {
			if len(l.losses) != 1 || !l.lostAt.Equal(deadlines[i]) {
				t.Errorf("lock %d: %d losses, %v after its deadline", i, len(l.losses), l.lostAt.Sub(deadlines[i]))
			}
		}
	})
}
