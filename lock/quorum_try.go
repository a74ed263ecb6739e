package lock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/lockdog/lockdog/lock/internal/redisfail"
	"github.com/lockdog/lockdog/telemetry"
)

// quorumTry is one call of Lock or TryLock of a QuorumMutex:
//
//	QuorumMutex.take
//	├ rejoin                  a lease that ctx carries
//	└ lock or once
//	  ├ poll                  asks all nodes at once
//	  │ ├ ask, in a goroutine per node, sends its vote
//	  │ ├ noteVote, awaits    until a majority has granted the lock, or can't any more and has answered
//	  │ ├ formLease           of a majority of grants: raiseTokens, then admit for each of them
//	  │ │ └ admitLateVotes    in the background: nodes that answer later join the lease
//	  │ └ release             of the grants of a poll without a lease
//	  ├ sleep                 only in lock: until the next poll; drop releases what late votes have granted
//	  └ fail                  ends a call without a lease; drop, in the background
type quorumTry struct {
	m        *QuorumMutex
	ctx      context.Context     // the caller's
	record   *record             // reports the lock of all nodes as one
	acquires []telemetry.Acquire // by node; the call to a pending node uses it
	spanCtxs []context.Context   // by node: the record's ctx, with the span of the node's acquire
	votes    chan vote
	pending  []bool // by node: it was asked, and hasn't answered yet
	nodes    []nodeState

	callsCtx    context.Context // of the calls to the nodes; ends with ctx, unless detachCalls was called before
	detachCalls func() bool

	splits int           // polls in a row that some nodes granted, but that gave no lease
	took   time.Duration // by the last poll
}

func newQuorumTry(ctx context.Context, m *QuorumMutex) *quorumTry {
	n := len(m.locks)
	t := &quorumTry{
		m: m, ctx: ctx, record: newRecord(ctx, &m.locks[0], m.name),
		acquires: make([]telemetry.Acquire, n), spanCtxs: make([]context.Context, n),
		votes: make(chan vote, n), pending: make([]bool, n), nodes: make([]nodeState, n),
	}
	for i := range m.locks {
		t.startNodeAcquire(i)
	}
	calls, cancel := context.WithCancel(context.Background())
	t.callsCtx, t.detachCalls = calls, context.AfterFunc(ctx, cancel)
	return t
}

// startNodeAcquire starts the acquire of one node.
func (t *quorumTry) startNodeAcquire(i int) {
	lk := &t.m.locks[i]
	t.spanCtxs[i], t.acquires[i] = lk.c.rec.StartAcquire(t.record.ctx, &lk.tel, t.m.cfg.lease)
}

// fail ends the acquires that haven't ended with the outcome and err: those of pending nodes once they have answered.
// It returns nil and err.
func (t *quorumTry) fail(outcome telemetry.Outcome, err error) (*Lease, error) {
	t.record.acquire.Fail(outcome, err)
	t.endAcquires(outcome, err)
	return nil, err
}

// endAcquires ends the acquires of the nodes that haven't ended. What pending nodes grant is released.
func (t *quorumTry) endAcquires(outcome telemetry.Outcome, err error) {
	for i := range t.acquires {
		if !t.pending[i] {
			t.acquires[i].Fail(outcome, err)
		}
	}
	if !slices.Contains(t.pending, true) {
		t.detachCalls()
		return
	}
	go func() {
		for slices.Contains(t.pending, true) {
			v := <-t.votes
			t.m.c.survive(func() { t.acquires[t.drop(v)].Fail(outcome, err) })
		}
		t.detachCalls()
	}()
}

// drop releases what a vote that came too late has granted, and returns its node.
func (t *quorumTry) drop(v vote) int {
	defer t.closeVote(v)
	t.noteVote(v)
	if v.Granted {
		t.release([]vote{v})
	}
	return v.nodeIndex
}

