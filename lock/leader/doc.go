// Package leader elects one of many processes, and runs a function in the elected process while it leads.
//
//	err := leader.Run(ctx, locks.Mutex("leader:reports"), func(ctx context.Context) error {
//		return serve(ctx, leader.Token(ctx)) // ctx ends when this process stops being the leader
//	})
//
// The leader is the holder of a lock of package lock. [Run] campaigns: it waits for the lock. Once elected, it runs the
// function for one term. If the process loses the lock, Run campaigns again. An [Elector] does the same, and has
// [Elector.IsLeader] and [Elector.Check].
//
// # How a term ends
//
//	                                              ┌────────────────────────────┐
//	                                              ▼                            │
//	Run ──▶ campaign ──elected──▶ fn runs ──▶ fn returned, released ──▶ pause ─┘
//	            │                                 │
//	            ▼                                 ▼
//	     Run returns an error          Run returns nil, or an error
//
//	| what happens                  | fn's ctx            | then Run                                             |
//	|-------------------------------|---------------------|------------------------------------------------------|
//	| fn returns nil while it leads |                     | releases the lock, returns nil or the release error  |
//	| fn fails while it leads       |                     | releases the lock, pauses, campaigns again           |
//	| the lease is lost or canceled | ends with the cause | waits for fn, releases, pauses, campaigns again      |
//	| ctx ends                      | ends with its cause | waits for fn, releases the lock, returns ctx's cause |
//	| the client is closed          | ends with the cause | waits for fn, releases the lock, returns ErrClosed   |
//	| fn panics or calls Goexit     |                     | releases the lock, and the panic goes on             |
//
// To make Run return when fn fails, cancel ctx with fn's error: see [context.WithCancelCause]. If fn resigns (see
// [Lease]), its result counts as if the process still led.
//
// While Redis can't be reached, Run keeps campaigning, with growing pauses ([WithBackoff]). A failed campaign ends Run
// only with lock.ErrClosed, lock.ErrInvalid or lock.ErrDeadlock.
//
// # What is guaranteed
//
//   - At most one process leads, as far as the lock guarantees it. Package lock says when two leases may be live at the
//     same time, for example after a failover of Redis.
//   - fn's ctx ends before another process can be elected, under the same conditions. Its Err compares the clock, so it
//     is right also in a process that was stopped.
//   - After ctx has ended, the lock is renewed until fn has returned. Then it is released, so a successor is elected at
//     once. This differs from [lock.Mutex.Lock], where the end of ctx stops the renewal. So an fn that never returns
//     blocks its successors while its process lives. [Elector.Check] reports this, and lock.WithMaxHold and
//     lock.WithHeartbeat end it.
//   - One Run never runs fn twice at the same time: it campaigns only after fn has returned.
//   - Run returns after fn, the release and all callbacks have returned. The release takes no longer than the rest of
//     the lease.
//
// # What is not guaranteed
//
// Nothing stops an fn that ignores its ctx. After a loss it runs beside the next leader. A write that has been sent
// when the ctx ends may still be executed. If correctness matters, pass [Token] to the system that fn writes to, and
// let that system refuse smaller tokens.
//
// # Callbacks
//
// [OnElected], [OnDeposed] and [OnNewLeader] are called one at a time, in the order of the events, by a separate
// goroutine. Neither fn's start nor the release waits for them, so an event may be over when its callback runs. A
// callback may call any method, and cancel ctx. It must return, and must not wait for Run, because Run waits for it. A
// panic in a callback ends the program. What must be done before fn starts belongs in fn.
//
// # Locks to use
//
// Use a lock.Mutex in most cases. Its lease, lock.WithLease, bounds how long there is no leader after one has died.
// With a lock.FairMutex the candidates lead in turn. A mutex of a lock.Quorum survives the loss of a server. A
// lock.Semaphore gives as many leaders as it has permits. With lock.WithFixedLease a term lasts one lease at most.
// Don't use lock.WithLifetime. Don't use lock.WithWait: Run waits without a limit.
package leader
