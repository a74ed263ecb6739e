package lock

import (
	"context"

	"github.com/lockdog/lockdog/lock/internal/script"
)

// The two sides of Redisson's RReadWriteLock. They share keys and the line in which this client's waiters stand.
var (
	writeKind = &kind{
		name:    "write",
		acquire: script.WriteAcquire, release: script.WriteRelease, force: script.RWForce, inspect: script.RWInspect,
		channel:     script.RWChannel,
		ownerSuffix: script.WriteSuffix, holding: script.HoldsMark,
		queuesInRedis: true, // so that new readers wait for it
	}
	readKind = &kind{
		name:    "read",
		acquire: script.ReadAcquire, release: script.ReadRelease, force: script.RWForce, inspect: script.RWInspect,
		channel:        script.RWChannel,
		downgradesFrom: writeKind, holding: script.HoldsMark,
		wakesNextOnGrant: true,
	}
)

// RWMutex describes a lock that either one writer holds, or any number of readers: Redisson's RReadWriteLock. Lock, TryLock
// and Do are the writer's, RLock, TryRLock and RDo the readers'; each reader has a Lease of its own, with a token of its
// own. Like a Mutex it holds no state. The Leases of both sides, their telemetry and their errors are those of a Mutex, but
// for what is said here; lockdog.kind is "write" or "read".
//
// # Who goes first
//
// A writer that waits keeps new readers out, so that it gets the lock when those who have it now have left, however many
// come after them; a waiter that dies does so for one lease at most. When a writer leaves, the lock is open to all who
// wait. If a reader is the first, then all readers that have waited since before the writer left get in with it, also past
// writers that wait. So neither side starves the other. The order among writers, and whether the next is a writer or the
// readers, is for Redis and the network to say. In one client all wait in one line, in the order they came. TryLock and
// TryRLock may overtake that line, but no TryRLock gets past a writer that waits.
//
// Redisson's readers know nothing of that: they get in whenever another reader is in. A steady overlap of them starves
// writers, Go's as well as Java's. And Redisson's writer, when it reads on, tells nobody: who waits here to read notices
// when the lease that it has seen is over.
//
// # From write to read, and not back
//
// RLock with a ctx from the Context of the live write lease gives a read lease at once; then the write lease may be
// released and the read lease stays. It then follows the ctx that the write lease followed, unless WithLifetime says
// otherwise. The reverse can't be: Lock with a ctx from a live read lease fails at once, with an error that matches
// ErrDeadlock, for it would wait for itself. RLock within a read lease, as Lock within a write lease, is re-entry: it joins
// the lease with WithReentrancy, and is ErrDeadlock without. Like a sync.RWMutex, a reader that takes the read lock once
// more without the ctx of its lease waits for a writer that waits for it.
//
// # What it costs
//
// Taking and releasing is a call each, and a renewal one more key, as for a Mutex; there is no hand-over within a client.
// What Redis does for the release of a read lease, and for a writer that is refused, grows with the readers up to 64, by
// about 3 µs each, and no further.
//
// # Limits
//
// A holder in Java keeps the lock's entry for Redisson's lockWatchdogTimeout only, whatever the leases of others: where
// Java shares the lock, leases here should be no longer than that (both are 30s by default), lest its crash end them early.
//
// The scripts need several keys at once, and those of a slot that moves to another node of a cluster can't be had together.
// Until it has moved, taking and releasing fail as they do when Redis fails: they are tried again for a while, waiters for
// a lease; TRYAGAIN is then in the error. Leases that are held live on if their keys move within a lease.
//
// The name can't be that of another kind of lock at the same time: that is ErrInvalid.
type RWMutex struct{ write, read lock }

var _ Locker = (*RWMutex)(nil)

// RWMutex describes the read-write lock with a name. It does no I/O and never fails: what is wrong with the name or the
// options is the error, matching ErrInvalid, of the first use.
func (c *Client) RWMutex(name string, opts ...LockOption) *RWMutex {
	return &RWMutex{c.describe(writeKind, name, opts), c.describe(readKind, name, opts)}
}

