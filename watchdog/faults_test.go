package watchdog_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockdog/lockdog/telemetry"
	"github.com/lockdog/lockdog/watchdog"
)

var errDown = errors.New("down")

// No lease is lost in an outage that is shorter than the lease, whether calls are refused or hang.
func TestOutageShorterThanTheLease(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]func(context.Context, *watchdog.Batch) bool{
		"refused": func(context.Context, *watchdog.Batch) bool { return false },
		"hanging": hung,
	} {
		for _, n := range []int{1, 1000, 5_000} {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s, sum := &server{}, newTally()
					e := start(t, s)
					watch(e, n, sum)
					sleep(e, 3*interval+50*time.Millisecond)
					cohorts := ceil(n, 256)
					s.take()

					s.set(fault, nil)
					sleep(e, 15*time.Second)
					outage := s.take()
					if got, most := busiest(outage, 100*time.Millisecond), allowed(cohorts, interval); got > most {
						t.Errorf("%d calls within 100 ms of the outage, want %d at most", got, most)
					}
					if most := 40 * cohorts; len(outage) > most {
						t.Errorf("%d calls in the outage, want %d at most", len(outage), most)
					}
					if len(outage) < min(2*cohorts, watchdog.MaxInFlight*3) && name == "refused" {
						t.Errorf("%d calls in the outage: no retries", len(outage))
					}

					s.up()
					sleep(e, ttl)
					recovery := s.take()
					// One more than the pace: a cohort may come back from its last pause when its deadline presses.
					if got, most := busiest(recovery, 100*time.Millisecond), allowed(cohorts, interval)+1; got > most {
						t.Errorf("%d calls within 100 ms of the recovery, want %d at most", got, most)
					}
					if len(sum.lost) != 0 {
						t.Errorf("lost %v", sum.lost)
					}
					sleep(e, 2*interval)
					s.take()
					sum.mu.Lock()
					sum.latest = 0
					sum.mu.Unlock()
					sleep(e, 5*interval)
					if got, most := len(s.take()), 5*cohorts+1; got > most {
						t.Errorf("%d calls in five intervals afterwards, want %d at most", got, most)
					}
					if sum.latest > interval {
						t.Errorf("renewed after %v", sum.latest)
					}
				})
			})
		}
	}
}

// In an outage longer than the lease each lease is lost at its own deadline, not earlier and not later, as unreachable.
func TestOutageLongerThanTheLease(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]func(context.Context, *watchdog.Batch) bool{
		"refused": func(_ context.Context, b *watchdog.Batch) bool {
			for i := range b.Results {
				b.Results[i].Err = errDown
			}
			return false
		},
		"hanging": hung,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				runs, lost, told := 0, 0, 0 // told: those that were lost at the end of a run
				s := &server{}
				e := start(t, s, func(c *watchdog.Config) {
					c.Done = func(b *watchdog.Batch) {
						if b == nil {
							runs++
							told = lost
						}
					}
				})
				locks := make([]*lock, 600)
				for i := range locks {
					locks[i] = &lock{onLost: func(watchdog.Loss) { lost++ }}
					e.Watch(&locks[i].Lease, spec(locks[i]))
					sleep(e, 3*time.Millisecond)
				}
				sleep(e, 3*interval)
				s.set(fault, nil)
				sleep(e, time.Second) // for what is in flight
				deadlines := make([]time.Time, len(locks))
				for i, l := range locks {
					deadlines[i] = l.Deadline()
				}
				sleep(e, 2*ttl)
				for i, l := range locks {
					if len(l.losses) != 1 {
						t.Fatalf("lock %d: %d losses", i, len(l.losses))
					}
					loss := l.losses[0]
					if loss.Cause != telemetry.LossUnreachable || loss.Batch != nil {
						t.Errorf("lock %d: %+v", i, loss)
					}
					if name == "refused" && !errors.Is(loss.Err, errDown) {
						t.Errorf("lock %d: the error is %v", i, loss.Err)
					}
					if !l.lostAt.Equal(deadlines[i]) {
						t.Errorf("lock %d: lost %v after its deadline", i, l.lostAt.Sub(deadlines[i]))
					}
					if e.Remove(&l.Lease) || e.Check(&l.Lease) || !l.NextRenewal().IsZero() {
						t.Errorf("lock %d is not out of the engine", i)
					}
				}
				if told != len(locks) || runs > len(locks)/2 {
					t.Errorf("%d losses told in %d runs", told, runs)
				}
				if got := e.Stats(); got.Leases != 0 || got.Cohorts != 0 || got.Ticking {
					t.Errorf("%+v is left", got)
				}
				s.take()
				sleep(e, time.Minute)
				if n := len(s.take()); n != 0 {
					t.Errorf("%d calls for lost leases", n)
				}
			})
		})
	}
}

