package lock

import (
	"cmp"
	"context"
	"sync/atomic"
	"time"

	"github.com/lockdog/lockdog/lock/internal/backend"
	"github.com/lockdog/lockdog/lock/internal/dispatch"
	"github.com/lockdog/lockdog/lock/internal/redisfail"
	"github.com/lockdog/lockdog/lock/internal/script"
	"github.com/lockdog/lockdog/lock/internal/waitset"
	"github.com/lockdog/lockdog/telemetry"
)

// operations are the calls to Redis for a lock: what each sends, how it reads the reply, and when a release is tried
// again. lock.acquireWithRetry tries acquires again.
type operations struct {
	dispatcher    *dispatch.Dispatcher
	backend       *backend.Redis
	rec           *telemetry.Recorder
	noWaitSetTill atomic.Int64 // until when no wait set is used, because an ACL forbade one, in Unix ns; 0: no ACL did
}

// waitSetPause is how long no wait set is used after an ACL didn't allow it: somebody may add the rule.
const waitSetPause = time.Minute

// acquireReply is what this client knows of the outcome of a claim. It comes from the reply to the claim, from the
// reply to a release that handed the lock over, or from a message that granted the lock.
type acquireReply struct {
	script.AcquireReply
	sent   time.Time // before the request left: the lease counts from here
	until  time.Time // until when the grant may be trusted without a renewal; zero: until its lease ends
	acked  int       // replicas that have the grant, if WithReplicas asks for them
	moving bool      // the lock's slot is moving to another node
}

// holder returns what a refusal says of the holder, without the lock's name.
func (v *acquireReply) holder() HeldError {
	return HeldError{Owner: v.Owner, Remaining: v.Remaining, released: v.Released}
}

// releaseReply is Redis's reply to a release.
type releaseReply struct {
	script.ReleaseReply
	unconfirmed bool      // most likely an earlier try, whose reply was lost, has released it
	mayGoOn     bool      // it failed, but may have been done, or another try may succeed
	sent        time.Time // before the request left
}

// sendAcquire asks for the lock once. It sends the request again without the lock's token counter if the slot is
// moving, and without the wait set if an ACL forbids it.
func (o *operations) sendAcquire(ctx context.Context, claim *claim, params *acquireParams) (acquireReply, error) {
	cfg, kind := claim.lock.cfg, claim.lock.kind
	moving, waitSetRefused := false, false
	till := o.noWaitSetTill.Load()
	noWaitSet := till != 0 && time.Now().UnixNano() < till
	for {
		args := script.AcquireArgs{
			Lock: claim.lock.keys(), Owner: claim.owner, Lease: cfg.ttlArg, Traceparent: claim.traceparent,
			Publish: o.backend.Traits().Publish, Keep: params.placeTTL, Under: params.writer, Waited: params.waited,
			Permits: params.permits, Spent: claim.spentReceipts(),
		}
		inWaitSet := params.entry.Add != "" && !moving && !noWaitSet
		if inWaitSet {
			args.Entry = params.entry
		}
		if moving {
			args.Counter = nil
		}
		c := o.dispatcher.NewCall(telemetry.PurposeAcquire)
		kind.acquire.Args(&c.Request, args)
		reply, err := o.doAcquire(ctx, c, cfg, claim, params.callTimeout(cfg.lease))
		switch {
		case err == nil:
		case kind.oneKey && !moving && redisfail.Classify(err).Keys == redisfail.KeysSplit:
			moving = true // while the slot moves, a script can use one of its keys, not two
			continue
		case inWaitSet && redisfail.IsForbidden(err):
			noWaitSet, waitSetRefused = true, true // perhaps the ACL forbids only the wait set
			continue
		default:
			return acquireReply{}, err
		}
		if waitSetRefused {
			o.noWaitSetTill.Store(time.Now().Add(waitSetPause).UnixNano())
		}
		v, err := script.ParseAcquire(reply.Value)
		err = learnAcquire(&reply, v, err, claim)
		return acquireReply{AcquireReply: v, sent: reply.Sent, acked: reply.Acked, moving: moving}, err
	}
}

// claimant is a claim, or the claims of one call.
type claimant interface {
	dispatch.LateHandler
	noteLateWrite(until time.Time)
}

