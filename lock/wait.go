package lock

import (
	"context"
	"errors"
	"time"

	"github.com/lockdog/lockdog/lock/internal/dispatch"
	"github.com/lockdog/lockdog/telemetry"
)

// waiter is one call that waits, such as Mutex.Lock or Latch.Wait.
type waiter struct {
	// These don't change.
	lock      *lock
	ctx       context.Context // of the call; nil: the waiter is only tracked (wait_tracked.go)
	params    acquireParams
	since     time.Time     // when it began to wait
	signal    chan struct{} // wakes the waiter, which then looks at its queue
	quorum    *quorumWaiter // the call that this waiter shows at one node of a Quorum; nil: none
	nodeIndex int           // if quorum is set: of that node

	// Guarded by waitQueues.mu:
	q            *waitQueue // nil: it is in no queue
	prev, next   *waiter
	ticket       uint64         // its number in the queue, from 1
	answersSeen  uint64         // q.answers when it joined
	beside       bool           // it may ask beside the head, or asks: see waitQueue.askTogether
	failingSince time.Time      // since when every attempt has failed; zero: the last one didn't
	ownFailures  failureStreak  // of its tries before it joined q, and beside the head; q has those of its heads
	deadlock     *foundDeadlock // that its wait is part of, and that isn't reported yet; nil: none

	// Written with waitQueues.mu held. The waiter's goroutine reads them also without it.
	claim    *claim        // replaced only by that goroutine, after an attempt. During one, no lock is handed to it
	won      *acquireReply // the reply that ends its wait: it has the lock, or the latch is open. Final once set
	handedBy *claim        // of the holder that handed the lock over, nil for a latch; final once won is set

	warned bool // it has logged that the semaphore has no permits; only for the waiter's goroutine
}

// wakeup is why the head of a queue asks Redis for the lock.
type wakeup uint8

const (
	wakeNone       wakeup = iota
	wakeMessage           // a message: a release woke this client, or granted the lock to the head
	wakeLocal             // this client released, forced or lost the lock, or the waiter before this one got in or left
	wakeExpiry            // the lease that was seen is about to end, or should have ended
	wakePoll              // messages may come late or never, an attempt failed, or the head keeps its place in Redis
	wakeFallback          // another client was notified of the release, and nothing was heard since
	wakeSubscribed        // the subscription is new
)

// wake makes the waiter look at its queue again.
func (w *waiter) wake() {
	select {
	case w.signal <- struct{}{}:
	default:
	}
}

// currentParams returns the parameters of an attempt that begins now.
func (w *waiter) currentParams() acquireParams {
	params := w.params
	params.placeTTL, params.waited, params.waiter = w.lock.placeTTL(params.waitDeadline), time.Since(w.since), w
	return params
}

// turn is what a waiter does next.
type turn uint8

const (
	turnSleep    turn = iota
	turnAsk           // it is the head of its queue, and due; or it may ask beside the head
	turnStop          // it is the head and due, but its ctx has ended
	turnWon           // it has the lock, or the latch is open
	turnFail          // it is the head, the one before gave up, and errors have outlasted its own lease, too
	turnOffered       // a message grants it the lock, but may be too old to be trusted
	turnDeadlock      // its wait is part of a deadlock
)

// wait waits until w has the lock. It fails if ctx ends, waitOver fires, the client closes, an attempt fails for good
// (see attemptFailed), or the wait has to end a deadlock. Redis is called with callCtx, which ends with ctx or before
// it.
func (ws *waitQueues) wait(
	ctx, callCtx context.Context, w *waiter, a *telemetry.Acquire, waitOver <-chan time.Time,
) (*claim, acquireReply, error) {
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
		case turnOffered:
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
		case turnFail:
			return ws.quit(w, a, w.stopped(nil))
		case turnSleep:
			if err := w.sleep(ctx, waitOver); err != nil {
				return ws.quit(w, a, err)
			}
			continue
		}
		if s, ok := wakeupSources[attempt.why]; ok {
			a.Wakeup(s)
		}
		v, err := w.lock.attempt(callCtx, a, attempt.claim, &attempt.params)
		switch {
		case err == nil && v.Granted:
			ws.granted(w, a, &attempt, v)
			return attempt.claim, v, nil
		case err == nil:
			ws.refused(w, &attempt, v)
		case ctx.Err() != nil:
			ws.mu.Lock()
			if !attempt.beside {
				w.q.headStopped(&attempt)
			}
			ws.mu.Unlock()
			return ws.quit(w, a, w.stopped(context.Cause(ctx)))
		default:
			if final := ws.attemptFailed(callCtx, w, a, &attempt, err); final {
				return ws.quit(w, a, err)
			}
		}
	}
}

// turnOf returns what the waiter does next, and its attempt for turnAsk.
func (ws *waitQueues) turnOf(ctx context.Context, w *waiter, a *telemetry.Acquire) (turn, headAttempt) {
	ended := ctx.Err() != nil // not under the mutex: Err may end a lease, or run the program's code
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
	case q.head != w && w.beside && !ended:
		attempt := q.attemptOf(w, wakeLocal)
		attempt.beside = true
		return turnAsk, attempt
	case q.head != w || q.state != headSleeps:
		return turnSleep, headAttempt{}
	case q.gaveUp && !ended && time.Since(q.failedSince(w)) > w.lock.cfg.lease:
		return turnFail, headAttempt{}
	case q.membership.HasGrant():
		return turnOffered, headAttempt{}
	case q.due == wakeNone:
		q.setTimer()
		return turnSleep, headAttempt{}
	case ended:
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
	unheard := attempt.why == wakeExpiry && q.subscription == subUp // no message said that the lock was free
	after := q.noteGranted(w, attempt, v)
	ws.mu.Unlock()
	if unheard {
		ws.c.pubsub.Recheck(q.channel)
	}
	after()
	if reason, ok := attempt.takeover(); ok {
		a.Takeover(reason)
	}
}

