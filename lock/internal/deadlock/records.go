package deadlock

import (
	"context"
	"time"

	"github.com/lockdog/lockdog/lock/internal/dispatch"
	"github.com/lockdog/lockdog/lock/internal/script"
	"github.com/lockdog/lockdog/lock/internal/waitgraph"
)

// records are a client's long waits in Redis, in one hash: under each lease the waits that carry it, and under its own owner a
// wait that carries none. Of the waits that carry one lease and wait for one lock only one is written: a waiter for the lease
// waits for all of them, so one is enough to see a cycle. A set has all clients that have such a hash.
//
// Every command that changes the hash refreshes it, and it is refreshed only together with what has changed. So a wait that is
// read in a hash lasted when the hash was refreshed. A write without a reply may come late and break that: then everything is
// written again until the write can't come any more.
type records struct {
	f         *Finder
	written   map[string]string // field -> text
	refreshed time.Time         // the hash, or that was tried; zero: it has nothing
	sent      time.Time         // the last write of waits
	enlisted  time.Time         // in the set; or that was tried
	holding   bool              // a wait carries a lease: others may look often
	unsure    bool              // there may be something else in the hash
	lateUntil time.Time         // until when an unanswered write may still come
}

const (
	// refreshOthers is for waits that carry no leases: nobody but an operator reads them. For the others see
	// waitgraph.RefreshEvery: a deadlock is reported after the next refresh of all in it.
	refreshOthers = 2 * time.Second
	enlistEvery   = 3 * time.Second

	maxFields   = 100                    // in one call
	writeWindow = 2 * time.Second        // after which a write is refused
	lastTimeout = 250 * time.Millisecond // for a call of Close
)

// due is when the hash is to be refreshed, zero: there is nothing in it.
func (r *records) due() time.Time {
	if r.refreshed.IsZero() {
		return time.Time{}
	}
	if r.holding {
		return r.refreshed.Add(waitgraph.RefreshEvery)
	}
	return r.refreshed.Add(refreshOthers)
}

// forget is called when nothing is in the hash, or when it can't be written and expires. The next write begins it anew.
func (r *records) forget() { r.written, r.refreshed, r.unsure = nil, time.Time{}, true }

// texts are the waits as they are to be in Redis.
func (r *records) texts(long map[Waiter]*longWait) map[string]string {
	type step struct {
		owner string
		to    waitgraph.Awaited
	}
	steps := make(map[step]bool)
	fields := make(map[string][]waitgraph.Wait)
	r.holding = false
	for _, w := range inOrder(long) {
		if len(w.record.Holds) == 0 {
			fields[w.record.Waiter] = append(fields[w.record.Waiter], w.record)
		}
		for _, h := range w.record.Holds {
			r.holding = true
			if s := (step{h.Owner, w.record.Awaited()}); !steps[s] {
				steps[s] = true
				fields[h.Owner] = append(fields[h.Owner], w.record)
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
func (r *records) write(now time.Time, long map[Waiter]*longWait) error {
	texts := r.texts(long)
	if len(texts) == 0 {
		r.remove(now, callTimeout)
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
func (r *records) remove(now time.Time, timeout time.Duration) {
	if r.refreshed.IsZero() {
		return
	}
	if now.Sub(r.sent) > script.WaitsLife+writeWindow { // whatever was written has expired
		r.forget()
		return
	}
	known, err := r.sendOnce(context.WithoutCancel(r.f.ctx), timeout, script.WaitsChange{Anew: true}, now)
	if r.refreshed = now; known && err == nil && !r.unsure {
		r.forget()
	}
}

// send makes a change, in several calls if it is large. It reports whether what was written before was still there.
func (r *records) send(change script.WaitsChange, now time.Time) (known bool, err error) {
	known = true
	for {
		part := change
		part.Remove = change.Remove[:min(len(change.Remove), maxFields)]
		part.Set = change.Set[:min(len(change.Set), 2*maxFields)]
		change = script.WaitsChange{Remove: change.Remove[len(part.Remove):], Set: change.Set[len(part.Set):]}
		r.sent = now
		was, err := r.sendOnce(r.f.ctx, callTimeout, part, now)
		known = known && was
		if err != nil || len(change.Remove) == 0 && len(change.Set) == 0 {
			return known, err
		}
	}
}

func (r *records) sendOnce(ctx context.Context, timeout time.Duration, change script.WaitsChange, now time.Time) (known bool, err error) {
	key := script.WaitsKey(r.f.cfg.Prefix, r.f.random)
	r.f.budget.tokens--
	err = r.f.call(ctx, timeout, writeWindow, func(q *script.Request) { script.WaitsWriteArgs(q, key, change) }, func(c *dispatch.Call) error {
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

// enlist adds the client to the set of those that have waits, from time to time. Only package fleet reads the set. Deadlocks are
// found without it, so an error is ignored.
func (r *records) enlist(now time.Time) {
	if now.Sub(r.enlisted) < enlistEvery {
		return
	}
	r.enlisted = now
	key := script.WaitingKey(r.f.cfg.Prefix)
	r.f.budget.tokens--
	_ = r.f.call(r.f.ctx, callTimeout, 0, func(q *script.Request) { script.WaitsEnlistArgs(q, key, r.f.random) }, func(*dispatch.Call) error { return nil })
}
