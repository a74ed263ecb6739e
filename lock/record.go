package lock

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/lockdog/lockdog/lock/internal/redisfail"
	"github.com/lockdog/lockdog/telemetry"
)

// record is what telemetry is told of a lock that has members, the names of a Multi or the nodes of a Quorum: that it was asked for,
// is held, was lost or given back, each once. The spans of its members are children of its own; what is counted of each
// member are its renewals, and its loss.
type record struct {
	first   *lock // the first member: the record is that of its client, in its group
	tel     telemetry.Lock
	acquire telemetry.Acquire
	ctx     context.Context // the caller's, plus the span of the acquire
	hold    telemetry.Hold

	mu      sync.Mutex
	b       *bundle // whose lease it is
	handles int     // leases that aren't released: its own, and those that joined all of its members
	said    bool    // that it was lost
}

// newRecord is called when somebody asks for the lock.
func newRecord(ctx context.Context, first *lock, name string) *record {
	r := &record{first: first}
	r.tel = first.tel.Whole(name, r.confirmed)
	r.ctx, r.acquire = first.c.rec.StartAcquire(ctx, &r.tel, first.cfg.lease)
	return r
}

// confirmed is when the renewals were sent that it is trusted by.
func (r *record) confirmed() time.Time {
	cfg := r.first.cfg
	return r.b.deadline().Add(cfg.margin() - cfg.lease)
}

// granted is called when the lease of b has all its members.
func (r *record) granted(b *bundle) {
	r.b, r.handles = b, 1
	r.acquire.Grant(&r.hold, b.owner(), b.token())
	if r.first.cfg.fixed {
		r.hold.NotRenewed()
	}
	b.recordBy(r)
}

// joined is called instead when b has joined all of its members, and others were none: those of another lease are that one's, and
// members that have several, or none, are recorded by themselves.
func (r *record) joined(b *bundle, outer []*Lease) {
	of := outer[0].record()
	for _, l := range outer {
		if l.record() != of {
			of = nil
		}
	}
	if of == nil || !of.join() {
		r.acquire.Reenter(nil)
		return
	}
	r.acquire.Reenter(&of.hold)
	b.recordBy(of)
}

// join counts one more lease, and reports false when there is none left to join.
func (r *record) join() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.handles == 0 {
		return false
	}
	r.handles++
	return true
}

// canceled says that the lease of b has lost the permission to work.
func (r *record) canceled(b *bundle, err *CanceledError) {
	if b == r.b { // others that joined may have theirs yet
		r.hold.Canceled(cancelReasons[err.Reason], err)
	}
}

// ended says that too few members are left, after canceled took the permission away, unless that is nil.
func (r *record) ended(err error, canceled *CanceledError) {
	r.mu.Lock()
	said := r.said
	r.said = true
	r.mu.Unlock()
	if said {
		return
	}
	end := telemetry.EndClosed
	var lost *LostError
	switch {
	case canceled != nil:
		end = endOf(canceled.Reason)
	case errors.As(err, &lost):
		end = telemetry.EndLost
		r.hold.Lost(telemetryCauses[lost.Cause], lost.err, nil)
	}
	r.hold.End(end)
}

// release runs the release of one lease, of which canceled took the permission away before, unless that is nil. The calls to Redis
// are made in the ctx that f is given.
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
		r.ended(err, canceled)
	default:
		rel.Failed(redisfail.Classify(err).Kind)
		rel.End(telemetry.ReleaseError, false, err)
	}
	end := telemetry.EndReleased
	if canceled != nil {
		end = endOf(canceled.Reason)
	}
	r.hold.End(end) // if it has yet to
	return err
}

func endOf(reason Reason) telemetry.HoldEnd {
	if reason == ReasonClosed {
		return telemetry.EndClosed
	}
	return telemetry.EndCanceled
}