// refused notes that somebody holds the lock. If a semaphore has no permits, it logs that once per waiter.
func (ws *waitQueues) refused(w *waiter, attempt *headAttempt, v acquireReply) {
	ws.mu.Lock()
	w.beside = false
	if attempt.beside {
		w.q.answered()
	} else {
		w.failingSince = time.Time{}
		w.q.headRefused(attempt, v)
	}
	ws.mu.Unlock()
	if hint := w.lock.kind.emptyHint; hint != "" && v.Remaining < 0 && !w.warned {
		w.warned = true
		ws.c.logger().Warn("lockdog: the wait for a semaphore goes on, but it "+hint, "name", w.lock.name)
	}
}

// attemptFailed notes a failed attempt. It reports whether the wait fails with it: a failover takes a while, so the
// wait goes on unless the error is final, or errors outlast one lease.
func (ws *waitQueues) attemptFailed(
	callCtx context.Context, w *waiter, a *telemetry.Acquire, attempt *headAttempt, err error,
) (final bool) {
	ws.mu.Lock()
	q := w.q
	w.beside = false
	outlasted := false
	if !attempt.beside { // otherwise it waits in line again
		q.headFailed(attempt, err)
		if w.failingSince.IsZero() {
			w.failingSince = q.failedSince(w)
		}
		outlasted = time.Since(w.failingSince) > w.lock.cfg.lease
	}
	replicas := (*ReplicasError)(nil)
	// A claim is spent if its last call may still be under way (claim.HandleLate then releases what the call is
	// granted), or if its grant was undone because too few replicas confirmed it. The waiter must not ask with a spent
	// claim again.
	spent := callCtx.Err() != nil || errors.Is(err, dispatch.ErrNoReply) || errors.As(err, &replicas)
	if spent && w.claim.hadLostReply() { // a request without a reply may have taken the lock, or still take it
		w.claim.cleanUp()
	}
	if spent {
		q.membership.GiveUp(w.claim)
	}
	own := w.lock.kind.queuePerWaiter
	if spent && !own {
		w.claim = w.lock.newClaim(a)
	}
	final = !attemptFailure(err).Retry || outlasted
	if final && !attempt.beside {
		heard := q.due != wakeNone && q.due != wakePoll // of a release or of Redis, since the attempt began
		q.gaveUp = outlasted && replicas == nil && !heard
		q.headStopped(attempt)
	}
	ws.mu.Unlock()
	if spent && own {
		ws.rejoin(w, w.lock.newClaim(a))
	}
	return final
}

// wakeupSources maps the wakeups that are counted to what telemetry calls them. wakeSubscribed isn't counted: there the
// head asks only because the subscription is new.
var wakeupSources = map[wakeup]telemetry.WakeupSource{
	wakeMessage:  telemetry.WakeupMessage,
	wakeLocal:    telemetry.WakeupLocal,
	wakeExpiry:   telemetry.WakeupExpiry,
	wakePoll:     telemetry.WakeupPoll,
	wakeFallback: telemetry.WakeupPoll,
}

// quit ends the wait without the lock. The cleanup removes what the claim may have in Redis: a lock that it was just
// given, or its place in a queue. It also wakes all clients if waitQueue.leaving says that it must.
func (ws *waitQueues) quit(w *waiter, a *telemetry.Acquire, err error) (*claim, acquireReply, error) {
	ws.mu.Lock()
	after, unheeded := func() {}, false
	if q := w.q; q != nil {
		q.reportHolder(a)
		unheeded = q.leaving(w)
		after = ws.leave(w)
	}
	won, late := w.won != nil, w.claim.hadLostReply()
	ws.mu.Unlock()
	after()
	if won || unheeded || w.lock.kind.queuesInRedis || late {
		w.claim.cleanUp()
	}
	return w.claim, acquireReply{}, err
}

// stopped returns the error of a wait that ended without the lock. cause is nil if WithWait is over.
func (w *waiter) stopped(cause error) error {
	ws := w.lock.c.waits
	ws.mu.Lock()
	var seen HeldError
	var failed error
	if q := w.q; q != nil { // its head asks for all, as a rule
		seen = q.seen.HeldError
		replicas := (*ReplicasError)(nil)
		switch failed = q.failures.err; {
		case failed == nil && q.answers == w.answersSeen: // no answer since its own first try
			failed = w.ownFailures.err
		case w.lock.cfg.replicas == 0 && errors.As(failed, &replicas): // about the options of a head
			failed = nil
		}
	}
	ws.mu.Unlock()
	held := w.lock.heldError(seen)
	switch {
	case failed != nil: // whether the lock is held is unknown
		return errors.Join(cause, failed)
	case cause != nil:
		return &waitError{held: held, cause: cause}
	}
	return held
}
