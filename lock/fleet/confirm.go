package fleet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/lockdog/lockdog/lock/internal/waitgraph"
)

const (
	confirmPause = 100 * time.Millisecond // after the second reading, until all in the cycle are refreshed; each pause is twice the one before, up to waitgraph.SightingsApart
	confirmRoom  = 100 * time.Millisecond // that is left between a reading and the deadline of the ctx, at least
)

// confirm reads again until each cycle of the first reading, which took some time, is confirmed, or is gone. The reading after waitgraph.StaleAfter is the last: a record that
// hasn't been refreshed until then is stale, so no cycle has it.
func (r *Reader) confirm(ctx context.Context, first Graph, err error, took time.Duration) (Graph, error) {
	// All of a cycle was true at this moment if each wait in it is refreshed after it. The start of the reading would be too early: a wait that was read first may have
	// ended after a refresh in the middle of the reading, before another wait of the cycle began.
	seen := time.Now()
	g := first
	g.Cycles = nil
	earliest, next := seen.Add(waitgraph.SightingsApart), first.lastRefresh().Add(waitgraph.RefreshEvery+waitgraph.RefreshLag)
	if next.Before(earliest) {
		next = earliest
	}
	for pause := confirmPause; ; pause = min(2*pause, waitgraph.SightingsApart) {
		if deadline, ok := ctx.Deadline(); ok {
			// A reading that the deadline cuts off is worth nothing. So the last one ends before it, even if that is before the refreshes are due: some may have been made.
			if latest := deadline.Add(-2*took - confirmRoom); latest.Before(next) {
				next = latest
			}
			if next.Before(earliest) {
				return g, errors.Join(err, unconfirmed(context.DeadlineExceeded))
			}
		}
		select {
		case <-time.After(time.Until(next)):
		case <-ctx.Done():
			return g, errors.Join(err, unconfirmed(context.Cause(ctx)))
		}
		began := time.Now()
		again, againErr := r.graph(ctx)
		if againErr != nil && ctx.Err() != nil {
			return g, errors.Join(err, unconfirmed(context.Cause(ctx)))
		}
		more := again.keepConfirmed(&first, seen)
		if g, err = again, againErr; !more {
			return g, err
		}
		now := time.Now()
		took, next, earliest = now.Sub(began), now.Add(pause), now.Add(1) // in a bubble of testing/synctest a reading takes no time
		if last := seen.Add(waitgraph.StaleAfter); last.Before(next) && earliest.Before(last) {
			next = last
		}
	}
}

func unconfirmed(why error) error {
	return fmt.Errorf("fleet: a cycle could not be confirmed: %w", why)
}

// lastRefresh is the last refresh of a record in a cycle.
func (g *Graph) lastRefresh() (last time.Time) {
	for _, c := range g.Cycles {
		for _, step := range c {
			if at := g.Waits[step.Wait].refreshed; at.After(last) {
				last = at
			}
		}
	}
	return last
}

// keepConfirmed removes the cycles that aren't confirmed. It reports whether a later reading may confirm one of these: it was in the first reading, too, but isn't refreshed since that was seen.
func (g *Graph) keepConfirmed(first *Graph, seen time.Time) (more bool) {
	g.Cycles = slices.DeleteFunc(g.Cycles, func(c Cycle) bool {
		if !first.has(g, c) {
			return true
		}
		refreshed := !slices.ContainsFunc(c, func(step CycleWait) bool { return !g.Waits[step.Wait].refreshed.After(seen) })
		more = more || !refreshed
		return !refreshed
	})
	return more
}

// has reports whether the waits of another Graph's cycle wait for the same leases here.
func (g *Graph) has(other *Graph, c Cycle) bool {
	for i, step := range c {
		next := c[(i+1)%len(c)]
		if !g.blocks(other.Waits[step.Wait].Waiter, lease{next.Holds.Name, next.Holds.Owner}, other.Waits[next.Wait].Waiter) {
			return false
		}
	}
	return true
}
