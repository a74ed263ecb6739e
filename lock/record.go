package lock

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/lockdog/lockdog/lock/internal/contention"
	"github.com/lockdog/lockdog/lock/internal/redisfail"
	"github.com/lockdog/lockdog/telemetry"
)

// record reports the lock of a Multi or a Quorum to telemetry as one lock: its acquire, its hold, its loss and its
// release, each once. The spans of its members are children of its spans. Each member reports its own renewals, and its
// loss in lockdog.members.lost.
type record struct {
	first   *lock // the first member: its client reports, in its group
	tel     telemetry.Lock
	acquire telemetry.Acquire
	ctx     context.Context // the caller's, plus the span of the acquire
	hold    telemetry.Hold
	sample  *contention.Sample // nil for most

	mu       sync.Mutex
	comp     *compositeLease // the one that was granted; others may join its members
	handles  int             // of comp and those that joined its members: how many are neither released nor ended
	hasEnded bool            // its end was reported
}

func newRecord(ctx context.Context, first *lock, name string) *record {
	r := &record{first: first, sample: first.c.profile.Sample(first.tel.Group(), first.kind.name)}
	r.tel = first.tel.Composite(name, r.confirmed)
	r.ctx, r.acquire = first.c.rec.StartAcquire(ctx, &r.tel, first.cfg.lease)
	return r
}

// confirmed returns when the request was sent that determines the deadline of the lock: a member's acquire or renewal.
func (r *record) confirmed() time.Time {
	return r.comp.needed(func(m *member) time.Time { return m.g.wd.Confirmed() })
}

// granted is called when comp is acquired: with all its members or, of a Quorum, with a majority.
func (r *record) granted(comp *compositeLease) {
	r.comp, r.handles = comp, 1
	r.acquire.Grant(&r.hold, comp.owner(), comp.token())
	r.profile()
	if r.first.cfg.fixed {
		r.hold.NotRenewed()
	}
	comp.setRecord(r)
}

// joined is called instead of granted if all members of comp have joined outer leases. If those are members of one live
// composite, comp shares its record. Otherwise comp has no record, and its members report for themselves.
func (r *record) joined(comp *compositeLease, outer []grantHandle) {
	of := outer[0].record()
	for _, h := range outer {
		if h.record() != of {
			of = nil
		}
	}
	if of == nil || !of.join() {
		r.acquire.Reenter(nil)
		return
	}
	r.acquire.Reenter(&of.hold)
	comp.setRecord(of)
}

// join counts one more composite. It reports false if all others were released or have ended.
func (r *record) join() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.handles == 0 {
		return false
	}
	r.handles++
	return true
}

// canceled is called when comp has been canceled.
func (r *record) canceled(comp *compositeLease, err *CanceledError) {
	if comp == r.comp { // the hold is that of the first, not of those that joined
		r.hold.Canceled(err.Reason, err.logged())
	}
}

// ended is called when the composite comp has too few members left. The hold ends if comp is r.comp, or if no other
// composite of this record lives. Otherwise it goes on: comp has joined r.comp, which may have more members and live
// on. canceled is how comp was canceled before; nil: it wasn't.
func (r *record) ended(comp *compositeLease, err error, canceled *CanceledError) {
	r.mu.Lock()
	r.handles--
	over := comp == r.comp || r.handles == 0
	r.mu.Unlock()
	if over {
		r.endHold(err, canceled)
	}
}

// endHold ends the hold with the error of a composite.
func (r *record) endHold(err error, canceled *CanceledError) {
	r.mu.Lock()
	hadEnded := r.hasEnded
	r.hasEnded = true
	r.mu.Unlock()
	if hadEnded {
		return
	}
	end := endingOf(err, canceled).hold
	if lost := (*LostError)(nil); end == telemetry.EndLost && errors.As(err, &lost) {
		r.hold.Lost(lost.Cause, lost.err, nil)
	}
	r.hold.End(end)
	r.sample.End()
}

// release runs f, which releases one composite; for the last one, within the span of the release. canceled is how the
// composite was canceled before, nil if it wasn't.
func (r *record) release(ctx context.Context, canceled *CanceledError, f func(ctx context.Context) error) error {
	r.mu.Lock()
	r.handles--
	last := r.handles == 0
	r.mu.Unlock()
	if !last {
		return f(ctx)
	}
	ctx, rel := r.first.c.rec.StartRelease(ctx, &r.hold)
	err := f(ctx)
	switch {
	case err == nil:
		rel.End(telemetry.ReleaseReleased, false, nil)
	case errors.Is(err, ErrLost):
		rel.End(telemetry.ReleaseLost, false, ErrLost)
		r.endHold(err, canceled)
	default:
		rel.Failed(redisfail.Classify(err).Kind)
		rel.End(telemetry.ReleaseError, false, err)
	}
	r.hold.End(endingOf(ErrReleased, canceled).hold) // no effect if it has ended
	r.sample.End()
	return err
}
