package lock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Lease is the handle of a lock that was granted: of one grant or, for a Multi or a Quorum, of several. All its methods
// may be called from any goroutine.
//
// A lease ends when it is released, when it is lost, or when its Client is closed and gives it up. It may be canceled
// before that: then its Context ends, and the rest of the lease is time to stop and release. A canceled lease isn't
// renewed any more, unless another lease that shares its grant is live (WithReentrancy), or Client.Close canceled it:
// then it is renewed until it is released, or Close gives up.
//
// A Lease must not be copied. A nil or zero Lease has ended: its Err, the error of Release and the cause of its Context
// match ErrInvalid.
type Lease struct {
	_ noCopy

	target    leaseTarget
	composite *compositeLease // that this lease is a member of; nil for most
	parent    context.Context // when it ends, the lease is canceled, or follows another one: see nextParent

	// These, composite and parent are guarded by target.handleMu.
	cause    error         // why Context ended
	work     *leaseContext // Context; created on first use
	ended    chan struct{} // Ended; created on first use
	unfollow func() bool   // stops following parent
}

// noCopy makes go vet report copies of a struct that has it as a field.
type noCopy struct{}

func (*noCopy) Lock()   {}
func (*noCopy) Unlock() {}

// leaseTarget is what a Lease is a handle of: a grant, or a compositeLease. A grant has several handles if other calls
// joined it (WithReentrancy). Methods with a Lease parameter act on that handle.
type leaseTarget interface {
	facts

	// find returns the handle for the lock of a client with that key. Its grant is nil if there is none.
	find(l *Lease, c *Client, key string) grantHandle
	// grants calls f for each grant of a handle.
	grants(l *Lease, f func(grantHandle))
	// loseIfExpired ends what has expired by the clock, or was found lost by the watchdog.
	loseIfExpired()
	// parentEnded is called when a context that the handle follows has ended.
	parentEnded(l *Lease)
	releaseLease(ctx context.Context, l *Lease) error

	// handleMu guards the fields of the handles. The methods below are called with it held.
	handleMu() *sync.Mutex
	// handleErr returns what Lease.Err returns.
	handleErr(l *Lease) error
	// handleEnded reports whether Lease.Ended is closed.
	handleEnded(l *Lease) bool
}

// Name is the lock's name, without the client's key prefix. The names of a Multi are joined by commas, in the order in
// which they are taken.
func (l *Lease) Name() string { return l.of().lockName() }

// Owner identifies this grant in Redis: "<client id>:<random>-<seq>", followed by ":write" for the write lease of an
// RWMutex. For a Multi it is the owner of one of the names, for a Quorum the owner at one of the nodes.
func (l *Lease) Owner() string { return l.of().owner() }

// Token is the grant's fencing token. It is larger than the token of every earlier grant of the same name, as long as
// no server that answers has a clock behind a token that it, or a server that it replaced, issued. A store that
// remembers the largest token it has seen, and refuses smaller ones, is safe from holders that don't know yet that they
// lost the lock.
//
// The token of a Multi is the largest of the tokens of its names. It rises from one grant of the same names to the
// next. Protect the data of one name by the token of that name: see Tokens.
//
// Semaphores, and the readers of an RWMutex, have several live leases at a time, each with its own token. A store that
// refuses smaller tokens would refuse live holders. So check the tokens of writers only.
func (l *Lease) Token() int64 { return l.of().token() }

// Tokens returns the tokens by name: one for each name of a Multi, one for any other lock.
func (l *Lease) Tokens() map[string]int64 { return l.of().tokens() }

// Deadline is the time until which this process trusts the lease without another renewal. Each renewal moves it. A lock
// that a release by another client granted is trusted for 3 s at most until its first renewal, which comes within half
// a second. Deadline isn't cleared when the lease ends: Context and Err say whether the lease is still trusted.
func (l *Lease) Deadline() time.Time { return l.of().deadline() }

// Heartbeat reports that the work under the lock makes progress. It has an effect only with WithHeartbeat.
func (l *Lease) Heartbeat() { l.of().heartbeat() }

// Context is the permission to work under the lock. It has the values, and the deadline, of the ctx given to Lock (or
// WithLifetime). It ends at the lease's deadline at the latest, even if Redis doesn't answer. Its cause (context.Cause)
// is a *LostError, a *CanceledError or ErrReleased.
func (l *Lease) Context() context.Context {
	if l.isZero() {
		return noContext
	}
	mu := l.target.handleMu()
	mu.Lock()
	defer mu.Unlock()
	if l.work == nil {
		base, cancel := context.WithCancelCause(context.WithoutCancel(l.parent))
		l.work = &leaseContext{Context: base, cancel: cancel, lease: l}
		if l.cause != nil {
			cancel(l.cause)
		}
	}
	return l.work
}

// Ended returns a channel that is closed when Release is called (before Redis has confirmed it), when the lease is
// lost, or when a closed client gives it up. The span, the metric and the log of a loss come before the loss closes the
// channel. For the lease of a Multi or a Quorum they may come later.
func (l *Lease) Ended() <-chan struct{} {
	if l.isZero() {
		return noContext.Done()
	}
	mu := l.target.handleMu()
	mu.Lock()
	defer mu.Unlock()
	if l.ended == nil {
		l.ended = make(chan struct{})
		if l.target.handleEnded(l) {
			close(l.ended)
		}
	}
	return l.ended
}