// rejoin joins the live lease of this lock that ctx carries. It returns nil, nil if there is none.
func (t *quorumTry) rejoin() (*Lease, error) {
	m := t.m
	comp := newCompositeLease(t.ctx, m.locks, m.name, m.q.need, m.q.need)
	var joined []grantHandle
	found := false
	for i := range m.locks {
		lk := &m.locks[i]
		outer := carriedLease(t.ctx, lk)
		if outer.g == nil {
			continue
		}
		if !lk.mayJoin(outer.g) {
			releaseUnused(t.ctx, &comp.handle)
			return t.fail(telemetry.AcquireError, errReentry)
		}
		found = true
		if comp.join(t.ctx, outer.g, lk) {
			t.acquires[i].Reenter(&outer.g.hold)
			joined = append(joined, outer)
		}
	}
	if !found {
		return nil, nil //nolint:nilnil // documented, and there is one caller
	}
	if n := len(comp.all()); n < m.q.need {
		releaseUnused(t.ctx, &comp.handle)
		return t.fail(telemetry.AcquireError, fmt.Errorf("%w: at %d of %d nodes only", errReentry, n, len(m.locks)))
	}
	t.record.joined(comp, joined)
	t.endAcquires(telemetry.AcquireCanceled, nil) // of nodes that weren't joined
	return &comp.handle, nil
}

// once takes the lock for QuorumMutex.TryLock, after rejoin has found no lease to join.
func (t *quorumTry) once() (*Lease, error) {
	l, r := t.poll()
	switch {
	case l != nil:
		return l, nil
	case t.ctx.Err() != nil:
		return t.cutOff(r)
	case r.shut:
		return t.fail(telemetry.AcquireCanceled, r.err)
	case r.held != nil:
		return t.fail(telemetry.AcquireHeld, r.held)
	}
	return t.fail(telemetry.AcquireError, r.err)
}

// lock takes the lock for QuorumMutex.Lock, after rejoin has found no lease to join.
func (t *quorumTry) lock() (*Lease, error) {
	q, cfg := t.m.q, t.m.cfg
	waitOver, stop := timerFor(cfg.wait)
	defer stop()
	r, polled := &pollResult{}, false
	if !q.busy(t.m.key) { // Lock doesn't overtake the Quorum's waiters
		var l *Lease
		if l, r = t.poll(); l != nil {
			return l, nil
		}
		if t.ctx.Err() != nil {
			return t.cutOff(r)
		}
		polled = true
	}
	w := q.enter(t)
	defer q.leave(w)
	t.record.sample.WaitStart(t.m.name)
	defer t.record.sample.WaitEnd()
	if polled {
		w.noteAnswer(t.nodes, r.held, r.trace, r.err)
	}
	a := &t.record.acquire
	a.WaitStart() // until the acquire ends: its polls are part of the wait
	for {
		switch {
		case r.shut:
			return t.fail(telemetry.AcquireCanceled, r.err)
		case r.err != nil && r.final:
			return t.fail(telemetry.AcquireError, r.err)
		case r.err != nil && w.failing() > cfg.lease: // otherwise nodes may come back
			w.giveUp()
			return t.fail(telemetry.AcquireError, r.err)
		}
		why, err := t.sleep(w, waitOver)
		if err != nil {
			return t.quit(w, err)
		}
		if s, ok := wakeupSources[why]; ok {
			a.Wakeup(s)
		}
		w.queue.asking()
		l, now := t.poll()
		switch {
		case l != nil:
			held := nodeState{free: time.Now().Add(cfg.ttl())}
			w.noteAnswer(slices.Repeat([]nodeState{held}, len(t.m.locks)),
				&HeldError{Owner: l.Owner(), Remaining: cfg.ttl(), local: true}, t.record.acquire.Traceparent(), nil)
			return l, nil
		case t.ctx.Err() != nil: // it has cut the poll short
			w.stoppedAsking(why)
			return t.ended(t.stopped(w, context.Cause(t.ctx)))
		}
		r = now
		w.noteAnswer(t.nodes, r.held, r.trace, r.err)
	}
}

