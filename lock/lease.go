package lock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Lease is the handle of one grant of a lock. All its methods may be called from any goroutine.
//
// A lease ends by Release, by being lost, or by the end of its Client. Before that it may be canceled: its
// Context ends and it is renewed no more, while what is left of it is time to wind down and release.
type Lease struct {
	g      *grant          // nil: this is the lease of a bundle
	bundle *bundle         // of which it is the lease, or a member; nil for most
	ctx    context.Context // what the lease follows

	// Guarded by mu.
	released bool
	cause    error         // why Context ended
	work     *leaseContext // made when first asked for
	done     chan struct{} // made when first asked for
	unfollow func() bool   // stops following ctx
}

// Name is the lock's name, without the client's key prefix. A Multi's are joined by commas, in the order in which they are taken.
func (l *Lease) Name() string {
	if l.g == nil {
		return l.bundle.name
	}
	return l.g.lock.name
}

// Owner is what names this grant in Redis: "<client id>:<random>-<seq>", and ":write" after it for an RWMutex's write lease. Of a Multi it is that of the first name, of a Quorum
// that at one of the nodes.
func (l *Lease) Owner() string {
	if l.g == nil {
		return l.bundle.owner()
	}
	return l.g.claim.owner
}

// Token is the grant's fencing number: larger than that of every earlier grant of the same name, as long as no
// server that answers has a clock behind a token it issued. A store that remembers the largest token it has
// seen, and refuses smaller ones, is safe from holders that don't know yet that they lost the lock.
//
// Of a Multi it is the largest of its names' tokens, which rises from one grant of the same names to the next; what is protected by
// one of the names alone is to be given that name's, see Tokens.
//
// Semaphores, and the readers of an RWMutex, have several leases that live at one time, and the token of one is larger than another's. A store that
// refuses smaller ones would refuse holders that live: there, check the tokens of writers only.
func (l *Lease) Token() int64 {
	if l.g == nil {
		return l.bundle.token()
	}
	return l.g.hold.Token()
}

// Tokens are the tokens by name: one, or a Multi's.
func (l *Lease) Tokens() map[string]int64 {
	if l.g == nil {
		return l.bundle.tokens()
	}
	return map[string]int64{l.Name(): l.Token()}
}

// Deadline is until when this process trusts the lease without another renewal. A watched lease's deadline moves.
func (l *Lease) Deadline() time.Time {
	if l.g == nil {
		return l.bundle.deadline()
	}
	return l.g.wd.Deadline()
}

