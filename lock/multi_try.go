package lock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/lockdog/lockdog/internal/hashslot"
	"github.com/lockdog/lockdog/lock/internal/redisfail"
	"github.com/lockdog/lockdog/lock/internal/script"
	"github.com/lockdog/lockdog/telemetry"
)

// multiTry is one call of Multi.Lock or Multi.TryLock.
type multiTry struct {
	m      *Multi
	ctx    context.Context // the caller's
	record *record         // reports the locks of all names as one
	wait   bool
	params acquireParams // of each name

	// Of one run:
	composite *compositeLease
	acquires  []telemetry.Acquire
	spans     []context.Context // the record's ctx, plus the span of each acquire
	joined    []grantHandle     // the outer leases that were joined
	open      []int             // indexes of the locks that are still to be taken, in order
	again     bool              // it failed because a lock was lost during the wait for others
	outcome   telemetry.Outcome // if it failed
}

// run tries once to take all locks.
func (t *multiTry) run() (*Lease, error) {
	m := t.m
	n := len(m.locks)
	t.composite = newCompositeLease(t.ctx, m.locks, m.name, n, n)
	t.acquires, t.spans = make([]telemetry.Acquire, n), make([]context.Context, n)
	t.joined, t.open, t.again = nil, nil, false
	for i := range m.locks {
		t.spans[i], t.acquires[i] = m.c.rec.StartAcquire(t.record.ctx, &m.locks[i].tel, m.cfg.lease)
	}
	err := t.rejoin()
	if err == nil && len(t.open) > 1 {
		err = t.inOneScript()
	}
	if err == nil {
		err = t.oneByOne()
	}
	if err != nil {
		t.fail(err)
		return nil, err
	}
	if len(t.joined) == n {
		t.record.joined(t.composite, t.joined)
	} else {
		t.record.granted(t.composite)
	}
	return &t.composite.handle, nil
}

// rejoin joins the live leases of these locks that ctx carries, and puts the other locks into t.open. It fails if one
// of these leases may not be joined.
func (t *multiTry) rejoin() error {
	locks := t.m.locks
	outer := make([]grantHandle, len(locks))
	for i := range locks {
		if outer[i] = carriedLease(t.ctx, &locks[i]); outer[i].g != nil && !locks[i].mayJoin(outer[i].g) {
			return fmt.Errorf("of %q: %w", locks[i].name, errReentry)
		}
	}
	for i, o := range outer {
		if o.g != nil && t.composite.join(t.ctx, o.g, &locks[i]) {
			t.acquires[i].Reenter(&o.g.hold)
			t.joined = append(t.joined, o)
			continue
		}
		t.open = append(t.open, i)
	}
	return nil
}

// inOneScript takes the open locks in one script. If that isn't possible, or Lock has to wait, they stay open, and
// oneByOne takes them.
func (t *multiTry) inOneScript() error {
	c, locks := t.m.c, t.m.locks
	keys, claims := make([]string, len(t.open)), make([]*claim, len(t.open))
	for n, i := range t.open {
		keys[n] = locks[i].key
	}
	// Lock doesn't overtake waiters of this client.
	if !c.oneScript(keys) || t.wait && slices.ContainsFunc(keys, c.waits.busy) {
		return nil
	}
	for n, i := range t.open {
		claims[n] = locks[i].newClaim(&t.acquires[i])
		t.acquires[i].Attempt()
	}
	t.record.acquire.Attempt()
	sctx, done := t.params.callContext(t.record.ctx)
	defer done()
	reply, err := c.ops.acquireAll(sctx, &t.record.acquire, claims, &t.params)
	if err == nil && reply.Granted {
		return t.granted(claims, reply)
	}
	cleanUpAll(claims, false)
	switch {
	case err == nil:
		at := t.open[reply.at]
		t.acquires[at].BlockedBy(reply.Owner, reply.Traceparent)
		t.record.acquire.BlockedBy(reply.Owner, reply.Traceparent)
		if t.wait {
			return nil
		}
		return locks[at].heldError(reply.holder())
	case sctx.Err() != nil:
		return err
	case wantsOneByOne(err):
		c.dispatcher.Node(keys[0]).NoteKeyFault(err)
		return nil
	case t.wait && redisfail.IsTemporaryRefusal(err): // oneByOne waits until it is over
		return nil
	}
	return err
}

