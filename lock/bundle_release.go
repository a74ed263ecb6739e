package lock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lockdog/lockdog/lock/internal/script"
	"github.com/lockdog/lockdog/telemetry"
)

// release gives all members back.
func (b *bundle) release(ctx context.Context) error {
	b.check()
	b.mu.Lock()
	if b.whole.released {
		b.mu.Unlock()
		return wrapError(b.name, "release", ErrReleased)
	}
	b.whole.released = true
	b.whole.end()
	canceled := b.canceledBy()
	b.whole.stop(ErrReleased)
	ended, members, r := b.err, b.members, b.record
	b.mu.Unlock()

	if ended != nil {
		b.giveBack(ctx, members)
		return ended
	}
	giveBack := func(ctx context.Context) error { return b.sum(members, b.giveBack(ctx, members)) }
	if r == nil {
		return giveBack(ctx)
	}
	return r.release(ctx, canceled, giveBack)
}

// giveUp releases what there is of a bundle that isn't to be.
func (b *bundle) giveUp(ctx context.Context) {
	if len(b.all()) > 0 {
		leave(ctx, b.release)
	}
}

// leave releases something whose holder doesn't ask what becomes of it, and waits for Redis no longer than ctx does.
func leave(ctx context.Context, release func(context.Context) error) {
	if ctx.Err() != nil {
		go func() { _ = release(context.WithoutCancel(ctx)) }()
		return
	}
	_ = release(ctx) // why the lock isn't had is said already; telemetry says the rest
}

// sum is what the release of the members comes to, as far as it is known.
func (b *bundle) sum(members []*member, errs []error) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	freed, failed := 0, nodeErrors(nil)
	for i, err := range errs {
		m := members[i]
		var lost *LostError
		switch {
		case err == nil:
			freed++
		case errors.As(err, &lost) && !m.gone:
			b.note(m, err)
		case !errors.As(err, &lost) && !b.nodes:
			failed = append(failed, err)
		case !errors.As(err, &lost):
			failed = append(failed, atNode(m.g.node(), err))
		}
	}
	switch {
	case freed >= b.need:
		return nil
	case b.size-b.gone < b.need && len(b.lost) > 0:
		b.err = b.loss()
		return b.err
	}
	if len(failed) > 0 {
		return failed
	}
	return nil
}

// giveBack releases the members and says what became of each. First it stops all renewals.
func (b *bundle) giveBack(ctx context.Context, members []*member) []error {
	errs := make([]error, len(members))
	var held []int // those of which this was the last handle
	for i, m := range members {
		var last bool
		if last, errs[i] = m.g.leave(m.Lease); last {
			held = append(held, i)
		}
	}
	switch {
	case len(held) == 0:
	case b.nodes:
		b.giveBackAtNodes(ctx, members, held, errs)
	case len(held) == 1 || !giveBackTogether(ctx, members, held, errs):
		var all sync.WaitGroup
		for _, i := range held {
			all.Go(func() { errs[i] = members[i].g.giveBack(ctx) })
		}
		all.Wait()
	}
	return errs
}

// giveBackAtNodes returns when a majority is free. The nodes that haven't answered by then have their timeout yet, whatever becomes of
// the caller's ctx, after which the cleanup goes on.
func (b *bundle) giveBackAtNodes(caller context.Context, members []*member, held []int, errs []error) {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(caller))
	unfollow := func() bool { return true }
	if caller.Err() == nil {
		unfollow = context.AfterFunc(caller, func() { cancel(context.Cause(caller)) })
	}
	type result struct {
		i   int
		err error
	}
	results := make(chan result, len(held))
	var all sync.WaitGroup
	for _, i := range held {
		errs[i] = errPending
	}
	for _, i := range held {
		all.Go(func() { results <- result{i, members[i].g.giveBack(ctx)} })
	}
	freed := 0
	for _, err := range errs {
		if err == nil { // its lock has other handles yet
			freed++
		}
	}
	for range held {
		r := <-results
		if errs[r.i] = r.err; r.err == nil {
			freed++
		}
		if freed >= b.need {
			break
		}
	}
	unfollow()
	patience := time.AfterFunc(nodeTimeout(members[0].g.lock.cfg.lease), func() { cancel(errNodeTimeout) })
	go func() {
		all.Wait()
		patience.Stop()
		cancel(nil)
	}()
}

// giveBackTogether releases the members in one call to Redis, where that is possible, and reports whether it was.
func giveBackTogether(ctx context.Context, members []*member, held []int, errs []error) bool {
	first := members[held[0]].g
	c := first.lock.c
	keys := make([]string, len(held))
	for n, i := range held {
		lk := members[i].g.lock
		if lk.kind.release != script.Release { // it joined what was taken as another kind of lock
			return false
		}
		keys[n] = lk.key
	}
	if !c.together(keys) || slices.ContainsFunc(keys, c.waits.busy) { // who waits here may be handed the lock
		return false
	}
	if ctx.Err() != nil {
		ctx = context.WithoutCancel(ctx)
	}
	deadline := first.wd.Deadline()
	claims, rels := make([]*claim, len(held)), make([]telemetry.Release, len(held))
	for n, i := range held {
		g := members[i].g
		claims[n] = g.claim
		_, rels[n] = c.rec.StartRelease(ctx, &g.hold)
		if d := g.wd.Deadline(); d.Before(deadline) {
			deadline = d
		}
	}
	freed, failed := c.ops.releaseAll(ctx, rels, claims, deadline)
	for n, i := range held {
		c.waits.wakeUnsubscribedFair(keys[n])
		errs[i] = members[i].g.given(&rels[n], freed[n], failed[n])
	}
	return true
}

// nodeErrors are what failed at several nodes.
type nodeErrors []error

// Error implements error.
func (e nodeErrors) Error() string {
	texts := make([]string, len(e))
	for i, err := range e {
		texts[i] = err.Error()
	}
	return strings.Join(texts, "; ")
}

// Unwrap makes them match what each of them does.
func (e nodeErrors) Unwrap() []error { return e }

func atNode(node string, err error) error { return fmt.Errorf("at %s: %w", node, err) }

// node names the server that has the grant.
func (g *grant) node() string { return g.lock.node() }

func (lk *lock) node() string { return lk.c.backend.Node(lk.key) }
