package lock

import (
	"fmt"
	"strings"
	"time"

	"github.com/lockdog/lockdog/lock/internal/script"
	"github.com/lockdog/lockdog/lock/internal/waitgraph"
	"github.com/lockdog/lockdog/telemetry"
)

// DeadlockError is the error of a call of Lock that was made to fail so that a deadlock ends: see WithDeadlockBreaking.
// The waits of the deadlock may be in one process or in several. The error matches ErrDeadlock.
type DeadlockError struct {
	Name  string         // of the lock that wasn't acquired
	Cycle []DeadlockWait // each waits for a lock that the next one holds, the last for a lock that the first one holds
}

// DeadlockWait is one wait of a deadlock.
type DeadlockWait struct {
	Name       string    // of the lock that it waits for
	Owner      string    // for which the lock is requested
	ClientID   string    // of the client that waits, see WithClientID
	HoldsName  string    // of the lock that the previous wait waits for: this wait's ctx or Multi has a lease of it
	HoldsOwner string    // of that lease
	TraceID    string    // of the acquire, "" if it isn't sampled, or with WithoutHolderLinks
	Since      time.Time // when it began to wait, by the clock of its client
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
	broken bool // the wait has to fail, to end the deadlock
}

func newFoundDeadlock(c waitgraph.Cycle, broken bool) *foundDeadlock {
	d := &foundDeadlock{broken: broken}
	for _, s := range c {
		d.cycle = append(d.cycle, DeadlockWait{
			Name: s.Wait.Name, Owner: s.Wait.Waiter, ClientID: script.ClientIDOf(s.Wait.Waiter),
			HoldsName: s.Hold.Name, HoldsOwner: s.Hold.Owner, TraceID: traceID(s.Wait.Traceparent), Since: s.Wait.Since,
		})
	}
	return d
}

// cycleText describes a deadlock in one line. It quotes texts that other clients have written into Redis.
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

// tellDeadlock reports the waiter's deadlock to its acquire. It returns a *DeadlockError if the wait has to fail.
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

// setDeadlock makes a waiter report a deadlock, unless the waiter has left. If the waiter has to end a deadlock that it
// hasn't reported yet, that deadlock isn't replaced: no other wait would end it.
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
