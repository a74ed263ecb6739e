// Package lock takes locks in Redis, keeps them alive and tells what becomes of them.
//
//	locks, err := lock.New(rdb) // once per Redis, for the whole program
//	...
//	err = locks.Mutex("order:42").Do(ctx, func(ctx context.Context, l *lock.Lease) error {
//		return ship(ctx, l.Token())
//	})
//
// A [Mutex] is a description, a name with options; it may be made for every use. Taking it gives a [Lease], the handle of one
// grant. While that lives, the client's watchdog renews it in Redis: a lock is held for as long as its holder
// needs, and yet free again, one lease after the holder died.
//
// What follows is the whole contract, and so longer than a screen; go doc -short lists what is exported, without methods.
//
// # Kinds of locks
//
// A [FairMutex] serves those who wait in the order they came, whatever their process. An [RWMutex] has many readers or one
// writer. A [Semaphore] lets at most n hold at one time, each with a lease. A [Multi] takes several mutexes at once, and a Mutex of a
// [Quorum] is held by the majority of independent servers. All are Lockers, and what is said here of a Mutex goes for them, but
// for what their own documentation says. An [UnleasedSemaphore] and a [Latch] are numbers without leases.
//
// A name is that of one kind: another finds it taken, or answers ErrInvalid. (A Mutex and a FairMutex of one name exclude each other, and
// a release of one wakes waiters of the other; see [FairMutex].) But a
// Semaphore, an UnleasedSemaphore and a Latch have a number each, as Redisson has them: nothing tells one's from another's of the same name.
//
// # What is not guaranteed
//
// Two holders at one time can't be ruled out, by any lock that is kept in Redis:
//
//   - Redis replicates asynchronously. A failover may lose the write that granted a lock, and grant it again. Nor is
//     Redis a consensus system: a former primary behind a partition goes on granting until it finds out.
//   - A lease that is lost ends its [Lease.Context], but nothing stops the code that doesn't look: a write already under
//     way happens.
//   - Leases are measured by clocks. A server clock that steps forward ends leases early. In a virtual machine that is
//     suspended, the monotonic clock may stand still, so that after it has resumed a lease that ran out meanwhile
//     seems to live, for up to the time it had left. (A stopped process is no such case: its clock goes on.)
//   - The shards of a go-redis Ring know nothing of each other: one that leaves the Ring, or is thought dead by it, takes its locks along.
//     Its holder learns of it a tenth of a second after its own Ring does; until then somebody else may get it from another shard. No
//     WithReplicas helps there. Two programs whose Rings differ in their shards don't exclude each other.
//   - A Redis that evicts keys with an expiry (maxmemory-policy volatile-*, allkeys-*) evicts locks. Use noeviction.
//
// For these cases every grant has a [Lease.Token]. A store that keeps the largest token it has seen, and refuses smaller ones,
// is safe from all of them: tokens protect data, a lock alone saves work.
//
// Nor is there fairness between processes, but with a FairMutex: waiters of one client are served in the order they came, but
// whose client is next is for Redis and the network to say. And [Mutex.TryLock] may overtake waiters.
//
// # What can be relied on
//
//   - Taking, renewing, releasing and forcing a lock are one atomic script each; all but the last are checked against the
//     owner. An owner is never used twice: not by another grant, nor by a restarted process with the same name and pid.
//   - A lease is trusted until its deadline and no longer: the moment before the granting or renewing request was sent, plus
//     the lease, less a margin of lease/100 + 2 ms. Then the Context ends, whatever Redis is doing. So no two
//     live Contexts of one name exist at one time, but for the cases above. Context.Err looks at the clock itself, as timers
//     are late in a process that was stopped.
//   - Release stops the renewal first. Whatever becomes of it then, the lock is free one lease later. A renewal
//     that was delayed on its way never revives a lock that was released; nor does an acquire, once the server has
//     answered this client (before, it could for one lease, and is undone as soon as Redis answers).
//   - Nothing below this package repeats its calls: go-redis's own retries are off for them. It repeats them itself where that can
//     help; each script can run twice for one owner without harm.
//   - A Token is larger than all those of its name before, also after FLUSHALL, a restart without persistence, or a failover that
//     lost writes, as long as no server that answers has a clock behind a token it issued.
//   - No call hangs: it returns when its ctx ends, even if go-redis does not; at most 250 ms later where the call was alone on its way to a server
//     that used to answer at once. A release whose ctx has ended before takes what is left of the lease at most. No goroutine outlives
//     [Client.Close] by more than the ReadTimeout of the Redis client.
//   - Calls for Mutexes that come while three are under way, one of them to their server, wait for the next round trip to it, and share it:
//     up to 64 in one script. Each has an outcome of its own.
//   - The number of goroutines and connections doesn't depend on that of locks. N locks cost about N/256 calls to Redis per
//     third of a lease.
//
// # The life of a lease
//
//	         renewed every third of the lease
//	            ┌──┐
//	            ▼  │
//	Lock ────▶ held ─────────────▶ canceled     ctx ended, WithMaxHold, WithHeartbeat, Close
//	            │ │                  │  │
//	            │ └── Release ───────┤  │
//	            │                    ▼  │
//	            │              released │
//	            ▼                       │
//	           lost ◀───────────────────┘       gone, taken, not renewed in time
//
// A held lease has a live Context. Canceled means that its own side took the permission to work away: Context has ended with a
// [CanceledError], nothing is renewed (Close alone goes on renewing), and what is left of the lease is time to wind
// down and release; in Redis it is held yet. Released and lost are final: [Lease.Done] is closed and [Lease.Err] says which.
// [LostError] has the [Cause].
//
// The lease follows the ctx given to Lock, as a transaction does that of [database/sql.DB.BeginTx]: with
// WithTimeout and a deferred cancel around Lock alone, the lease would be canceled as soon as Lock has returned. To bound the
// wait only, use [WithWait]; to follow another ctx, [WithLeaseContext].
//
// # Waiting
//
// [Mutex.Lock] doesn't poll. A client has one subscription, for all its waiters; a release wakes the first waiter of the client that has
// waited longest, and if that one doesn't take the lock, another after 10 to 20 ms. Where somebody else listens, as Redisson's waiters do, it
// wakes the first waiter of each client. A release with a waiter in its own client hands the lock over in the same script, for a
// bounded number of turns, unless another process is seen to wait. Messages can get lost, so a waiter looks again when
// the holder's lease should have run out; and, without a working subscription, twice a second. While a cluster moves a lock's
// slot, releases may go unheard: then, too, a waiter looks twice a second where it can tell, and else when the slot has moved.
//
// # In Redis
//
// A lock is a hash at its name, with a field for the owner, as Redisson's RLock has it; holders in Java and in Go exclude
// and wake each other. One more field, @lockdog, has the token and the holder's trace, and before them '+' or '+~' when others wait.
// Besides there is one counter of tokens per hash slot in use, <prefix>lockdog:fence:{n}, which never expires. The other kinds are kept as
// Redisson's RFairLock, RReadWriteLock, RSemaphore, RPermitExpirableSemaphore and RCountDownLatch are. Keys of ours are beside them:
// lockdog_wait, which clients wait for a Mutex; lockdog_fair, until when waiters are alive; lockdog_writers and lockdog_turn, whose turn it
// is; lockdog_receipt, what was done already.
//
// # Words
//
// A name is what is locked. A group is what stands for it in metrics, where names would be too many. The owner names one grant in
// Redis, "<client id>:<random>-<seq>". The lease is the handle of a grant, and the time that it is given. The holder is
// whoever has a live lease. A renewal gives it its time anew. The deadline is until when its process trusts it.
// The token numbers the grant. A lease ends released or lost; canceled is on the way there.
//
// # Telemetry
//
// Spans, metrics and logs come through the OpenTelemetry API, from the global providers unless options say otherwise, and
// cost nothing where there are none. Package telemetry lists their names, package otelsetup sets a program up.
// For tests without a Redis there is package locktest.
package lock
