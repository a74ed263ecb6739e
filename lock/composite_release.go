package lock

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lockdog/lockdog/lock/internal/script"
	"github.com/lockdog/lockdog/telemetry"
)

// releaseLease ends the composite, and releases all members.
func (comp *compositeLease) releaseLease(ctx context.Context, _ *Lease) error {
	comp.loseIfExpired()
	comp.mu.Lock()
	if comp.released {
		comp.mu.Unlock()
		return wrapError(comp.name, "release", ErrReleased)
	}
	comp.released = true
	comp.handle.closeEnded()
	canceled := comp.canceledError()
	comp.handle.endContext(ErrReleased)
	ended, members, r := comp.err, comp.members, comp.record
	comp.mu.Unlock()

	if ended != nil {
		comp.releaseMembers(ctx, members)
		return ended
	}
	releaseMembers := func(ctx context.Context) error {
		return comp.releaseError(members, comp.releaseMembers(ctx, members))
	}
	if r == nil {
		return releaseMembers(ctx)
	}
	return r.release(ctx, canceled, releaseMembers)
}

// noteUnused notes that the program won't get the lease: WithMinHold keeps no lock taken that was granted for it.
func (l *Lease) noteUnused() {
	l.target.grants(l, func(h grantHandle) {
		if h.Lease != &h.g.first || h.g.lock.cfg.minHold == 0 { // or it has joined another lease
			return
		}
		h.g.mu.Lock()
		defer h.g.mu.Unlock()
		h.g.ensureExtra().unused = true
	})
}

// releaseUnused releases a lease that the program won't get. It doesn't wait for Redis if ctx has ended.
func releaseUnused(ctx context.Context, l *Lease) {
	l.noteUnused()
	if ctx.Err() != nil {
		go func() { _ = l.Release(context.WithoutCancel(ctx)) }()
		return
	}
	_ = l.Release(ctx) // telemetry reports the error; the program gets the result of its acquire
}

// releaseError returns the error of the composite's release. errs are the errors of the members.
func (comp *compositeLease) releaseError(members []*member, errs []error) error {
	comp.mu.Lock()
	defer comp.mu.Unlock()
	released, failed := 0, memberErrors(nil)
	for i, err := range errs {
		m := members[i]
		var lost *LostError
		switch {
		case err == nil:
			released++
		case errors.As(err, &lost):
			comp.countEnded(m, err)
		case comp.isQuorum:
			failed = append(failed, atNode(m.g.node(), err))
		default:
			failed = append(failed, err)
		}
	}
	switch {
	case released >= comp.need:
		return nil
	case comp.expected-comp.ended < comp.need && comp.lastLost != nil:
		comp.err = comp.lostError()
		return comp.err
	case len(failed) > 0:
		return failed
	}
	return nil
}

// releaseMembers ends the handle of each member. Then it releases, in Redis, the grants that have no handle left and
// haven't ended. It returns the error of each member.
func (comp *compositeLease) releaseMembers(ctx context.Context, members []*member) []error {
	errs := make([]error, len(members))
	var toRelease []int // indexes of the members that are to be released in Redis
	for i, m := range members {
		var last bool
		if last, errs[i] = m.g.dropHandle(m.Lease); last {
			toRelease = append(toRelease, i)
		}
	}
	switch {
	case len(toRelease) == 0:
	case comp.isQuorum:
		comp.releaseAtNodes(ctx, members, toRelease, errs)
	case len(toRelease) == 1 || !releaseInOneScript(ctx, members, toRelease, errs):
		var all sync.WaitGroup
		for _, i := range toRelease {
			all.Go(func() { errs[i] = members[i].g.releaseInRedis(ctx) })
		}
		all.Wait()
	}
	return errs
}

// releaseAtNodes releases the members with these indexes. It returns when a majority is released, when all calls have
// ended, or when the caller's ctx ends. A ctx that has already ended is ignored. After a majority is released, the
// other calls go on for nodeTimeout at most, even if the caller's ctx ends. The cleaner takes over from calls that
// failed.
func (comp *compositeLease) releaseAtNodes(caller context.Context, members []*member, toRelease []int, errs []error) {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(caller))
	unfollow := func() bool { return true }
	if caller.Err() == nil {
		unfollow = context.AfterFunc(caller, func() { cancel(context.Cause(caller)) })
	}
	type result struct {
		i   int
		err error
	}
	results := make(chan result, len(toRelease))
	var all sync.WaitGroup
	for _, i := range toRelease {
		errs[i] = errNotAwaited
		all.Go(func() { results <- result{i, members[i].g.releaseInRedis(ctx)} })
	}
	released := 0
	for _, err := range errs {
		if err == nil { // the grant has other handles, and stays
			released++
		}
	}
	for range toRelease {
		r := <-results
		if errs[r.i] = r.err; r.err == nil {
			released++
		}
		if released >= comp.need {
			break
		}
	}
	unfollow()
	timeout := time.AfterFunc(nodeTimeout(members[0].g.lock.cfg.lease), func() { cancel(errNodeTimeout) })
	go func() {
		all.Wait()
		timeout.Stop()
		cancel(nil)
	}()
}

// releaseInOneScript releases the members with these indexes by one script. It reports false, without a call, if that
// isn't possible, or if waiters of this client wait for one of the locks.
func releaseInOneScript(ctx context.Context, members []*member, toRelease []int, errs []error) bool {
	first := members[toRelease[0]].g
	c := first.client()
	keys := make([]string, len(toRelease))
	for n, i := range toRelease {
		lk := members[i].g.lock
		// The member has joined a grant of another kind, or its lock may have to stay taken.
		if lk.kind.release != script.Release || lk.cfg.minHold > 0 {
			return false
		}
		keys[n] = lk.key
	}
	if !c.oneScript(keys) || slices.ContainsFunc(keys, c.waits.busy) { // single releases may hand over to these waiters
		return false
	}
	if ctx.Err() != nil {
		ctx = context.WithoutCancel(ctx)
	}
	deadline := first.wd.Deadline()
	claims, rels := make([]*claim, len(toRelease)), make([]telemetry.Release, len(toRelease))
	for n, i := range toRelease {
		g := members[i].g
		claims[n] = g.claim
		_, rels[n] = c.rec.StartRelease(ctx, &g.hold)
		if d := g.wd.Deadline(); d.Before(deadline) {
			deadline = d
		}
	}
	freed, failed := c.ops.releaseAll(ctx, rels, claims, deadline)
	for n, i := range toRelease {
		c.waits.wakeUnsubscribedFair(keys[n])
		errs[i] = members[i].g.finishRelease(&rels[n], freed[n], failed[n])
	}
	return true
}

// memberErrors are the errors of several members: of nodes, or of names.
type memberErrors []error

// Error implements error.
func (e memberErrors) Error() string {
	texts := make([]string, len(e))
	for i, err := range e {
		texts[i] = err.Error()
	}
	return strings.Join(texts, "; ")
}

// Unwrap makes errors.Is and errors.As look at each error.
func (e memberErrors) Unwrap() []error { return e }
