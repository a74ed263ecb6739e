package lock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/lockdog/lockdog/lock/internal/redisfail"
	"github.com/lockdog/lockdog/lock/internal/script"
	"github.com/lockdog/lockdog/telemetry"
)

// How a QuorumMutex asks its nodes.

// vote is what one node answered.
type vote struct {
	acquireReply
	node  int
	claim *claim // nil: its client is closed
	err   error
}

// tally is what a poll without a majority came to.
type tally struct {
	held  *HeldError // when a majority answered
	trace string     // the traceparent of the acquire of the holder that held names
	err   error      // else, or when it came too late: why there is no lease
	final bool       // it won't help to ask again
	shut  bool       // ... as too many clients are closed
}

// errNodeTimeout is the outcome of a call that a node didn't answer in time.
var errNodeTimeout = redisfail.NewTimeout(fmt.Sprintf("lockdog: timeout: no answer in the time that a node has: a tenth of the lease, at most %v", maxNodeTimeout))

// errNotAwaited is that of a node whose answer couldn't change what the others' had come to.
var errNotAwaited = errors.New("not waited for, as the other nodes had decided it")

// poll asks all nodes at once, and returns the lease if a majority grants it, else what it came to: then it has given back what it got. Nodes
// that haven't answered when it is decided are out yet, and aren't asked again until they have.
func (t *quorumTry) poll() (*Lease, *tally) {
	n, need, began := len(t.m.locks), t.m.q.need, time.Now()
	t.record.acquire.Attempt()
	for i := range t.m.locks {
		if !t.out[i] {
			t.out[i] = true
			t.sights[i].free, t.sights[i].blind = began.Add(nodeTimeout(t.m.cfg.lease)), true
			go t.ask(i)
		}
	}
	var in, granted []vote
	for len(granted) < need && len(in)-len(granted) <= n-need && t.awaits() {
		in, granted = t.receive(<-t.votes, in, granted)
	}
	for more := true; more && len(in) < n; { // those that are as quick
		select {
		case v := <-t.votes:
			in, granted = t.receive(v, in, granted)
		default:
			more = false
		}
	}
	t.took = time.Since(began)
	var err error
	if len(granted) >= need {
		var l *Lease
		if l, err = t.win(in, granted); l != nil {
			return l, nil
		}
	}
	if t.splits++; len(granted) == 0 {
		t.splits = 0
	}
	t.release(granted)
	for _, v := range in {
		t.settled(v)
	}
	return nil, t.count(in, err)
}

// awaits reports whether the poll goes on for a vote that is out. It keeps meanwhile what it was granted, which other callers may lack for
// their majority. So a node that couldn't be reached when last asked is waited for only where the others can't be a majority.
func (t *quorumTry) awaits() bool {
	others := 0
	for i, out := range t.out {
		switch {
		case t.m.q.silent[i].Load():
		case out:
			return true
		default:
			others++
		}
	}
	return others < t.m.q.need && slices.Contains(t.out, true)
}

// ask asks one node.
func (t *quorumTry) ask(i int) {
	v := vote{node: i}
	lk, a := &t.m.locks[i], &t.acquires[i]
	if !lk.c.gate.enter() { // it is left when the vote is settled
		v.err = ErrClosed
		t.votes <- v
		return
	}
	v.claim = lk.newClaim(a)
	ctx, cancel := t.limited(i)
	defer cancel()
	v.acquireReply, v.err = lk.attempt(ctx, a, v.claim, acquireParams{})
	if errors.Is(v.err, errNodeTimeout) {
		a.Error(telemetry.ErrorTimeout)
	}
	if t.calls.Err() == nil {
		t.m.q.silent[i].Store(unreached(v.err))
	}
	t.votes <- v
}

// unreached reports whether a call failed without an answer.
func unreached(err error) bool {
	if err == nil {
		return false
	}
	kind := attemptFailure(err).Kind
	return kind == telemetry.ErrorTimeout || kind == telemetry.ErrorNetwork
}