// doAcquire sends a call that may take a lock.
func (o *operations) doAcquire(
	ctx context.Context, c *dispatch.Call, cfg *lockConfig, by claimant, timeout time.Duration,
) (reply dispatch.Reply, err error) {
	c.MayWriteFor, c.LateHandler = min(cfg.lease, o.backend.Timeout()), by
	c.Replicas, c.ReplicaTimeout = cfg.replicas, cfg.replicaWait
	reply, err = o.dispatcher.Do(ctx, c, timeout)
	if err != nil && reply.MayHaveRun {
		by.noteLateWrite(reply.LateWriteUntil)
	}
	return reply, err
}

// learnAcquire calls reply.Learn for a reply that was parsed as v and err. A reply that can't be read may be a grant,
// so it counts as lost.
func learnAcquire(reply *dispatch.Reply, v script.AcquireReply, err error, by claimant) error {
	if err = reply.Learn(v.Now, v.Late, err); err != nil && !v.Late {
		by.noteLateWrite(reply.LateWriteUntil)
	}
	return err
}

// releaseWithRetry releases the lock, or makes the claim's update, with retries until deadline.
func (o *operations) releaseWithRetry(
	ctx context.Context, rel *telemetry.Release, claim *claim, deadline time.Time, params releaseParams,
) (releaseReply, error) {
	var reply releaseReply
	mayGoOn := false
	var unclear error // of the last try that may have been done; nil: there was none
	err := retry(ctx, 0, deadline, func() error {
		var lateUntil time.Time
		var err error
		reply, lateUntil, err = o.sendRelease(ctx, claim, params, max(time.Until(deadline), 0))
		if err == nil {
			return nil
		}
		what := failureOf(ctx, err)
		rel.Error(what.Kind)
		if what.Unclear {
			unclear = err
		}
		mayGoOn = what.Retry
		if params.next != nil {
			params.next.failed(lateUntil)
			params.next = nil
		}
		return err
	})
	if err != nil && unclear != nil && !mayGoOn && refusesAll(err) { // only changes of counters look at mayGoOn
		err, mayGoOn = &redisfail.RetriedError{Last: err, Before: unclear}, true
	}
	if err != nil {
		return releaseReply{mayGoOn: mayGoOn}, err
	}
	if reply.Refused != nil {
		rel.Error(redisfail.Classify(reply.Refused).Kind)
	}
	if reply.Outcome.NotOurs() && unclear != nil && time.Now().Before(deadline) && claim.update == nil &&
		!isAhead(params.keepUntil) {
		// The lease hadn't ended, so most likely an earlier try of this call, whose reply was lost, removed the owner.
		// A try that keeps the lock taken leaves a sign of it.
		done := script.ReleaseReply{Outcome: script.Done}
		return releaseReply{ReleaseReply: done, unconfirmed: true, sent: reply.sent}, nil
	}
	return reply, nil
}

// refusesAll reports whether a final error is one with which every call fails, such as NOPERM. It says nothing about an
// earlier try, which may have been done all the same. An error about a value isn't one: the script looked for the
// receipt of the earlier try first, and found none.
func refusesAll(err error) bool {
	return !redisfail.Classify(err).Unclear &&
		!redisfail.IsOutOfRange(err) && !redisfail.IsNotInteger(err) && !redisfail.IsWrongType(err)
}

// releaseParams are the arguments of a release.
type releaseParams struct {
	passOn    script.PassOn
	entry     script.EntryChange
	next      *handOver // the waiter of this client that may get the lock by the first try; nil: none
	keepUntil time.Time // until when the lock stays taken (WithMinHold); zero: it is freed at once
	alone     bool      // the call is sent by Dispatcher.DoAlone
}

// releaseOnce tries once to release the lock, or to make the claim's update, within timeout. Callers leave passOn and
// entry of params unset. If params.alone is set, timeout isn't used: the call ends with ctx or at the client's
// ReadTimeout.
func (o *operations) releaseOnce(
	ctx context.Context, claim *claim, timeout time.Duration, params releaseParams,
) (releaseReply, error) {
	params.passOn = script.PassOnAnnounced
	if claim.mayBeGranted() {
		params.entry.Remove = claim.WaitEntry()
	}
	reply, _, err := o.sendRelease(ctx, claim, params, timeout)
	if failed := cmp.Or(err, reply.Refused); failed != nil && (err == nil || !leftEarly(ctx, err)) {
		o.rec.Error(ctx, telemetry.OpRelease, redisfail.Classify(failed).Kind)
	}
	return reply, err
}