// Heartbeat says that the work under the lock makes progress. Only WithHeartbeat gives it a meaning.
func (l *Lease) Heartbeat() {
	g := l.g
	if g == nil {
		l.bundle.heartbeat()
		return
	}
	if g.lock.cfg.heartbeat == 0 {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.ensureExtra().beat = time.Since(g.hold.Since())
}

// Context is the permission to work under the lock. It carries the values, and the deadline, of the ctx
// given to Lock (or WithLeaseContext), and ends at the latest at the lease's deadline, whatever Redis is
// doing. Its cause, by context.Cause, is a *LostError, a *CanceledError or ErrReleased.
func (l *Lease) Context() context.Context {
	mu := l.mu()
	mu.Lock()
	defer mu.Unlock()
	if l.work == nil {
		base, cancel := context.WithCancelCause(context.WithoutCancel(l.ctx))
		l.work = &leaseContext{Context: base, cancel: cancel, lease: l}
		if l.cause != nil {
			cancel(l.cause)
		}
	}
	return l.work
}

// Done is closed when the lease itself has ended: released, lost, or left behind by a closed client.
func (l *Lease) Done() <-chan struct{} {
	mu := l.mu()
	mu.Lock()
	defer mu.Unlock()
	if l.done == nil {
		l.done = make(chan struct{})
		if l.released || l.over() {
			close(l.done)
		}
	}
	return l.done
}

// Err is nil while the lease lives; then ErrReleased, a *LostError, or ErrClosed.
func (l *Lease) Err() error {
	l.check()
	mu := l.mu()
	mu.Lock()
	defer mu.Unlock()
	if err := l.fate(); err != nil || !l.released {
		return err
	}
	return ErrReleased
}

// Release ends the lease, and frees the lock if no other Lock joined it (WithReentrancy). It works on a ctx that has ended,
// and then takes no longer than what is left of the lease; otherwise it returns at the latest when ctx ends, while the
// client goes on trying. It always stops the renewal first, so the lock is free after one lease whatever Release returns.
//
// The error matches ErrLost when the lock wasn't ours any more, ErrReleased at the second call, ErrClosed when the
// client was closed and gave up on the lease; any other error says that Redis didn't confirm.
//
// A lease of several names, or nodes, gives all of them back, also when it was lost. That of a Quorum is released when a majority
// of the nodes has confirmed it; the client goes on trying the others.
func (l *Lease) Release(ctx context.Context) error {
	if l == nil || l.g == nil && l.bundle == nil {
		return fmt.Errorf("%w: Release of a nil lease; use the one that Lock returned", ErrInvalid)
	}
	if ctx == nil {
		return errors.Join(fmt.Errorf("%w: lock %q: Release(nil): a ctx is needed; released with context.Background", ErrInvalid, l.Name()),
			l.Release(context.Background()))
	}
	if l.g == nil {
		return l.bundle.release(ctx)
	}
	return l.g.release(ctx, l)
}

// mu guards the fields of the handle.
func (l *Lease) mu() *sync.Mutex {
	if l.g == nil {
		return &l.bundle.mu
	}
	return &l.g.mu
}

// over reports whether the end is complete. It is called with mu held.
func (l *Lease) over() bool {
	if l.g == nil {
		return l.bundle.err != nil
	}
	return l.g.state == grantEnded
}

// fate is how what the lease is a handle of has ended, nil while it lives. It is called with mu held.
func (l *Lease) fate() error {
	if l.g == nil {
		return l.bundle.err
	}
	return l.g.end()
}

// check looks at the clock: what is over by it ends now.
func (l *Lease) check() {
	if l.g == nil {
		l.bundle.check()
		return
	}
	l.g.check()
}

// follow makes the lease end its context when ctx ends.
func (l *Lease) follow() {
	ctx := l.follows()
	if ctx.Done() == nil {
		return
	}
	unfollow := context.AfterFunc(ctx, l.ctxEnded)
	l.g.mu.Lock()
	defer l.g.mu.Unlock()
	if l.ctx != ctx { // it follows another by now
		unfollow()
		return
	}
	if l.cause != nil {
		unfollow()
	}
	l.unfollow = unfollow
}

// ctxEnded is called when the ctx that the lease follows has ended.
func (l *Lease) ctxEnded() {
	if l.g == nil {
		l.bundle.ctxEnded()
		return
	}
	g, ctx := l.g, l.follows()
	if ctx.Err() == nil { // another had ended, and the lease outlives it
		return
	}
	next := l.outlives(ctx)
	g.mu.Lock()
	if l.cause != nil || l.ctx != ctx {
		g.mu.Unlock()
		return
	}
	if next != nil {
		l.ctx = next
		g.mu.Unlock()
		l.follow()
		return
	}
	g.mu.Unlock()
	l.cut(ReasonContext, canceledByContext(g.lock.name, ctx))
}

// follows is the ctx that the lease follows.
func (l *Lease) follows() context.Context {
	mu := l.mu()
	mu.Lock()
	defer mu.Unlock()
	return l.ctx
}

// outlives is what the lease follows on when ctx has ended by the release of the lease of the kind above under which it was
// taken: what that lease followed. Else it is nil.
func (l *Lease) outlives(ctx context.Context) context.Context {
	above := l.g.lock.kind.downgradesFrom
	if above == nil || !errors.Is(context.Cause(ctx), ErrReleased) {
		return nil
	}
	for o := leaseOf(ctx); o != nil && o.g != nil && o.g.lock.kind == above && o.g.lock.key == l.g.lock.key; o = leaseOf(o.follows()) {
		if next := o.follows(); o.g.lock.c == l.g.lock.c && errors.Is(o.Err(), ErrReleased) && next.Err() == nil {
			return next
		}
	}
	return nil
}

// cut takes the permission to work away, and from the grant if nobody else has it.
func (l *Lease) cut(reason Reason, err error) {
	g := l.g
	g.mu.Lock()
	if l.cause != nil {
		g.mu.Unlock()
		return
	}
	if g.others(l) { // they joined, and still have permission
		l.stop(err)
		g.mu.Unlock()
		return
	}
	g.mu.Unlock()
	g.cancel(reason, err)
}

// stop ends the lease's context, for the first cause only. It is called with mu held.
func (l *Lease) stop(cause error) {
	if l.cause != nil {
		return
	}
	l.cause = cause
	if l.unfollow != nil {
		l.unfollow()
	}
	if l.work != nil {
		l.work.cancel(cause)
	}
	if l.g != nil && l.bundle != nil {
		l.bundle.stopped(l, cause)
	}
}

// end closes Done. It is called with mu held.
func (l *Lease) end() {
	if l.done != nil {
		select {
		case <-l.done:
		default:
			close(l.done)
		}
	}
	if l.g != nil && l.bundle != nil {
		l.bundle.ended(l, l.fate())
	}
}

type leaseKey struct{}

// leaseOf is the lease in whose Context ctx was made, nil if there is none.
func leaseOf(ctx context.Context) *Lease {
	l, _ := ctx.Value(leaseKey{}).(*Lease)
	return l
}

type takenInKey struct{}

// takenIn is the lease within which a lease was taken that follows ctx by WithLeaseContext, nil if there is none.
func takenIn(ctx context.Context) *Lease {
	l, _ := ctx.Value(takenInKey{}).(*Lease)
	return l
}

// held finds the live lease of a lock among those in whose Context ctx was made, or the ctx that the new lease is to follow: one of the
// lock's own kind, if there is one.
func held(ctx context.Context, lk *lock) (found *Lease) {
	var forks []*Lease       // other ways to go on
	var seen map[*Lease]bool // where there are several, they may meet again
	l := leaseOf(ctx)
	if lc := lk.cfg.leaseCtx; lc != nil {
		forks = append(forks, leaseOf(lc))
	}
	for {
		for l != nil && !seen[l] {
			of := l.of(lk.c, lk.key)
			switch {
			case of == nil || !of.alive():
			case of.g.lock.kind == lk.kind:
				return of
			case found == nil:
				found = of
			}
			if seen != nil {
				seen[l] = true
			}
			ctx := l.follows()
			if in := takenIn(ctx); in != nil {
				forks = append(forks, in)
			}
			l = leaseOf(ctx)
		}
		last := len(forks) - 1
		if last < 0 {
			return found
		}
		if seen == nil {
			seen = make(map[*Lease]bool)
		}
		l, forks = forks[last], forks[:last]
	}
}

// joins reports whether the lock may join a lease of it: if it is to, and unless others have the lock beside that lease.
func (lk *lock) joins(outer *Lease) bool {
	of := outer.g.lock.kind
	return lk.cfg.reentrant && (!of.wakesNextOnGrant || of == lk.kind)
}

// of is the lease of one lock: this one, or a member of its bundle; nil if it has none.
func (l *Lease) of(c *Client, key string) *Lease {
	if l.g == nil {
		return l.bundle.of(c, key)
	}
	if l.g.lock.c == c && l.g.lock.key == key {
		return l
	}
	return nil
}

// record is that of the bundle of which it is a member, nil if there is none.
func (l *Lease) record() *record {
	l.g.mu.Lock()
	b := l.bundle
	l.g.mu.Unlock()
	if b == nil {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.record
}

// alive reports whether the lease may be joined: neither released, canceled nor lost.
func (l *Lease) alive() bool {
	l.g.check()
	l.g.mu.Lock()
	defer l.g.mu.Unlock()
	return !l.released && l.g.state == grantHeld
}

// leaseContext is Lease.Context. It adds to a plain cancelable context that it is never late: after a process was
// stopped or starved, its timers are, so Err looks at the clock itself. It has the deadline of the ctx it
// follows and never the lease's, which moves, and which gRPC and SQL drivers would adopt.
type leaseContext struct {
	context.Context
	cancel context.CancelCauseFunc
	lease  *Lease
}

// Deadline implements context.Context.
func (c *leaseContext) Deadline() (time.Time, bool) { return c.lease.follows().Deadline() }

// Err implements context.Context.
func (c *leaseContext) Err() error {
	if err := c.Context.Err(); err != nil {
		return err
	}
	c.lease.check()
	if c.lease.follows().Err() != nil {
		c.lease.ctxEnded()
	}
	return c.Context.Err()
}

// Value implements context.Context.
func (c *leaseContext) Value(key any) any {
	switch key {
	case leaseKey{}:
		return c.lease
	case takenInKey{}: // that is said of the lease, not of what is taken in its Context
		return nil
	}
	return c.Context.Value(key)
}
