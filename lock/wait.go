package lock

import (
	"context"
	"errors"
	"time"

	"github.com/lockdog/lockdog/lock/internal/dispatch"
	"github.com/lockdog/lockdog/telemetry"
)

// waiter is one call of Lock that waits.
type waiter struct {
	// These don't change.
	lock   *lock
	ctx    context.Context // of the call; nil where waits aren't in the wait graph
	params acquireParams
	since  time.Time     // when it joined
	signal chan struct{} // something has changed
	quorum *quorumWaiter // the Quorum's waiter that this one stands for, nil for most
	node   int           // ... and at which node

	// Guarded by waitQueues.mu:
	q            *waitQueue
	prev, next   *waiter
	ticket       uint64         // its number in the queue, from 1
	failingSince time.Time      // since when every attempt has failed, zero: the last one didn't
	failures     failureStreak  // of the tries before it joined; the queue has those since
	deadlock     *foundDeadlock // that its wait is part of, until it has been told; nil: none

	// Written with waitQueues.mu held, and read without it in some places.
	claim    *claim        // written only by the waiter's goroutine, after an attempt of its own: during that the lock isn't handed to it
	failed   error         // of the last attempt, nil when Redis answered it; read only by the waiter's goroutine, which writes it
	won      *acquireReply // it was given the lock, or what it waits for has opened; final once set
	handedBy *claim        // the holder that handed the lock over, nil for what opens; final once won is set

	warned bool // that there is nothing that could come back; only for the waiter's goroutine
}

// wakeup is why a head asks.
type wakeup uint8

const (
	wakeNone       wakeup = iota
	wakeMessage           // the lock was released
	wakeLocal             // ... in this process
	wakeExpiry            // the lease that was seen should have ended
	wakePoll              // there is no subscription
	wakeFallback          // another client was told of the release, and nothing was heard since
	wakeSubscribed        // the subscription is new
)

// wake makes the waiter look again.
func (w *waiter) wake() {
	select {
	case w.signal <- struct{}{}:
	default:
	}
}

// currentParams are what the waiter asks for now.
func (w *waiter) currentParams() acquireParams {
	params := w.params
	params.placeTTL, params.waited, params.waiter = w.lock.placeTTL(params.waitDeadline), time.Since(w.since), w
	return params
}

// turn is what a waiter does next.
type turn uint8

const (
	turnSleep    turn = iota
	turnAsk           // it is the head of its queue, and due
	turnStop          // as turnAsk, but its ctx has ended
	turnWon           // it was given the lock
	turnGranted       // a release in another process has granted it the lock, if it can trust that
	turnDeadlock      // it is part of a deadlock
)

// wait waits until the claim wins, ctx ends, the wait is over or the client closes. Redis is called with callCtx, which ends
// with ctx or before it.
func (ws *waitQueues) wait(ctx, callCtx context.Context, w *waiter, a *telemetry.Acquire, waitOver <-chan time.Time) (*claim, acquireReply, error) {
	a.WaitStart()
	defer a.WaitEnd()
	w.params.sample.WaitStart(w.lock.name)
	defer w.params.sample.WaitEnd()
	for {
		next, attempt := ws.turnOf(ctx, w, a)
		switch next {
		case turnWon:
			a.Wakeup(telemetry.WakeupLocal)
			if w.handedBy != nil {
				a.BlockedBy(w.handedBy.owner, w.handedBy.traceparent)
			}
			return w.claim, *w.won, nil
		case turnGranted:
			if v, by, ok := ws.accept(w); ok {
				a.Wakeup(telemetry.WakeupMessage)
				a.BlockedBy(by.From, by.Traceparent)
				return w.claim, v, nil
			}
			continue
		case turnDeadlock:
			if err := ws.tellDeadlock(w, a); err != nil {
				return ws.quit(w, a, err)
			}
			continue
		case turnStop:
			return ws.quit(w, a, w.stopped(context.Cause(ctx)))
		case turnSleep:
			if err := w.sleep(ctx, waitOver); err != nil {
				return ws.quit(w, a, err)
			}
			continue
		}
		if s, ok := wakeupSources[attempt.why]; ok {
			a.Wakeup(s)
		}
		v, err := w.lock.attempt(callCtx, a, attempt.claim, attempt.params)
		switch {
		case err == nil && v.Granted:
			ws.granted(w, a, &attempt, v)
			return attempt.claim, v, nil
		case err == nil:
			ws.refused(w, &attempt, v)
		case ctx.Err() != nil:
			ws.mu.Lock()
			w.q.headStopped(&attempt)
			ws.mu.Unlock()
			return ws.quit(w, a, w.stopped(context.Cause(ctx)))
		default:
			if final := ws.attemptFailed(callCtx, w, a, &attempt, err); final {
				return ws.quit(w, a, err)
			}
		}
	}
}

// turnOf is what the waiter does next, and its attempt for turnAsk.
func (ws *waitQueues) turnOf(ctx context.Context, w *waiter, a *telemetry.Acquire) (turn, headAttempt) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if w.won != nil {
		return turnWon, headAttempt{}
	}
	q := w.q
	q.reportHolder(a)
	switch {
	case w.deadlock != nil:
		return turnDeadlock, headAttempt{}
	case q.head != w || q.state != headSleeps:
		return turnSleep, headAttempt{}
	case q.member.Granted():
		return turnGranted, headAttempt{}
	case q.due == wakeNone:
		q.setTimer()
		return turnSleep, headAttempt{}
	case ctx.Err() != nil:
		return turnStop, headAttempt{}
	}
	return turnAsk, q.startAsking()
}

