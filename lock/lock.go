package lock

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/lockdog/lockdog/lock/internal/redisfail"
	"github.com/lockdog/lockdog/telemetry"
)

// Locker is a lock that gives a Lease: Mutex, FairMutex, Multi, QuorumMutex, Semaphore, and each side of an RWMutex (the writer's is the RWMutex
// itself, the readers' is RLocker).
type Locker interface {
	// TryLock takes the lock if it can be had at once, else fails with an error that matches ErrHeld.
	TryLock(ctx context.Context) (*Lease, error)
	// Lock waits for the lock until ctx ends, or WithWait is over.
	Lock(ctx context.Context) (*Lease, error)
	// Do runs fn under the lock, and releases it.
	Do(ctx context.Context, fn func(ctx context.Context, l *Lease) error) error
}

// lock is what the descriptions of all kinds have in common: which lock it is, and how to take it.
type lock struct {
	c    *Client
	kind *kind
	name string
	key  string // in Redis: the client's prefix and the name
	cfg  *lockConfig
	tel  telemetry.Lock
	err  error // what is wrong with the name or the options
}

// describe returns the lock of a kind with a name.
func (c *Client) describe(k *kind, name string, opts []LockOption) lock {
	if !c.initialized() {
		return lock{name: name, err: fmt.Errorf("%w: lock %q: the Client is nil, or not made by New", ErrInvalid, name)}
	}
	lk := lock{c: c, kind: k, name: name, key: c.cfg.prefix + name, cfg: c.cfg.lock.with(opts, k.leaseless)}
	switch {
	case lk.cfg.err != nil:
		lk.err = fmt.Errorf("%w: lock %q: %w", ErrInvalid, name, lk.cfg.err)
	case len(opts) > 0 && k.leaseless && lk.cfg.aboutLease():
		lk.err = fmt.Errorf("%w: %s %q: WithFixedLease, WithMaxHold, WithHeartbeat and WithTakeoverDelay are about leases, and it has none", ErrInvalid, k.words(), name)
	case lk.cfg.minHoldSet && len(opts) > 0 && k.retain == nil:
		lk.err = fmt.Errorf("%w: %s %q: WithMinHold is for a Mutex, a FairMutex, a Multi and the mutex of a Quorum", ErrInvalid, k.words(), name)
	case lk.cfg.breaks && c.cfg.graphAfter == 0:
		lk.err = fmt.Errorf("%w: lock %q: WithDeadlockBreaking: the client has WithWaitGraph(0), and so looks for no deadlocks", ErrInvalid, name)
	case name == "": // whatever the prefix
		lk.err = checkName(name)
	default:
		lk.err = checkName(lk.key)
	}
	if lk.err != nil {
		return lk
	}
	if limit := c.backend.Timeout(); lk.cfg.replicaWait >= limit {
		lk.err = fmt.Errorf("%w: lock %q: WithReplicas(%d, %v): must be shorter than the ReadTimeout of the Redis client, %v", ErrInvalid, name, lk.cfg.replicas, lk.cfg.replicaWait, limit)
		return lk
	}
	lk.tel = c.rec.Lock(name, k.name, lk.cfg.group, lk.cfg.spans)
	return lk
}

// call runs an operation other than taking the lock.
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

// usable says why the lock can't be used with ctx.
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

// takeable says why the lock can't be taken with ctx.
func (lk *lock) takeable(ctx context.Context) error {
	if err := lk.usable(ctx, "acquire"); err != nil {
		return err
	}
	if lc := lk.cfg.leaseCtx; lc != nil && lc.Err() != nil {
		return lk.wrap("acquire", leaseContextEnded(lc))
	}
	return nil
}

// bounded returns the ctx to take the lock with: it ends with the one that the lease is to follow, too, as the lease would be canceled by then.
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

// wrap gives an error the lock's name, unless it has it.
func (lk *lock) wrap(op string, err error) error {
	if errors.Is(err, ErrInvalid) { // it says where
		return err
	}
	if held := (*HeldError)(nil); errors.As(err, &held) {
		held.local = strings.HasPrefix(held.Owner, lk.c.ownerHead)
	}
	if foreign := lk.foreign(op, err); foreign != nil {
		return foreign
	}
	if lk.kind.leaseless {
		return wrapNamed(lk.kind.words(), lk.name, op, err)
	}
	return wrapError(lk.name, op, err)
}

func wrapError(name, op string, err error) error { return wrapNamed("lock", name, op, err) }

// wrapNamed gives an error the name of something.
func wrapNamed(what, name, op string, err error) error {
	var held *HeldError
	var lost *LostError
	var replicas *ReplicasError
	var deadlock *DeadlockError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &held), errors.As(err, &lost), errors.As(err, &replicas), errors.As(err, &deadlock):
		return err
	}
	if redisfail.IsUnavailable(err) {
		return &unavailableError{fmt.Sprintf("lockdog: %s %q: %s", what, name, op), err}
	}
	return fmt.Errorf("lockdog: %s %q: %s: %w", what, name, op, err)
}

// node is the server where the lock lives.
func (lk *lock) node() string { return lk.c.backend.Node(lk.key) }

// atNode says at which node an error was met.
func atNode(node string, err error) error { return fmt.Errorf("at %s: %w", node, err) }
