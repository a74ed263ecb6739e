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
	over    atomic.Bool  // Lost was called
	lost    atomic.Bool  // what Lost returned was called
	closed  *atomic.Bool // the engine
}

// within checks a callback's beginning; what it returns ends it.
func (l *stressLock) within(what string) (end func()) {
	if l.running.Add(1) != 1 || l.lost.Load() || l.closed.Load() {
		l.t.Errorf("%s overlaps another callback, or comes after what Lost returned (%v) or Close (%v)", what, l.lost.Load(), l.closed.Load())
	}
	return func() { l.running.Add(-1) }
}

func (l *stressLock) Renewal(watchdog.Renewal) { l.within("Renewal")() }

func (l *stressLock) Alarm(now time.Time) (next time.Time, tell func()) {
	return now.Add(time.Millisecond), func() { // may follow what Lost returned, if Check called Lost meanwhile
		if l.running.Add(1) != 1 || l.closed.Load() {
			l.t.Error("what Alarm returned overlaps another callback, or comes after Close")
		}
		l.running.Add(-1)
	}
}

func (l *stressLock) Lost(watchdog.Loss) (tell func()) {
	if l.removed.Load() || l.closed.Load() || l.over.Swap(true) {
		l.t.Error("Lost after Remove, Close or Lost")
	}
	return func() {
		defer l.within("what Lost returned")()
		l.lost.Store(true)
	}
}

// Everything at once, in real time, and Close in the midst of it: for the race detector, and for the promises about who is told what.
func TestStress(t *testing.T) {
	t.Parallel()
	rounds := 3
	if full {
		rounds = 100
	}
	for range rounds {
		stress(t)
	}
}

func stress(t *testing.T) {
	var calls atomic.Int64
	var closed atomic.Bool
	e := watchdog.New(watchdog.Config{
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
					b.Results[i] = watchdog.Result{Outcome: watchdog.Moved, Node: string(rune('a' + rand.IntN(3)))}
				}
			}
		},
		Panicked: func(v any, stack []byte) { t.Errorf("%v\n%s", v, stack) },
	})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			var held []*stressLock
			for !closed.Load() {
				l := &stressLock{t: t, closed: &closed}
				e.Watch(&l.Lease, watchdog.Spec{
					TTL: 60 * time.Millisecond, Interval: time.Duration(rand.IntN(3)) * 10 * time.Millisecond, Margin: time.Millisecond,
					Node: string(rune('a' + rand.IntN(3))), Sent: time.Now(), Alarm: time.Now().Add(time.Millisecond), Holder: l,
				})
				held = append(held, l)
				i := rand.IntN(len(held))
				l = held[i]
				switch rand.IntN(7) {
				case 0, 1, 2:
					if e.Remove(&l.Lease) {
						l.removed.Store(true)
						if l.lost.Load() {
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
	for end := time.Now().Add(150 * time.Millisecond); time.Now().Before(end) || calls.Load() == 0; { // on a machine that is busy
		time.Sleep(time.Millisecond)
	}
	e.Close()
	closed.Store(true)
	wg.Wait()
	if got := e.Stats(); got.Leases != 0 {
		t.Errorf("%+v is left", got)
	}
}
