package watchdog_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockdog/lockdog/telemetry"
	"github.com/lockdog/lockdog/watchdog"
)

// late is an engine whose clock can be set forward. That is what a process sees that was not running for a while (no
// CPU, SIGSTOP): its timers have not fired, and the clock has gone on.
type late struct {
	*watchdog.Engine
	server
	skew  atomic.Int64
	locks []*lock
}

func newLate(t *testing.T, leases int) *late {
	x := &late{}
	x.Engine = start(t, &x.server)
	x.SetClock(x.clock)
	x.locks = watch(x.Engine, leases, nil)
	return x
}

func (x *late) clock() time.Time { return time.Now().Add(time.Duration(x.skew.Load())) }

func (x *late) stall(d time.Duration) {
	x.skew.Add(int64(d))
	x.take()
}

// TestStall checks that the leases that ran out while the process stood still are lost as stalled, that no others are
// lost, and that the overdue renewals of these are spread.
func TestStall(t *testing.T) {
	t.Parallel()
	const leases, cohorts = 5_000, 20
	for _, d := range []time.Duration{time.Second, 15 * time.Second, 25 * time.Second, time.Minute} {
		t.Run(d.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				x := newLate(t, leases)
				sleep(x.Engine, 35*time.Second)
				x.stall(d)
				now := x.clock()
				over, close := map[*lock]bool{}, map[*lock]bool{}
				for _, l := range x.locks {
					left := l.Deadline().Sub(now)
					over[l] = left <= 0
					close[l] = left > 0 && left <= watchdog.Tick // until then it may go unnoticed
				}
				sleep(x.Engine, 30*time.Second)
				lost := 0
				for _, l := range x.locks {
					lost += len(l.losses)
					if close[l] {
						continue
					}
					if !over[l] {
						if len(l.losses) != 0 {
							t.Fatalf("lost with %+v, though it had time left", l.losses)
						}
						continue
					}
					if len(l.losses) != 1 || l.losses[0].Cause != telemetry.LossStalled {
						t.Fatalf("losses %+v, want one, stalled", l.losses)
					}
				}
				if all, none := d > 30*time.Second, d < 19*time.Second; all && lost < leases || none && lost > 0 {
					t.Errorf("%d of %d were lost", lost, leases)
				}
				// 20 cohorts, 0.2 calls in 100 ms: 2 allowed, unless deadlines ask for more. After 25 s those with
				// less than a call's budget left, a fifth of them, can't wait.
				most := 2
				if d > 20*time.Second {
					most = cohorts / 4
				}
				if got := busiest(x.take(), 100*time.Millisecond); got > most {
					t.Errorf("%d calls in 100 ms afterwards, want %d at most", got, most)
				}
			})
		})
	}
}

// A stall while a call is in flight: the attempt was made in time, so it is the server that did not answer.
func TestStallInFlight(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		x := newLate(t, 1)
		x.set(func(context.Context, *watchdog.Batch) bool {
			time.Sleep(time.Second)
			x.stall(30 * time.Second)
			return true
		}, nil)
		sleep(x.Engine, 15*time.Second)
		l := x.locks[0]
		if len(l.renewals) != 0 || len(l.losses) != 1 || l.losses[0].Cause != telemetry.LossUnreachable {
			t.Errorf("renewals %q, losses %+v", l.outcomes(), l.losses)
		}
	})
}

// The tick's age shows a scheduler that is late; without leases there is no tick.
func TestTickAge(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		x := newLate(t, 1)
		sleep(x.Engine, time.Second/2)
		x.stall(8 * time.Second)
		if got := x.Stats(); !got.Ticking || got.TickAge != 8500*time.Millisecond {
			t.Errorf("the tick is %v old, want 8.5 s", got.TickAge)
		}
		sleep(x.Engine, 2*time.Second)
		if got := x.Stats().TickAge; got > time.Second {
			t.Errorf("the tick is %v old later", got)
		}
		x.Remove(&x.locks[0].Lease)
		sleep(x.Engine, time.Hour)
		if got := x.Stats(); got.Ticking {
			t.Errorf("%+v", got)
		}
		late := watch(x.Engine, 1, nil)[0]
		if got := x.Stats().TickAge; got != 0 {
			t.Errorf("the first lease after a pause finds the tick %v old", got)
		}

		// Nor does one that comes while there is nothing but a call without leases.
		sleep(x.Engine, interval-time.Second)
		x.set(func(context.Context, *watchdog.Batch) bool { time.Sleep(3 * time.Second); return true }, nil)
		sleep(x.Engine, 2*time.Second)
		x.Remove(&late.Lease)
		sleep(x.Engine, interval)
		watch(x.Engine, 1, nil)
		if got := x.Stats(); !got.Ticking || got.TickAge != 0 {
			t.Errorf("the first lease after a call without leases: %+v", got)
		}
		sleep(x.Engine, 2*watchdog.Tick)
		if got := x.Stats().TickAge; got > watchdog.Tick {
			t.Errorf("the tick is %v old later", got)
		}
	})
}

