package lock

import (
	"context"

	"github.com/lockdog/lockdog/lock/internal/script"
)

// fairKind is Redisson's RFairLock.
var fairKind = &kind{
	name:    "fair",
	acquire: script.FairAcquire, release: script.FairRelease, retain: script.FairRetain,
	force: script.FairForce, inspect: script.FairInspect,
	channel:       script.Channel,
	queuesInRedis: true, queuePerWaiter: true,
}

// FairMutex is a Mutex whose waiters are served in the order in which their requests reached Redis, whatever their
// process. It shares its lock and its queue with Redisson's RFairLock.
//
// Every waiter has a place in Redis's queue. It keeps the place by asking again every third of its lease. A waiter that
// gives up leaves its place at once. The place of a waiter that died is free when it hasn't asked for one lease (30 s
// unless WithLease or WithFixedLease say otherwise), or for the rest of its WithWait if that is shorter. Until then the
// lock may be free, but nobody else in the queue gets it. Places expire by Redis's clock. Of the waiters in the queue,
// a release wakes only the next one, or, if nobody listens for that one, one behind it.
//
// The order has a price: a turn that was waited for costs six commands at least (three questions, SUBSCRIBE,
// UNSUBSCRIBE, the release), and nothing is handed over within a process. Use a Mutex unless the order matters.
//
// Redis keeps the order in memory: a failover may lose places. A waiter goes to the end if it lost its place, if its
// requests went unanswered for a whole lease, or if too few replicas confirmed its grant (WithReplicas). A queue that
// nobody uses any more expires 12 to 24 hours after the last deadline in it, unless only waiters of Redisson are left.
//
// A Mutex, a Multi, a Mutex of a Quorum and Redisson's RLock of the same name exclude the FairMutex, but their waiters
// aren't in the queue: after a release, the first one that asks gets the lock. A release by lockdog wakes one or all of
// the waiters of the other kinds, and the next waiter in the queue. (If the queue has only waiters of Redisson, only
// the release of a FairMutex wakes the next.) A release by Redisson wakes only waiters of its own kind: behind an
// RLock, a waiter for a FairMutex asks every third of its lease; behind an RFairLock, a waiter for a Mutex asks when
// the holder's lease should have run out.
type FairMutex struct{ lock }

var _ Locker = (*FairMutex)(nil)

// FairMutex describes the fair lock with a name. It does no I/O and never fails: if the name or an option is invalid,
// the first use returns an error that matches ErrInvalid.
func (c *Client) FairMutex(name string, opts ...LockOption) *FairMutex {
	return &FairMutex{c.describe(fairKind, name, opts)}
}

// TryLock takes the lock if it is free and no waiter is in the queue. Otherwise it fails with a *HeldError, which
// matches ErrHeld. If the lock is free and it is another waiter's turn, Owner is "". Other errors are those of
// Mutex.TryLock.
func (m *FairMutex) TryLock(ctx context.Context) (*Lease, error) { return m.base().acquire(ctx, false) }

// Lock takes the lock when its turn in the queue has come. Otherwise it is like Mutex.Lock.
func (m *FairMutex) Lock(ctx context.Context) (*Lease, error) { return m.base().acquire(ctx, true) }

// Do runs fn under the lock, with the lease's Context, and releases it. See the function Do for what it returns.
func (m *FairMutex) Do(ctx context.Context, fn func(ctx context.Context, l *Lease) error) error {
	return do(ctx, m, fn)
}

// TryDo is Do if TryLock can take the lock. If not, it returns the error of TryLock, and doesn't call fn.
func (m *FairMutex) TryDo(ctx context.Context, fn func(ctx context.Context, l *Lease) error) error {
	return tryDo(ctx, m, fn)
}

// Inspect says who holds the lock, as Mutex.Inspect does.
func (m *FairMutex) Inspect(ctx context.Context) (Holder, error) { return m.base().inspect(ctx) }

// ForceUnlock takes the lock away from its holder, and wakes the same waiters as a release. Otherwise it is like
// Mutex.ForceUnlock.
func (m *FairMutex) ForceUnlock(ctx context.Context) (bool, error) {
	return m.base().forceUnlock(ctx, callerOf())
}

func (m *FairMutex) base() *lock {
	if m == nil {
		return nil
	}
	return &m.lock
}
