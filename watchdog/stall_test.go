package watchdog

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockdog/lockdog/telemetry"
)

// witness is a Holder that keeps what the tests of this package ask for.
type witness struct {
	Lease
	mu      sync.Mutex
	renewed int
	losses  []Loss
}

func (w *witness) Renewal(r Renewal) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if r.Result.Outcome == Renewed {
		w.renewed++
	}
}

func (w *witness) Lost(l Loss) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.losses = append(w.losses, l)
}

func (w *witness) Alarm(time.Time) time.Time { return time.Time{} }

// sleep lets fake time pass, and all that becomes due then happen: what callbacks wrote may be read afterwards.
func (x *late) sleep(d time.Duration) {
	x.Stats() // the race detector sees no order in fake time; it does in the engine's lock
	time.Sleep(d)
	synctest.Wait()
	x.Stats()
}

// late is an engine whose clock can be set forward. That is what a process sees that was not running for a while (no
// CPU, SIGSTOP): its timers have not fired, and the clock has gone on.
type late struct {
	*Engine
	mu    sync.Mutex
	skew  time.Duration
	calls []time.Time
	locks []*witness
}

func newLate(t *testing.T, leases int) *late {
	x := &late{}
	e, err := New(Config{Renew: func(_ context.Context, b *Batch) {
		x.mu.Lock()
		defer x.mu.Unlock()
		x.calls = append(x.calls, b.Sent)
		for i := range b.Results {
			b.Results[i].Outcome = Renewed
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	x.Engine = e
	e.clock = func() time.Time {
		x.mu.Lock()
		defer x.mu.Unlock()
		return time.Now().Add(x.skew)
	}
	for range leases {
		w := &witness{}
		x.locks = append(x.locks, w)
		e.Watch(&w.Lease, Spec{
			TTL: 30 * time.Second, Interval: 10 * time.Second, Margin: 300 * time.Millisecond, Sent: time.Now(), Holder: w,
		})
	}
	return x
}

func (x *late) stall(d time.Duration) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.skew += d
	x.calls = nil
}

func (x *late) busiest() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	most, from := 0, 0
	for to := range x.calls {
		for x.calls[to].Sub(x.calls[from]) >= window {
			from++
		}
		most = max(most, to-from+1)
	}
	return most
}

// CASES 4: what ran out while the process stood still is stalled; nothing else is lost, and what is overdue is paced.
func TestStall(t *testing.T) {
	const leases, cohorts = 5_000, 20
	for _, d := range []time.Duration{time.Second, 15 * time.Second, 25 * time.Second, time.Minute} {
		t.Run(d.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				x := newLate(t, leases)
				x.sleep(35 * time.Second)
				x.stall(d)
				now := x.clock()
				over, close := map[*witness]bool{}, map[*witness]bool{}
				for _, w := range x.locks {
					left := w.Deadline().Sub(now)
					over[w] = left <= 0
					close[w] = left > 0 && left <= tick // until then it may go unnoticed
				}
				x.sleep(30 * time.Second)
				lost := 0
				for _, w := range x.locks {
					lost += len(w.losses)
					if close[w] {
						continue
					}
					if !over[w] {
						if len(w.losses) != 0 {
							t.Fatalf("lost with %+v, though it had time left", w.losses)
						}
						continue
					}
					if len(w.losses) != 1 || w.losses[0].Cause != telemetry.LossStalled {
						t.Fatalf("losses %+v, want one, stalled", w.losses)
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
				if got := x.busiest(); got > most {
					t.Errorf("%d calls in 100 ms afterwards, want %d at most", got, most)
				}
			})
		})
	}
}

// Before the scheduler has noticed, Check already knows, and says the same.
func TestCheckAfterAStall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newLate(t, 10)
		x.sleep(5100 * time.Millisecond)
		x.stall(25 * time.Second)
		for _, w := range x.locks[:5] {
			if x.Check(&w.Lease) {
				t.Error("live after its deadline")
			}
			if len(w.losses) != 1 || w.losses[0].Cause != telemetry.LossStalled {
				t.Errorf("losses %+v", w.losses)
			}
		}
		x.sleep(2 * time.Second)
		for _, w := range x.locks {
			if len(w.losses) != 1 || w.losses[0].Cause != telemetry.LossStalled {
				t.Errorf("losses %+v, want one, stalled", w.losses)
			}
		}
	})
}