// quit ends the call after a sleep that failed with err.
func (t *quorumTry) quit(w *quorumWaiter, err error) (*Lease, error) {
	switch {
	case t.ctx.Err() != nil:
		return t.ended(t.stopped(w, err))
	case errors.Is(err, ErrClosed):
		return t.fail(telemetry.AcquireCanceled, err)
	}
	gaveUp := errors.Is(err, errGiveUp)
	if err = t.stopped(w, nil); gaveUp || redisfail.IsUnavailable(err) {
		return t.fail(telemetry.AcquireError, err)
	}
	return t.fail(telemetry.AcquireTimeout, err)
}

// ended fails with err, as the caller's ctx has ended.
func (t *quorumTry) ended(err error) (*Lease, error) { return t.fail(contextOutcome(t.ctx, err), err) }

// cutOff fails with the cause of ctx, which has ended during the first poll, and with the errors of nodes before that.
func (t *quorumTry) cutOff(r *pollResult) (*Lease, error) {
	err := context.Cause(t.ctx)
	if r.err != nil && !r.cut {
		err = fmt.Errorf("%w, after: %w", err, r.err)
	}
	return t.ended(err)
}

// errWaitOver ends the sleep when WithWait is over, errGiveUp when mustGiveUp says so.
var (
	errWaitOver = errors.New("lockdog: the wait is over")
	errGiveUp   = errors.New("lockdog: errors have outlasted a lease")
)

// sleep waits until w is the head of its queue and has a reason to ask, and then for the time of pause. It fails if ctx
// ends, WithWait is over, too many clients close, or w must give up.
func (t *quorumTry) sleep(w *quorumWaiter, waitOver <-chan time.Time) (wakeup, error) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	var askAt time.Time
	for {
		w.reportHolder(&t.record.acquire)
		if closing := t.closing(); closing > len(t.m.locks)-t.m.q.need {
			return wakeNone, ErrClosed
		}
		at, why, head := w.next(t.m.q.need)
		switch now := time.Now(); {
		case !head:
			timer.Stop()
		case w.mustGiveUp(t.m.cfg.lease):
			return wakeNone, errGiveUp
		case now.Before(at):
			askAt = time.Time{}
			timer.Reset(at.Sub(now))
		case askAt.IsZero():
			askAt = now.Add(t.pause())
			timer.Reset(askAt.Sub(now))
		case now.Before(askAt):
			timer.Reset(askAt.Sub(now))
		default:
			return why, nil
		}
		select {
		case <-w.signal:
		case <-timer.C:
		case v := <-t.votes: // of a node that was pending after the poll
			t.drop(v)
			w.noteNodes(t.nodes)
		case <-t.ctx.Done():
			return wakeNone, context.Cause(t.ctx)
		case <-waitOver:
			return wakeNone, errWaitOver
		}
	}
}

const (
	minPause = 2 * time.Millisecond
	maxPause = 250 * time.Millisecond
)

// pause returns a random time to wait before a poll, because rivals may poll at the same time. Its bound gives one of
// them time to be the first at a majority. The bound doubles with each split, up to maxPause.
func (t *quorumTry) pause() time.Duration {
	return rand.N(min(max(2*t.took, minPause)<<min(t.splits, 7), maxPause))
}

func (t *quorumTry) closing() (n int) {
	for i := range t.m.locks {
		if t.m.locks[i].c.isClosing() {
			n++
		}
	}
	return n
}

// stopped returns the error of a wait that ended without the lock. cause is nil if WithWait is over.
func (t *quorumTry) stopped(w *quorumWaiter, cause error) error {
	held, failed := w.last(t.m.name)
	switch {
	case failed != nil: // whether the lock is held is unknown
		return errors.Join(cause, failed)
	case cause != nil:
		return &waitError{held: held, cause: cause}
	}
	return held
}
