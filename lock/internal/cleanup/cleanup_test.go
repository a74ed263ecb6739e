package cleanup

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockdog/lockdog/lock/internal/redisfail"
)

const lease = 30 * time.Second

const (
	noPerm     = redisfail.ReplyError("NOPERM this user has no permissions to run the 'evalsha' command")
	masterDown = redisfail.ReplyError("MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.")
	wrongKind  = redisfail.ReplyError("WRONGTYPE Operation against a key holding the wrong kind of value")
)

// inBubble runs f with a Cleaner in fake time.
func inBubble(t *testing.T, f func(t *testing.T, c *Cleaner)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := New()
		defer c.Close(context.Background())
		f(t, c)
	})
}

// task is one whose runs fail with err, and are counted.
func task(runs *atomic.Int64, err error) *Task {
	return &Task{Due: time.Now(), Timeout: lease, Remove: func(context.Context) error {
		runs.Add(1)
		return err
	}}
}

// A node that hangs delays no other's tasks.
func TestCleaner_NodeThatHangs(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Cleaner) {
		for range 10 {
			c.Add(&Task{Node: "hung", Due: time.Now(), Timeout: lease, Remove: func(ctx context.Context) error {
				<-ctx.Done()
				return ctx.Err()
			}})
		}
		synctest.Wait()
		start, ran := time.Now(), make(chan struct{})
		hasRun := sync.OnceFunc(func() { close(ran) }) // Close has it tried once more
		c.Add(&Task{Node: "fine", Due: time.Now(), Timeout: lease, Remove: func(context.Context) error {
			hasRun()
			return nil
		}})
		if <-ran; time.Since(start) > 0 {
			t.Errorf("it ran after %v", time.Since(start))
		}
	})
}

// Where a node hangs, and many tasks wait for it, none runs after its time: what it needs in Redis may be gone by then.
func TestCleaner_RunsNoneTooLate(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Cleaner) {
		start := time.Now()
		var ended atomic.Int64
		for range 100 {
			c.Add(&Task{Node: "hung", Due: start, Timeout: lease, Ended: func() { ended.Add(1) }, Remove: func(ctx context.Context) error {
				if late := time.Since(start); late > lease {
					t.Errorf("it runs after %v, its time was %v", late, lease)
				}
				<-ctx.Done()
				return ctx.Err()
			}})
		}
		time.Sleep(200 * time.Second)
		if n := ended.Load(); n != 100 {
			t.Errorf("%d of 100 have ended", n)
		}
	})
}

// What is refused holds up nothing else of its node.
func TestCleaner_RefusedHoldsUpNoOthers(t *testing.T) {
	for name, answer := range map[string]error{"refused": noPerm, "refused for a time": masterDown} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, c *Cleaner) {
				var refused, runs atomic.Int64
				for range 1000 {
					c.Add(task(&refused, answer))
				}
				time.Sleep(5 * time.Second)
				c.Add(task(&runs, nil))
				if synctest.Wait(); runs.Load() != 1 {
					t.Errorf("%d runs, want one at once", runs.Load())
				}
			})
		})
	}
}

// However many tasks fail, Redis isn't asked all the time; and when their patience is over they are dropped.
func TestCleaner_FailuresArePaced(t *testing.T) {
	for name, test := range map[string]struct {
		answer error
		tasks  int
		most   int64 // in a lease
	}{
		"one refused":        {noPerm, 1, 12},
		"refused":            {noPerm, 1000, 8000},
		"refused for a time": {masterDown, 1000, 20_000},
		"another type":       {wrongKind, 1000, 1000}, // nothing of lockdog is there: that is all
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, c *Cleaner) {
				var runs atomic.Int64
				for range test.tasks {
					c.Add(task(&runs, test.answer))
				}
				time.Sleep(2 * lease)
				if n := runs.Load(); n > test.most || n < test.most/4 {
					t.Errorf("%d tasks answered %v: %d runs in a lease, want %d at most", test.tasks, test.answer, n, test.most)
				}
				n := runs.Load()
				if time.Sleep(time.Hour); runs.Load() > n {
					t.Errorf("%v: it goes on for longer than a lease", test.answer)
				}
			})
		})
	}
}

