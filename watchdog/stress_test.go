package watchdog_test

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockdog/lockdog/watchdog"
)

// stressLock checks by itself that its callbacks keep to the contract.
type stressLock struct {
	watchdog.Lease
	t       *testing.T
	running atomic.Int32
	removed atomic.Bool
	lost    atomic.Int32
}

func (l *stressLock) enter(what string) {
	if l.running.Add(1) != 1 {
		l.t.Errorf("%s overlaps another callback", what)
	}
	if l.lost.Load() != 0 {
		l.t.Errorf("%s after Lost", what)
	}
}
func (l *stressLock) Renewal(watchdog.Renewal) { l.enter("Renewal"); l.running.Add(-1) }
func (l *stressLock) Alarm(now time.Time) time.Time {
	l.enter("Alarm")
	l.running.Add(-1)
	return now.Add(time.Millisecond)
}

func (l *stressLock) Lost(watchdog.Loss) {
	l.enter("Lost")
	if l.removed.Load() {
		l.t.Error("Lost after Remove")
	}
	l.lost.Add(1)
	l.running.Add(-1)
}

// Everything at once, in real time: for the race detector, and for the promises about who is told what.
func TestStress(t *testing.T) {
	t.Parallel()
	end := time.Now().Add(500 * time.Millisecond)
	if full {
		end = end.Add(10 * time.Second)
	}
	var calls atomic.Int64
	over := func() bool { // not before anything has happened, on a machine that is busy
		now := time.Now()
		return now.After(end) && calls.Load() > 0 || now.After(end.Add(time.Minute))
	}
	e, err := watchdog.New(watchdog.Config{
		BatchSize: 8,
		Renew: func(ctx context.Context, b *watchdog.Batch) {
			calls.Add(1)
			if rand.IntN(10) == 0 {
				<-ctx.Done()
				return
			}
			for i := range b.Results {
				switch n := rand.IntN(100); {
				case n < 80:
					b.Results[i].Outcome = watchdog.Renewed
				case n < 82:
					b.Results[i].Outcome = watchdog.Missing
				case n < 84:
					b.Results[i] = watchdog.Result{Outcome: watchdog.Moved, Partition: string(rune('a' + rand.IntN(3)))}
				}
			}
		},
		Panicked: func(v any, stack []byte) { t.Errorf("%v\n%s", v, stack) },
	})
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			var held []*stressLock
			for !over() {
				l := &stressLock{t: t}
				e.Watch(&l.Lease, watchdog.Spec{
					TTL: 60 * time.Millisecond, Interval: time.Duration(rand.IntN(3)) * 10 * time.Millisecond, Margin: time.Millisecond,
					Partition: string(rune('a' + rand.IntN(3))), Sent: time.Now(), Alarm: time.Now().Add(time.Millisecond), Holder: l,
				})
				held = append(held, l)
				i := rand.IntN(len(held))
				l = held[i]
				switch rand.IntN(7) {
				case 0, 1, 2:
					if e.Remove(&l.Lease) {
						l.removed.Store(true)
						if l.lost.Load() != 0 {
							t.Error("removed and lost")
						}
					}
					held[i] = held[len(held)-1]
					held = held[:len(held)-1]
				case 3:
					e.StopRenewal(&l.Lease)
				case 4:
					e.Check(&l.Lease)
				case 5:
					e.Verify(&l.Lease)
				case 6:
					_, _, _ = l.Deadline(), l.NextRenewal(), e.Stats()
				}
			}
			for _, l := range held {
				e.Remove(&l.Lease)
			}
		})
	}
	wg.Wait()
	if got := e.Stats(); got.Leases != 0 {
		t.Errorf("%+v is left", got)
	}
	e.Close()
	if calls.Load() == 0 {
		t.Error("no call was made")
	}
}

// Close in the midst of everything.
func TestCloseUnderLoad(t *testing.T) {
	t.Parallel()
	rounds := 5
	if full {
		rounds = 200
	}
	for range rounds {
		var closed atomic.Bool
		e := start(t, &server{before: func(ctx context.Context, _ *watchdog.Batch) bool { return ctx.Err() == nil }})
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for !closed.Load() {
					l := &lock{onRenewal: func(watchdog.Renewal) {
						if closed.Load() {
							t.Error("a callback after Close")
						}
					}}
					e.Watch(&l.Lease, watchdog.Spec{TTL: 20 * time.Millisecond, Interval: time.Millisecond, Sent: time.Now(), Holder: l})
					e.Verify(&l.Lease)
					e.Check(&l.Lease)
				}
			})
		}
		e.Verify(&watchdog.Lease{})
		<-time.After(5 * time.Millisecond)
		e.Close()
		closed.Store(true)
		wg.Wait()
	}
}
