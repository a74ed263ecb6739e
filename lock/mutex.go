package lock

import (
	"context"

	"github.com/lockdog/lockdog/lock/internal/script"
)

// mutexKind is Redisson's RLock.
var mutexKind = &kind{
	name:    "mutex",
	acquire: script.Acquire, release: script.Release, retain: script.Retain, force: script.Force, inspect: script.Inspect,
	handOver:    script.HandOver,
	channel:     script.Channel,
	usesWaitSet: true, oneKey: true,
}

// Mutex describes a lock: its name and how to take it. It holds no state; taking it gives a Lease. It may be made for every
// use, or shared freely.
type Mutex struct{ lock }

var _ Locker = (*Mutex)(nil)

// Mutex describes the lock called name. The name must not be empty. Prefix and name together must be at most 1,024 bytes of valid UTF-8. Braces are
// allowed only if they give a non-empty {hash tag}. Texts that lockdog and Redisson use in their own keys, such as "lockdog:fence:", are reserved.
//
// Mutex does no I/O and never fails: what is wrong with the name or the options is the error, matching ErrInvalid, of the first use.
func (c *Client) Mutex(name string, opts ...LockOption) *Mutex {
	return &Mutex{c.describe(mutexKind, name, opts)}
}

// TryLock takes the lock if it is free. It doesn't wait: it fails with a *HeldError, matching ErrHeld, if it isn't. Where Redis fails, or is
// silent for ReadTimeout, it asks up to four times in all. It takes no longer than WithWait and a second; without WithWait, than a third of the
// lease, 5 s at most. Then it fails with ErrUnavailable. An earlier end of ctx ends it, too.
//
// Other errors: ErrDeadlock when ctx descends from the Context of a live lease of this lock; a *ReplicasError (WithReplicas); ErrClosed;
// ErrInvalid; the cause of ctx when it ended; else what Redis answered, or why it didn't.
func (m *Mutex) TryLock(ctx context.Context) (*Lease, error) { return m.base().acquire(ctx, false) }

// Lock takes the lock, waiting for it until ctx ends or WithWait is over. A wait costs Redis little: one subscription for each client that waits,
// and one question for each lease of the holder. A release grants the lock to one waiter, the first of the process that has waited longest, or wakes
// it. In one process waiters are served in the order they came.
//
// The lease follows ctx: when it ends, the Context of the lease does. See WithWait and WithLifetime to bound the wait
// only.
//
// The error is a *HeldError when WithWait is over, or what Redis answered last if that was a failure; it matches ErrHeld and the cause of
// ctx when ctx ended while waiting; else as for TryLock.
//
// What Redis refuses for a while (READONLY, NOREPLICAS, LOADING and the like, as in a failover) is waited out, for one lease at most. While
// Redis doesn't answer, a call asks four times; one that waits already goes on for as long as a lease before it gives up.
func (m *Mutex) Lock(ctx context.Context) (*Lease, error) { return m.base().acquire(ctx, true) }

// Do runs fn under the lock, with the lease's Context, and releases it. See the function Do for what it returns.
func (m *Mutex) Do(ctx context.Context, fn func(ctx context.Context, l *Lease) error) error {
	return do(ctx, m, fn)
}

// TryDo is Do if the lock can be had at once. If not, it fails as TryLock does, and doesn't call fn.
func (m *Mutex) TryDo(ctx context.Context, fn func(ctx context.Context, l *Lease) error) error {
	return tryDo(ctx, m, fn)
}

// Inspect says who holds the lock, and for how long yet. A free lock is no error: Holder.Held is false.
func (m *Mutex) Inspect(ctx context.Context) (Holder, error) { return m.base().inspect(ctx) }

// ForceUnlock frees the lock whoever holds it, and wakes who waits for it. It reports whether the lock was held. A holder in a
// lockdog client is told within milliseconds that its lease is lost, if its subscription stands (it is made with the client's
// first grant), as CauseForced and by which client, else at its next renewal; what it does until then is for tokens to stop.
// Each call that took a lock away is logged as a warning.
func (m *Mutex) ForceUnlock(ctx context.Context) (bool, error) {
	return m.base().forceUnlock(ctx, callerOf())
}

func (m *Mutex) base() *lock {
	if m == nil {
		return nil
	}
	return &m.lock
}