// granted adds the grants of a script that took all open locks to the lease. If too few replicas confirmed them, it
// undoes them instead.
func (t *multiTry) granted(claims []*claim, reply multiAcquireReply) error {
	cfg := t.m.cfg
	if reply.acked < cfg.replicas {
		t.record.acquire.Error(telemetry.ErrorOther)
		var all sync.WaitGroup
		for _, claim := range claims {
			all.Go(func() { claim.undo(t.ctx) })
		}
		all.Wait()
		return &ReplicasError{Name: t.m.name, Wanted: cfg.replicas, Acked: reply.acked, Within: cfg.replicaWait}
	}
	for n, i := range t.open {
		g := t.m.locks[i].startGrant(t.ctx, &t.acquires[i], claims[n],
			&acquireReply{AcquireReply: script.AcquireReply{Token: reply.tokens[n]}, sent: reply.sent})
		if g == nil {
			cleanUpAll(claims[n:], true)
			return ErrClosed
		}
		if !t.composite.add(g, &g.first) { // the composite was canceled, or has ended, in the meantime
			cleanUpAll(claims[n+1:], true)
			releaseUnused(t.ctx, &g.first)
			return context.Cause(t.composite.handle.Context())
		}
	}
	t.open = nil
	return nil
}

// oneByOne takes the open locks one after the other.
func (t *multiTry) oneByOne() error {
	lease, cfg := &t.composite.handle, t.m.cfg
	limited := cfg.maxHold > 0 || cfg.heartbeat > 0
	params := t.params
	params.composite = t.composite
	for n, i := range t.open {
		lk := &t.m.locks[i]
		// The wait for a lock ends when another one is lost or canceled.
		sctx, cancel := context.WithCancelCause(t.spans[i])
		unwatch := context.AfterFunc(lease.Context(), func() { cancel(context.Cause(lease.Context())) })
		claim, v, err := lk.acquireOrWait(sctx, &t.acquires[i], t.wait, params)
		unwatch()
		cancel(nil)
		t.record.acquire.Inherit(&t.acquires[i])
		if err != nil {
			return lk.wrap("acquire", err)
		}
		g := lk.startGrant(t.ctx, &t.acquires[i], claim, &v)
		if g == nil {
			claim.cleanUp()
			return ErrClosed
		}
		if limited && n < len(t.open)-1 { // the limits count from the last grant
			g.dropLimits()
		}
		if !t.composite.add(g, &g.first) {
			releaseUnused(t.ctx, &g.first)
			return context.Cause(lease.Context())
		}
	}
	return nil
}

// fail ends a run without a lease. Lock tries again if a lock was lost during the wait for others.
func (t *multiTry) fail(err error) {
	t.outcome = t.outcomeOf(err) // before the release, during which ctx may end
	for i := range t.acquires {
		t.acquires[i].Fail(t.outcome, err)
	}
	t.again = t.wait && t.ctx.Err() == nil && errors.Is(t.composite.handle.Err(), ErrLost)
	ctx, done := t.params.callContext(t.ctx)
	defer done()
	if at := t.params.tryDeadline; !at.IsZero() {
		var stop context.CancelFunc
		ctx, stop = context.WithDeadline(ctx, at)
		defer stop()
	}
	releaseUnused(ctx, &t.composite.handle)
}

// outcomeOf returns the outcome of a run that failed with err. If one of the locks was lost or canceled, the run counts
// as canceled, unless Redis failed.
func (t *multiTry) outcomeOf(err error) telemetry.Outcome {
	canceled := (*CanceledError)(nil)
	switch {
	case t.ctx.Err() != nil && contextOutcome(t.ctx, err) == telemetry.AcquireError:
		return telemetry.AcquireError
	case errors.As(err, &canceled), errors.Is(err, ErrLost) && !redisfail.IsUnavailable(err):
		return telemetry.AcquireCanceled
	}
	return outcomeOf(t.ctx, t.wait, err)
}

// cleanUpAll schedules the removal of what claims may have left in Redis. granted: they were granted, so all are
// cleaned up. Otherwise only those that had a lost reply are.
func cleanUpAll(claims []*claim, granted bool) {
	for _, claim := range claims {
		if granted || claim.hadLostReply() {
			claim.cleanUp()
		}
	}
}

// oneScript reports whether one script may use all keys: they have one hash tag, or there is one server, which hasn't
// refused keys of several slots.
func (c *Client) oneScript(keys []string) bool {
	if !c.backend.Traits().PerNode && !c.dispatcher.Node(keys[0]).SingleSlotOnly.Load() {
		return true
	}
	tag, ok := hashslot.Tagged(keys[0])
	return ok && !slices.ContainsFunc(keys, func(key string) bool {
		other, ok := hashslot.Tagged(key)
		return !ok || other != tag
	})
}

// wantsOneByOne reports whether a script failed because it has the keys of several locks.
func wantsOneByOne(err error) bool {
	return redisfail.IsCrossSlot(err) || redisfail.Classify(err).Keys == redisfail.KeysSplit
}
