package lock

import (
	"context"
	"runtime"
	"time"

	"github.com/lockdog/lockdog/lock/internal/redisfail"
	"github.com/lockdog/lockdog/lock/internal/script"
	"github.com/lockdog/lockdog/telemetry"
)

// Hand-overs inside this process go on while no other process is seen to wait. A process that polls isn't seen, so after so many, or so
// long, the release is published.
const (
	maxTurns    = 64
	maxTurnTime = 100 * time.Millisecond
)

// release gives a grant's lock back: in the same script to the next waiter of this client, where that is fair to other processes, and
// otherwise to everybody. See waitQueue for who asks then.
func (ws *waitQueues) release(ctx context.Context, rel *telemetry.Release, g *grant, deadline time.Time) (releaseReply, error) {
	if until := g.keepUntil(); time.Now().Before(until) {
		f, err := ws.c.ops.release(ctx, rel, g.claim, deadline, releaseParams{keepUntil: until})
		ws.wake(g.lock.key) // to see when
		return f, err
	}
	w, q, subscribed := ws.nextWaiter(g.lock)
	policy := script.WakeOneAnnounced
	if q != nil {
		policy = script.WakeOneSilent
	}
	if w == nil {
		f, err := ws.c.ops.release(ctx, rel, g.claim, deadline, releaseParams{wake: policy})
		if subscribed {
			ws.wakeUnsubscribedFair(g.lock.key)
		} else {
			ws.wake(g.lock.key)
		}
		ws.scheduleFallback(q, g.claim)
		return f, err
	}

	ended := false // a failed first try ends the hand-over; the release goes on
	end := func(why wakeup) {
		if !ended {
			ended = true
			q.handOverEnded(why)
		}
	}
	next := &handOverTarget{claim: w.claim}
	if subscribed {
		next.subscribed = 1
	}
	f, err := ws.c.ops.release(ctx, rel, g.claim, deadline, releaseParams{wake: policy, next: next, failed: func(f redisfail.Failure, until time.Time) {
		ws.mu.Lock()
		defer ws.mu.Unlock()
		if f.Unclear { // the waiter may have the lock, or still get it: it finds out by asking
			w.claim.noteLateWrite(until)
			if w.q == nil { // it has left
				w.claim.cleanUp()
			}
		}
		end(wakeLocal)
	}})

	ws.mu.Lock()
	if err != nil || f.Outcome != script.HandedOver {
		q.turns = 0
		why := wakeNone // a message is on its way
		if !subscribed || err != nil || f.Outcome != script.Published {
			why = wakeLocal
		}
		end(why)
		ws.mu.Unlock()
		ws.wakeUnsubscribedFair(g.lock.key)
		ws.scheduleFallback(q, g.claim)
		return f, err
	}
	w.won, w.handedBy = &acquireReply{AcquireReply: script.AcquireReply{Granted: true, Token: f.Token}, sent: f.sent}, g.claim
	after := func() {}
	left := w.q == nil // during the release
	if !left {
		q.noteHolder(HeldError{Owner: w.claim.owner, Remaining: w.lock.cfg.lease}, w.claim.traceparent)
		after = ws.leave(w)
		w.wake()
	}
	q.waitingSince = 0 // no other client had waited
	if q.turns++; q.turns == 1 {
		q.turnsSince = time.Now()
	}
	end(wakeNone)
	ws.mu.Unlock()
	runtime.Gosched() // the waiter goes first: it has the lock, and others wait for it
	after()
	if left {
		w.claim.cleanUpNow()
	}
	return f, nil
}

// nextWaiter begins a hand-over to the head of the lock's queue. It returns no waiter where the release is to be published instead.
func (ws *waitQueues) nextWaiter(lk *lock) (w *waiter, q *waitQueue, subscribed bool) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	q = ws.queues[lk.key]
	if q == nil {
		return nil, nil, true // nobody to wake here
	}
	tired := q.turns >= maxTurns || q.turns > 0 && time.Since(q.turnsSince) > maxTurnTime
	can := lk.kind.handOver != nil && q.head.lock.kind.handOver != nil && q.head.lock.cfg.replicas == 0
	subscribed = q.subscription == subUp
	if !can || q.state != headSleeps || tired || ws.c.isClosing() {
		q.turns = 0
		return nil, q, subscribed
	}
	q.state = headIsHanded
	return q.head, q, subscribed
}
