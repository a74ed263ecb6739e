package lock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/telemetry"
)

// Services that try again after a deadlock, as the docs show it, run into the next. Each is found as soon as the first.
func TestDeadlock_OneAfterTheOther(t *testing.T) {
	onFake(t, func(t *testing.T, w *world) {
		const n, rounds = 4, 8
		g := newTangle(t, w, n)
		var mu sync.Mutex
		var found []time.Duration
		var began time.Time // the last wait
		var all sync.WaitGroup
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		transfer := func(j *job, from, to string) error {
			return j.Mutex(from).Do(ctx, func(ctx context.Context, _ *lock.Lease) error {
				time.Sleep(50 * time.Millisecond)
				mu.Lock()
				began = time.Now()
				mu.Unlock()
				return j.Mutex(to, lock.WithDeadlockBreaking()).Do(ctx, noWork)
			})
		}
		for i, j := range g.jobs {
			all.Go(func() {
				for ctx.Err() == nil {
					if !errors.Is(transfer(j, fmt.Sprint("m", i), fmt.Sprint("m", (i+1)%n)), lock.ErrDeadlock) {
						continue
					}
					mu.Lock()
					if found = append(found, time.Since(began)); len(found) == rounds {
						stop()
					}
					mu.Unlock()
				}
			})
		}
		all.Wait()
		if slowest := slices.Max(found); slowest > deadlockToldWithin+time.Second { // a client that has spent its budget looks once a second
			t.Errorf("found after %v", found)
		}
	})
}

// chained has the first job wait for as many locks as width says, the second one hold these and wait for as many others, and so on: a look of the first
// job's client takes all of them in.
func chained(t *testing.T, w *world, width, depth int) *tangle {
	g := newTangle(t, w, depth+1)
	name := func(level, i int) string { return fmt.Sprint("l", level, "-", i) }
	for level := range depth + 1 {
		for i := range width {
			g.holds(level, g.jobs[level].Mutex(name(level, i)))
		}
	}
	for level := depth - 1; level >= 0; level-- { // so that nobody's wait is the last to last but those of the first
		for i := range width {
			g.waits(level, g.jobs[level].Mutex(name(level+1, i)))
		}
		time.Sleep(2 * time.Second)
	}
	return g
}

// What a client sends for its long waits is bounded: 20 commands for each, two a second for each from then on, and beyond that one search a second
// while it is notified.
func TestWaitGraph_CommandsPerSecondAreBounded(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		width, depth int
		notified     bool
	}{{1, 12, false}, {1, 12, true}, {4, 4, true}} {
		t.Run(fmt.Sprintf("%+v", tt), func(t *testing.T) {
			onFake(t, func(t *testing.T, w *world) {
				j := chained(t, w, tt.width, tt.depth).jobs[0]
				const seconds = 20
				for range 10 * seconds {
					if tt.notified {
						notify(w, j.outer.Owner())
					}
					time.Sleep(100 * time.Millisecond)
				}
				search := tt.depth * (tt.width + 1) // the holders of each lock, and one read of the next client's waits
				rate := 2 * tt.width
				if tt.notified {
					rate = max(rate, search+2) // and a refresh
				}
				if sent, most := j.sent(t, telemetry.PurposeOther), 20*tt.width+search+rate*(seconds+2); sent > most {
					t.Errorf("%d commands, want at most %d; a search takes %d", sent, most, search)
				}
			})
		})
	}
}