// Err returns nil while the lease lives, then ErrReleased, a *LostError, or an error that matches ErrClosed.
func (l *Lease) Err() error {
	if l.isZero() {
		return errNoLease
	}
	l.target.loseIfExpired()
	mu := l.target.handleMu()
	mu.Lock()
	defer mu.Unlock()
	return l.target.handleErr(l)
}

// Release ends the lease, and frees the lock unless other leases share its grant (WithReentrancy): then the last
// Release frees it. Release also works on a ctx that has ended, and then takes no longer than the rest of the lease.
// Otherwise it returns when ctx ends at the latest. If Redis hasn't confirmed the release by then, the client goes on
// trying. The last Release stops the renewal first. Whatever it returns, the lock is free one lease later, or when
// WithMinHold or WithTakeoverDelay is over, if later.
//
// The error matches ErrLost if the lock was no longer ours, ErrReleased at the second call, ErrClosed if the client was
// closed and gave up the lease or this release, and ErrInvalid if the lock's key holds something else by now, or if the
// Lease or ctx is nil (without a ctx the lease is released even so). Any other error means that Redis didn't confirm
// the release.
//
// A lease of several names or nodes releases all of them, also after it was lost. The lease of a Quorum is released
// when a majority of the nodes has confirmed; the client goes on trying the others.
func (l *Lease) Release(ctx context.Context) error {
	if l.isZero() {
		return errNoLease
	}
	if ctx == nil {
		return errors.Join(
			fmt.Errorf("%w: lock %q: Release(nil): a ctx is needed; released with context.Background",
				ErrInvalid, l.Name()),
			l.Release(context.Background()))
	}
	return l.target.releaseLease(ctx, l)
}

// follows returns the context that the lease follows.
func (l *Lease) follows() context.Context {
	mu := l.target.handleMu()
	mu.Lock()
	defer mu.Unlock()
	return l.parent
}

// endContext ends the lease's context. Only the first cause counts. handleMu must be held.
func (l *Lease) endContext(cause error) {
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
	if l.composite != nil {
		l.composite.memberContextEnded(l, cause)
	}
}

// closeEnded closes the channel of Ended. handleMu must be held.
func (l *Lease) closeEnded() {
	if l.ended == nil {
		return
	}
	select {
	case <-l.ended:
	default:
		close(l.ended)
	}
}

type leaseKey struct{}

// leaseOf returns the lease whose Context ctx descends from, nil if there is none.
func leaseOf(ctx context.Context) *Lease {
	l, _ := ctx.Value(leaseKey{}).(*Lease)
	return l
}

type takenInKey struct{}

// takenIn returns the lease in whose Context a lease with WithLifetime was taken, nil if there is none. ctx is the
// context that the lease with WithLifetime follows: see parentOf.
func takenIn(ctx context.Context) *Lease {
	l, _ := ctx.Value(takenInKey{}).(*Lease)
	return l
}

// carriedLease returns a joinable lease (see joinable) of lk's key among the leases that ctx carries, preferably one of
// lk's kind. If none is joinable, the grant of the returned handle is nil.
func carriedLease(ctx context.Context, lk *lock) (found grantHandle) {
	carried(ctx, lk, func(l *Lease) (more bool) {
		h := l.target.find(l, lk.c, lk.key)
		switch {
		case h.g == nil || !h.joinable():
		case h.g.lock.kind == lk.kind:
			found = h
			return false
		case found.g == nil:
			found = h
		}
		return true
	})
	return found
}

// carried calls f for each lease that ctx carries, until f returns false. These are the leases from whose Context ctx,
// or the ctx of lk's WithLifetime, descends, and the leases in whose Context one of these was taken (see takenIn).
// Along each chain of contexts the innermost lease comes first. Leases may have ended.
func carried(ctx context.Context, lk *lock, f func(l *Lease) (more bool)) {
	var forks []*Lease       // where other chains begin
	var seen map[*Lease]bool // chains may meet
	l := leaseOf(ctx)
	if lc := lk.cfg.leaseCtx; lc != nil {
		forks = append(forks, leaseOf(lc))
	}
	for {
		for l != nil && !seen[l] {
			if !f(l) {
				return
			}
			if seen != nil {
				seen[l] = true
			}
			parent := l.follows()
			if in := takenIn(parent); in != nil {
				forks = append(forks, in)
			}
			l = leaseOf(parent)
		}
		last := len(forks) - 1
		if last < 0 {
			return
		}
		if seen == nil {
			seen = make(map[*Lease]bool)
		}
		l, forks = forks[last], forks[:last]
	}
}

// mayJoin reports whether lk may join a grant: lk needs WithReentrancy, and only a reader joins the grant of a reader.
func (lk *lock) mayJoin(g *grant) bool {
	return lk.cfg.reentrant && (!g.lock.kind.shared || g.lock.kind == lk.kind)
}

// leaseContext is Lease.Context. Its Err doesn't depend on timers, which fire late in a process that was stopped or
// starved: it checks the clock itself. Its Deadline is that of the parent, not the lease's, which moves with each
// renewal: gRPC and SQL drivers would read it once and keep it.
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
	c.lease.target.loseIfExpired()
	if c.lease.follows().Err() != nil {
		c.lease.target.parentEnded(c.lease)
	}
	return c.Context.Err()
}

// Value implements context.Context.
func (c *leaseContext) Value(key any) any {
	switch key {
	case leaseKey{}:
		return c.lease
	case takenInKey{}: // that value is about this lease, not about the leases that are taken in its Context
		return nil
	}
	return c.Context.Value(key)
}
