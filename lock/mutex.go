package lock

import (
	"context"

	"github.com/lockdog/lockdog/lock/internal/script"
)

// mutexKind is Redisson's RLock.
var mutexKind = &kind{
	name:    "mutex",
	acquire: script.Acquire, release: script.Release, retain: script.Retain,
	force: script.Force, inspect: script.Inspect,
	handOver:    script.HandOver,
	channel:     script.Channel,
	usesWaitSet: true, oneKey: true,
}

// Mutex describes a lock: its name and how to take it. A Mutex holds no state: make one for every use, or share it.
type Mutex struct{ lock }

var _ Locker = (*Mutex)(nil)

// Mutex describes the lock called name. The name must not be empty. Prefix and name together must be at most 1,024
// bytes of valid UTF-8. Braces are allowed only if prefix and name together contain a non-empty {hash tag} and
// something beside it. Some texts that lockdog and Redisson use in their own keys are reserved, such as
// "lockdog:fence:".
//
// Mutex does no I/O and never fails. The first use reports an invalid name or option with ErrInvalid.
func (c *Client) Mutex(name string, opts ...LockOption) *Mutex {
	return &Mutex{c.describe(mutexKind, name, opts)}
}

// TryLock takes the lock if it is free. Otherwise it fails at once with a *HeldError, which matches ErrHeld. If Redis
// fails, or is silent for the ReadTimeout, TryLock asks up to four times in all. If that doesn't help, it fails with
// ErrUnavailable within a third of the lease, 5 s at most; with WithWait(d), within d and one second. It also ends when
// ctx ends.
//
// Other errors: ErrDeadlock if ctx descends from the Context of a live lease of this lock (see WithReentrancy); a
// *ReplicasError (WithReplicas); ErrClosed; ErrInvalid; the cause of ctx if ctx ended; or else what Redis answered, or
// why it didn't.
func (m *Mutex) TryLock(ctx context.Context) (*Lease, error) { return m.base().acquire(ctx, false) }

// Lock takes the lock. It waits for it until ctx ends or WithWait is over. A wait costs Redis little: for each client
// that waits, two subscriptions and, as a rule, one question for each holder. If a holder stays longer than its lease,
// the client asks again around the end of each lease. As a rule, a release grants the lock to one waiter, or wakes one:
// the first waiter of the client that has waited longest. Otherwise it wakes the first waiter of each client. Calls of
// one client are served in order.
//
// The lease follows ctx: when ctx ends, the Context of the lease ends. To bound only the wait, see WithWait and
// WithLifetime.
//
// If WithWait is over, the error is a *HeldError. If ctx ended during the wait, the error matches ErrHeld and the cause
// of ctx. In both cases, if the last question to Redis failed, the error has that failure in place of ErrHeld. Other
// errors are those of TryLock, and a *DeadlockError (WithDeadlockBreaking).
//
// Temporary refusals of Redis (READONLY, NOREPLICAS, LOADING and the like) are waited out, for about one lease. While
// Redis doesn't answer, a new call asks up to four times; a call that already waits goes on for one lease before it
// gives up.
func (m *Mutex) Lock(ctx context.Context) (*Lease, error) { return m.base().acquire(ctx, true) }

// Do runs fn under the lock, with the lease's Context, and releases it. See the function Do for what it returns.
func (m *Mutex) Do(ctx context.Context, fn func(ctx context.Context, l *Lease) error) error {
	return do(ctx, m, fn)
}

// TryDo is Do if the lock can be taken at once. If not, it fails as TryLock does, and doesn't call fn.
func (m *Mutex) TryDo(ctx context.Context, fn func(ctx context.Context, l *Lease) error) error {
	return tryDo(ctx, m, fn)
}

// Inspect returns who holds the lock, and what is left of the lease. If the lock is free, Holder.Held is false.
func (m *Mutex) Inspect(ctx context.Context) (Holder, error) { return m.base().inspect(ctx) }

// ForceUnlock takes the lock away from its holder, and wakes the waiters. It reports whether the lock was held. Each
// call that took a lock away is logged as a warning.
//
// A holder in a lockdog client loses its lease within milliseconds, with CauseForced and the id of the client that
// called, if its client's subscription works. That subscription is made with the client's first grant. Otherwise the
// holder learns of the loss at its next renewal. A holder whose lease isn't renewed (WithFixedLease) learns of it when
// it releases, or when the lease runs out. Only tokens stop what it does until then.
//
// If Redis's answer is lost, ForceUnlock fails with ErrUnavailable, though it may have freed the lock. It isn't
// repeated, because it might take the lock from the next holder, too.
func (m *Mutex) ForceUnlock(ctx context.Context) (bool, error) {
	return m.base().forceUnlock(ctx, callerOf())
}

func (m *Mutex) base() *lock {
	if m == nil {
		return nil
	}
	return &m.lock
}
