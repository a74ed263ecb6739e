package watchdog_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockdog/lockdog/watchdog"
)

func TestVerify(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		e := start(t, s)
		locks := watch(e, 600, nil)
		sleep(e, time.Second)
		s.take()
		var together []*watchdog.Lease // go out together
		for i := range 100 {
			together = append(together, &locks[2*i].Lease)
		}
		e.Verify(together...)
		sleep(e, time.Millisecond)
		if calls := s.take(); len(calls) != 1 || calls[0].leases != 100 {
			t.Errorf("calls of %v, want one of 100", calls)
		}
		for i := range 200 { // the others share what follows
			e.Verify(&locks[200+2*i].Lease)
		}
		sleep(e, 200*time.Millisecond)
		calls := s.take()
		sum := 0
		for _, c := range calls {
			sum += c.leases
		}
		if len(calls) > 4 || sum != 200 { // two in any 100 ms
			t.Errorf("%d calls for %d leases, want 200 leases in four at most", len(calls), sum)
		}
		for i, l := range locks {
			if want := i%2 == 0; (len(l.renewals) == 1) != want {
				t.Fatalf("lock %d: %d renewals", i, len(l.renewals))
			}
		}
		sleep(e, 3*interval)
		s.take()
		sleep(e, 5*interval)
		if n := len(s.take()); n > 15 {
			t.Errorf("%d calls in five intervals afterwards, want 15", n)
		}
	})
}

// What is verified while in flight is renewed again: the answer on its way may be older than the doubt.
func TestVerifyInFlight(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &server{before: func(context.Context, *watchdog.Batch) bool { time.Sleep(time.Second); return true }}
		e := start(t, s)
		locks := watch(e, 2, nil)
		sleep(e, interval+time.Second/2)
		locks = append(locks, watch(e, 2, nil)...) // in the same cohort, but not in its call
		e.Verify(&locks[0].Lease, &locks[2].Lease)
		sleep(e, 2*time.Second)
		for i, want := range []int{2, 1, 1, 0} {
			if got := len(locks[i].renewals); got != want {
				t.Errorf("lock %d: %d renewals, want %d", i, got, want)
			}
		}
	})
}

// If that call fails, its retry is enough.
func TestVerifyInFlightOfACallThatFails(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &server{before: func(context.Context, *watchdog.Batch) bool { time.Sleep(time.Second); return false }}
		e := start(t, s)
		locks := watch(e, 2, nil)
		sleep(e, interval+time.Second/2)
		e.Verify(&locks[0].Lease)
		s.up()
		sleep(e, interval/2)
		if n := len(s.take()); n != 2 {
			t.Errorf("%d calls, want the one that failed and its retry", n)
		}
	})
}

// The renewal that Verify asks for waits if planned calls need the allowed rate.
func TestVerifyYields(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := start(t, &server{})
		a, b, c := &lock{}, &lock{}, &lock{}
		for l, every := range map[*lock]time.Duration{a: interval, b: interval + time.Millisecond, c: time.Minute} {
			sp := spec(l)
			sp.TTL, sp.Interval = 3*every, every
			e.Watch(&l.Lease, sp)
		}
		sleep(e, interval-50*time.Millisecond)
		e.Verify(&c.Lease)
		sleep(e, time.Second)
		for l, every := range map[*lock]time.Duration{a: interval, b: interval + time.Millisecond} {
			if len(l.renewals) != 1 || l.renewals[0].Elapsed > every {
				t.Errorf("interval %v: %d renewals, the first after %v", every, len(l.renewals), l.renewals[0].Elapsed)
			}
		}
		if len(c.renewals) != 1 {
			t.Errorf("%d renewals of the one in doubt", len(c.renewals))
		}
	})
}

