package lock

import (
	"context"
	"errors"
	"time"

	"github.com/lockdog/lockdog/lock/internal/dispatch"
	"github.com/lockdog/lockdog/lock/internal/redisfail"
	"github.com/lockdog/lockdog/telemetry"
)

// acquire is Lock and TryLock.
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

// outcomeOf returns the outcome of a call of Lock, which waits, or TryLock, that failed with err. ctx is the caller's.
func outcomeOf(ctx context.Context, wait bool, err error) telemetry.Outcome {
	held := errors.Is(err, ErrHeld)
	switch {
	case held && !wait:
		return telemetry.AcquireHeld
	case ctx.Err() != nil:
		return contextOutcome(ctx)
	case errors.Is(err, ErrClosed):
		return telemetry.AcquireCanceled
	case held:
		return telemetry.AcquireTimeout
	}
	return telemetry.AcquireError
}

// acquireOrJoin takes the lock for a lease that follows ctx. Calls to Redis run in sctx, which is ctx plus the span.
func (lk *lock) acquireOrJoin(ctx, sctx context.Context, a *telemetry.Acquire, wait bool) (*Lease, error) {
	params := acquireParams{sample: lk.c.profile.Sample(lk.tel.Group(), lk.kind.name)}
	if outer := held(ctx, lk).g; outer != nil && !lk.kind.multiHolder {
		switch k := outer.lock.kind; {
		case k == lk.kind.downgradesFrom:
			params.writer = outer.claim.owner
		case k.downgradesFrom == lk.kind:
			return nil, errUpgrade
		case !lk.joins(outer):
			return nil, errReentry
		default:
			if joined := outer.join(ctx, lk); joined != nil {
				a.Reenter(&outer.hold)
				return joined, nil
			}
		}
	}
	claim, v, err := lk.acquireOrWait(sctx, a, wait, params)
	if err != nil {
		return nil, err
	}
	if g := lk.newGrant(ctx, a, claim, &v); g != nil {
		g.profile(params.sample)
		return &g.first, nil
	}
	claim.cleanUp()
	return nil, ErrClosed
}

// acquireOrWait asks for the lock, and waits for it, until a claim has won.
func (lk *lock) acquireOrWait(ctx context.Context, a *telemetry.Acquire, wait bool, params acquireParams) (*claim, acquireReply, error) {
	params.mayWait = wait
	switch {
	case wait && params.waitDeadline.IsZero() && lk.cfg.wait >= 0:
		params.waitDeadline = time.Now().Add(lk.cfg.wait)
	case !wait && params.tryDeadline.IsZero():
		params.tryDeadline = lk.tryDeadline()
	}
	if wait && lk.kind.queuePerWaiter { // FairMutex: others may be ahead, so keep our place in Redis's queue
		params.placeTTL = lk.placeTTL(params.waitDeadline)
	}
	callCtx, done := params.callContext(ctx)
	defer done()
	claim := lk.newClaim(a)
	var v acquireReply
	var err error
	if !wait || lk.kind.queuePerWaiter || params.writer != "" || !lk.c.waits.busy(lk.key) { // Lock doesn't overtake waiters of this client; TryLock may
		v, err = lk.attempt(callCtx, a, claim, params)
		taken := err == nil && !v.Granted
		if taken {
			a.BlockedBy(v.Owner, v.Traceparent)
		}
		passing := err != nil && callCtx.Err() == nil && redisfail.IsTemporaryRefusal(err) // waited out in line
		if !wait || !taken && !passing {
			return lk.settled(claim, params, v, err)
		}
	}
	return lk.waitInLine(ctx, callCtx, a, claim, params, v, err)
}

// settled returns the result of an acquire that its first attempt has decided.
func (lk *lock) settled(claim *claim, params acquireParams, v acquireReply, err error) (*claim, acquireReply, error) {
	switch {
	case err == nil && v.Granted:
		return claim, v, nil
	case err == nil:
		refusal := v.held(lk.name)
		refusal.refusal = lk.kind.refuses(refusal.Remaining)
		return nil, v, refusal
	case claim.mayWriteLate(): // it may have left something, or do so yet
		claim.cleanUp()
	case params.placeTTL > 0: // it may have a place
		claim.cleanUpRefused()
	}
	return nil, v, err
}

