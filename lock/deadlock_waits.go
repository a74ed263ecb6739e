package lock

import (
	"time"

	"github.com/lockdog/lockdog/lock/internal/deadlock"
	"github.com/lockdog/lockdog/lock/internal/waitgraph"
)

// What package deadlock asks of the client's waits and leases.

// graphWaits are the client's waits as the wait graph sees them.
type graphWaits struct{ ws *waitQueues }

// Any implements deadlock.Waits.
func (g graphWaits) Any() bool {
	g.ws.mu.Lock()
	defer g.ws.mu.Unlock()
	return len(g.ws.queues) > 0
}

// Long implements deadlock.Waits.
func (g graphWaits) Long(by time.Time) (long []deadlock.Wait, next time.Time, any bool) {
	g.ws.mu.Lock()
	defer g.ws.mu.Unlock()
	for _, q := range g.ws.queues {
		for w := q.head; w != nil; w = w.next {
			any = true
			switch {
			case w.ctx == nil || w.won != nil:
			case !w.since.After(by):
				long = append(long, deadlock.Wait{
					Waiter: graphWaiter{w}, Owner: w.claim.owner, Traceparent: w.claim.traceparent,
				})
			case next.IsZero() || w.since.Before(next):
				next = w.since
			}
		}
	}
	return long, next, any
}

// graphWaiter is a waiter as the wait graph sees it.
type graphWaiter struct{ *waiter }

// Describe implements deadlock.Waiter.
func (w graphWaiter) Describe() (waitgraph.Wait, []deadlock.Lease) {
	lk := w.lock
	var leases []deadlock.Lease
	known := make(map[*grant]bool)
	add := func(h grantHandle) {
		if h.g.client() == lk.c && !h.g.lock.kind.ofOneNode && !known[h.g] {
			known[h.g] = true
			leases = append(leases, graphLease{h})
		}
	}
	if comp := w.params.composite; comp != nil { // what a Multi has taken so far
		comp.grants(nil, add)
	}
	carried(w.ctx, lk, func(l *Lease) bool {
		l.target.grants(l, add)
		return len(known) < 4*waitgraph.MaxHolds
	})
	return waitgraph.Wait{
		Name: lk.name, Kind: lk.kind.name, Since: w.since.Truncate(time.Microsecond), Breaks: lk.cfg.breaks,
	}, leases
}

// Deadlocked implements deadlock.Waiter.
func (w graphWaiter) Deadlocked(cycle waitgraph.Cycle, fail bool) {
	w.lock.c.waits.setDeadlock(w.waiter, newFoundDeadlock(cycle, fail))
}

// graphLease is a lease as the wait graph sees it.
type graphLease struct{ h grantHandle }

// Hold implements deadlock.Lease.
func (l graphLease) Hold() (waitgraph.Hold, bool) {
	g := l.h.g
	return waitgraph.Hold{
		Name: g.lock.name, Kind: g.lock.kind.name, Owner: g.claim.owner, Token: g.token(),
	}, l.h.joinable()
}
