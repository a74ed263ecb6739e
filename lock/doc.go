// Package lock takes locks in Redis and renews them while their holders work. It reports every acquire, renewal, loss
// and release through OpenTelemetry.
//
//	locks, err := lock.New(rdb) // once per Redis, for the whole program
//	// ...
//	err = locks.Mutex("order:42").Do(ctx, func(ctx context.Context, l *lock.Lease) error {
//		return ship(ctx, l.Token())
//	})
//
// A [Mutex] is a description: a name with options. Make it for every use, or share it. An acquire returns a [Lease],
// the handle of one grant. Unless it has [WithFixedLease], the client's watchdog renews it each time a third of the
// lease has passed. If the holder dies, the lock is free one lease later (with [WithTakeoverDelay], that delay later).
//
// The other kinds are [FairMutex], [RWMutex], semaphores, [Latch], [Multi] and [Quorum]. Use a name for one kind only.
//
// # Guarantees
//
//   - Leases of two grants of one exclusive lock never have live (not ended) Contexts at the same time, while Redis
//     loses no write, no clock steps and nobody calls ForceUnlock.
//   - [Lease.Context] ends at the lease's deadline at the latest, also while Redis doesn't answer. Its cause says why.
//   - [Lease.Release] works on a ctx that has ended. The last Release stops the renewal first. Whatever it returns, the
//     lock is free one lease later (with [WithMinHold], when that is over, if later; with [WithTakeoverDelay], that
//     delay later).
//   - A [Lease.Token] is larger than all earlier tokens of the same name, while no server's clock is behind a token it
//     issued.
//   - A call returns when its ctx ends, or up to 250 ms later. Goroutines and connections don't grow with the number of
//     locks. N locks cost about N/256 calls to Redis per third of a lease.
//
// # What is not guaranteed
//
//   - Redis replicates asynchronously. A failover can lose a lock, and grant it again while the first holder works.
//   - lockdog can't stop your code. A write in flight still lands after a loss. If correctness matters, have the store
//     check tokens.
//   - A server clock that steps forward ends leases early. A machine that was suspended may trust an ended lease.
//   - A Redis that evicts or loses keys frees locks. Use maxmemory-policy noeviction.
//   - Only a [FairMutex] is fair across processes. The waiters of one client are served in the order of their calls,
//     but readers, and waiters for one permit, may ask together and then get in in any order. TryLock of the other
//     kinds may overtake waiters.
//
// # Lifetime
//
// The lease follows the ctx given to Lock, as a transaction follows the ctx of [database/sql.DB.BeginTx]. To bound only
// the wait, use [WithWait]; to follow another ctx, [WithLifetime]. A held lease has a live Context. If ctx,
// [WithMaxHold], [WithHeartbeat] or Close ends the permission to work, the lease is canceled: its Context has ended,
// and the rest of the lease is time to stop and release. A lease that was released, was lost, or was given up by Close
// has ended for good.
//
// # Waiting
//
// Waiters wait for a message. A release of a Mutex usually grants the lock to one waiter, of the client that has waited
// longest, or wakes it. While the subscription doesn't work, waiters poll about every 500 ms. A FairMutex's waiters ask
// every third of a lease.
//
// # More
//
// The repository, https://github.com/lockdog/lockdog, has pages on guarantees (docs/GUARANTEES.md: every condition, and
// the tests), lock kinds (docs/KINDS.md), recipes (docs/RECIPES.md), options (docs/CONFIGURATION.md), production
// (docs/PRODUCTION.md), failure modes (docs/FAILURES.md) and telemetry (docs/TELEMETRY.md). Package telemetry/otelsetup
// sets up OpenTelemetry in a program. Package locktest is for tests without Redis.
package lock