// sleep waits until something has changed. It fails when the wait has ended.
func (w *waiter) sleep(ctx context.Context, waitOver <-chan time.Time) error {
	select {
	case <-w.signal:
		return nil
	case <-ctx.Done():
		return w.stopped(context.Cause(ctx))
	case <-waitOver:
		return w.stopped(nil)
	case <-w.lock.c.closing:
		return ErrClosed
	}
}

// granted ends the wait with the lock.
func (ws *waitQueues) granted(w *waiter, a *telemetry.Acquire, attempt *headAttempt, v acquireReply) {
	ws.mu.Lock()
	q := w.q
	unheard := attempt.why == wakeExpiry && q.subscription == subUp // its release, or that of a later holder
	after := q.headGranted(attempt, v)
	ws.mu.Unlock()
	if unheard {
		ws.c.pubsub.Recheck(q.channel)
	}
	after()
	if reason, ok := attempt.takeover(); ok {
		a.Takeover(reason)
	}
}

// refused notes that somebody holds the lock. That a semaphore has lost its permits is logged: the wait goes on until it is given some.
func (ws *waitQueues) refused(w *waiter, attempt *headAttempt, v acquireReply) {
	ws.mu.Lock()
	w.failingSince, w.failed = time.Time{}, nil
	w.q.headRefused(attempt, v)
	ws.mu.Unlock()
	if hint := w.lock.kind.emptyHint; hint != "" && v.Remaining < 0 && !w.warned {
		w.warned = true
		ws.c.logger().Warn("lockdog: the wait for a semaphore goes on, but it "+hint, "name", w.lock.name)
	}
}

// attemptFailed notes that Redis didn't answer. It reports whether the waiter is to fail: a failover takes a while, so it goes on unless
// errors outlast one lease.
func (ws *waitQueues) attemptFailed(callCtx context.Context, w *waiter, a *telemetry.Acquire, attempt *headAttempt, err error) (final bool) {
	ws.mu.Lock()
	q := w.q
	q.headFailed(attempt, err)
	w.failed = err
	if w.failingSince.IsZero() {
		w.failingSince = q.failingSince // also as the waiters before it saw it
		if w.since.After(q.failingSince) {
			w.failingSince = w.since
		}
	}
	replicas := (*ReplicasError)(nil)
	// A claim is used up when its last request may still arrive: that is cleaned up under the claim's owner.
	spent := callCtx.Err() != nil || errors.Is(err, dispatch.ErrNoReply) || errors.As(err, &replicas)
	if spent && w.claim.mayWriteLate() { // an earlier request may have won
		w.claim.cleanUp()
	}
	if spent {
		q.member.GiveUp(w.claim)
	}
	own := w.lock.kind.queuePerWaiter
	if spent && !own {
		w.claim = w.lock.newClaim(a)
	}
	final = !attemptFailure(err).Retry || time.Since(w.failingSince) > w.lock.cfg.lease
	if final {
		q.headStopped(attempt)
	}
	ws.mu.Unlock()
	if spent && own {
		ws.rejoin(w, w.lock.newClaim(a))
	}
	return final
}

// wakeupSources are those that count as wake-ups; a new subscription's first question doesn't.
var wakeupSources = map[wakeup]telemetry.WakeupSource{
	wakeMessage:  telemetry.WakeupMessage,
	wakeLocal:    telemetry.WakeupLocal,
	wakeExpiry:   telemetry.WakeupExpiry,
	wakePoll:     telemetry.WakeupPoll,
	wakeFallback: telemetry.WakeupPoll,
}

// quit ends the wait without the lock. A lock that was just handed over is given back.
func (ws *waitQueues) quit(w *waiter, a *telemetry.Acquire, err error) (*claim, acquireReply, error) {
	ws.mu.Lock()
	after, unheeded := func() {}, false
	if q := w.q; q != nil {
		q.reportHolder(a)
		unheeded = q.headLeft(w)
		after = ws.leave(w)
	}
	won, late := w.won != nil, w.claim.mayWriteLate()
	ws.mu.Unlock()
	after()
	if won || unheeded || w.lock.kind.queuesInRedis || late {
		w.claim.cleanUp()
	}
	return w.claim, acquireReply{}, err
}

// stopped is the error of a wait that ended without the lock: by cause, or, with none, because it was over.
func (w *waiter) stopped(cause error) error {
	ws := w.lock.c.waits
	ws.mu.Lock()
	held := HeldError{}
	if w.q != nil {
		held = w.q.seen.HeldError
	}
	held.Name, held.refusal = w.lock.name, w.lock.kind.refuses(held.Remaining)
	ws.mu.Unlock()
	switch {
	case w.failed != nil: // then whether it is held isn't known
		return errors.Join(cause, w.failed)
	case cause != nil:
		return &waitError{held: &held, cause: cause}
	}
	return &held
}