// TryLock takes the lock for writing if nobody holds it. It doesn't wait: it fails with a *HeldError, matching ErrHeld, that
// names the writer, or one of the readers. Other errors are as for Mutex.TryLock.
func (m *RWMutex) TryLock(ctx context.Context) (*Lease, error) { return m.writer().acquire(ctx, false) }

// Lock takes the lock for writing. It waits until those who hold it have left, and keeps new readers out meanwhile. The
// lease follows ctx, and the errors are as for Mutex.Lock.
func (m *RWMutex) Lock(ctx context.Context) (*Lease, error) { return m.writer().acquire(ctx, true) }

// Do runs fn under the write lock, with the lease's Context, and releases it. See the function Do for what it returns.
func (m *RWMutex) Do(ctx context.Context, fn func(ctx context.Context, l *Lease) error) error {
	return do(ctx, m, fn)
}

// TryDo is Do if the write lock can be had at once. If not, it fails as TryLock does, and doesn't call fn.
func (m *RWMutex) TryDo(ctx context.Context, fn func(ctx context.Context, l *Lease) error) error {
	return tryDo(ctx, m, fn)
}

// TryRLock takes the lock for reading unless a writer holds it or waits for it. It doesn't wait: it fails with a *HeldError,
// matching ErrHeld, that names this writer. Other errors are as for Mutex.TryLock.
func (m *RWMutex) TryRLock(ctx context.Context) (*Lease, error) {
	return m.reader().acquire(ctx, false)
}

// RLock takes the lock for reading. It waits for the writer that holds the lock, and for writers that wait already. The
// lease follows ctx, and the errors are as for Mutex.Lock.
func (m *RWMutex) RLock(ctx context.Context) (*Lease, error) { return m.reader().acquire(ctx, true) }

// RDo runs fn under the read lock, with the lease's Context, and releases it. See the function Do for what it returns.
func (m *RWMutex) RDo(ctx context.Context, fn func(ctx context.Context, l *Lease) error) error {
	return do(ctx, m.RLocker(), fn)
}

// TryRDo is RDo if the lock can be had at once. If not, it fails as TryRLock does, and doesn't call fn.
func (m *RWMutex) TryRDo(ctx context.Context, fn func(ctx context.Context, l *Lease) error) error {
	return tryDo(ctx, m.RLocker(), fn)
}

// RLocker is the read lock as a Locker: its methods are TryRLock, RLock and RDo.
func (m *RWMutex) RLocker() Locker { return readers{m} }

// Inspect says who holds the lock, as writer or as reader (Holder.Mode), for how long yet, and how many readers there are.
// A free lock is no error: Holder.Held is false.
func (m *RWMutex) Inspect(ctx context.Context) (Holder, error) { return m.writer().inspect(ctx) }

// ForceUnlock frees the lock whoever holds it, the writer or all readers, and wakes who waits for it. It reports whether the
// lock was held. Each holder in a lockdog client is told, as by Mutex.ForceUnlock.
func (m *RWMutex) ForceUnlock(ctx context.Context) (bool, error) {
	return m.writer().forceUnlock(ctx, callerOf())
}

func (m *RWMutex) writer() *lock {
	if m == nil {
		return nil
	}
	return &m.write
}

func (m *RWMutex) reader() *lock {
	if m == nil {
		return nil
	}
	return &m.read
}

// readers is the read side as a Locker.
type readers struct{ m *RWMutex }

// TryLock implements Locker.
func (r readers) TryLock(ctx context.Context) (*Lease, error) { return r.m.TryRLock(ctx) }

// Lock implements Locker.
func (r readers) Lock(ctx context.Context) (*Lease, error) { return r.m.RLock(ctx) }

// Do implements Locker.
func (r readers) Do(ctx context.Context, fn func(ctx context.Context, l *Lease) error) error {
	return r.m.RDo(ctx, fn)
}