// Retries come with a growing pause, and each failure is told.
func TestRetries(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		e := start(t, s)
		l := &lock{}
		e.Watch(&l.Lease, spec(l))
		s.down()
		begun := time.Now()
		sleep(e, interval+8*time.Second)
		calls := s.take()
		if len(calls) < 6 || len(calls) > 16 {
			t.Errorf("%d attempts in 8 s", len(calls))
		}
		pause, exact := ttl/300, 0
		for i := 1; i < len(calls); i++ {
			gap := calls[i].at.Sub(calls[i-1].at)
			if gap < pause/2 || gap > pause*3/2+100*time.Millisecond {
				t.Errorf("pause %d is %v, want %v give or take a half", i, gap, pause)
			}
			if gap == pause {
				exact++
			}
			pause = min(2*pause, ttl/15)
		}
		if exact > 1 {
			t.Errorf("%d pauses without jitter", exact)
		}
		s.up()
		sleep(e, 3*time.Second)
		n := len(l.renewals)
		if n != len(calls)+1 {
			t.Fatalf("%d renewals told, want %d", n, len(calls)+1)
		}
		for i, r := range l.renewals {
			want := watchdog.Failed
			if i == n-1 {
				want = watchdog.Renewed
			}
			if r.Result.Outcome != want || r.Attempt != i+1 {
				t.Errorf("renewal %d: %v, attempt %d", i, r.Result.Outcome, r.Attempt)
			}
			if want == watchdog.Failed && !errors.Is(r.Result.Err, watchdog.ErrNoReason) {
				t.Errorf("renewal %d: error %v", i, r.Result.Err)
			}
			sent := r.Batch.Sent.Sub(begun)
			if r.Elapsed != sent || r.Remaining != trust-sent {
				t.Errorf("renewal %d, sent after %v: elapsed %v, remaining %v", i, sent, r.Elapsed, r.Remaining)
			}
		}
		if want := l.renewals[n-1].Batch.Sent.Add(trust); !l.Deadline().Equal(want) {
			t.Error("the deadline is not counted from the request that was confirmed")
		}
	})
}

// A call has at most TTL/6 or 5 s, and never more than the nearest deadline leaves.
func TestCallTimeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &server{before: hung}
		e := start(t, s)
		for _, ttl := range []time.Duration{100 * time.Millisecond, 6 * time.Second, 30 * time.Second, 10 * time.Minute} {
			l := &lock{}
			e.Watch(&l.Lease, watchdog.Spec{TTL: ttl, Interval: ttl / 3, Sent: time.Now(), Holder: l})
			deadline := l.Deadline()
			sleep(e, 2*ttl)
			calls := s.take()
			if len(calls) < 3 {
				t.Errorf("TTL %v: %d attempts", ttl, len(calls))
			}
			for _, c := range calls {
				if want := min(ttl/6, 5*time.Second, deadline.Sub(c.at)); c.timeout != want {
					t.Errorf("TTL %v: a call %v before the deadline had %v", ttl, deadline.Sub(c.at), c.timeout)
				}
			}
		}
	})
}

// A sick node takes its own places in flight, and nobody else's time.
func TestSickNode(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &server{}
		sick, healthy := newTally(), newTally()
		var inFlight, most atomic.Int32
		s.set(func(ctx context.Context, b *watchdog.Batch) bool {
			if b.Node != "sick" {
				return true
			}
			if n := inFlight.Add(1); n > most.Load() {
				most.Store(n)
			}
			<-ctx.Done()
			inFlight.Add(-1)
			return false
		}, nil)
		e := start(t, s, func(c *watchdog.Config) {
			renew := c.Renew
			c.BatchSize = 16
			c.Renew = func(ctx context.Context, b *watchdog.Batch) {
				for _, l := range b.Leases {
					if (l.Holder().(*lock).tally == sick) != (b.Node == "sick") {
						t.Error("a call mixes nodes")
					}
				}
				renew(ctx, b)
			}
		})
		for i := range 2000 {
			l := &lock{tally: healthy}
			sp := spec(l)
			sp.Node = "healthy"
			if i%2 == 0 {
				l.tally, sp.Node = sick, "sick"
			}
			e.Watch(&l.Lease, sp)
		}
		sleep(e, 10*interval)
		if healthy.latest > interval || healthy.failed+len(healthy.lost) > 0 {
			t.Errorf("healthy: renewed after %v at the latest, %d failed, lost %v", healthy.latest, healthy.failed, healthy.lost)
		}
		if sick.lost[telemetry.LossUnreachable] != 1000 {
			t.Errorf("sick: lost %v", sick.lost)
		}
		if got := most.Load(); got != watchdog.MaxInFlight {
			t.Errorf("%d calls in flight to the sick node, want %d", got, watchdog.MaxInFlight)
		}
	})
}
