package lock

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/lockdog/lockdog/lock/internal/contention"
	"github.com/lockdog/lockdog/lock/internal/dispatch"
	"github.com/lockdog/lockdog/lock/internal/redisfail"
	"github.com/lockdog/lockdog/lock/internal/script"
	"github.com/lockdog/lockdog/telemetry"
)

// acquireParams are the parameters of a call that takes a lock or permits, or waits for a latch.
type acquireParams struct {
	mayWait      bool               // it is Lock, not TryLock; always false at a node of a Quorum
	waitDeadline time.Time          // when Lock stops waiting; zero: never, or acquireOrWait sets it from WithWait
	tryDeadline  time.Time          // when TryLock gives up on Redis; zero: each call may take one lease
	writer       string             // of a reader: the owner of the write lease that its ctx carries
	permits      int                // of an UnleasedSemaphore
	composite    *compositeLease    // of a Multi that takes its names one by one; nil for most
	sample       *contention.Sample // of the call, nil for most

	// These change from attempt to attempt:
	placeTTL time.Duration      // how long Redis's queue keeps the waiter's place without another attempt; 0: no place
	waited   time.Duration      // since the waiter joined the queue in this client
	entry    script.EntryChange // how the wait set changes: see package waitset
	waiter   *waiter            // the waiter that asks; nil: a TryLock, the first attempt of a Lock, or a Quorum
}

// callContext returns the ctx of the calls to Redis. It ends with ctx, or lastAnswer after waitDeadline.
func (p *acquireParams) callContext(ctx context.Context) (context.Context, context.CancelFunc) {
	if p.waitDeadline.IsZero() {
		return ctx, func() {}
	}
	return context.WithDeadlineCause(ctx, p.waitDeadline.Add(lastAnswer), errNoAnswer)
}

// callTimeout returns how long a call to Redis may take, for a lock with that lease.
func (p *acquireParams) callTimeout(lease time.Duration) time.Duration {
	if p.tryDeadline.IsZero() {
		return lease
	}
	return max(min(lease, time.Until(p.tryDeadline)), 0)
}

// acquire implements Lock (wait is true) and TryLock, except those of a Multi and of a Quorum. From here to Redis:
//
//	acquireOrJoin                 a lease that ctx carries, or a new one
//	└ acquireOrWait               the first attempt, unless others of this client wait already
//	  ├ attempt                   once, with what a grant needs: replicas that confirm it
//	  │ └ acquireWithRetry        again after a refusal or a failure that may be over soon
//	  │   └ operations.sendAcquire, and Dispatcher.Do: one call, or more if a key is refused
//	  └ waitQueues.wait           in the queue of this client; its head attempts again when it is woken
//
// startGrant then turns the granted claim into a grant with its first lease.
func (lk *lock) acquire(ctx context.Context, wait bool) (*Lease, error) {
	if err := lk.takeable(ctx); err != nil {
		return nil, err
	}
	if !lk.c.gate.enter() {
		return nil, lk.wrap("acquire", ErrClosed)
	}
	defer lk.c.gate.leave()
	ctx, stop := lk.bounded(ctx)
	defer stop()

	sctx, a := lk.c.rec.StartAcquire(ctx, &lk.tel, lk.cfg.lease)
	l, err := lk.acquireOrJoin(ctx, sctx, &a, wait)
	if err != nil {
		err = lk.wrap("acquire", err)
		a.Fail(outcomeOf(ctx, wait, err), err)
		return nil, err
	}
	return l, nil
}

// outcomeOf returns the outcome of a Lock (wait is true) or TryLock that failed with err. ctx has bounded the call.
func outcomeOf(ctx context.Context, wait bool, err error) telemetry.Outcome {
	held := errors.Is(err, ErrHeld)
	switch {
	case held && !wait:
		return telemetry.AcquireHeld
	case ctx.Err() != nil:
		return contextOutcome(ctx, err)
	case errors.Is(err, ErrClosed):
		return telemetry.AcquireCanceled
	case held:
		return telemetry.AcquireTimeout
	}
	return telemetry.AcquireError
}