// A stall while a call is in flight: the attempt was made in time, so it is the server that did not answer.
func TestStallInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newLate(t, 1)
		x.Engine.mu.Lock()
		renew := x.cfg.Renew
		x.cfg.Renew = func(ctx context.Context, b *Batch) {
			renew(ctx, b)
			time.Sleep(time.Second)
			x.stall(30 * time.Second)
		}
		x.Engine.mu.Unlock()
		x.sleep(15 * time.Second)
		w := x.locks[0]
		if w.renewed != 0 || len(w.losses) != 1 || w.losses[0].Cause != telemetry.LossUnreachable {
			t.Errorf("%d renewals, losses %+v", w.renewed, w.losses)
		}
	})
}

// The tick's age shows a scheduler that is late.
func TestTickAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newLate(t, 1)
		x.sleep(time.Second / 2)
		x.stall(8 * time.Second)
		if got := x.Stats().TickAge; got != 8500*time.Millisecond {
			t.Errorf("the tick is %v old, want 8.5 s", got)
		}
		x.sleep(2 * time.Second)
		if got := x.Stats().TickAge; got > time.Second {
			t.Errorf("the tick is %v old later", got)
		}
	})
}

// Everything lost at one instant: nothing is forgotten though the scheduler takes it in portions.
func TestLoseEverything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newLate(t, 30_000)
		for _, w := range x.locks[:15_000] {
			x.StopRenewal(&w.Lease)
		}
		x.stall(time.Minute)
		x.sleep(time.Second)
		causes := map[telemetry.LossCause]int{}
		for _, w := range x.locks {
			for _, l := range w.losses {
				causes[l.Cause]++
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

// A Check from within a callback of the same lease, before the scheduler has noticed: Lost follows, it does not nest.
func TestCheckInAlarm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newLate(t, 1)
		w := x.locks[0]
		a := &alarmed{witness: &witness{}}
		a.ring = func() {
			x.stall(time.Minute)
			if x.Check(&a.Lease) {
				t.Error("live after its deadline")
			}
			if len(a.losses) != 0 {
				t.Error("Lost was called while Alarm was running")
			}
		}
		now := time.Now()
		x.Watch(&a.Lease, Spec{TTL: 30 * time.Second, Sent: now, Alarm: now.Add(time.Second), Holder: a})
		x.sleep(3 * time.Second)
		if len(a.losses) != 1 || a.losses[0].Cause != telemetry.LossExpired || len(w.losses) != 1 {
			t.Errorf("losses %+v and %+v, want one each", a.losses, w.losses)
		}
	})
}

type alarmed struct {
	*witness
	ring func()
}

func (a *alarmed) Alarm(time.Time) time.Time { a.ring(); return time.Time{} }

// Keys that come once and never again leave nothing behind.
func TestSweep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newLate(t, 1)
		for i := range 1000 {
			w := &witness{}
			x.Watch(&w.Lease, Spec{
				TTL: 30*time.Second + time.Duration(i), Interval: 10 * time.Second, Partition: string(rune('a' + i)), Sent: time.Now(), Holder: w,
			})
			x.Remove(&w.Lease)
		}
		x.sleep(2 * time.Second)
		x.Engine.mu.Lock()
		defer x.Engine.mu.Unlock()
		if len(x.groups) != 1 || len(x.partitions) != 1 || x.agenda.Len() != 1 || len(x.spare) > 64 {
			t.Errorf("%d groups, %d partitions, %d on the agenda, %d spare cohorts are left",
				len(x.groups), len(x.partitions), x.agenda.Len(), len(x.spare))
		}
	})
}

// Who takes one lock after the other wakes the scheduler now and then, not for each; soon after the last one it rests.
func TestOneLeaseAfterTheOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const leases, every = 1000, 5 * time.Millisecond
		x := newLate(t, 0)
		passes, last := 0, int64(-1)
		look := func() {
			synctest.Wait()
			x.Engine.mu.Lock()
			defer x.Engine.mu.Unlock()
			if x.lastPass != last {
				passes, last = passes+1, x.lastPass
			}
		}
		for range leases {
			w := &witness{}
			x.Watch(&w.Lease, Spec{TTL: 30 * time.Second, Interval: 10 * time.Second, Sent: time.Now(), Holder: w})
			x.Remove(&w.Lease)
			look()
			time.Sleep(every)
			look()
		}
		if most := int(leases*every/tick) + 2; passes > most {
			t.Errorf("%d passes in %v, want %d at most", passes, leases*every, most)
		}
		time.Sleep(2 * tick)
		look()
		x.Engine.mu.Lock()
		defer x.Engine.mu.Unlock()
		if x.wakeAt != never || len(x.groups) != 0 || len(x.partitions) != 0 {
			t.Errorf("it looks again at %d; %d groups, %d partitions are left", x.wakeAt, len(x.groups), len(x.partitions))
		}
	})
}
