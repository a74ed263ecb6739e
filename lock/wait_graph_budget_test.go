package lock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/telemetry"
)

// Services that try again after a deadlock, as the docs show it, run into the next. Each is found as soon as the first.
func TestDeadlock_OneAfterTheOther(t *testing.T) {
	t.Parallel()
	for _, n := range []int{2, 4} {
		t.Run(fmt.Sprint(n, " clients"), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { oneAfterTheOther(t, n, 8) })
		})
	}
}

func oneAfterTheOther(t *testing.T, n, rounds int) {
	g := newTangle(t, openFake(t, kindOfLock{}), n)
	var mu sync.Mutex
	var found []time.Duration
	var began time.Time // the last wait
	var all sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	for i, j := range g.jobs {
		from, to := fmt.Sprint("m", i), fmt.Sprint("m", (i+1)%n)
		transfer := func() error {
			return j.Mutex(from).Do(ctx, func(ctx context.Context, _ *lock.Lease) error {
				time.Sleep(50 * time.Millisecond)
				mu.Lock()
				began = time.Now()
				mu.Unlock()
				return j.Mutex(to, lock.WithDeadlockBreaking()).Do(ctx, func(context.Context, *lock.Lease) error { return nil })
			})
		}
		all.Go(func() {
			for ctx.Err() == nil {
				var deadlock *lock.DeadlockError
				if errors.As(transfer(), &deadlock) {
					mu.Lock()
					found = append(found, time.Since(began))
					if len(found) == rounds {
						stop()
					}
					mu.Unlock()
				}
			}
		})
	}
	all.Wait()
	t.Log(found)
	for i, took := range found {
		if took > deadlockToldWithin+time.Second { // a client that has spent its budget looks once a second
			t.Errorf("deadlock %d was found after %v", i, took)
		}
	}
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
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := openFake(t, kindOfLock{})
				j := chained(t, w, tt.width, tt.depth).jobs[0]
				client := j.outer.Owner()[:strings.LastIndex(j.outer.Owner(), "-")]
				const seconds = 20
				for range 10 * seconds {
					if tt.notified {
						w.raw.eval("return redis.call('publish', ARGV[1], 'lockdog deadlock?')", nil, "app:lockdog:control:"+client)
					}
					time.Sleep(100 * time.Millisecond)
				}
				search := tt.depth * (tt.width + 1) // the holders of each lock, and one read of the next client's waits
				rate := 2 * tt.width
				if tt.notified {
					rate = max(rate, search+2) // and a refresh
				}
				sent, most := j.sent(t, telemetry.PurposeOther), 20*tt.width+search+rate*(seconds+2)
				t.Logf("%d commands, at most %d; a search takes %d", sent, most, search)
				if sent > most {
					t.Errorf("%d commands, want at most %d", sent, most)
				}
			})
		})
	}
}
