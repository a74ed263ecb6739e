package lock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/lockdog/lockdog/lock/internal/redisfail"
	"github.com/lockdog/lockdog/telemetry"
)

// How a QuorumMutex asks its nodes.

// vote is the answer of one node, or the error in its place.
type vote struct {
	acquireReply
	nodeIndex int
	claim     *claim // nil: its client is closed
	err       error  // beside a grant, formLease sets it if the client is closing
}

// pollResult is the result of a poll without a lease.
type pollResult struct {
	held  *HeldError // nil if err is set
	trace string     // the traceparent of that holder's acquire
	err   error      // why there is no lease; nil: a majority has answered, but not granted it (held)
	cut   bool       // each node that failed did so because the caller's ctx has ended
	final bool       // asking again won't help
	shut  bool       // final, as too many clients are closed
}

// errNodeTimeout is the outcome of a call that a node didn't answer in time.
var errNodeTimeout = redisfail.NewTimeout(fmt.Sprintf(
	"lockdog: timeout: no answer in the time that a node has: a tenth of the lease, at most %v", maxNodeTimeout))

// errTooFewLeft means that a lease was formed, but too few members are left, because clients close or the caller's ctx
// has ended. What the nodes granted has been released, or is about to be.
var errTooFewLeft = errors.New("too few members are left")

// errNotAwaited is the error of a node whose answer wasn't waited for: see quorumTry.awaits, releaseAtNodes.
var errNotAwaited = errors.New("not waited for, as the other nodes had decided it")

// poll asks all nodes at once, except those that are still pending. It returns the lease if a majority grants it and
// confirms its token. Otherwise it returns why there is none, and has released what it was granted, or scheduled that
// if the caller's ctx has ended. A node for whose answer it doesn't wait stays pending, and isn't asked again before it
// has answered.
func (t *quorumTry) poll() (*Lease, *pollResult) {
	n, need, began := len(t.m.locks), t.m.q.need, time.Now()
	t.record.acquire.Attempt()
	for i := range t.m.locks {
		if !t.pending[i] {
			t.pending[i] = true
			t.nodes[i].free, t.nodes[i].unknownEnd = began.Add(nodeTimeout(t.m.cfg.lease)), true
			go t.ask(i)
		}
	}
	// A node that hangs costs nothing if the others decide the poll. Otherwise one poll waits for it until nodeTimeout.
	// Later polls wait for it only if those that have answered aren't a majority: see awaits.
	var in, granted []vote
	answered := 0
	receive := func(v vote) {
		t.noteVote(v)
		if in = append(in, v); v.Granted {
			granted = append(granted, v)
		}
		if v.err == nil {
			answered++
		}
	}
	undecided := func() bool {
		mayBeGranted := len(in)-len(granted) <= n-need
		// A majority may still say that the lock is held. With grants, which can't win then, the poll doesn't wait for
		// that: it would keep them from others.
		mayBeHeld := len(granted) == 0 && answered < need && answered+n-len(in) >= need
		return len(granted) < need && (mayBeGranted || mayBeHeld)
	}
	for undecided() && t.awaits(answered) {
		receive(<-t.votes)
	}
	for more := true; more && len(in) < n; { // votes that have come in the meantime
		select {
		case v := <-t.votes:
			receive(v)
		default:
			more = false
		}
	}
	t.took = time.Since(began)
	var err error
	if len(granted) >= need {
		var l *Lease
		if l, err = t.formLease(in, granted); err == nil {
			return l, nil
		}
	}
	if len(granted) > 0 {
		t.splits++
	} else {
		t.splits = 0
	}
	if errors.Is(err, errTooFewLeft) {
		err = nil // the votes say why
	} else {
		t.release(granted)
	}
	for _, v := range in {
		t.closeVote(v)
	}
	return nil, t.resultOf(in, err)
}

// awaits reports whether the poll, to which a number of nodes have answered, goes on waiting for pending votes. While
// it waits, it holds what it was granted, which other callers may need for their majority. So it waits for a node that
// couldn't be reached last time only if the nodes that have answered aren't a majority.
func (t *quorumTry) awaits(answered int) bool {
	for i, pending := range t.pending {
		if pending && (answered < t.m.q.need || !t.m.q.silent[i].Load()) {
			return true
		}
	}
	return false
}

// ask asks one node for the lock, and sends its vote. A node may answer
//
//	before the poll is decided      poll makes its grant a member of the lease, or releases it
//	after that, within nodeTimeout  admitLateVotes does or, without a lease, the next poll, or drop releases it
//	after nodeTimeout               attempt has returned; claim.HandleLate gives back what the call is granted later
func (t *quorumTry) ask(i int) {
	v := vote{nodeIndex: i}
	lk, a := &t.m.locks[i], &t.acquires[i]
	if !lk.c.gate.enter() { // closeVote calls gate.leave
		v.err = ErrClosed
		t.votes <- v
		return
	}
	v.claim = lk.newClaim(a)
	ctx, cancel := t.limited(i)
	defer cancel()
	v.acquireReply, v.err = lk.attempt(ctx, a, v.claim, &acquireParams{})
	if v.err == nil || t.callsCtx.Err() == nil { // the end of callsCtx says nothing of the node
		t.m.q.silent[i].Store(unreached(v.err))
	}
	t.votes <- v
}