// Everything lost at one instant: nothing is forgotten though the scheduler takes it in portions.
func TestLoseEverything(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		x := newLate(t, 30_000)
		for _, l := range x.locks[:15_000] {
			x.StopRenewal(&l.Lease)
		}
		x.stall(time.Minute)
		sleep(x.Engine, time.Second)
		causes := map[telemetry.LossCause]int{}
		for _, l := range x.locks {
			for _, loss := range l.losses {
				causes[loss.Cause]++
			}
		}
		if causes[telemetry.LossStalled] != 15_000 || causes[telemetry.LossExpired] != 15_000 {
			t.Errorf("lost %v", causes)
		}
		if got := x.Stats(); got.Leases != 0 || got.Cohorts != 0 {
			t.Errorf("%+v is left", got)
		}
	})
}

// A Check from within Renewal of the same lease, before the scheduler has noticed, calls Lost, but what that returns follows: it does not nest, and
// it is the last call.
func TestCheckInRenewal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		x := newLate(t, 0)
		l := &lock{}
		inside, told := false, 0
		l.onLost = func(watchdog.Loss) {
			if told++; inside {
				t.Error("told of the loss while Renewal was running")
			}
		}
		l.onRenewal = func(watchdog.Renewal) {
			inside = true
			defer func() { inside = false }()
			x.stall(time.Minute)
			if x.Check(&l.Lease) {
				t.Error("live after its deadline")
			}
			if len(l.lossesNow()) != 1 {
				t.Error("Lost wasn't called by Check")
			}
		}
		x.Watch(&l.Lease, spec(l))
		sleep(x.Engine, 2*interval)
		if len(l.losses) != 1 || told != 1 || len(l.renewals) != 1 {
			t.Errorf("losses %+v, want one; told %d times, after %d renewals", l.losses, told, len(l.renewals))
		}
	})
}

// Keys that come once and never again leave nothing behind.
func TestSweep(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := start(t, &server{})
		watch(e, 1, nil)
		for i := range 1000 {
			l := &lock{}
			sp := spec(l)
			sp.TTL, sp.Node = ttl+time.Duration(i), string(rune('a'+i))
			e.Watch(&l.Lease, sp)
			e.Remove(&l.Lease)
		}
		sleep(e, 2*time.Second)
		if got := e.Stats(); got.Groups != 1 || got.Nodes != 1 || got.Agenda != 1 || got.Spare > 64 {
			t.Errorf("%+v is left", got)
		}
	})
}

// Who takes one lock after the other wakes the scheduler now and then, not for each; soon after the last one it rests.
func TestOneLeaseAfterTheOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const leases, every = 1000, 5 * time.Millisecond
		e := start(t, &server{})
		passes, last := 0, int64(-1)
		look := func() {
			synctest.Wait()
			if now := e.Stats().Passed; now != last {
				passes, last = passes+1, now
			}
		}
		for range leases {
			l := watch(e, 1, nil)[0]
			e.Remove(&l.Lease)
			look()
			time.Sleep(every)
			look()
		}
		if most := int(leases*every/watchdog.Tick) + 2; passes > most {
			t.Errorf("%d passes in %v, want %d at most", passes, leases*every, most)
		}
		sleep(e, 2*watchdog.Tick)
		if got := e.Stats(); got.Waking || got.Groups != 0 || got.Nodes != 0 {
			t.Errorf("%+v is left", got)
		}
	})
}