// limited is the ctx of a call to one node. It doesn't follow the caller's, but that of all calls.
func (t *quorumTry) limited(i int) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(t.spans[i]), nodeTimeout(t.m.cfg.lease), errNodeTimeout)
	unlink := context.AfterFunc(t.calls, cancel)
	return ctx, func() {
		unlink()
		cancel()
	}
}

// receive takes a vote in.
func (t *quorumTry) receive(v vote, in, granted []vote) (allIn, allGranted []vote) {
	t.out[v.node] = false
	s, now := &t.sights[v.node], time.Now()
	s.failures.note(v.err)
	switch {
	case v.Granted:
		s.free, s.blind = now, false // if it is given back
		granted = append(granted, v)
	case v.err != nil:
		s.free, s.blind = now.Add(pollEvery/2+rand.N(pollEvery)), true
	case v.Remaining < 0: // it never expires
		s.free, s.blind = now.Add(DefaultLease+rand.N(pollEvery)), true
	default:
		s.free, s.blind = now.Add(v.Remaining+minRecheck+rand.N(min(v.Remaining/50, pollEvery/2)+minRecheck)), false
	}
	return append(in, v), granted
}

// settled is called when nothing more is to be done with a vote.
func (t *quorumTry) settled(v vote) {
	if v.claim == nil {
		return
	}
	c := v.claim.lock.c
	if !v.Granted && v.claim.mayWriteLate() {
		v.claim.cleanUp()
	}
	c.gate.leave()
}

// release releases what a minority of the nodes granted. It waits for them as long as for any answer, but not longer than the caller does.
func (t *quorumTry) release(granted []vote) {
	var all sync.WaitGroup
	for _, v := range granted {
		c := v.claim.lock.c
		if t.calls.Err() != nil {
			v.claim.cleanUp()
			continue
		}
		all.Go(func() {
			ctx, cancel := t.limited(v.node)
			defer cancel()
			if _, err := c.ops.releaseOnce(ctx, v.claim, nodeTimeout(t.m.cfg.lease), false); err != nil || v.claim.mayWriteLate() {
				v.claim.cleanUp()
			}
		})
	}
	all.Wait()
}

// win makes the lease of a majority's votes, of which in are all that have come.
func (t *quorumTry) win(in, granted []vote) (*Lease, error) {
	m, need := t.m, t.m.q.need
	token, granted, err := t.raise(granted)
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
	cl := newCompositeLease(t.ctx, m.locks, m.name, need, len(granted))
	for _, v := range in {
		cl.noteAbsent(v)
	}
	for _, v := range granted {
		if !t.admit(cl, token, v) {
			cl.dropPending()
		}
	}
	if len(cl.all()) < need {
		releaseUnused(t.ctx, &cl.handle)
		return nil, ErrClosed
	}
	t.record.granted(cl)
	t.unfollow() // what is out may still join, though the caller's ctx ends
	for _, v := range in {
		t.settled(v)
		t.lose(v)
	}
	if slices.Contains(t.out, true) {
		go t.late(cl, token)
	}
	return &cl.handle, nil
}

// admit makes a vote a member of the lease. It reports false when the node's client closes.
func (t *quorumTry) admit(cl *compositeLease, token int64, v vote) bool {
	lk := &t.m.locks[v.node]
	granted := v.acquireReply
	granted.Token = token
	g := lk.newGrant(t.ctx, &t.acquires[v.node], v.claim, &granted)
	switch {
	case g == nil:
		v.claim.cleanUp()
		return false
	case !cl.add(g, &g.first):
		ctx, cancel := t.limited(v.node)
		_ = g.first.Release(ctx) // the lease has ended meanwhile
		cancel()
	}
	return true
}

// lose ends the acquire of a node that is no part of the lease.
func (t *quorumTry) lose(v vote) {
	a := &t.acquires[v.node]
	switch {
	case v.err == nil && !v.Granted:
		held := v.held(t.m.name)
		a.BlockedBy(held.Owner, v.Traceparent)
		a.Fail(telemetry.AcquireHeld, held)
	case errors.Is(v.err, ErrClosed):
		a.Fail(telemetry.AcquireCanceled, v.err)
	default:
		a.Fail(telemetry.AcquireError, v.err) // nothing, if it was granted
	}
}