// A task whose write was refused ends with the first refusal, but not with an error that passes.
func TestCleaner_RefusedOnce(t *testing.T) {
	for name, test := range map[string]struct {
		answer error
		once   bool
	}{"refused": {noPerm, true}, "refused for a time": {masterDown, false}} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, c *Cleaner) {
				var runs atomic.Int64
				refused := task(&runs, test.answer)
				refused.RefusedOnce = true
				c.Add(refused)
				time.Sleep(2 * lease)
				if n := runs.Load(); (n == 1) != test.once {
					t.Errorf("%d runs", n)
				}
			})
		})
	}
}

// A task that succeeds runs once more when no delayed call can write.
func TestCleaner_LateWrite(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Cleaner) {
		var runs atomic.Int64
		late := task(&runs, nil)
		late.LateWriteUntil = time.Now().Add(5 * time.Second)
		c.Add(late)
		time.Sleep(4 * time.Second)
		if runs.Load() != 1 {
			t.Errorf("%d runs while a delayed call may write, want 1", runs.Load())
		}
		time.Sleep(time.Hour)
		if runs.Load() != 2 {
			t.Errorf("%d runs, want 2", runs.Load())
		}
	})
}

// Close runs each task at once, and again when no delayed call can write. It gives up on a node that fails.
func TestCleaner_Close(t *testing.T) {
	inBubble(t, func(t *testing.T, _ *Cleaner) {
		const window = 3 * time.Second
		c := New()
		var later, late, failing, after atomic.Int64
		add := func(node string, runs *atomic.Int64, err error, due, lateWrite time.Duration) {
			added := task(runs, err)
			added.Node, added.Due, added.LateWriteUntil = node, time.Now().Add(due), time.Now().Add(lateWrite)
			c.Add(added)
		}
		add("fine", &later, nil, time.Hour, 0)
		add("fine", &late, nil, 0, window)
		for range 3 {
			add("down", &failing, masterDown, time.Hour, 0)
		}
		synctest.Wait()
		start := time.Now()
		if c.Close(t.Context()); time.Since(start) != window {
			t.Errorf("it closed after %v, want %v", time.Since(start), window)
		}
		add("fine", &after, nil, 0, 0)
		time.Sleep(time.Hour)
		if later.Load() != 1 || late.Load() != 3 || failing.Load() != 1 || after.Load() != 1 {
			t.Errorf("runs: %d of what was due later, %d of what may be written once more, %d at a node that fails, %d after Close; want 1, 3, 1, 1",
				later.Load(), late.Load(), failing.Load(), after.Load())
		}
	})
}

// Close waits until ctx ends for what a delayed call may still write.
func TestCleaner_CloseGivesUp(t *testing.T) {
	inBubble(t, func(t *testing.T, _ *Cleaner) {
		c := New()
		var runs atomic.Int64
		late := task(&runs, nil)
		late.LateWriteUntil = time.Now().Add(3 * time.Second)
		c.Add(late)
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		if c.Close(ctx); time.Since(start) != time.Second {
			t.Errorf("it closed after %v, want 1s", time.Since(start))
		}
		if time.Sleep(time.Hour); runs.Load() != 2 {
			t.Errorf("%d runs, want one before Close and one after", runs.Load())
		}
	})
}

// A run that began before Close isn't the last: what it was to remove may have come since.
func TestCleaner_CloseDuringARun(t *testing.T) {
	for name, answer := range map[string]error{"succeeds": nil, "fails": masterDown} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, _ *Cleaner) {
				c := New()
				var runs atomic.Int64
				c.Add(&Task{Due: time.Now(), Timeout: lease, Remove: func(context.Context) error {
					runs.Add(1)
					time.Sleep(time.Second)
					return answer
				}})
				synctest.Wait()
				if c.Close(t.Context()); runs.Load() != 2 {
					t.Errorf("%d runs, want 2", runs.Load())
				}
			})
		})
	}
}