// acquireOrJoin joins a lease that ctx carries, or takes the lock for a new lease. Calls to Redis run in sctx, which is
// ctx with the span.
func (lk *lock) acquireOrJoin(ctx, sctx context.Context, a *telemetry.Acquire, wait bool) (*Lease, error) {
	var params acquireParams
	if outer := carriedLease(ctx, lk).g; outer != nil && !lk.kind.retakable {
		switch k := outer.lock.kind; {
		case k == lk.kind.downgradesFrom:
			params.writer = outer.claim.owner
		case k.downgradesFrom == lk.kind:
			return nil, errUpgrade
		case !lk.mayJoin(outer):
			return nil, errReentry
		default:
			if joined := outer.join(ctx, lk); joined != nil {
				a.Reenter(&outer.hold)
				return joined, nil
			}
		}
	}
	params.sample = lk.c.profile.Sample(lk.tel.Group(), lk.kind.name)
	claim, v, err := lk.acquireOrWait(sctx, a, wait, params)
	if err != nil {
		return nil, err
	}
	if g := lk.startGrant(ctx, a, claim, &v); g != nil {
		g.profile(params.sample)
		return &g.first, nil
	}
	claim.cleanUp()
	return nil, ErrClosed
}

// acquireOrWait asks Redis for the lock. If wait is true, it waits: behind earlier waiters of this client, while the
// lock is held, and while Redis temporarily refuses the call. Once the wait has begun, it survives any failure that may
// end by itself, for about one lease. It returns the claim that was granted.
func (lk *lock) acquireOrWait(
	ctx context.Context, a *telemetry.Acquire, wait bool, params acquireParams,
) (*claim, acquireReply, error) {
	params.mayWait = wait
	switch {
	case wait && params.waitDeadline.IsZero() && lk.cfg.wait >= 0:
		params.waitDeadline = time.Now().Add(lk.cfg.wait)
	case !wait && params.tryDeadline.IsZero():
		params.tryDeadline = lk.tryDeadline()
	}
	if wait && lk.kind.queuePerWaiter { // FairMutex: others may be ahead, so take a place in Redis's queue
		params.placeTTL = lk.placeTTL(params.waitDeadline)
	}
	callCtx, done := params.callContext(ctx)
	defer done()
	claim := lk.newClaim(a)
	var v acquireReply
	var err error
	// Lock doesn't overtake waiters of this client. Exceptions: a FairMutex (its queue is in Redis), and a downgrade.
	if !wait || lk.kind.queuePerWaiter || params.writer != "" || !lk.c.waits.busy(lk.key) {
		v, err = lk.attempt(callCtx, a, claim, &params)
		taken := err == nil && !v.Granted
		if taken {
			a.BlockedBy(v.Owner, v.Traceparent)
		}
		passing := err != nil && callCtx.Err() == nil && redisfail.IsTemporaryRefusal(err) // Lock waits it out
		if !wait || !taken && !passing {
			return lk.settled(claim, &params, v, err)
		}
	}
	return lk.waitInLine(ctx, callCtx, a, claim, &params, v, err)
}

// settled returns the result of an acquire that the first attempt has decided.
func (lk *lock) settled(claim *claim, params *acquireParams, v acquireReply, err error) (*claim, acquireReply, error) {
	if err == nil && v.Granted {
		return claim, v, nil
	}
	switch {
	case claim.hadLostReply(): // a request without a reply may have taken the lock, or still take it
		claim.cleanUp()
	case err != nil && params.placeTTL > 0: // the claim may have a place in Redis's queue
		claim.cleanUpRefused()
	}
	if err == nil {
		err = lk.heldError(v.holder())
	}
	return nil, v, err
}

// heldError returns the error of a call that found the lock held. held has what Redis said of the holder.
func (lk *lock) heldError(held HeldError) *HeldError {
	held.Name, held.refusal = lk.name, lk.kind.refuses(held.Remaining)
	held.local = strings.HasPrefix(held.Owner, lk.c.ownerHead)
	return &held
}

// waitInLine waits at the end of the lock's queue in this client, or in a separate queue for a FairMutex. seen and
// failed are the reply and the error of the first attempt; both are zero if there was none.
func (lk *lock) waitInLine(
	ctx, callCtx context.Context, a *telemetry.Acquire, claim *claim, params *acquireParams,
	seen acquireReply, failed error,
) (*claim, acquireReply, error) {
	wait := time.Duration(-1)
	if !params.waitDeadline.IsZero() {
		wait = max(time.Until(params.waitDeadline), 0)
	}
	waitOver, stop := timerFor(wait)
	defer stop()
	w := lk.c.waits.enter(ctx, lk, claim, params, seen, failed)
	return lk.c.waits.wait(ctx, callCtx, w, a, waitOver)
}

// timerFor returns the channel of a timer for d, and the timer's Stop. With a negative d the timer never fires.
func timerFor(d time.Duration) (over <-chan time.Time, stop func() bool) {
	if d < 0 {
		return nil, func() bool { return false }
	}
	timer := time.NewTimer(d)
	return timer.C, timer.Stop
}

// maxTryLock bounds TryLock without WithWait.
const maxTryLock = 5 * time.Second

