package lock

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/lockdog/lockdog/lock/internal/redisfail"
	"github.com/lockdog/lockdog/lock/internal/script"
	"github.com/lockdog/lockdog/telemetry"
)

// The operations on several locks in one script. They correspond to those on one lock in operations.go.

// multiAcquireReply is Redis's reply to several claims.
type multiAcquireReply struct {
	acquireReply
	tokens []int64 // when granted
	at     int     // when not granted: which lock is held
}

// acquireAll makes one attempt for all claims: it returns one reply, after up to maxTries calls.
func (o *operations) acquireAll(
	ctx context.Context, a *telemetry.Acquire, claims []*claim, params *acquireParams,
) (reply multiAcquireReply, err error) {
	var refused error // the server accepts no script with these keys, at least not now: not retried
	err = retry(ctx, maxTries, params.tryDeadline, func() (err error) {
		reply, err = o.sendAcquireAll(ctx, claims, params.callTimeout(claims[0].lock.cfg.lease))
		switch {
		case err == nil || leftEarly(ctx, err):
		case wantsOneByOne(err) && ctx.Err() == nil:
			refused = err
			return nil
		default:
			a.Error(redisfail.Classify(err).Kind)
		}
		return err
	})
	return reply, cmp.Or(err, refused)
}

func (o *operations) sendAcquireAll(
	ctx context.Context, claims []*claim, timeout time.Duration,
) (multiAcquireReply, error) {
	cfg := claims[0].lock.cfg
	c := o.dispatcher.NewCall(telemetry.PurposeAcquire)
	script.MultiAcquireArgs(&c.Request, cfg.ttlArg, ownedLocks(claims))
	reply, err := o.doAcquire(ctx, c, cfg, claimList(claims), timeout)
	if err != nil {
		return multiAcquireReply{}, err
	}
	v, err := script.ParseMultiAcquire(reply.Value, len(claims))
	err = learnAcquire(&reply, v.AcquireReply, err, claimList(claims))
	return multiAcquireReply{
		acquireReply{AcquireReply: v.AcquireReply, sent: reply.Sent, acked: reply.Acked}, v.Tokens, v.At,
	}, err
}

func ownedLocks(claims []*claim) []script.OwnedLock {
	all := make([]script.OwnedLock, len(claims))
	for i, claim := range claims {
		all[i] = claim.ownedLock()
	}
	return all
}

func (cl *claim) ownedLock() script.OwnedLock {
	return script.OwnedLock{Lock: cl.lock.keys(), Owner: cl.owner, Traceparent: cl.traceparent}
}

// releaseAll releases locks, with retries until deadline. It returns the reply or the error of each.
func (o *operations) releaseAll(
	ctx context.Context, rels []telemetry.Release, claims []*claim, deadline time.Time,
) ([]releaseReply, []error) {
	all, errs := make([]releaseReply, len(claims)), make([]error, len(claims))
	left := make([]int, len(claims)) // indexes of the claims that are still to be released
	for i := range left {
		left[i] = i
	}
	unclear := false
	err := retry(ctx, 0, deadline, func() error {
		some := make([]*claim, len(left))
		for n, i := range left {
			some[n] = claims[i]
		}
		freed, failed, err := o.sendReleaseAll(ctx, some, max(time.Until(deadline), 0))
		switch {
		case err != nil && wantsOneByOne(err) && !unclear:
			for _, i := range left {
				all[i], errs[i] = o.releaseWithRetry(ctx, &rels[i], claims[i], deadline,
					releaseParams{passOn: script.PassOnAnnounced})
			}
			return nil
		case err != nil:
			what := failureOf(ctx, err)
			rels[left[0]].Error(what.Kind)
			unclear = unclear || what.Unclear
			return err
		}
		for n, i := range left {
			all[i], errs[i] = freed[n], failed[n]
			if err := cmp.Or(errs[i], all[i].Refused); err != nil {
				rels[i].Error(redisfail.Classify(err).Kind)
			} else if all[i].Outcome.NotOurs() && unclear && time.Now().Before(deadline) {
				all[i].Outcome, all[i].unconfirmed = script.Done, true // our own earlier try released it
			}
		}
		left = slices.DeleteFunc(left, func(i int) bool { return !redisfail.IsTemporaryRefusal(errs[i]) })
		if len(left) == 0 {
			return nil
		}
		return errs[left[0]]
	})
	if err != nil {
		for _, i := range left {
			errs[i] = err
		}
	}
	return all, errs
}

// sendReleaseAll is one try of releaseAll.
func (o *operations) sendReleaseAll(
	ctx context.Context, claims []*claim, timeout time.Duration,
) ([]releaseReply, []error, error) {
	c := o.dispatcher.NewCall(telemetry.PurposeRelease)
	script.MultiReleaseArgs(&c.Request, o.backend.Traits().Publish, ownedLocks(claims))
	reply, err := o.dispatcher.Do(ctx, c, timeout)
	if err != nil {
		return nil, nil, err
	}
	v, err := script.ParseMultiRelease(reply.Value, len(claims))
	if err = reply.Learn(v.Now, false, err); err != nil {
		return nil, nil, err
	}
	all, errs := make([]releaseReply, len(claims)), make([]error, len(claims))
	for i := range all {
		all[i].ReleaseReply, errs[i] = v.At(i)
		all[i].sent = reply.Sent
	}
	return all, errs, nil
}
