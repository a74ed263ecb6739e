package lock

import (
	"fmt"
	"strings"
	"time"

	"github.com/lockdog/lockdog/lock/internal/script"
	"github.com/lockdog/lockdog/lock/internal/waitgraph"
	"github.com/lockdog/lockdog/telemetry"
)

// DeadlockError says that a wait failed to end a deadlock across processes (WithDeadlockBreaking). It matches ErrDeadlock.
type DeadlockError struct {
	Name  string         // of the lock that wasn't acquired
	Cycle []DeadlockWait // each waits for what the next one holds, and the last for what the first holds
}

// DeadlockWait is one wait of a deadlock.
type DeadlockWait struct {
	Name       string    // of the lock that it waits for
	Owner      string    // that would hold the lock
	ClientID   string    // of the client that waits, as WithClientID
	HoldsName  string    // of the lock for which the wait before waits: the ctx carries a lease of it
	HoldsOwner string    // of that lease
	TraceID    string    // of the acquire, "" when that isn't sampled
	Since      time.Time // by the clock of the client that waits
}

// Error implements error.
func (e *DeadlockError) Error() string {
	return fmt.Sprintf("lockdog: lock %q: deadlock, this wait was ended to break it: %s", e.Name, cycleText(e.Cycle))
}

// Is makes the error match ErrDeadlock.
func (e *DeadlockError) Is(target error) bool { return target == ErrDeadlock }

// foundDeadlock is a deadlock that a wait is part of.
type foundDeadlock struct {
	cycle  []DeadlockWait
	broken bool // the wait is to fail
}

func newFoundDeadlock(c waitgraph.Cycle, broken bool) *foundDeadlock {
	d := &foundDeadlock{broken: broken}
	for _, s := range c {
		d.cycle = append(d.cycle, DeadlockWait{
			Name: s.Wait.Name, Owner: s.Wait.Waiter, ClientID: script.ClientIDOf(s.Wait.Waiter), HoldsName: s.Hold.Name, HoldsOwner: s.Hold.Owner,
			TraceID: traceID(s.Wait.Traceparent), Since: s.Wait.Since,
		})
	}
	return d
}

// cycleText describes a deadlock in one line. It quotes what others have written.
func cycleText(cycle []DeadlockWait) string {
	var text strings.Builder
	for i, w := range cycle {
		if i > 0 {
			text.WriteString("; ")
		}
		fmt.Fprintf(&text, "%.*q", longestOwner, w.HoldsOwner)
		fmt.Fprintf(&text, " holds %q and waits for %q", w.HoldsName, w.Name)
		if w.TraceID != "" {
			fmt.Fprintf(&text, " (trace %s)", w.TraceID)
		}
	}
	return text.String()
}

// tellDeadlock tells a waiter's acquire that its wait is part of a deadlock. The error is that of the wait, if it is to fail.
func (ws *waitQueues) tellDeadlock(w *waiter, a *telemetry.Acquire) error {
	ws.mu.Lock()
	d := w.deadlock
	w.deadlock = nil
	ws.mu.Unlock()
	a.Deadlock(cycleText(d.cycle), d.broken)
	if !d.broken {
		return nil
	}
	return &DeadlockError{Name: w.lock.name, Cycle: d.cycle}
}

// setDeadlock has a waiter told of a deadlock, unless it has left. A deadlock that its wait is to break isn't replaced before the
// waiter has been told: nobody else would break it.
func (ws *waitQueues) setDeadlock(w *waiter, d *foundDeadlock) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if w.q == nil {
		return
	}
	if w.deadlock == nil || !w.deadlock.broken {
		w.deadlock = d
	}
	w.wake()
}
