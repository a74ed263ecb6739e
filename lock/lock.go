package lock

import (
	"context"
	"errors"
	"fmt"

	"github.com/lockdog/lockdog/lock/internal/redisfail"
	"github.com/lockdog/lockdog/telemetry"
)

// Locker is a lock that gives a Lease: Mutex, FairMutex, Multi, QuorumMutex, Semaphore, and each side of an RWMutex.
// The RWMutex itself is its write side, its RLocker the read side.
type Locker interface {
	// TryLock takes the lock if that is possible at once. If it is held, the error matches ErrHeld.
	TryLock(ctx context.Context) (*Lease, error)
	// Lock takes the lock. It waits for it until ctx ends or WithWait is over.
	Lock(ctx context.Context) (*Lease, error)
	// Do runs fn under the lock, and then releases it.
	Do(ctx context.Context, fn func(ctx context.Context, l *Lease) error) error
}

// lock is what the descriptions of all kinds share: which lock it is, and how to take it.
type lock struct {
	c       *Client
	kind    *kind
	name    string
	key     string // in Redis: the client's prefix and the name
	counter any    // the key of the token counter, boxed; nil: err is set, or it is a Multi or a Quorum as a whole
	cfg     *lockConfig
	tel     telemetry.Lock
	err     error // why the Client, the name or an option is invalid; nil: all are valid
}

// describe returns a lock of kind k. If the Client, the name or an option is invalid, its err says so.
func (c *Client) describe(k *kind, name string, opts []LockOption) lock {
	if !c.initialized() {
		return lock{name: name, err: fmt.Errorf("%w: lock %q: the Client is nil, or not made by New", ErrInvalid, name)}
	}
	lk := lock{c: c, kind: k, name: name, key: c.cfg.prefix + name, cfg: c.cfg.lock.with(opts, k)}
	switch {
	case lk.cfg.err != nil:
		lk.err = fmt.Errorf("%w: lock %q: %w", ErrInvalid, name, lk.cfg.err)
	case len(opts) > 0 && k.leaseless && lk.cfg.aboutLease():
		lk.err = fmt.Errorf("%w: %s %q: WithFixedLease, WithMaxHold, WithHeartbeat and WithTakeoverDelay are about leases, and it has none",
			ErrInvalid, k.words(), name)
	case lk.cfg.minHoldSet && len(opts) > 0 && k.retain == nil:
		lk.err = fmt.Errorf("%w: %s %q: WithMinHold is for a Mutex, a FairMutex, a Multi and the mutex of a Quorum",
			ErrInvalid, k.words(), name)
	case lk.cfg.breaks && c.cfg.graphAfter == 0:
		lk.err = fmt.Errorf("%w: lock %q: WithDeadlockBreaking: the client has WithWaitGraph(0), and so looks for no deadlocks",
			ErrInvalid, name)
	case name == "": // checkName(lk.key) wouldn't notice it if the client has a key prefix
		lk.err = checkName(name)
	default:
		lk.err = checkName(lk.key)
	}
	if lk.err != nil {
		return lk
	}
	if limit := c.backend.Timeout(); lk.cfg.replicaWait >= limit {
		lk.err = fmt.Errorf("%w: lock %q: WithReplicas(%d, %v): must be shorter than the ReadTimeout of the Redis client, %v",
			ErrInvalid, name, lk.cfg.replicas, lk.cfg.replicaWait, limit)
		return lk
	}
	lk.counter = c.counterOf(lk.key, lk.cfg)
	lk.tel = c.rec.Lock(name, k.name, lk.cfg.group, lk.cfg.spans)
	return lk
}

// call runs f, an operation other than taking the lock, unless the lock can't be used with ctx (see usable) or the
// client closes.
func (lk *lock) call(ctx context.Context, op string, f func() error) error {
	if err := lk.usable(ctx, op); err != nil {
		return err
	}
	if !lk.c.gate.enter() {
		return lk.wrap(op, ErrClosed)
	}
	defer lk.c.gate.leave()
	return lk.wrap(op, f())
}

// usable returns why the lock can't be used with ctx, nil if it can.
func (lk *lock) usable(ctx context.Context, op string) error {
	switch {
	case lk != nil && lk.err != nil:
		return lk.err
	case lk == nil || lk.c == nil:
		return fmt.Errorf("%w: a lock is made by a Client, as by Client.Mutex", ErrInvalid)
	case ctx == nil:
		return fmt.Errorf("%w: lock %q: ctx is nil", ErrInvalid, lk.name)
	case ctx.Err() != nil:
		return lk.wrap(op, context.Cause(ctx))
	}
	return nil
}

// takeable returns why the lock can't be taken with ctx, nil if it can.
func (lk *lock) takeable(ctx context.Context) error {
	if err := lk.usable(ctx, "acquire"); err != nil {
		return err
	}
	if lc := lk.cfg.leaseCtx; lc != nil && lc.Err() != nil {
		return lk.wrap("acquire", leaseContextEnded(lc))
	}
	return nil
}

// bounded returns the ctx to take the lock with. With WithLifetime it also ends when the context that the lease is to
// follow ends, because the lease would then be canceled at once. The lease itself doesn't follow it: see parentOf.
func (lk *lock) bounded(ctx context.Context) (_ context.Context, stop func()) {
	lc := lk.cfg.leaseCtx
	if lc == nil {
		return ctx, func() {}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	unfollow := context.AfterFunc(lc, func() { cancel(leaseContextEnded(lc)) })
	return ctx, func() {
		unfollow()
		cancel(nil)
	}
}

// wrap adds the operation and the lock's name to an error that lacks them.
func (lk *lock) wrap(op string, err error) error {
	if errors.Is(err, ErrInvalid) { // its text has the name
		return err
	}
	if foreign := lk.foreign(op, err); foreign != nil {
		return foreign
	}
	if lk.kind.leaseless {
		return wrapNamed(lk.kind.words(), lk.name, op, err)
	}
	return wrapError(lk.name, op, err)
}

// wrapRelease is wrap for a release that failed. If ctx ended meanwhile because another lease was lost, the error
// doesn't match ErrLost.
func (lk *lock) wrapRelease(err error) error {
	if !errors.Is(err, ErrLost) {
		return lk.wrap("release", err)
	}
	what := fmt.Sprintf("lockdog: lock %q: release", lk.name)
	if redisfail.IsUnavailable(err) {
		return &unavailableError{what, othersLoss{err}}
	}
	return fmt.Errorf("%s: %w", what, othersLoss{err})
}

func wrapError(name, op string, err error) error { return wrapNamed("lock", name, op, err) }

// wrapNamed adds the operation, and what it was applied to, such as a lock, to an error that lacks them.
func wrapNamed(what, name, op string, err error) error {
	var held *HeldError
	var lost *LostError
	var replicas *ReplicasError
	var deadlock *DeadlockError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &held), errors.As(err, &replicas), errors.As(err, &deadlock):
		return err
	case redisfail.IsUnavailable(err):
		return &unavailableError{fmt.Sprintf("lockdog: %s %q: %s", what, name, op), err}
	case errors.As(err, &lost):
		return err
	}
	return fmt.Errorf("lockdog: %s %q: %s: %w", what, name, op, err)
}

// node returns the server where the lock lives.
func (lk *lock) node() string { return lk.c.backend.Node(lk.key) }

// atNode adds to an error the node where it occurred.
func atNode(node string, err error) error { return fmt.Errorf("at %s: %w", node, err) }
