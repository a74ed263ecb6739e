package lock

import (
	"context"
	"runtime"
	"time"

	"github.com/lockdog/lockdog/lock/internal/redisfail"
	"github.com/lockdog/lockdog/lock/internal/script"
	"github.com/lockdog/lockdog/telemetry"
)

// release gives a grant's lock back: to the head of the line in the same script, where that is fair to other
// processes, else to everybody.
func (ws *waitQueues) release(ctx context.Context, rel *telemetry.Release, g *grant, deadline time.Time) (releaseReply, error) {
	w, q, subscribed := ws.nextWaiter(g.lock)
	wake := script.WakeOneAnnounced
	if q != nil {
		wake = script.WakeOneSilent
	}
	if w == nil {
		f, err := ws.c.transport.release(ctx, rel, g.claim, deadline, wake, nil, nil)
		if subscribed {
			ws.wakeUnsubscribedFair(g.lock.key)
		} else {
			ws.wake(g.lock.key)
		}
		ws.scheduleFallback(q, g.claim)
		return f, err
	}

	settled := false // q.handing is over
	settle := func(why wakeup) {
		if !settled {
			settled, q.handingOver = true, false
			if why != wakeNone {
				q.due = why
			}
			q.signal()
		}
	}
	next := &handOverTarget{claim: w.claim}
	if subscribed {
		next.subscribed = 1
	}
	f, err := ws.c.transport.release(ctx, rel, g.claim, deadline, wake, next, func(f redisfail.Failure, until time.Time) {
		ws.mu.Lock()
		defer ws.mu.Unlock()
		if f.Unclear { // the waiter may have the lock, or get it yet: it finds out by asking
			w.claim.noteLateWrite(until)
			if w.q == nil { // it has left
				w.claim.cleanUp()
			}
		}
		settle(wakeLocal)
	})

	ws.mu.Lock()
	if err != nil || f.Outcome != script.HandedOver {
		q.turns = 0
		why := wakeNone // a message is on its way
		if !subscribed || err != nil || f.Outcome != script.Published {
			why = wakeLocal
		}
		settle(why)
		ws.mu.Unlock()
		ws.wakeUnsubscribedFair(g.lock.key)
		ws.scheduleFallback(q, g.claim)
		return f, err
	}
	w.won, w.handedBy = &acquireReply{AcquireReply: script.AcquireReply{Granted: true, Token: f.Token}, sent: f.sent}, g.claim
	after := func() {}
	left := w.q == nil // meanwhile
	if !left {
		q.noteHolder(HeldError{Owner: w.claim.owner, Remaining: w.lock.cfg.lease}, w.claim.traceparent)
		after = ws.leave(w)
		w.wake()
	}
	q.since = 0 // no other client had waited
	if q.turns++; q.turns == 1 {
		q.turnsSince = time.Now()
	}
	settle(wakeNone)
	ws.mu.Unlock()
	runtime.Gosched() // the waiter goes first: it has the lock, and others wait for it
	after()
	if left {
		w.claim.cleanUpNow()
	}
	return f, nil
}

// passOn is leave for a waiter that has got in. When it asked, last was the place of the last in line: the answer says nothing to those
// who have joined since.
func (ws *waitQueues) passOn(w *waiter, v acquireReply, last uint64) (after func()) {
	q, b := w.q, w.claim
	switch kind := w.lock.kind; {
	case kind.grantsAllWaiters:
		after = ws.leave(w)
		for q.head != nil && q.head.place <= last {
			o := q.head
			after = ws.leave(o)
			o.won = &v
			o.wake()
		}
		if q.head != nil {
			q.wakeHead(wakeLocal) // what it waits for may have happened before it came
		}
		return after
	case kind.wakesNextOnGrant:
		q.noteHolder(*v.held(""), "")
		if v.Left > 0 && q.due == wakeNone {
			q.due = wakeLocal
		}
	default:
		q.noteHolder(HeldError{Owner: b.owner, Remaining: b.lock.cfg.lease}, b.traceparent)
	}
	return ws.leave(w)
}

// nextWaiter picks the waiter who is to have the lock next, nil where it should be published instead.
func (ws *waitQueues) nextWaiter(lk *lock) (w *waiter, q *waitQueue, subscribed bool) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	q = ws.queues[lk.key]
	if q == nil {
		return nil, nil, true // nobody to wake here
	}
	tired := q.turns >= maxTurns || q.turns > 0 && time.Since(q.turnsSince) > maxTurnTime
	alien := lk.kind.handOver == nil || q.head.lock.kind.handOver == nil
	if alien || q.attempting || q.handingOver || tired || q.head.lock.cfg.replicas > 0 || ws.c.isClosing() {
		q.turns = 0
		return nil, q, q.subscribed
	}
	q.handingOver = true
	return q.head, q, q.subscribed
}
