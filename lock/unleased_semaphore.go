package lock

import (
	"context"

	"github.com/lockdog/lockdog/lock/internal/script"
)

// unleasedSemaphoreKind is Redisson's RSemaphore.
var unleasedSemaphoreKind = &kind{
	name:    "unleased_semaphore",
	acquire: script.UnleasedAcquire, release: script.UnleasedUndo,
	channel:          script.SemaphoreChannel,
	wakesNextOnGrant: true, usesReceipts: true, leaseless: true,
	number: "number of permits", refusal: "has too few permits left (if it was never given any, TrySetPermits does it)",
}

// UnleasedSemaphore describes a semaphore whose permits have no lease: a number of permits in Redis, which callers take some of and give
// back. It holds no state; it may be made for every use, or shared freely.
//
// Its permits have no owner either, as those of Redisson's RSemaphore, with which it is shared: anybody may give back what
// somebody else took, and nothing is renewed. What was taken by a process that died stays taken, until AddPermits makes up for it. Where that
// mustn't be, use a Semaphore.
//
// Redis has the number of permits that are left, and nothing else. Nobody knows how many are taken. So an UnleasedSemaphore has no EnsurePermits
// and no Total: TrySetPermits sets the number if there is none, and AddPermits changes it.
//
// A number that is changed twice stays wrong, so each operation leaves a receipt beside it, in the same script, until the client's
// next, or for five minutes: it happens once, however often the request has to be repeated.
//
// An operation is one call to Redis. While a cluster moves the semaphore's slot, operations are refused, and repeated.
//
// WithFixedLease, WithMaxHold, WithHeartbeat and WithTakeoverDelay are refused. If New was given them as defaults, they are ignored. A waiter that isn't woken asks
// again every third of WithLease's ttl, 10 s at most. A call that Redis doesn't answer, or refuses for the moment, is repeated for that ttl,
// 30 s at most; then it fails.
type UnleasedSemaphore struct{ lock }

// UnleasedSemaphore describes the semaphore with a name. It does no I/O and never fails: what is wrong with the name or the options
// is the error, matching ErrInvalid, of the first use. A name is that of a semaphore or of a lock, not of both.
func (c *Client) UnleasedSemaphore(name string, opts ...LockOption) *UnleasedSemaphore {
	return &UnleasedSemaphore{c.describeNumber(unleasedSemaphoreKind, name, opts)}
}

// TrySetPermits gives the semaphore n permits if it has no number yet, and reports whether it did. A semaphore whose permits are all
// taken has a number, 0, and is left alone. Every process may do it at its start. After an error it may have been done or
// not; then it may be repeated.
//
// It also gives a semaphore that Redis has lost its permits, n of them. Permits that were taken before count on top when they are given back.
func (s *UnleasedSemaphore) TrySetPermits(ctx context.Context, n int) (bool, error) {
	return s.base().trySetPermits(ctx, n)
}

// TryAcquire takes n permits, 1 or more, if as many are left: all of them or none. It doesn't wait: it fails with a *HeldError,
// matching ErrHeld, if there are fewer; nobody knows who has them, so it names no owner.
//
// Other errors: ErrClosed; ErrInvalid; the cause of ctx when it ended; else what Redis answered, or why it didn't. With an error
// nothing is taken: what a lost answer may have granted is given back as soon as Redis answers (for two minutes,
// then it stays taken).
func (s *UnleasedSemaphore) TryAcquire(ctx context.Context, n int) error {
	return s.take(ctx, n, false)
}

// Acquire takes n permits, 1 or more, waiting until as many are left, ctx ends or WithWait is over. The permits are the
// caller's also when ctx ends later.
//
// A wait costs Redis little: permits that are given back wake the first waiter of each process. In one process waiters are served in the
// order they came, so one that wants many isn't overtaken by those who want few; between processes there is no order, and it may be.
// TryAcquire may overtake waiters.
//
// The error is a *HeldError when WithWait is over; it matches ErrHeld and the cause of ctx when ctx ended while waiting;
// else as for TryAcquire.
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

// Release gives n permits back, 1 or more, and wakes who waits for them. Nobody counts whether they had been taken. It works
// on a ctx that has ended, and then goes on for one lease at most; otherwise it returns at the latest when ctx ends.
//
// After an error that comes of Redis not answering, or of a state that Redis leaves by itself (READONLY, NOREPLICAS, LOADING and the like), don't
// repeat it: the client goes on with it for two minutes. What Redis refused for good (NOPERM, OOM) was not done, and is yours to repeat. A
// client that is closed gives nothing back (ErrClosed): release before.
func (s *UnleasedSemaphore) Release(ctx context.Context, n int) error {
	lk := s.base()
	return lk.applyRelease(ctx, "release", func() (*claim, error) {
		return lk.counterUpdate(script.SemaphoreAdd, n), lk.checkCount("Release", n, 1)
	})
}

// AddPermits adds delta permits, or takes -delta away, whether or not they are left. Available may become negative: then as many have to be
// given back before somebody gets one. As with Release, the client goes on with what Redis didn't answer.
func (s *UnleasedSemaphore) AddPermits(ctx context.Context, delta int) error {
	return s.base().addPermits(ctx, delta)
}

// Available is how many permits are left. It is 0 if the semaphore was given none, and negative after an AddPermits that took away more than there
// were.
func (s *UnleasedSemaphore) Available(ctx context.Context) (int, error) {
	return s.base().count(ctx, "available", script.CountNumber)
}

func (s *UnleasedSemaphore) base() *lock {
	if s == nil {
		return nil
	}
	return &s.lock
}
