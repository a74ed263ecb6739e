package fleet

import (
	"context"
	"slices"
	"time"

	"github.com/lockdog/lockdog/lock/internal/script"
	"github.com/lockdog/lockdog/lock/internal/waitgraph"
)

// waitsPatience bounds the reading of the wait graph for Look and Locks. Without the wait graph their result has fewer
// waiters, but is still useful.
const waitsPatience = time.Second

// lastingWaits returns the waits of the wait graph by the name of the awaited lock. It omits stale waits, and those
// that can't be read or that this user may not read.
func (r *Reader) lastingWaits(ctx context.Context) map[string][]waitgraph.Wait {
	ctx, cancel := context.WithTimeout(ctx, waitsPatience)
	defer cancel()
	waits, _ := r.readWaits(ctx, &Graph{})
	byName := map[string][]waitgraph.Wait{}
	for _, w := range waits {
		if w.Refreshed.IsZero() || time.Since(w.Refreshed) < waitgraph.StaleAfter {
			byName[w.Name] = append(byName[w.Name], w)
		}
	}
	return byName
}

// addWaits adds waits of the wait graph to the lock's waiters. It omits waits that are already among them, and waits
// that have got the lock: a wait that has ended stays in the wait graph until its client writes its records again. The
// wait set of a Mutex has at most one waiter of each client. The client's waits replace that waiter. A Semaphore has no
// wait set.
func (l *Lock) addWaits(waits []waitgraph.Wait) {
	waits = slices.DeleteFunc(slices.Clone(waits), func(w waitgraph.Wait) bool { // it has got the lock
		return slices.ContainsFunc(l.Holders, func(h Holder) bool { return h.Owner == w.Waiter })
	})
	// known has the owners of the waiters so far, and the random digits of their clients. lasting has those of waits.
	known, lasting := map[string]bool{}, map[string]bool{}
	for _, w := range l.Waiters {
		_, client := script.ClientOf(w.Owner)
		known[w.Owner], known[client] = true, true
	}
	unknown := 0 // how many waiters without an owner are assumed to be of clients that have waits
	for _, w := range waits {
		_, client := script.ClientOf(w.Waiter)
		if !known[client] && !lasting[client] {
			unknown++
		}
		lasting[w.Waiter], lasting[client] = true, true
	}
	before := len(l.Waiters)
	l.Waiters = slices.DeleteFunc(l.Waiters, func(w Waiter) bool {
		if w.Owner == "" {
			unknown--
			return unknown >= 0
		}
		_, client := script.ClientOf(w.Owner)
		return l.Kind == Mutex && lasting[client] && !lasting[w.Owner]
	})
	l.Waiting -= before - len(l.Waiters)
	for _, w := range waits {
		if !known[w.Waiter] {
			l.addWaiter(w.Waiter, w.Traceparent, w.Since)
		}
	}
	l.sortWaiters()
}
