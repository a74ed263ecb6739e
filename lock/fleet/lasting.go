package fleet

import (
	"context"
	"slices"
	"time"

	"github.com/lockdog/lockdog/lock/internal/script"
	"github.com/lockdog/lockdog/lock/internal/waitgraph"
)

// waitsPatience is for the reading of the wait graph by who wants to know of locks: they are told of without it, too.
const waitsPatience = time.Second

// lastingWaits reads the waits of the wait graph, by the lock that they are for. What can't be read, or isn't for this user to read, is left out.
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

// addWaits adds waits for the lock, the longest first, that aren't among its waiters. Beside a lock Redis knows at most one wait of a client, and none
// for a Semaphore; the wait graph has all that last. One that has ended is there until its client writes next.
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
		return l.Kind == Mutex && isThere && !lasting[w.Owner] // it stands for one of those
	})
	l.Waiters = slices.DeleteFunc(l.Waiters, func(w Waiter) bool {
		if w.Owner != "" || len(clients) == 0 {
			return false
		}
		for client := range clients { // it is of one of these, no matter which
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
	if l.Kind != Fair { // in a queue, those come first that have a place in Redis
		slices.SortStableFunc(l.Waiters, func(a, b Waiter) int { return a.Since.Compare(b.Since) })
	}
	l.Waiters = l.Waiters[:min(len(l.Waiters), Most)]
}
