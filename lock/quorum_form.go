package lock

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/lockdog/lockdog/telemetry"
)

// How the votes of a majority become the lease of a QuorumMutex.

// formLease makes the lease from granted, the votes of a majority. The parameter in has all votes that have come. If
// formLease returns errTooFewLeft, it has released everything, and set err to ErrClosed in those granted votes of in
// whose clients are closing.
func (t *quorumTry) formLease(in, granted []vote) (*Lease, error) {
	m, need := t.m, t.m.q.need
	token, granted, err := t.raiseTokens(granted)
	if err != nil {
		return nil, err
	}
	deadlines := make([]time.Time, len(granted))
	for i, v := range granted {
		deadlines[i] = v.sent.Add(m.cfg.lease - m.cfg.margin())
	}
	slices.SortFunc(deadlines, func(a, b time.Time) int { return b.Compare(a) })
	if time.Until(deadlines[need-1]) <= 0 {
		return nil, fmt.Errorf("a majority granted it, but the lease of %v was over by then", m.cfg.lease)
	}
	comp := newCompositeLease(t.ctx, m.locks, m.name, need, len(granted))
	for _, v := range in {
		comp.noteAbsent(v)
	}
	for _, v := range granted {
		if !t.admit(comp, token, v) {
			comp.dropPending()
		}
	}
	if len(comp.all()) < need {
		releaseUnused(t.ctx, &comp.handle)
		for _, v := range granted { // startGrant has ended most of their acquires, and another poll may follow
			t.acquires[v.nodeIndex].Fail(telemetry.AcquireCanceled, ErrClosed)
			t.startNodeAcquire(v.nodeIndex)
		}
		for i, v := range in {
			if v.Granted && t.m.locks[v.nodeIndex].c.isClosing() {
				in[i].err = ErrClosed
			}
		}
		return nil, errTooFewLeft
	}
	t.record.granted(comp)
	t.detachCalls() // pending nodes may join even if the caller's ctx ends now
	for _, v := range in {
		t.closeVote(v)
		t.endNodeAcquire(v)
	}
	if slices.Contains(t.pending, true) {
		go t.admitLateVotes(comp, token)
	}
	return &comp.handle, nil
}

// admit makes a vote a member of the lease, or releases what it granted if the lease no longer lives. It reports false
// if the node's client is closing.
func (t *quorumTry) admit(comp *compositeLease, token int64, v vote) bool {
	lk := &t.m.locks[v.nodeIndex]
	granted := v.acquireReply
	granted.Token = token
	g := lk.startGrant(t.ctx, &t.acquires[v.nodeIndex], v.claim, &granted)
	switch {
	case g == nil:
		v.claim.cleanUp()
		return false
	case !comp.add(g, &g.first):
		ctx, cancel := t.limited(v.nodeIndex)
		if len(comp.all()) < comp.need { // otherwise the program has, or had, the lease
			g.first.noteUnused()
		}
		_ = g.first.Release(ctx) // the lease was canceled, or has ended, in the meantime
		cancel()
	}
	return true
}

// endNodeAcquire ends the acquire of a node, unless its grant has ended it.
func (t *quorumTry) endNodeAcquire(v vote) {
	a := &t.acquires[v.nodeIndex]
	switch {
	case v.err == nil && !v.Granted:
		held := v.holder()
		held.Name = t.m.name
		a.BlockedBy(held.Owner, v.Traceparent)
		a.Fail(telemetry.AcquireHeld, &held)
	case errors.Is(v.err, ErrClosed):
		a.Fail(telemetry.AcquireCanceled, v.err)
	default:
		a.Fail(telemetry.AcquireError, v.err) // no effect after a grant
	}
}

// admitLateVotes lets pending nodes join the lease while it lives.
func (t *quorumTry) admitLateVotes(comp *compositeLease, token int64) {
	for slices.Contains(t.pending, true) {
		v := <-t.votes
		t.m.c.survive(func() { t.admitLate(comp, token, v) })
	}
}

func (t *quorumTry) admitLate(comp *compositeLease, token int64, v vote) {
	defer t.closeVote(v)
	t.noteVote(v)
	comp.noteAbsent(v)
	if v.Granted {
		ctx, cancel := t.limited(v.nodeIndex)
		kept, err := raiseToken(ctx, v, token)
		cancel()
		if err == nil && kept {
			t.admit(comp, token, v)
		} else {
			v.claim.cleanUp()
		}
	}
	t.endNodeAcquire(v)
}
