package lock

import (
	"context"

	"github.com/lockdog/lockdog/lock/internal/script"
)

// The two sides of Redisson's RReadWriteLock. They share keys, and this client's queue of waiters.
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
		shared: true,
	}
)

// RWMutex describes a lock that is held by one writer or by any number of readers: Redisson's RReadWriteLock. Lock,
// TryLock and Do are the writer's methods, RLock, TryRLock and RDo the readers'. Each reader has a separate Lease and
// token. Like a Mutex, an RWMutex holds no state. The Leases of both sides, their telemetry and their errors are those
// of a Mutex, except for what is said here; lockdog.kind is "write" or "read".
//
// # Who goes first
//
// A waiting writer keeps new readers out. So it gets the lock when the current holders have left, however many readers
// come later. If the writer dies, readers are kept out for one lease at most. When a writer leaves, the lock is open to
// all waiters. If a reader gets the lock first, all readers that were waiting when the writer left enter, too, also
// past waiting writers of other clients. So neither side starves the other. Redis and the network decide the order of
// writers, and whether the next is a writer or the readers. Within a client all wait in one queue, in the order of
// their calls, also a reader behind a writer; readers next to each other may enter in any order. TryLock and TryRLock
// may overtake that queue, but TryRLock doesn't get past a writer whose wait Redis knows. Redis knows a wait once the
// writer is the first in its client's queue and has asked from there.
//
// Redisson's readers don't follow these rules: they enter whenever another reader is in. If they overlap all the time,
// they starve writers, Go's as well as Java's. And when Redisson's writer becomes a reader, it publishes nothing:
// readers that wait here notice it when the lease that they have seen should have ended.
//
// # From write to read, and not back
//
// RLock with a ctx from the Context of the live write lease gives a read lease at once. Then the write lease may be
// released, and the read lease stays. From then on it follows the ctx that the write lease followed, unless
// WithLifetime says otherwise. The reverse is impossible: Lock with a ctx from a live read lease would wait for itself,
// and so fails at once with an error that matches ErrDeadlock. RLock within a read lease is re-entry, as Lock within a
// write lease is: with WithReentrancy it joins the lease, without it the error matches ErrDeadlock. As with a
// sync.RWMutex, a reader that takes the lock again, without the ctx of its lease, may wait for a writer that waits for
// it.
//
// # What it costs
//
// Taking and releasing is one call each, and renewals share calls, as for a Mutex. There is no hand-over within a
// client. The work of Redis for the release of a read lease, and for a writer that is refused, grows with the readers
// up to 64, by about 3 µs each, and no further.
//
// # Limits
//
// A holder in Java keeps the lock's entry only for Redisson's lockWatchdogTimeout, whatever the leases of others. Where
// Java shares the lock, leases here should not be longer than that (both are 30s by default): a crash in Java may end
// longer ones early.
//
// The scripts need several keys at once. While a Cluster moves the slot of these keys to another node, a script can't
// use them together. Until it has moved, taking and releasing fail with TRYAGAIN. They are tried again for a while, by
// waiters for one lease, as when Redis fails. Held leases live on if their keys move within a lease.
//
// The name can't be that of another kind of lock at the same time: then the error matches ErrInvalid.
type RWMutex struct{ write, read lock }

var _ Locker = (*RWMutex)(nil)

// RWMutex describes the read-write lock with a name. It does no I/O and never fails. An invalid name or option is
// reported by the first use, as an error that matches ErrInvalid.
func (c *Client) RWMutex(name string, opts ...LockOption) *RWMutex {
	return &RWMutex{c.describe(writeKind, name, opts), c.describe(readKind, name, opts)}
}

// TryLock takes the lock for writing if nobody holds it. Otherwise it fails at once with a *HeldError, which matches
// ErrHeld and names the writer, or one of the readers. Other errors are those of Mutex.TryLock.
func (m *RWMutex) TryLock(ctx context.Context) (*Lease, error) { return m.writer().acquire(ctx, false) }

// Lock takes the lock for writing. It waits until all holders have left, and keeps new readers out meanwhile. The lease
// follows ctx, and the errors are those of Mutex.Lock.
func (m *RWMutex) Lock(ctx context.Context) (*Lease, error) { return m.writer().acquire(ctx, true) }

// Do runs fn under the write lock, with the lease's Context, and releases it. See the function Do for what it returns.
func (m *RWMutex) Do(ctx context.Context, fn func(ctx context.Context, l *Lease) error) error {
	return do(ctx, m, fn)
}

// TryDo is Do if the write lock can be taken at once. If not, it fails as TryLock does, and doesn't call fn.
func (m *RWMutex) TryDo(ctx context.Context, fn func(ctx context.Context, l *Lease) error) error {
	return tryDo(ctx, m, fn)
}

// TryRLock takes the lock for reading. If another writer holds it, or Redis knows that one waits, TryRLock fails at
// once with a *HeldError, which matches ErrHeld and names this writer. Other errors are those of Mutex.TryLock.
func (m *RWMutex) TryRLock(ctx context.Context) (*Lease, error) {
	return m.reader().acquire(ctx, false)
}

// RLock takes the lock for reading. It waits for the writer that holds the lock, and for writers that already wait. The
// lease follows ctx, and the errors are those of Mutex.Lock.
func (m *RWMutex) RLock(ctx context.Context) (*Lease, error) { return m.reader().acquire(ctx, true) }

// RDo runs fn under the read lock, with the lease's Context, and releases it. See the function Do for what it returns.
func (m *RWMutex) RDo(ctx context.Context, fn func(ctx context.Context, l *Lease) error) error {
	return do(ctx, m.RLocker(), fn)
}

// TryRDo is RDo if the lock can be taken at once. If not, it fails as TryRLock does, and doesn't call fn.
func (m *RWMutex) TryRDo(ctx context.Context, fn func(ctx context.Context, l *Lease) error) error {
	return tryDo(ctx, m.RLocker(), fn)
}

// RLocker returns the read lock as a Locker: its methods are TryRLock, RLock and RDo.
func (m *RWMutex) RLocker() Locker { return readers{m} }

// Inspect returns who holds the lock, as writer or as reader (Holder.Mode), what is left of the lease, and how many
// readers there are. If the lock is free, Holder.Held is false.
func (m *RWMutex) Inspect(ctx context.Context) (Holder, error) { return m.writer().inspect(ctx) }

// ForceUnlock takes the lock away from the writer and from all readers, and wakes the waiters. It reports whether the
// lock was held. Otherwise it is like Mutex.ForceUnlock.
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
