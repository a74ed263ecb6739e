// Package leader elects one of many processes, and runs a function in it for as long as it leads.
//
//	err := leader.Run(ctx, locks.Mutex("leader:reports"), func(ctx context.Context) error {
//		return serve(ctx, leader.Token(ctx)) // ctx ends when this process leads no more
//	})
//
// The leader is the holder of a lock of package lock. [Run] campaigns: it waits for the lock. Once elected it runs the function for one
// term. When the process loses the lock, Run campaigns again. An [Elector] does the same, and can be asked [Elector.IsLeader] and [Elector.Check].
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
//	| what happens                        | fn's ctx             | then Run                                                 |
//	|-------------------------------------|----------------------|----------------------------------------------------------|
//	| fn returns nil while it leads       |                      | releases the lock, and returns nil: the work is done     |
//	| fn returns an error while it leads  |                      | releases the lock, pauses, campaigns again               |
//	| the lock is lost, or cut off        | ends, with the cause | waits for fn, pauses, campaigns again, whatever fn says  |
//	| ctx ends                            | ends, with its cause | waits for fn, releases the lock, returns ctx's cause     |
//	| the client is closed                | ends, with the cause | waits for fn, releases the lock, returns lock.ErrClosed  |
//	| fn panics, or calls runtime.Goexit  |                      | releases the lock, and the panic goes on                 |
//
// To end Run because of an error of fn, cancel ctx with it, see [context.WithCancelCause].
//
// While Redis can't be reached, Run campaigns again and again, with pauses that grow ([WithBackoff]). It gives up only where that can't help: on
// lock.ErrClosed, lock.ErrInvalid and lock.ErrDeadlock.
//
// # What is guaranteed
//
//   - At most one process leads, as far as the lock gives it. Package lock says when two leases may live at one time, as after a failover of Redis.
//   - fn's ctx ends before another process can be elected, under the same conditions. Its Err looks at the clock itself, so that it is
//     right also in a process that was stopped.
//   - While ctx has ended and fn hasn't returned, the lock is still renewed: a successor is elected after fn has returned, and then at
//     once. This differs from [lock.Mutex.Lock], where the end of ctx stops the renewal. So a fn that never returns blocks its successors while its process
//     lives; [Elector.Check] tells of it, and lock.WithMaxHold and lock.WithHeartbeat end it.
//   - One Run never runs fn twice at one time: it doesn't campaign before fn has returned.
//   - Run returns after fn, the release and all callbacks have returned. The release takes no longer than what is left of the lease.
//
// # What is not
//
// Nothing stops a fn that doesn't look at its ctx. After a loss it goes on beside the next leader, and a write that is under way when
// its ctx ends still lands. If correctness matters, give [Token] to what fn writes to, and have it refuse smaller ones.
//
// # Callbacks
//
// [OnElected], [OnDeposed] and [OnNewLeader] are called one at a time, in the order of what they tell, by a goroutine of their own.
// Neither leading nor the release waits for them, and what they are told may be over when they are called. A callback may call any method, and cancel ctx. It
// must return, and must not wait for Run, which waits for it. A panic in it ends the program. What has to be done before fn starts belongs into fn.
//
// # Locks to use
//
// A lock.Mutex is what most want; its lease, lock.WithLease, is how long nobody leads after a leader has died. With a lock.FairMutex terms go
// round. A mutex of a lock.Quorum stands the loss of a server. Permits give as many leaders as there are permits. With lock.WithFixedLease a term is
// as long as the lease. Don't give lock.WithLifetime, nor lock.WithWait: Run waits for as long as it takes.
package leader
