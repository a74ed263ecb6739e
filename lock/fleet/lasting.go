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

// addWaits adds to the lock's waiters those waits that aren't among them. The wait set of a Mutex has at most one
// waiter of each client, which the client's waits replace, and a Semaphore has no wait set. A wait that has ended stays
// in the wait graph until its client writes its records again.
func (l *Lock) addWaits(waits []waitgraph.Wait) {
	lasting, clients := map[string]bool{}, map[string]bool{}
	for _, w := range waits {
		if slices.ContainsFunc(l.Holders, func(h Holder) bool { return h.Owner == w.Waiter }) {
			continue // it has got the lock
		}
		_, client := script.ClientOf(w.Waiter)
		lasting[w.Waiter], clients[client] = true, true
	}
	known, before := map[string]bool{}, len(l.Waiters)
	l.Waiters = slices.DeleteFunc(l.Waiters, func(w Waiter) bool {
		known[w.Owner] = true
		_, client := script.ClientOf(w.Owner)
		isThere := clients[client]
		delete(clients, client)
		return l.Kind == Mutex && isThere && !lasting[w.Owner] // its client's waits in the wait graph replace it
	})
	l.Waiters = slices.DeleteFunc(l.Waiters, func(w Waiter) bool {
		if w.Owner != "" || len(clients) == 0 {
			return false
		}
		for client := range clients { // the waiter's client isn't known: assume that it is one of these
			delete(clients, client)
			break
		}
		return true
	})
	l.Waiting -= before - len(l.Waiters)
	for _, w := range waits {
		if !lasting[w.Waiter] || known[w.Waiter] {
			continue
		}
		l.Waiting++
		l.Waiters = append(l.Waiters, waiterOf(w.Waiter, w.Traceparent, w.Since))
	}
	if l.Kind != Fair { // a queue keeps its order; waits without a place in Redis follow
		slices.SortStableFunc(l.Waiters, func(a, b Waiter) int { return a.Since.Compare(b.Since) })
	}
	l.Waiters = l.Waiters[:min(len(l.Waiters), Most)]
}