// late has the nodes that were out join the lease, if it lives yet.
func (t *quorumTry) late(cl *compositeLease, token int64) {
	for slices.Contains(t.out, true) {
		in, granted := t.receive(<-t.votes, nil, nil)
		v := in[0]
		cl.noteAbsent(v)
		if len(granted) > 0 {
			if kept, err := t.raiseAt(v, token); err == nil && kept {
				t.admit(cl, token, v)
			} else {
				v.claim.cleanUp()
			}
		}
		t.settled(v)
		t.lose(v)
	}
}

// raise makes the largest token of all votes that of a majority. It returns the votes that stand.
func (t *quorumTry) raise(granted []vote) (token int64, stand []vote, err error) {
	for _, v := range granted {
		token = max(token, v.Token)
	}
	type raised struct {
		at   int
		kept bool
		err  error
	}
	results := make(chan raised, len(granted))
	asked, sure := 0, 0
	for i, v := range granted {
		if v.Token == token {
			sure++
			continue
		}
		asked++
		go func() {
			kept, err := t.raiseAt(v, token)
			results <- raised{i, kept, err}
		}()
	}
	gone := make([]bool, len(granted))
	var failed nodeErrors
	for ; asked > 0 && sure < t.m.q.need; asked-- {
		switch r := <-results; {
		case r.err != nil:
			failed = append(failed, atNode(t.m.locks[granted[r.at].node].node(), r.err))
		case !r.kept:
			gone[r.at] = true
			failed = append(failed, atNode(t.m.locks[granted[r.at].node].node(), errors.New("the lock is gone")))
		default:
			sure++
		}
	}
	if sure < t.m.q.need {
		return 0, granted, fmt.Errorf("a majority granted it, but didn't confirm its token: %w", failed)
	}
	for i, v := range granted {
		if !gone[i] {
			stand = append(stand, v)
		}
	}
	return token, stand, nil
}

// raiseAt makes a node's token that of the lease. It reports whether the lock is held there yet.
func (t *quorumTry) raiseAt(v vote, token int64) (kept bool, err error) {
	ctx, cancel := t.limited(v.node)
	defer cancel()
	lk := v.claim.lock
	reply, err := lk.c.ops.simple(ctx, telemetry.OpAcquire, func(r *script.Request) {
		script.RaiseArgs(r, v.claim.scriptClaim(), token)
	})
	if err != nil {
		return false, err
	}
	return script.ParseRaise(reply), nil
}

// count says what a poll without a lease came to.
func (t *quorumTry) count(in []vote, err error) *tally {
	n, need := len(t.m.locks), t.m.q.need
	by := make([]*vote, n)
	for i := range in {
		by[in[i].node] = &in[i]
	}
	var failed nodeErrors
	var held *HeldError
	trace := ""
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
		case v.Granted:
			answered++
		default:
			answered++
			t.acquires[i].BlockedBy(v.Owner, v.Traceparent)
			t.record.acquire.BlockedBy(v.Owner, v.Traceparent)
			if held == nil {
				held, trace = v.held(t.m.name), v.Traceparent
			}
			if v.Remaining < 0 || held.Remaining >= 0 && v.Remaining > held.Remaining {
				held.Remaining = v.Remaining
			}
		}
	}
	r := &tally{err: err}
	switch {
	case closed > n-need:
		r.err, r.final, r.shut = fmt.Errorf("%w: %d of the quorum's %d", ErrClosed, closed, n), true, true
	case err != nil: // a majority granted it in vain
	case answered >= need && held != nil:
		r.held, r.trace = held, trace
	default:
		r.err = fmt.Errorf("%d of %d nodes gave an answer that counts, %d are needed: %w", answered, n, need, failed)
		r.final = hopeless+closed > n-need
	}
	return r
}