// tryDeadline returns when a TryLock that begins now gives up on a Redis that doesn't answer.
func (lk *lock) tryDeadline() time.Time {
	if lk.cfg.wait >= 0 {
		return time.Now().Add(lk.cfg.wait + lastAnswer)
	}
	return time.Now().Add(min(lk.cfg.lease/renewalsPerLease, maxTryLock))
}

// placeTTL returns how long Redis keeps the place of a waiter that doesn't ask again: one lease, but no longer than the
// rest of WithWait. With WithWait(0) it is 0: the waiter takes no place.
func (lk *lock) placeTTL(waitDeadline time.Time) time.Duration {
	ttl := lk.cfg.lease
	if !waitDeadline.IsZero() {
		ttl = min(ttl, time.Until(waitDeadline))
	}
	return max(ttl, 0)
}

// lastAnswer is how long a call waits for Redis's answer after WithWait is over.
const lastAnswer = time.Second

// errNoAnswer is the error of a Lock that had no answer yet when lastAnswer was over.
var errNoAnswer = redisfail.NewTimeout("lockdog: timeout: no answer of Redis until a second after the end of WithWait")

// attempt asks Redis for the lock, in up to maxTries tries. It undoes a grant that too few replicas have confirmed.
func (lk *lock) attempt(
	ctx context.Context, a *telemetry.Acquire, claim *claim, params *acquireParams,
) (acquireReply, error) {
	a.Attempt()
	v, err := lk.acquireWithRetry(ctx, a, claim, params)
	if err == nil && v.Granted && v.acked < lk.cfg.replicas {
		a.Error(telemetry.ErrorOther)
		claim.undo(ctx)
		return acquireReply{}, &ReplicasError{
			Name: lk.name, Wanted: lk.cfg.replicas, Acked: v.acked, Within: lk.cfg.replicaWait,
		}
	}
	return v, err
}

// acquireWithRetry is attempt without the check of the replicas.
func (lk *lock) acquireWithRetry(
	ctx context.Context, a *telemetry.Acquire, claim *claim, params *acquireParams,
) (v acquireReply, err error) {
	ws, w := lk.c.waits, params.waiter
	defer func() {
		if w != params.waiter { // it was tracked here
			ws.untrack(w)
		}
	}()
	err = retry(ctx, maxTries, params.tryDeadline, func() (err error) {
		v, err = lk.c.ops.sendAcquire(ctx, claim, params)
		if err == nil || leftEarly(ctx, err) {
			return err
		}
		f := redisfail.Classify(err)
		a.Error(f.Kind)
		// The retries may take a while: show the call as a waiter in Leases.
		if w == nil && params.mayWait && f.Retry && ctx.Err() == nil && !errors.Is(err, dispatch.ErrNoReply) {
			a.WaitStart()
			w = ws.trackClaim(claim, *params)
		}
		ws.failed(w, err)
		return err
	})
	if err != nil {
		return acquireReply{}, err
	}
	return v, nil
}

// attemptFailure is redisfail.Classify for the error of an attempt, which may be a *ReplicasError.
func attemptFailure(err error) redisfail.Failure {
	if replicas := (*ReplicasError)(nil); errors.As(err, &replicas) {
		return redisfail.Failure{Kind: telemetry.ErrorOther, Retry: true}
	}
	return redisfail.Classify(err)
}

// leftEarly reports whether a try failed with err only because its caller's ctx has ended. It is false if Redis had
// failed before, or if a healthy Redis would have answered before: see dispatch.Dispatcher.Do. An error that looks like
// a failure of Redis only because the program's cause does is no such failure.
func leftEarly(ctx context.Context, err error) bool {
	return ctx.Err() != nil && (!redisfail.IsUnavailable(err) || hasMisleadingCause(ctx) && endedBy(ctx, err))
}

// hasMisleadingCause reports whether ctx has ended with a cause that the program set and that looks like a failure of
// Redis, such as the network error of another call in an errgroup.
func hasMisleadingCause(ctx context.Context) bool {
	cause := context.Cause(ctx)
	return redisfail.IsUnavailable(cause) && !errors.Is(cause, errNoAnswer) && !errors.Is(cause, errNodeTimeout)
}

// contextOutcome returns the outcome of an acquire that failed with err when ctx ended. If Redis failed, the outcome is
// AcquireError, whether or not ctx has ended: without that failure, the caller would have got the lock, or gone on
// waiting.
func contextOutcome(ctx context.Context, err error) telemetry.Outcome {
	var replicas *ReplicasError
	switch {
	case !hasMisleadingCause(ctx) && (redisfail.IsUnavailable(err) || errors.As(err, &replicas)):
		return telemetry.AcquireError
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return telemetry.AcquireTimeout
	}
	return telemetry.AcquireCanceled
}