// sendRelease is one try to release. If it fails, its hand-over or update may still happen up to the time lateUntil;
// zero: it can't.
func (o *operations) sendRelease(
	ctx context.Context, claim *claim, params releaseParams, timeout time.Duration,
) (_ releaseReply, lateUntil time.Time, err error) {
	kind := claim.lock.kind
	traits := o.backend.Traits()
	args := script.ReleaseArgs{
		Lock: claim.lock.keys(), Owner: claim.owner, Publish: traits.Publish,
		PassOn: waitset.WakeAllAtTimes(params.passOn), Entry: params.entry, NumSub: traits.NumSubCommand,
		Spent: claim.spentReceipts(),
	}
	releaser, lease := kind.release, claim.lock.cfg.lease
	switch next := params.next; {
	case claim.update != nil:
		releaser, args.Amount = claim.update.script, claim.update.amount
	case !params.keepUntil.IsZero():
		releaser, args.Keep = kind.retain,
			max(time.Until(params.keepUntil), 0).Truncate(time.Millisecond)+time.Millisecond
	case next != nil:
		to := next.claim.lock.cfg
		releaser, lease = kind.handOver, to.lease
		args.Next = script.Next{
			Owner: next.claim.owner, Lease: to.ttlArg,
			Traceparent: next.claim.traceparent, Subscribed: next.subscribed,
		}
		args.Entry.MayHaveAdd = next.registered
	}
	c := o.dispatcher.NewCall(telemetry.PurposeRelease)
	releaser.Args(&c.Request, args)
	if c.HasNotAfter() {
		c.MayWriteFor = min(lease, o.backend.Timeout())
	}
	var reply dispatch.Reply
	if params.alone {
		reply, err = o.dispatcher.DoAlone(ctx, c)
	} else {
		reply, err = o.dispatcher.Do(ctx, c, timeout)
	}
	if err != nil {
		if reply.MayHaveRun {
			lateUntil = reply.LateWriteUntil
			if claim.update != nil {
				claim.noteLateWrite(lateUntil)
			}
		}
		return releaseReply{}, lateUntil, err
	}
	v, err := script.ParseRelease(reply.Value)
	if err = reply.Learn(v.Now, v.Late, err); err != nil {
		if !v.Late {
			lateUntil = reply.LateWriteUntil // an unreadable reply may mean a hand-over
		}
		return releaseReply{}, lateUntil, err
	}
	return releaseReply{ReleaseReply: v, sent: reply.Sent}, time.Time{}, nil
}

// force takes the lock away from all its holders. It returns their owners, ten at most.
func (o *operations) force(ctx context.Context, lk *lock) (was bool, owners []string, err error) {
	reply, err := o.simple(ctx, telemetry.OpForceUnlock, func(r *script.Request) {
		lk.kind.force.Args(r, script.ForceArgs{
			Lock: lk.keys(), Publish: o.backend.Traits().Publish,
			Control: lk.c.cfg.prefix + controlPrefix, Client: lk.c.cfg.id,
		})
	})
	if err != nil {
		return false, nil, err
	}
	r, err := script.ParseForce(reply)
	if r.Refused != nil {
		o.rec.Error(ctx, telemetry.OpForceUnlock, redisfail.Classify(r.Refused).Kind)
	}
	return r.Held, r.Owners, err
}

func (o *operations) inspect(ctx context.Context, lk *lock) (script.InspectReply, error) {
	reply, err := o.simple(ctx, telemetry.OpInspect, func(r *script.Request) { lk.kind.inspect.Args(r, lk.keys()) })
	if err != nil {
		return script.InspectReply{}, err
	}
	return script.ParseInspect(reply)
}

// simple runs a script in up to maxTries calls. A ForceUnlock isn't repeated if it may have been done: it would take
// the lock from the next holder, too.
func (o *operations) simple(
	ctx context.Context, op telemetry.Operation, args func(*script.Request),
) (reply any, err error) {
	var unclear error
	err = retry(ctx, maxTries, time.Time{}, func() error {
		c := o.dispatcher.NewCall(telemetry.PurposeOther)
		args(&c.Request)
		r, err := o.dispatcher.Do(ctx, c, 2*o.backend.Timeout())
		if err != nil && ctx.Err() == nil {
			o.rec.Error(ctx, op, redisfail.Classify(err).Kind)
		}
		reply = r.Value
		if op == telemetry.OpForceUnlock && r.MayHaveRun {
			unclear = cutOff(ctx, err)
			return nil
		}
		return err
	})
	return reply, cmp.Or(err, unclear)
}
