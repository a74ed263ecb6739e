package lock

import (
	"context"

	"github.com/lockdog/lockdog/lock/internal/script"
)

// unleasedSemaphoreKind is Redisson's RSemaphore.
var unleasedSemaphoreKind = &kind{
	name:    "unleased_semaphore",
	acquire: script.UnleasedAcquire, release: script.UnleasedUndo,
	channel: script.SemaphoreChannel,
	shared:  true, usesReceipts: true, leaseless: true,
	number: "number of permits", refusal: "has too few permits left (if it was never given any, TrySetPermits does it)",
}

// UnleasedSemaphore describes a semaphore whose permits have no lease: a number of permits in Redis, of which callers
// take some and give them back. It holds no state. Make one for every use, or share it freely.
//
// Its permits have no owner either, like those of Redisson's RSemaphore, with which it shares them: anybody may give
// back what somebody else took, and nothing is renewed. If a process dies, the permits that it took stay taken until
// AddPermits makes up for them. If that must not happen, use a Semaphore.
//
// Redis has only the number of permits that are left. Nobody knows how many are taken. So an UnleasedSemaphore has no
// EnsurePermits and no Total: TrySetPermits sets the number if there is none, and AddPermits changes it.
//
// A request is repeated if its reply was lost, but must change the number only once. So an operation that changes the
// number also writes a receipt beside it, in the same script. A repeated request finds the receipt, and changes
// nothing. The receipt is kept until a later operation of the client on the same semaphore deletes it, five minutes at
// most.
//
// An operation is one call to Redis. While a Cluster moves the semaphore's slot, operations are refused, and repeated.
//
// WithFixedLease, WithMaxHold, WithMinHold, WithHeartbeat and WithTakeoverDelay are refused. As defaults given to New
// they are ignored, but the ttl of WithFixedLease counts like that of WithLease. A waiter that isn't woken asks again
// about every third of WithLease's ttl, 10 s at most. If Redis doesn't answer, or refuses for a while, TrySetPermits,
// AddPermits and Release are repeated for that ttl, 30 s at most.
type UnleasedSemaphore struct{ lock }

// UnleasedSemaphore describes the semaphore with a name. It does no I/O and never fails. An invalid name or option is
// reported by the first use, as an error that matches ErrInvalid. A semaphore and a lock must not share a name.
func (c *Client) UnleasedSemaphore(name string, opts ...LockOption) *UnleasedSemaphore {
	return &UnleasedSemaphore{c.describeNumber(unleasedSemaphoreKind, name, opts)}
}

// TrySetPermits gives the semaphore n permits if it has no number yet, and reports whether it did. A semaphore whose
// permits are all taken has a number, 0, and isn't changed. Every process may call it at its start. After an error it
// may have been done or not; then it may be repeated.
//
// If Redis has lost the semaphore, it has no number, and gets n permits. Permits that were taken before are added to
// those when they are given back.
func (s *UnleasedSemaphore) TrySetPermits(ctx context.Context, n int) (bool, error) {
	return s.base().trySetPermits(ctx, n)
}

// TryAcquire takes n permits, 1 or more, if as many are left: all of them or none. Otherwise it fails at once with a
// *HeldError, which matches ErrHeld. It has no Owner: nobody knows who took the permits.
//
// Other errors: a *ReplicasError (WithReplicas); ErrClosed; ErrInvalid; the cause of ctx if ctx ended; or else what
// Redis answered, or why it didn't. With an error nothing is taken: what a lost reply may have granted is given back as
// soon as Redis answers. If Redis doesn't answer for two minutes, it stays taken.
func (s *UnleasedSemaphore) TryAcquire(ctx context.Context, n int) error {
	return s.take(ctx, n, false)
}

// Acquire takes n permits, 1 or more. It waits until as many are left, ctx ends or WithWait is over. The caller keeps
// the permits if ctx ends later.
//
// A wait costs Redis little: permits that are given back wake the first waiter of each client. Within a client, waiters
// get permits in the order of their calls, so that a waiter for many isn't overtaken by waiters for few. Waiters for
// one permit that ask at the same time get in in any order. Between clients there is no order, and a waiter for many
// may be overtaken. TryAcquire may overtake waiters.
//
// The errors of a wait are those of Mutex.Lock, other errors those of TryAcquire.
func (s *UnleasedSemaphore) Acquire(ctx context.Context, n int) error {
	return s.take(ctx, n, true)
}

func (s *UnleasedSemaphore) take(ctx context.Context, n int, wait bool) error {
	lk := s.base()
	err := lk.usable(ctx, "acquire")
	if err == nil {
		err = lk.checkCount("Acquire", n, 1)
	}
	if err != nil {
		return err
	}
	return lk.acquireLeaseless(ctx, "acquire", wait, acquireParams{permits: n})
}

// Release gives n permits back, 1 or more, and wakes waiters. It doesn't check whether they had been taken. It works on
// a ctx that has ended, and then takes no longer than WithLease's ttl, and 30 s at most. Otherwise it returns when ctx
// ends at the latest.
//
// If it failed because Redis didn't answer, or is in a state that ends by itself (READONLY, NOREPLICAS, LOADING and the
// like), don't repeat it: the client goes on with it for two minutes. What Redis refused for good at the first try
// (NOPERM, OOM) wasn't done, and may be repeated. If it refused a later try, after one without an answer, the client
// goes on, too: the error then is "<refusal>, after: <the earlier error>". A closed client gives nothing back
// (ErrClosed): call Release before Close.
func (s *UnleasedSemaphore) Release(ctx context.Context, n int) error {
	lk := s.base()
	return lk.applyRelease(ctx, "release", func() (*claim, error) {
		return lk.newCounterUpdate(script.SemaphoreAdd, n), lk.checkCount("Release", n, 1)
	})
}

// AddPermits adds delta permits. A negative delta removes permits, even more than are left. Available is then negative,
// -2 for example: the first two permits that are given back go to nobody. After an error, the client may go on with it:
// Release says when not to repeat the call.
func (s *UnleasedSemaphore) AddPermits(ctx context.Context, delta int) error {
	return s.base().addPermits(ctx, delta)
}

// Available returns how many permits are left. It is 0 if the semaphore was given none, and negative after an
// AddPermits that took away more than were left.
func (s *UnleasedSemaphore) Available(ctx context.Context) (int, error) {
	return s.base().count(ctx, "available", script.CountNumber)
}

func (s *UnleasedSemaphore) base() *lock {
	if s == nil {
		return nil
	}
	return &s.lock
}