// A lease that joins a cohort in flight is renewed within its interval, also if it was granted before that call was sent, and opens no cohort of
// its own.
func TestJoinInFlight(t *testing.T) {
	t.Parallel()
	for _, ok := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			s, sum := &server{}, newTally()
			e := start(t, s)
			watch(e, 1, sum)
			s.set(func(context.Context, *watchdog.Batch) bool { time.Sleep(time.Second); return ok }, nil)
			sleep(e, interval+time.Second/2)
			watch(e, 1, sum)
			earlier := &lock{}
			sp := spec(earlier)
			sp.Sent = sp.Sent.Add(-2 * time.Second)
			e.Watch(&earlier.Lease, sp)
			if got := e.Stats().Cohorts; got != 1 {
				t.Errorf("%d cohorts", got)
			}
			sleep(e, time.Second)
			s.up()
			sleep(e, 5*interval)
			if calls := s.take(); len(calls) > 7 {
				t.Errorf("%d calls", len(calls))
			}
			most := interval + time.Second // the answer takes a second
			if !ok {
				most += 3 * time.Second // the retries
			}
			if sum.latest > most || len(sum.lost) != 0 {
				t.Errorf("renewed after %v at the latest", sum.latest)
			}
			if late := earlier.renewals[0].Batch.Sent.Sub(sp.Sent); late > interval {
				t.Errorf("the one that was granted earlier was renewed after %v", late)
			}
		})
	}
}

func TestMoved(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		var moved sync.Map // of *watchdog.Lease
		e := start(t, s, func(c *watchdog.Config) {
			renew := c.Renew
			c.Renew = func(ctx context.Context, b *watchdog.Batch) {
				renew(ctx, b)
				for i, l := range b.Leases {
					if _, ok := moved.Load(l); ok && b.Node == "" {
						b.Results[i] = watchdog.Result{Outcome: watchdog.Moved, Node: "b"}
					}
				}
			}
		})
		locks := watch(e, 300, nil)
		for i, l := range locks {
			if i < 100 {
				moved.Store(&l.Lease, true)
			}
		}
		sleep(e, interval+time.Second)
		if got, want := locks[0].outcomes(), "moved/1 renewed/1 "; got != want {
			t.Errorf("renewals %q, want %q", got, want)
		}
		if r := locks[0].renewals; !r[1].Batch.Sent.Equal(r[0].Batch.Sent) {
			t.Errorf("renewed %v after it was found to have moved", r[1].Batch.Sent.Sub(r[0].Batch.Sent))
		}
		s.take()
		sleep(e, 4*interval)
		per := map[string]int{}
		for _, c := range s.take() {
			per[c.node]++
		}
		if per["b"] != 4 || per[""] > 8 {
			t.Errorf("calls afterwards: %v", per)
		}

		// Sent around in circles it keeps trying, with a pause, until its deadline.
		lost := &lock{}
		e.Watch(&lost.Lease, spec(lost))
		turn := false
		e2 := start(t, s, func(c *watchdog.Config) {
			c.Renew = func(_ context.Context, b *watchdog.Batch) {
				turn = !turn
				b.Results[0] = watchdog.Result{Outcome: watchdog.Moved, Node: map[bool]string{true: "x", false: "y"}[b.Node != "x"]}
			}
		})
		circle := &lock{}
		e2.Watch(&circle.Lease, spec(circle))
		sleep(e, ttl)
		if n := len(circle.renewals); n < 8 || n > 40 {
			t.Errorf("moved in circles %d times", n)
		}
		if len(circle.losses) != 1 || circle.losses[0].Err != nil {
			t.Errorf("losses %+v", circle.losses)
		}
	})
}

// A call is urgent if it is a retry, follows Verify, or is made so late that it has less time than usual.
func TestUrgent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var urgent []bool
		fail := false
		s := &server{before: func(_ context.Context, b *watchdog.Batch) bool {
			urgent = append(urgent, b.Urgent)
			return !fail
		}}
		e := start(t, s)
		locks := watch(e, 2, nil)
		sleep(e, interval+time.Second) // planned
		e.Verify(&locks[0].Lease)
		sleep(e, time.Second)
		sleep(e, interval) // planned
		before := len(urgent)
		if want := []bool{false, true, false}; !slices.Equal(urgent, want) && !slices.Equal(urgent, append(want, false)) {
			t.Errorf("urgent: %v, want %v", urgent, want)
		}
		fail = true
		sleep(e, interval)
		if got := urgent[before:]; len(got) < 3 || slices.Contains(got[2:], false) { // two cohorts may fail
			t.Errorf("of calls that fail and their retries urgent: %v", got)
		}
		fail = false
		sleep(e, time.Minute)
		before = len(urgent)
		brief := &lock{}
		sp := spec(brief)
		sp.Until = time.Now().Add(time.Second)
		e.Watch(&brief.Lease, sp)
		sleep(e, time.Second)
		if got := urgent[before:]; len(got) == 0 || !got[0] {
			t.Errorf("of a lease that was granted for a second urgent: %v", got)
		}
	})
}