// waitInLine waits for the lock, behind those who wait here already. If it has been asked for, seen is the reply, and failed why there is none.
func (lk *lock) waitInLine(ctx, callCtx context.Context, a *telemetry.Acquire, claim *claim, params acquireParams, seen acquireReply, failed error) (*claim, acquireReply, error) {
	wait := time.Duration(-1)
	if !params.waitDeadline.IsZero() {
		wait = max(time.Until(params.waitDeadline), 0)
	}
	waitOver, stop := timerFor(wait)
	defer stop()
	w := lk.c.waits.enter(ctx, lk, claim, params, seen, failed)
	return lk.c.waits.wait(ctx, callCtx, w, a, waitOver)
}

// timerFor returns the channel of a timer for d; negative: one on which nothing comes.
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

// placeTTL returns how long a place in Redis's queue is kept for a waiter that doesn't ask again: one lease, and no longer than
// it waits. With WithWait(0) it has none.
func (lk *lock) placeTTL(waitDeadline time.Time) time.Duration {
	ttl := lk.cfg.lease
	if !waitDeadline.IsZero() {
		ttl = min(ttl, time.Until(waitDeadline))
	}
	return max(ttl, 0)
}

// lastAnswer is how long Redis's answer is waited for when the wait is over.
const lastAnswer = time.Second

// errNoAnswer is the outcome of a Lock whose wait was over before Redis answered.
var errNoAnswer = redisfail.NewTimeout("lockdog: timeout: no answer of Redis until a second after the end of WithWait")

// attempt asks Redis for the lock, in up to maxTries calls.
func (lk *lock) attempt(ctx context.Context, a *telemetry.Acquire, claim *claim, params acquireParams) (acquireReply, error) {
	a.Attempt()
	v, err := lk.acquireWithRetry(ctx, a, claim, params)
	if errors.Is(err, errNoAnswer) {
		a.Error(telemetry.ErrorTimeout)
	}
	if err == nil && v.Granted && v.acked < lk.cfg.replicas {
		claim.undo()
		return acquireReply{}, &ReplicasError{Name: lk.name, Wanted: lk.cfg.replicas, Acked: v.acked, Within: lk.cfg.replicaWait}
	}
	return v, err
}

// acquireWithRetry is attempt without its end.
func (lk *lock) acquireWithRetry(ctx context.Context, a *telemetry.Acquire, claim *claim, params acquireParams) (v acquireReply, err error) {
	ws, w := lk.c.waits, params.waiter
	defer func() {
		if w != params.waiter {
			ws.untrack(w)
		}
	}()
	var refusal error // of the try before
	err = retry(ctx, maxTries, params.tryDeadline, func() (err error) {
		v, err = lk.c.ops.sendAcquire(ctx, claim, params)
		if err == nil || ctx.Err() != nil {
			return err
		}
		if refusal != nil && !params.tryDeadline.IsZero() && errors.Is(err, dispatch.ErrNoReply) {
			return refusal // TryLock's time is over: what Redis said before says more
		}
		refusal = err
		f := redisfail.Classify(err)
		a.Error(f.Kind)
		if w == nil && params.mayWait && f.Retry && !errors.Is(err, dispatch.ErrNoReply) { // Redis is in trouble: this may take long
			a.WaitStart()
			w = ws.trackClaim(claim, params)
		}
		ws.failed(w, err)
		return err
	})
	if err != nil {
		return acquireReply{}, err
	}
	return v, nil
}

// attemptFailure returns what the error of an attempt means: that of Redis, or that too few replicas confirmed the grant.
func attemptFailure(err error) redisfail.Failure {
	if replicas := (*ReplicasError)(nil); errors.As(err, &replicas) {
		return redisfail.Failure{Kind: telemetry.ErrorOther, Retry: true}
	}
	return redisfail.Classify(err)
}

// newClaim returns a claim with an owner that no other grant ever had.
func (lk *lock) newClaim(a *telemetry.Acquire) *claim {
	cl := &claim{lock: lk, owner: lk.c.newOwner() + lk.kind.ownerSuffix}
	if lk.cfg.links {
		cl.traceparent = a.Traceparent()
	}
	return cl
}

// contextOutcome returns the outcome of an acquire that the end of ctx has ended.
func contextOutcome(ctx context.Context) telemetry.Outcome {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return telemetry.AcquireTimeout
	}
	return telemetry.AcquireCanceled
}
