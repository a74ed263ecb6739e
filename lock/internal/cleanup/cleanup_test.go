package cleanup

import (
	"context"
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
		defer c.Close()
		f(t, c)
	})
}

// task is one whose runs fail with err, and are counted.
func task(runs *atomic.Int64, err error) *Task {
	return &Task{Due: time.Now(), Patience: lease, Remove: func(context.Context) error {
		runs.Add(1)
		return err
	}}
}

// A node that hangs delays no other's tasks.
func TestCleaner_NodeThatHangs(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Cleaner) {
		for range 10 {
			c.Add(&Task{Node: "hung", Due: time.Now(), Patience: lease, Remove: func(ctx context.Context) error {
				<-ctx.Done()
				return ctx.Err()
			}})
		}
		synctest.Wait()
		start, ran := time.Now(), make(chan struct{})
		c.Add(&Task{Node: "fine", Due: time.Now(), Patience: lease, Remove: func(context.Context) error {
			close(ran)
			return nil
		}})
		if <-ran; time.Since(start) > 0 {
			t.Errorf("it ran after %v", time.Since(start))
		}
	})
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
				if c.pending(time.Now().Add(time.Hour)) {
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

// A task that succeeds runs once more when no delayed call can write, and Drain waits for what is due only.
func TestCleaner_LateWrite(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Cleaner) {
		var runs atomic.Int64
		late := task(&runs, nil)
		late.LateWriteUntil = time.Now().Add(5 * time.Second)
		c.Add(late)
		start := time.Now()
		if c.Drain(t.Context()); runs.Load() != 1 || time.Since(start) > time.Second {
			t.Errorf("%d runs after %v, want 1 at once", runs.Load(), time.Since(start))
		}
		time.Sleep(4 * time.Second)
		if runs.Load() != 1 {
			t.Errorf("%d runs while a delayed call may write, want 1", runs.Load())
		}
		time.Sleep(lease)
		if runs.Load() != 2 || c.pending(time.Now().Add(time.Hour)) {
			t.Errorf("%d runs, want 2", runs.Load())
		}
	})
}

// After Close nothing runs.
func TestCleaner_Close(t *testing.T) {
	inBubble(t, func(t *testing.T, _ *Cleaner) {
		c := New()
		var runs atomic.Int64
		later := task(&runs, nil)
		later.Due = time.Now().Add(time.Second)
		c.Add(later)
		c.Close()
		c.Add(task(&runs, nil))
		if time.Sleep(lease); runs.Load() != 0 {
			t.Errorf("%d runs after Close", runs.Load())
		}
	})
}
