package watchdog

import (
	"context"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"time"

	"github.com/lockdog/lockdog/telemetry"
)

// startCall starts the call for a cohort.
func (e *Engine) startCall(c *cohort, now int64) {
	e.dequeue(c)
	e.findNearest(c)
	c.stage, c.nextBy = inFlight, never
	g, node := c.group, c.group.node
	if !c.offCycle && c.hasRoom() {
		g.joinable = c
	}
	timeout := min(g.timeout, c.nearest-now)
	c.callBy = now + timeout
	node.calls++
	node.sent = append(node.sent, now)
	batch := &Batch{
		Node:    node.name,
		Leases:  slices.Clone(c.leases),
		Results: make([]Result, len(c.leases)),
		Planned: e.at(c.due),
		Urgent:  c.offCycle || c.tries > 0 || timeout < g.timeout,
	}
	e.wg.Add(1)
	go e.makeCall(c, batch, time.Duration(timeout))
}

// makeCall makes the call, and then always calls finishCall.
func (e *Engine) makeCall(c *cohort, batch *Batch, timeout time.Duration) {
	defer e.wg.Done()
	ctx, cancel := context.WithTimeout(e.ctx, timeout)
	defer cancel()
	returned := false
	defer func() {
		v := recover()
		if !returned { // a panic or runtime.Goexit
			for i := range batch.Results {
				batch.Results[i] = Result{Err: errPanicked}
			}
		}
		e.finishCall(c, batch)
		if v != nil {
			e.panicked(v, debug.Stack())
		}
	}()
	batch.Sent = e.clock() // before the request is sent: the new deadlines count from here
	e.cfg.Renew(ctx, batch)
	returned = true
}

// finishCall handles the results: deadlines, losses, and when the leases are renewed next. Callbacks follow later. A
// closed engine ignores the results.
func (e *Engine) finishCall(c *cohort, batch *Batch) {
	e.mu.Lock()
	defer e.mu.Unlock()
	g, node := c.group, c.group.node
	node.calls--
	if e.closed {
		return
	}
	now, sent := e.now(), e.since(batch.Sent)
	r := &report{batch: batch, notes: make([]note, 0, len(batch.Leases))}
	renewed, failures := 0, 0 // of those that stay in the cohort
	for i, l := range batch.Leases {
		if l.cohort != c { // removed, lost or stopped during the call
			continue
		}
		deadline := l.deadline.Load()
		if now >= deadline { // the lease is lost even if it was renewed: Check may have reported it as not live
			e.loseAtDeadline(l)
			continue
		}
		n := note{lease: l, renewal: Renewal{
			Batch: batch, Attempt: int(l.tries) + 1,
			Remaining: time.Duration(deadline - sent), Elapsed: time.Duration(now - l.sent),
		}}
		res := &batch.Results[i]
		switch res.Outcome {
		case Renewed:
			if !l.verify && !l.stopping {
				renewed++
			}
		case Missing, Taken:
			n.lost = true
		case Moved:
		default:
			failures++
		}
		e.applyResult(l, res, batch, now)
		n.renewal.Result = *res
		r.notes = append(r.notes, n)
	}
	for i := len(c.leases) - 1; i >= 0; i-- {
		// A lease that joined during the call, and was then given to Verify, wasn't renewed by the call.
		if l := c.leases[i]; l.verify {
			e.move(l, g.expedite(now))
		}
	}
	e.replan(c, sent, now, renewed, failures)
	if node.ready.Len() > 0 || node.offCycle.Len() > 0 {
		e.schedule(node, now) // another call may be made now
	}
	e.callbacks.reports = append(e.callbacks.reports, r)
	e.notify()
}

// applyResult updates a lease with the result of its renewal. A failure without an error gets errNoReason.
func (e *Engine) applyResult(l *Lease, res *Result, batch *Batch, now int64) {
	sent := e.since(batch.Sent)
	switch res.Outcome {
	case Renewed:
		l.tries, l.hops, l.brief, l.err, l.sent = 0, 0, false, nil, sent
		l.deadline.Store(max(l.deadline.Load(), sent+l.ttl-l.margin))
		switch {
		case l.stopping:
			e.leave(l)
			e.stop(l)
		case l.verify:
			e.move(l, l.cohort.group.expedite(now))
		}
	case Missing, Taken:
		cause := telemetry.LossMissing
		if res.Outcome == Taken {
			cause, l.err = telemetry.LossTaken, res.Err
		}
		e.lose(l, Loss{Cause: cause, Batch: batch})
		e.callbacks.losses = append(e.callbacks.losses, l)
	case Moved:
		e.redirect(l, res.Node, now)
	default:
		if res.Err == nil {
			res.Err = errNoReason
		}
		l.err = res.Err
		l.tries++
		l.verify = false // its retry is the call that Verify asked for
	}
}

// replan plans the next call of a cohort whose call has returned. Leases that failed are retried soon; if others were
// renewed, those that failed leave the cohort for an off-cycle one.
func (e *Engine) replan(c *cohort, sent, now int64, renewed, failures int) {
	g := c.group
	e.dequeue(c)
	switch {
	case len(c.leases) == 0:
		e.discard(c)
	case failures > 0 && renewed == 0:
		c.tries++
		e.findNearest(c)
		e.rest(c, now, backoff(g.ttl, c.tries))
	default:
		if failures > 0 {
			retry := e.newCohort(g, true)
			retry.tries = c.tries + 1
			for i := len(c.leases) - 1; i >= 0; i-- {
				if l := c.leases[i]; l.tries > 0 {
					e.move(l, retry)
				}
			}
			e.rest(retry, now, backoff(g.ttl, retry.tries))
		}
		g.settle(c, sent)
	}
}

// redirect renews a lease at its new node: as soon as the pace allows after the first move since its last success, and
// with growing delay after more moves.
func (e *Engine) redirect(l *Lease, node string, now int64) {
	key := groupKey{node, l.cohort.group.interval, l.ttl}
	g := e.groupOf(key)
	l.hops = min(l.hops, 254) + 1
	if l.hops == 1 {
		e.move(l, g.expedite(now))
		return
	}
	c := e.newCohort(g, true)
	e.move(l, c)
	e.rest(c, now, backoff(g.ttl, int(l.hops)-1))
}

// backoff returns the pause after the nth failed call in a row: TTL/300, doubling up to TTL/15, both at least 5 ms. It
// varies by ±50 %, so that calls that failed together aren't retried together.
func backoff(ttl int64, n int) int64 {
	const least = int64(5 * time.Millisecond)
	pause := max(ttl/300, least) << min(n-1, 8)
	pause = min(pause, max(ttl/15, least))
	return pause/2 + rand.Int64N(pause)
}
