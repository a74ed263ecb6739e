package deadlock

import (
	"context"
	"time"

	"github.com/lockdog/lockdog/lock/internal/dispatch"
	"github.com/lockdog/lockdog/lock/internal/script"
	"github.com/lockdog/lockdog/lock/internal/waitgraph"
)

// records are a client's long waits in Redis, in one hash. The field of a lease's owner has the waits that carry the
// lease: in their ctx, or because their Multi has taken it. A wait that carries no lease is in the field of its own
// owner. Of the waits that carry the same lease and wait for the same lock, one is written. That is enough: a cycle
// through one of them is a cycle through each. A set has all clients with such a hash: see enlist.
//
// Every call that changes the hash also refreshes it: it sets the expiry anew, from which readers see how old the hash
// is. The first call of a pass makes all changes of the fields that the hash already has; new fields may follow in
// further calls. So a wait that is read from the hash was going on when the pass of the last refresh began. That may be
// before the refresh by callTimeout for each call of the pass. A write without a reply may arrive later still: so all
// fields are written again until that write can't arrive any more.
type records struct {
	f         *Finder
	written   map[string]string // field -> text
	refreshed time.Time         // the last refresh of the hash, or the last try; zero: it is empty, or will expire
	sent      time.Time         // the last write of waits
	enlisted  time.Time         // the last call of waits_enlist.lua
	holding   bool              // a wait carries a lease, so that other clients may need the hash
	unsure    bool              // the hash may have other fields than written
	lateUntil time.Time         // until when a write without a reply may still arrive
}

const (
	// refreshOthers is how often the hash is refreshed if no wait carries a lease. Such a wait is part of no deadlock,
	// so only package fleet uses the hash then. Otherwise the hash is refreshed every waitgraph.RefreshEvery: a
	// deadlock is reported after the next refresh of all its waits.
	refreshOthers = 2 * time.Second
	enlistEvery   = 3 * time.Second

	maxFields   = 100                    // in one call
	writeWindow = 2 * time.Second        // how long a write may still take effect: see Call.MayWriteFor
	lastTimeout = 250 * time.Millisecond // of the call that Close makes
)

// due returns when to refresh the hash, zero if there is nothing to refresh.
func (r *records) due() time.Time {
	if r.refreshed.IsZero() {
		return time.Time{}
	}
	if r.holding {
		return r.refreshed.Add(waitgraph.RefreshEvery)
	}
	return r.refreshed.Add(refreshOthers)
}

// forget notes that the hash is empty, or can't be written and will expire. The next write replaces all fields.
func (r *records) forget() { r.written, r.refreshed, r.unsure = nil, time.Time{}, true }

// texts returns the fields that the hash is to have.
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

// write writes the changes of the waits, or refreshes the hash if that is due. If there are no waits, it empties the
// hash.
func (r *records) write(now time.Time, long map[Waiter]*longWait) error {
	texts := r.texts(long)
	if len(texts) == 0 {
		r.remove(now, callTimeout)
		return nil
	}
	change := r.change(texts)
	if len(change.Set) == 0 && len(change.Remove) == 0 && now.Before(r.due()) {
		return nil
	}
	known, err := r.send(change, now)
	if err == nil && !known && len(r.written) > 0 { // the hash was deleted (FLUSHALL), or has expired
		_, err = r.send(replaceAll(texts), now)
	}
	r.refreshed = now
	if err != nil {
		return err
	}
	r.written = texts
	r.enlist(now)
	return nil
}

// change returns the change after which the hash has the texts. send may need several calls for it. The first must have
// all changes of the fields that are there, because it refreshes the hash. If these are too many for one call, or if
// r.unsure, all fields are replaced.
func (r *records) change(texts map[string]string) (change script.WaitsChange) {
	var added []string
	for field := range r.written {
		if _, still := texts[field]; !still {
			change.Remove = append(change.Remove, field)
		}
	}
	for field, text := range texts {
		switch before, there := r.written[field]; {
		case !there:
			added = append(added, field, text)
		case before != text:
			change.Set = append(change.Set, field, text)
		}
	}
	if r.unsure || len(change.Remove) > maxFields || len(change.Set) > 2*maxFields {
		return replaceAll(texts)
	}
	change.Set = append(change.Set, added...)
	return change
}

func replaceAll(texts map[string]string) script.WaitsChange {
	change := script.WaitsChange{Anew: true}
	for field, text := range texts {
		change.Set = append(change.Set, field, text)
	}
	return change
}

// remove empties the hash. If it isn't certain that this has worked, a later pass tries again, until the hash has
// expired. The client stays in the set of clients for some more seconds, although its hash is gone.
func (r *records) remove(now time.Time, timeout time.Duration) {
	if r.refreshed.IsZero() {
		return
	}
	if now.Sub(r.sent) > script.WaitsLife+writeWindow { // the hash has expired
		r.forget()
		return
	}
	known, err := r.sendOnce(context.WithoutCancel(r.f.ctx), timeout, script.WaitsChange{Anew: true}, now)
	if r.refreshed = now; known && err == nil && !r.unsure {
		r.forget()
	}
}

// send makes a change. The first call removes fields, and sets the first of those to set; further calls set the others.
// send reports whether earlier writes were still in the hash.
func (r *records) send(change script.WaitsChange, now time.Time) (known bool, err error) {
	known = true
	for {
		part := change
		part.Set = change.Set[:min(len(change.Set), 2*maxFields)]
		change = script.WaitsChange{Set: change.Set[len(part.Set):]}
		r.sent = now
		was, err := r.sendOnce(r.f.ctx, callTimeout, part, now)
		known = known && was
		if err != nil || len(change.Set) == 0 {
			return known, err
		}
	}
}

func (r *records) sendOnce(
	ctx context.Context, timeout time.Duration, change script.WaitsChange, now time.Time,
) (known bool, err error) {
	key := script.WaitsKey(r.f.cfg.Prefix, r.f.random)
	r.f.budget.tokens--
	err = r.f.call(ctx, timeout, writeWindow, func(q *script.Request) {
		script.WaitsWriteArgs(q, key, change)
	}, func(reply dispatch.Reply) error {
		v, err := script.ParseWaitsWrite(reply.Value)
		known = v.Known
		return reply.Learn(v.Now, v.Late, err)
	})
	switch {
	case err != nil:
		r.unsure, r.lateUntil = true, time.Now().Add(2*writeWindow) // twice: the server's clock may differ
	case change.Anew && now.After(r.lateUntil):
		r.unsure = false
	}
	return known, err
}

// enlist adds the client to the set of the clients that have waits, every enlistEvery. Only package fleet reads the
// set. Deadlocks are found without it, so an error is ignored.
func (r *records) enlist(now time.Time) {
	if now.Sub(r.enlisted) < enlistEvery {
		return
	}
	r.enlisted = now
	key := script.WaitingKey(r.f.cfg.Prefix)
	r.f.budget.tokens--
	_ = r.f.call(r.f.ctx, callTimeout, 0,
		func(q *script.Request) { script.WaitsEnlistArgs(q, key, r.f.random) },
		func(dispatch.Reply) error { return nil })
}