// unreached reports whether a call failed because its node couldn't be reached, or didn't answer in time.
func unreached(err error) bool {
	if err == nil {
		return false
	}
	kind := attemptFailure(err).Kind
	return kind == telemetry.ErrorTimeout || kind == telemetry.ErrorNetwork
}

// limited returns the ctx of a call to one node. It ends after nodeTimeout, or when t.callsCtx ends.
func (t *quorumTry) limited(i int) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeoutCause(
		context.WithoutCancel(t.spanCtxs[i]), nodeTimeout(t.m.cfg.lease), errNodeTimeout)
	unlink := context.AfterFunc(t.callsCtx, cancel)
	if t.callsCtx.Err() != nil { // cancel may not have run yet
		cancel()
	}
	return ctx, func() {
		unlink()
		cancel()
	}
}

// noteVote notes what a vote says of its node.
func (t *quorumTry) noteVote(v vote) {
	t.pending[v.nodeIndex] = false
	s, now := &t.nodes[v.nodeIndex], time.Now()
	s.failures.note(v.err)
	switch {
	case v.Granted:
		s.free, s.unknownEnd = now, false // as soon as the grant is released
	case v.err != nil:
		s.free, s.unknownEnd = now.Add(pollEvery/2+rand.N(pollEvery)), true
	case v.Remaining < 0: // it never expires
		s.free, s.unknownEnd = now.Add(DefaultLease+rand.N(pollEvery)), true
	default:
		s.free, s.unknownEnd =
			now.Add(v.Remaining+minRecheck+rand.N(min(v.Remaining/50, pollEvery/2)+minRecheck)), false
	}
}

// closeVote is called when nothing more is to be done with a vote. It leaves the client's gate. If the node didn't
// grant the lock, it cleans up after a call whose reply was lost. A call that is still under way does that itself: see
// ask.
func (t *quorumTry) closeVote(v vote) {
	if v.claim == nil {
		return
	}
	c := v.claim.lock.c
	if !v.Granted && v.claim.hadLostReply() {
		v.claim.cleanUp()
	}
	c.gate.leave()
}

// release releases what nodes have granted to a poll that gave no lease. It waits for each answer until the node's
// timeout, or until the caller's ctx ends.
func (t *quorumTry) release(granted []vote) {
	var all sync.WaitGroup
	for _, v := range granted {
		if t.callsCtx.Err() != nil {
			v.claim.cleanUp()
			continue
		}
		all.Go(func() {
			ctx, cancel := t.limited(v.nodeIndex)
			defer cancel()
			v.claim.undoWithin(ctx, nodeTimeout(t.m.cfg.lease))
		})
	}
	all.Wait()
}

// resultOf returns the result of a poll without a lease. err is why a majority of grants gave no lease.
func (t *quorumTry) resultOf(in []vote, err error) *pollResult {
	n, need := len(t.m.locks), t.m.q.need
	by := make([]*vote, n)
	for i := range in {
		by[in[i].nodeIndex] = &in[i]
	}
	var failed memberErrors
	var held *HeldError
	trace, cut := "", true
	hopeless, closed, answered := 0, 0, 0
	for i, v := range by {
		switch {
		case v == nil:
			failed = append(failed, atNode(t.m.locks[i].node(), errNotAwaited))
		case errors.Is(v.err, ErrClosed):
			closed++
			failed = append(failed, atNode(t.m.locks[i].node(), errors.New("the client is closed")))
		case v.err != nil:
			what := attemptFailure(v.err)
			if !what.Retry {
				hopeless++
			}
			t.record.acquire.Failed(what.Kind)
			failed = append(failed, atNode(t.m.locks[i].node(), v.err))
			cut = cut && t.ctx.Err() != nil && errors.Is(v.err, context.Canceled)
		case v.Granted:
			answered++
		default:
			answered++
			t.acquires[i].BlockedBy(v.Owner, v.Traceparent)
			t.record.acquire.BlockedBy(v.Owner, v.Traceparent)
			if held == nil {
				held, trace = t.m.locks[i].heldError(v.holder()), v.Traceparent
			}
			held.released = held.released && v.Released
			if v.Remaining < 0 || held.Remaining >= 0 && v.Remaining > held.Remaining {
				held.Remaining = v.Remaining
			}
		}
	}
	r := &pollResult{err: err, cut: cut}
	switch {
	case closed > n-need:
		r.err, r.final, r.shut = fmt.Errorf("%w: %d of the quorum's %d", ErrClosed, closed, n), true, true
	case err != nil:
	case answered >= need && held != nil:
		r.held, r.trace = held, trace
	default:
		r.err = fmt.Errorf("%d of %d nodes gave an answer that counts, %d are needed: %w", answered, n, need, failed)
		r.final = hopeless+closed > n-need
	}
	return r
}
