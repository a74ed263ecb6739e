package lock_test

import (
	"context"
	"errors"
	"slices"
	"testing/synctest"
	"time"

	"github.com/lockdog/lockdog/lock"
)

// rest looks at everything when nothing moves.
func (r *ref) rest() {
	synctest.Wait()
	now := time.Now()
	for _, h := range slices.Clone(r.holds) {
		r.look(h, now)
	}
	var grants []refGrant
	for _, w := range slices.Clone(r.waits) {
		select {
		case got := <-w.got:
			r.waits = slices.DeleteFunc(r.waits, func(o *refWait) bool { return o == w })
			switch {
			case got.err == nil:
				grants = append(grants, refGrant{w, got})
			case errors.Is(got.err, lock.ErrClosed):
				r.places = now.Add(modelLease + modelChunk)
			case !errors.Is(got.err, lock.ErrHeld) || got.at.Before(w.until):
				r.wrong("Lock, %v before its wait was over: %v", w.until.Sub(got.at), got.err)
			}
			r.silent = r.silent || got.err != nil // it has left its place
		default:
			if now.After(w.until.Add(modelChunk)) {
				r.wrong("Lock waits %v for longer than it may", now.Sub(w.until))
			}
		}
	}
	slices.SortFunc(grants, func(a, b refGrant) int { return int(a.l.Token() - b.l.Token()) })
	for _, g := range grants {
		r.grant(g.client, g.read, g.fixed, g.refGot)
	}
	r.erased = r.erased && len(r.waits) > 0
	r.progress(now)
}

// look checks that a lease ends when it must, and not before.
func (r *ref) look(h *refHold, now time.Time) {
	l := h.handles[0]
	err, deadline := l.Err(), l.Deadline()
	if err == nil && !now.Before(deadline) {
		r.wrong("live %v after its deadline", now.Sub(deadline))
	}
	switch {
	case err == nil && !h.gone.IsZero() && !h.fixed && now.Sub(h.gone) > h.learns:
		r.wrong("gone for %v, and its holder doesn't know", now.Sub(h.gone))
	case err == nil:
	case !errors.Is(err, lock.ErrLost), h.gone.IsZero() && (!h.fixed || now.Before(deadline)):
		r.wrong("ended with %v, %v before its deadline", err, deadline.Sub(now))
	default:
		for _, l := range h.handles {
			if !errors.Is(l.Release(context.Background()), lock.ErrLost) {
				r.wrong("Release of a lost lease isn't ErrLost")
			}
		}
		r.drop(h)
		if h.gone.IsZero() { // it ran out; its client gives it back, else it is free a margin later
			r.unclear, r.silent = maxTime(r.unclear, deadline.Add(modelLease/50)), true
		}
	}
}

// progress checks that nobody waits for long for what is free.
func (r *ref) progress(now time.Time) {
	could := slices.ContainsFunc(r.waits, func(w *refWait) bool {
		return r.fits(w.read) && !(w.read && slices.ContainsFunc(r.waits, func(o *refWait) bool { return !o.read }) && !r.fits(false))
	})
	if !could || now.Before(r.unclear) || now.Before(r.places) {
		r.ready = time.Time{}
		if !could {
			r.silent = false
		}
		return
	}
	if r.ready.IsZero() {
		r.ready = now
	}
	limit := modelChunk
	if r.silent {
		limit = modelLease + 2*time.Second
	}
	if free := now.Sub(r.ready); free > limit {
		r.wrong("%d wait for what has been free for %v, silently: %v", len(r.waits), free, r.silent)
	}
}

func maxTime(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
