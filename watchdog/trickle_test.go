package watchdog_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockdog/lockdog/watchdog"
)

// long is an hour in the long form, and ten minutes else.
func long() time.Duration {
	if full {
		return time.Hour
	}
	return 10 * time.Minute
}

// However many are acquired at one instant, their first renewals are a trickle already, and none comes late.
func TestMassAcquire(t *testing.T) {
	t.Parallel()
	counts := []int{1, 2, 255, 256, 257, 1000, 12_345}
	if full {
		counts = append(counts, 60_000)
	}
	for _, n := range counts {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, sum := &server{}, newTally()
				e := start(t, s)
				watch(e, n, sum)
				cohorts := ceil(n, 256)
				if got := e.Stats().Cohorts; got != cohorts {
					t.Errorf("%d cohorts, want %d", got, cohorts)
				}
				sleep(e, interval)
				calls := s.take()
				if got, most := busiest(calls, interval/4), cohorts/4+cohorts/32+2; got > most {
					t.Errorf("%d calls in a quarter of the first interval, want %d at most", got, most)
				}
				sleep(e, 4*interval+time.Millisecond)
				calls = append(calls, s.take()...)
				if got, most := busiest(calls, 100*time.Millisecond), allowed(cohorts, interval); got > most {
					t.Errorf("%d calls within 100 ms, want %d at most", got, most)
				}
				// The slack of a round: phases of new cohorts are not quite even.
				if got, most := len(calls), 6*cohorts; got > most || got < 5*cohorts {
					t.Errorf("%d calls in five intervals, want %d to %d", got, 5*cohorts, most)
				}
				if sum.latest > interval {
					t.Errorf("a lease was renewed after %v", sum.latest)
				}
				sleep(e, 5*interval)
				calls = s.take()
				if got, most := len(calls), 5*cohorts+1; got > most {
					t.Errorf("later %d calls in five intervals, want %d at most", got, most)
				}
				if len(sum.lost) != 0 {
					t.Errorf("lost %v", sum.lost)
				}
			})
		})
	}
}

// TestCyclesLeaveNothingBehind checks that locking and unlocking in quick succession adds no renewals.
func TestCyclesLeaveNothingBehind(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		e := start(t, s)
		for i := range 20_000 {
			l := &lock{}
			e.Watch(&l.Lease, spec(l))
			if i%10 == 0 {
				sleep(e, time.Millisecond)
			}
			if !e.Remove(&l.Lease) {
				t.Fatal("Remove said the lease was gone")
			}
		}
		if got := e.Stats(); got.Leases != 0 || got.Cohorts != 0 || got.Ticking {
			t.Errorf("%+v is left", got)
		}
		s.take()
		l := &lock{}
		e.Watch(&l.Lease, spec(l))
		from := time.Now()
		sleep(e, 10*interval+interval/2)
		calls := s.take()
		if len(calls) != 10 {
			t.Fatalf("%d calls in ten intervals, want 10", len(calls))
		}
		for i, c := range calls {
			if want := from.Add(time.Duration(i+1) * interval); !c.at.Equal(want) || c.leases != 1 {
				t.Errorf("call %d: %d leases, %v off", i, c.leases, c.at.Sub(want))
			}
		}
	})
}

// Calls follow the number of leases, up and down, and are as few and as even again after an interval or two.
func TestGrowAndShrink(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s, sum := &server{}, newTally()
		e := start(t, s)
		var locks []*lock
		for _, n := range []int{1000, 6_000, 700, 257, 256, 2_000, 300, 1, 3_000} {
			for len(locks) < n {
				locks = append(locks, watch(e, min(n-len(locks), 100), sum)...)
			}
			for len(locks) > n {
				i := rand.IntN(len(locks))
				e.Remove(&locks[i].Lease)
				locks[i] = locks[len(locks)-1]
				locks = locks[:len(locks)-1]
			}
			sleep(e, 3*interval)
			s.take()
			sleep(e, 10*interval)
			calls, cohorts := s.take(), ceil(n, 256)
			if got := len(calls); got < 10*cohorts || got > 10*cohorts+1 {
				t.Errorf("%d leases: %d calls in ten intervals, want %d", n, got, 10*cohorts)
			}
			even := interval / time.Duration(cohorts)
			if least, most := gaps(calls); most > even*5/4 || cohorts > 1 && least < even*3/4 {
				t.Errorf("%d leases: calls are %v to %v apart, want about %v", n, least, most, even)
			}
		}
		if sum.latest > interval || len(sum.lost) != 0 {
			t.Errorf("renewed after %v at the latest, lost %v", sum.latest, sum.lost)
		}
	})
}

// Where the ring has become uneven new cohorts go into the gaps.
func TestNewCohortsFillGaps(t *testing.T) {
	t.Parallel()
	for range 10 { // from different phases
		synctest.Test(t, func(t *testing.T) {
			e := start(t, &server{}, func(c *watchdog.Config) { c.BatchSize = 1 })
			var locks []*lock
			sleep(e, rand.N(interval))
			locks = watch(e, 16, newTally())
			sleep(e, 5*interval+rand.N(interval)) // evenly spread by now
			from := time.Now()
			var rest []*lock
			for _, l := range locks {
				if l.NextRenewal().Sub(from) < interval/2 {
					rest = append(rest, l)
				} else {
					e.Remove(&l.Lease)
				}
			}
			for range 3 {
				l := watch(e, 1, newTally())[0]
				for _, other := range rest {
					if d := l.NextRenewal().Sub(other.NextRenewal()).Abs(); d < interval/25 {
						t.Errorf("a new cohort is planned %v from another, where half of the interval is free", d)
					}
				}
				rest = append(rest, l)
			}
		})
	}
}

// Groups of different intervals meet now and then. Their calls go out early rather than late or all at once.
func TestManyIntervals(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		e := start(t, s)
		var locks []*lock
		renewed, late := 0, 0
		count := func(l *lock, every time.Duration) {
			l.onRenewal = func(r watchdog.Renewal) {
				renewed++
				if r.Elapsed > every {
					late++
				}
				if r.Elapsed > every+100*time.Millisecond {
					t.Errorf("interval %v: renewed after %v", every, r.Elapsed)
				}
			}
		}
		mean := 0.0
		for i := range 40 {
			every := time.Duration(i+1) * 500 * time.Millisecond
			mean += 0.1 / every.Seconds()
			l := &lock{}
			count(l, every)
			locks = append(locks, l)
			e.Watch(&l.Lease, watchdog.Spec{TTL: 3 * every, Interval: every, Sent: time.Now(), Holder: l})
		}
		sleep(e, long()/3)
		calls := s.take()
		if got, most := busiest(calls, 100*time.Millisecond), int(mean+0.9999)+1; got > most {
			t.Errorf("%d calls within 100 ms, want %d at most", got, most)
		}
		if late*1000 > renewed {
			t.Errorf("%d of %d renewals were late", late, renewed)
		}
		for _, l := range locks {
			if len(l.lossesNow()) != 0 {
				t.Error("lost")
			}
		}
	})
}
