package lock

import (
	"context"
	"time"

	"github.com/lockdog/lockdog/lock/internal/dispatch"
	"github.com/lockdog/lockdog/lock/internal/script"
	"github.com/lockdog/lockdog/lock/internal/waitgraph"
	"github.com/lockdog/lockdog/telemetry"
)

// waitRecords are a client's lasting waits in Redis, in a hash of its own: for each lease that waits carry these waits, and for a wait that carries none the
// wait under its own waiter. Waits that carry one lease and wait for the same are one there: whoever waits for the lease waits for all of them, so one is
// enough to see a cycle. One set has all clients that have such a hash.
//
// Every command that changes the hash refreshes it, and it is refreshed only together with what has changed. So whoever reads a wait in a hash that was
// refreshed at some time knows that the wait lasted then. A write that may come late, as there was no reply, would break that: then all is written anew
// until the write can't come any more.
type waitRecords struct {
	g         *waitGraph
	written   map[string]string // field -> text
	refreshed time.Time         // the hash, or that was tried; zero: it has nothing
	sent      time.Time         // the last write of waits
	enlisted  time.Time         // in the set; or that was tried
	holding   bool              // a wait carries a lease: others may look often
	unsure    bool              // there may be something else in the hash
	lateUntil time.Time         // until when an unanswered write may still come
}

const (
	refreshOthers = 2 * time.Second // of waits that are only seen. For those that carry leases see waitgraph.RefreshEvery: a deadlock is told after the next refresh of all in it
	enlistEvery   = 3 * time.Second

	maxFields    = 100                    // in one call
	writeWindow  = 2 * time.Second        // after which a write is refused
	lastPatience = 250 * time.Millisecond // for a call of Close
)

// due is when the hash is to be refreshed, zero: there is nothing in it.
func (r *waitRecords) due() time.Time {
	if r.refreshed.IsZero() {
		return time.Time{}
	}
	if r.holding {
		return r.refreshed.Add(waitgraph.RefreshEvery)
	}
	return r.refreshed.Add(refreshOthers)
}

// forget is called when nothing is in the hash, or when it can't be written and expires. The next write begins it anew.
func (r *waitRecords) forget() { r.written, r.refreshed, r.unsure = nil, time.Time{}, true }

// texts are the waits as they are to be in Redis.
func (r *waitRecords) texts(lasting map[*waiter]*lastingWait) map[string]string {
	type step struct {
		owner string
		to    waitgraph.Awaited
	}
	steps := make(map[step]bool)
	fields := make(map[string][]waitgraph.Wait)
	r.holding = false
	for _, lw := range inOrder(lasting) {
		if len(lw.record.Holds) == 0 {
			fields[lw.record.Waiter] = append(fields[lw.record.Waiter], lw.record)
		}
		for _, h := range lw.record.Holds {
			r.holding = true
			if s := (step{h.Owner, lw.record.Awaited()}); !steps[s] {
				steps[s] = true
				fields[h.Owner] = append(fields[h.Owner], lw.record)
			}
		}
	}
	texts := make(map[string]string, len(fields))
	for field, waits := range fields {
		texts[field] = waitgraph.Encode(waits)
	}
	return texts
}

// write brings Redis up to date.
func (r *waitRecords) write(now time.Time, lasting map[*waiter]*lastingWait) error {
	texts := r.texts(lasting)
	if len(texts) == 0 {
		r.remove(now, graphPatience)
		return nil
	}
	change := script.WaitsChange{Anew: r.unsure}
	for field := range r.written {
		if _, still := texts[field]; !still && !change.Anew {
			change.Remove = append(change.Remove, field)
		}
	}
	for field, text := range texts {
		if change.Anew || r.written[field] != text {
			change.Set = append(change.Set, field, text)
		}
	}
	if len(change.Set) == 0 && len(change.Remove) == 0 && now.Before(r.due()) {
		return nil
	}
	known, err := r.send(change, now)
	if err == nil && !known && len(r.written) > 0 { // FLUSHALL, or nothing was refreshed for long
		change = script.WaitsChange{Anew: true}
		for field, text := range texts {
			change.Set = append(change.Set, field, text)
		}
		_, err = r.send(change, now)
	}
	r.refreshed = now
	if err != nil {
		return err
	}
	r.written = texts
	r.enlist(now)
	return nil
}

// remove empties the hash. The client stays in the set until its time there is over, and nobody finds anything.
func (r *waitRecords) remove(now time.Time, patience time.Duration) {
	if r.refreshed.IsZero() {
		return
	}
	if now.Sub(r.sent) > script.WaitsLife+writeWindow { // whatever was written has expired
		r.forget()
		return
	}
	known, err := r.sendOnce(context.WithoutCancel(r.g.ctx), patience, script.WaitsChange{Anew: true}, now)
	if r.refreshed = now; known && err == nil && !r.unsure {
		r.forget()
	}
}

// send makes a change, in several calls if it is large. It reports whether what was written before was still there.
func (r *waitRecords) send(change script.WaitsChange, now time.Time) (known bool, err error) {
	known = true
	for {
		part := change
		part.Remove = change.Remove[:min(len(change.Remove), maxFields)]
		part.Set = change.Set[:min(len(change.Set), 2*maxFields)]
		change = script.WaitsChange{Remove: change.Remove[len(part.Remove):], Set: change.Set[len(part.Set):]}
		r.sent = now
		was, err := r.sendOnce(r.g.ctx, graphPatience, part, now)
		known = known && was
		if err != nil || len(change.Remove) == 0 && len(change.Set) == 0 {
			return known, err
		}
	}
}

func (r *waitRecords) sendOnce(ctx context.Context, patience time.Duration, change script.WaitsChange, now time.Time) (known bool, err error) {
	key := script.WaitsKey(r.g.c.cfg.prefix, r.g.random)
	r.g.budget.tokens--
	err = r.g.call(ctx, patience, writeWindow, func(q *script.Request) { script.WaitsWriteArgs(q, key, change) }, func(c *dispatch.Call) error {
		reply, err := script.ParseWaitsWrite(c.Reply)
		known = reply.Known
		return c.Learn(reply.Now, reply.Late, err)
	})
	switch {
	case err != nil:
		r.unsure, r.lateUntil = true, time.Now().Add(2*writeWindow) // its clock may differ a little
	case change.Anew && now.After(r.lateUntil):
		r.unsure = false
	}
	return known, err
}

// enlist says in the set that the client has waits, from time to time. Deadlocks are found without the set, which only package fleet reads; so nothing
// depends on whether that worked.
func (r *waitRecords) enlist(now time.Time) {
	if now.Sub(r.enlisted) < enlistEvery {
		return
	}
	r.enlisted = now
	key := script.WaitingKey(r.g.c.cfg.prefix)
	r.g.budget.tokens--
	_ = r.g.call(r.g.ctx, graphPatience, 0, func(q *script.Request) { script.WaitsEnlistArgs(q, key, r.g.random) }, func(*dispatch.Call) error { return nil })
}

// call makes one call for the wait graph, and has its reply read. Without a reply the script writes nothing after the window, if it has a not-after.
func (g *waitGraph) call(ctx context.Context, patience, window time.Duration, args func(*script.Request), read func(*dispatch.Call) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	c := g.c.dispatcher.Call(telemetry.PurposeOther)
	args(&c.Request)
	c.Window = window
	if left := g.c.dispatcher.Do(ctx, c, patience); left != nil {
		return left
	}
	defer g.c.dispatcher.Recycle(c)
	if c.Err != nil {
		return c.Err
	}
	return read(c)
}
