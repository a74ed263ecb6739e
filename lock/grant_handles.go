package lock

import (
	"context"
	"errors"
	"iter"
	"reflect"
	"slices"
	"sync"
	"time"
)

// grantHandle is a lease together with the grant that it is a handle of.
type grantHandle struct {
	*Lease
	g *grant
}

func (g *grant) lockName() string    { return g.lock.name }
func (g *grant) owner() string       { return g.claim.owner }
func (g *grant) token() int64        { return g.hold.Token() }
func (g *grant) deadline() time.Time { return g.wd.Deadline() }
func (g *grant) client() *Client     { return g.lock.c }
func (g *grant) node() string        { return g.lock.node() }

func (g *grant) tokens() map[string]int64 { return map[string]int64{g.lockName(): g.token()} }

func (g *grant) heartbeat() {
	if g.lock.cfg.heartbeat == 0 {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ensureExtra().beat = time.Since(g.hold.Since())
}

func (g *grant) find(l *Lease, c *Client, key string) grantHandle {
	if g.client() != c || g.lock.key != key {
		return grantHandle{}
	}
	return grantHandle{l, g}
}

func (g *grant) grants(l *Lease, f func(grantHandle)) { f(grantHandle{l, g}) }

func (g *grant) handleMu() *sync.Mutex { return &g.mu }

func (g *grant) handleErr(l *Lease) error {
	if err := g.endErr(); err != nil {
		return err
	}
	if g.handleReleased(l) {
		return ErrReleased
	}
	return nil
}

func (g *grant) handleEnded(l *Lease) bool { return g.state == grantEnded || g.handleReleased(l) }

// handleReleased reports whether a handle was released. mu must be held.
func (g *grant) handleReleased(l *Lease) bool {
	if l == &g.first {
		return g.firstReleased
	}
	return !slices.Contains(g.extraCopy().joined, l)
}

// handles returns the handles that haven't been released. mu must be held.
func (g *grant) handles() iter.Seq[*Lease] {
	return func(yield func(*Lease) bool) {
		if !g.firstReleased && !yield(&g.first) {
			return
		}
		for _, l := range g.extraCopy().joined {
			if !yield(l) {
				return
			}
		}
	}
}

// others reports whether a handle other than l is neither canceled nor released. mu must be held.
func (g *grant) others(l *Lease) bool {
	for o := range g.handles() {
		if o != l && o.cause == nil {
			return true
		}
	}
	return false
}

// only reports whether all other handles of the grant have been released.
func (h grantHandle) only() bool {
	h.g.mu.Lock()
	defer h.g.mu.Unlock()
	for o := range h.g.handles() {
		if o != h.Lease {
			return false
		}
	}
	return true
}

// joinable reports whether the lease may be joined: it isn't released, and its grant is neither canceled nor ended.
func (h grantHandle) joinable() bool {
	h.g.loseIfExpired()
	h.g.mu.Lock()
	defer h.g.mu.Unlock()
	return h.g.state == grantHeld && h.g.endErr() == nil && !h.g.handleReleased(h.Lease)
}

// record returns the record of the compositeLease of which the lease is a member, nil if there is none.
func (h grantHandle) record() *record {
	h.g.mu.Lock()
	comp := h.composite
	h.g.mu.Unlock()
	if comp == nil {
		return nil
	}
	comp.mu.Lock()
	defer comp.mu.Unlock()
	return comp.record
}

// parentOf returns the context that a lease taken with ctx follows: ctx, or the one of WithLifetime. From the latter,
// takenIn finds the lease in whose Context the new lease was taken.
func (lk *lock) parentOf(ctx context.Context) context.Context {
	lc := lk.cfg.leaseCtx
	if lc == nil {
		return asComparable(ctx)
	}
	if outer := leaseOf(ctx); outer != nil {
		return context.WithValue(lc, takenInKey{}, outer)
	}
	return asComparable(lc)
}

// asComparable returns ctx, wrapped in a pointer if == could panic on it: a context of the program may contain
// functions or slices. Most contexts are pointers, for which Value.Comparable would take an allocation.
func asComparable(ctx context.Context) context.Context {
	if reflect.TypeOf(ctx).Kind() == reflect.Pointer || reflect.ValueOf(ctx).Comparable() {
		return ctx
	}
	return &struct{ context.Context }{ctx}
}

// join adds a handle to a live grant. It returns nil if the grant was canceled or lost, is being released, or has
// ended.
func (g *grant) join(ctx context.Context, lk *lock) *Lease {
	l := &Lease{target: g, parent: lk.parentOf(ctx)}
	g.mu.Lock()
	if g.state != grantHeld || g.endErr() != nil {
		g.mu.Unlock()
		return nil
	}
	r := g.ensureExtra()
	r.joined = append(r.joined, l)
	g.mu.Unlock()
	g.follow(l)
	return l
}

// follow makes parentEnded run when the handle's parent context ends.
func (g *grant) follow(l *Lease) {
	parent := l.follows()
	if parent.Done() == nil {
		return
	}
	unfollow := context.AfterFunc(parent, func() { l.target.parentEnded(l) })
	g.mu.Lock()
	defer g.mu.Unlock()
	if l.parent != parent || l.cause != nil { // replaced, or canceled, in the meantime
		unfollow()
		return
	}
	l.unfollow = unfollow
}

func (g *grant) parentEnded(l *Lease) {
	parent := l.follows()
	if parent.Err() == nil { // the parent that ended was replaced
		return
	}
	next := g.nextParent(parent)
	g.mu.Lock()
	if l.cause != nil || l.parent != parent {
		g.mu.Unlock()
		return
	}
	if next != nil {
		l.parent = next
		g.mu.Unlock()
		g.follow(l)
		return
	}
	g.mu.Unlock()
	g.cancelHandle(l, canceledByContext(g.lock.name, parent))
}

// nextParent returns the context to follow after parent has ended, nil if there is none. A read lease that was taken in
// the Context of a write lease outlives the release of that lease: it then follows what the write lease followed.
func (g *grant) nextParent(parent context.Context) context.Context {
	above := g.lock.kind.downgradesFrom
	if above == nil || !errors.Is(context.Cause(parent), ErrReleased) {
		return nil
	}
	for l := leaseOf(parent); l != nil; l = leaseOf(l.follows()) {
		outer, ok := l.target.(*grant)
		if !ok || outer.lock.kind != above || outer.lock.key != g.lock.key {
			return nil
		}
		if next := l.follows(); outer.client() == g.client() && errors.Is(l.Err(), ErrReleased) && next.Err() == nil {
			return next
		}
	}
	return nil
}

// cancelHandle cancels one handle, and the grant if no other handle has permission to work. It doesn't wait for the
// report: Context.Err may be its caller.
func (g *grant) cancelHandle(l *Lease, err *CanceledError) {
	var report func()
	g.mu.Lock()
	if !g.others(l) && l.cause == nil { // decided and done with mu held: nobody joins in between
		report = g.cancel(err)
	}
	l.endContext(err)
	g.mu.Unlock()
	if report != nil {
		g.client().report(report)
	}
}

// releaseLease ends one handle. With the last handle it ends the grant, too. From here to Redis:
//
//	dropHandle                       stops the renewal
//	releaseInRedis
//	├ waitQueues.handOverOrRelease   chooses the waiter of this client that may get the lock
//	│ └ operations.releaseWithRetry  again after a failure that may pass
//	│   └ operations.sendRelease, and Dispatcher.Do
//	└ finishRelease                  cleans up; then finish, or lose and reportLoss
func (g *grant) releaseLease(ctx context.Context, l *Lease) error {
	last, err := g.dropHandle(l)
	if !last {
		return err
	}
	return g.releaseInRedis(ctx)
}

// dropHandle ends one handle. With the last handle of a grant that hasn't ended, it also stops the renewal and reports
// true: the lock has to be released in Redis.
func (g *grant) dropHandle(l *Lease) (last bool, err error) {
	g.loseIfExpired()
	g.mu.Lock()
	if g.handleReleased(l) {
		g.mu.Unlock()
		return false, wrapError(g.lock.name, "release", ErrReleased)
	}
	if l == &g.first {
		g.firstReleased = true
	} else {
		g.extras.joined = slices.DeleteFunc(g.extras.joined, func(o *Lease) bool { return o == l })
	}
	l.closeEnded()
	if err := g.endErr(); err != nil {
		noneLeft := g.firstReleased && len(g.extraCopy().joined) == 0
		g.mu.Unlock()
		if noneLeft {
			g.skipTakeoverDelay(err)
		}
		return false, err
	}
	l.endContext(ErrReleased)
	if !g.firstReleased || len(g.extraCopy().joined) > 0 {
		var report func()
		if !g.others(nil) { // every handle that is left was canceled before
			report = g.cancel(&CanceledError{g.lock.name, ReasonContext, errJoinedLast})
		}
		g.mu.Unlock()
		if report != nil {
			report()
		}
		return false, nil
	}
	g.state = grantReleasing
	g.mu.Unlock()

	if !g.client().renewer.Remove(&g.wd) { // the watchdog has found a loss before
		g.loseIfExpired()
		err := g.whyEnded()
		g.skipTakeoverDelay(err)
		return false, err
	}
	return true, nil
}

// skipTakeoverDelay frees the lock of a grant that was lost, before its takeover delay is over. It is called when the
// last handle was released: the work has ended.
func (g *grant) skipTakeoverDelay(err error) {
	if g.lock.cfg.takeoverDelay > 0 && errors.Is(err, ErrLost) {
		g.claim.cleanUp()
	}
}
