package lock

import (
	"context"

	"github.com/lockdog/lockdog/lock/internal/script"
)

// fairKind is Redisson's RFairLock.
var fairKind = &kind{
	name:    "fair",
	acquire: script.FairAcquire, release: script.FairRelease, retain: script.FairRetain, force: script.FairForce, inspect: script.FairInspect,
	channel:       script.Channel,
	queuesInRedis: true, queuePerWaiter: true,
}

// FairMutex is a Mutex whose waiters are served in the order in which their requests reached Redis, whatever their process.
// It shares its lock and its queue with Redisson's RFairLock.
//
// Every waiter has a place in Redis, which it keeps by asking again every third of its lease. One that gives up leaves
// it at once; one that died, when it hasn't asked for one lease (30 s unless WithLease or WithFixedLease say
// otherwise), or for the rest of its WithWait if that is shorter. Until then the lock may be free and yet wait for it. All
// times are those of Redis's clock. A release wakes the next in the queue only.
//
// That order costs: a turn that was waited for takes six commands (three questions, SUBSCRIBE, UNSUBSCRIBE, the release), and nothing is
// handed over inside a process. Use a Mutex unless the order matters.
//
// The order is that of Redis's memory: a failover may lose places. A waiter that lost its place, or whose requests went unanswered for a whole
// lease, goes to the end. The queue expires one day after the last deadline in it, unless only Redisson's waiters are left.
//
// A Mutex, a Multi, a Mutex of a Quorum and Redisson's RLock of the same name exclude the FairMutex, but stand in no queue: after a release,
// whoever asks first gets the lock. A release of lockdog's wakes the next in the queue and the waiters of the other kinds. A release of
// Redisson's wakes waiters of its own kind only: behind an RLock a waiter for a FairMutex asks every third of its lease, and behind
// an RFairLock a waiter for a Mutex asks when the holder's lease should have run out.
type FairMutex struct{ lock }

var _ Locker = (*FairMutex)(nil)

// FairMutex describes the fair lock with a name. It does no I/O and never fails: what is wrong with the name or the options
// is the error, matching ErrInvalid, of the first use.
func (c *Client) FairMutex(name string, opts ...LockOption) *FairMutex {
	return &FairMutex{c.describe(fairKind, name, opts)}
}

// TryLock takes the lock if it is free and nobody waits for it. Otherwise it fails with a *HeldError, matching ErrHeld; its Owner is
// "" when the lock is free and somebody else's turn. Other errors are those of Mutex.TryLock.
func (m *FairMutex) TryLock(ctx context.Context) (*Lease, error) { return m.base().acquire(ctx, false) }

// Lock takes the lock when all who came before have had it. Else it is as Mutex.Lock.
func (m *FairMutex) Lock(ctx context.Context) (*Lease, error) { return m.base().acquire(ctx, true) }

// Do runs fn under the lock, with the lease's Context, and releases it. See the function Do for what it returns.
func (m *FairMutex) Do(ctx context.Context, fn func(ctx context.Context, l *Lease) error) error {
	return do(ctx, m, fn)
}

// TryDo is Do if the lock can be had at once. If not, it fails as TryLock does, and doesn't call fn.
func (m *FairMutex) TryDo(ctx context.Context, fn func(ctx context.Context, l *Lease) error) error {
	return tryDo(ctx, m, fn)
}

// Inspect says who holds the lock, as Mutex.Inspect does.
func (m *FairMutex) Inspect(ctx context.Context) (Holder, error) { return m.base().inspect(ctx) }

// ForceUnlock frees the lock whoever holds it, and wakes the waiters that a release wakes. Else it is as Mutex.ForceUnlock.
func (m *FairMutex) ForceUnlock(ctx context.Context) (bool, error) {
	return m.base().forceUnlock(ctx, callerOf())
}

func (m *FairMutex) base() *lock {
	if m == nil {
		return nil
	}
	return &m.lock
}
