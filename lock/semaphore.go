package lock

import (
	"context"

	"github.com/lockdog/lockdog/lock/internal/script"
)

// semaphoreKind is Redisson's RPermitExpirableSemaphore.
var semaphoreKind = &kind{
	name:    "semaphore",
	acquire: script.SemaphoreAcquire, release: script.SemaphoreRelease,
	channel:   script.SemaphoreChannel,
	holding:   script.HoldsPermit,
	retakable: true, shared: true,
	number: "number of permits", refusal: "has no permit left",
	emptyHint: "has no permit left, nor is one leased that could come back: EnsurePermits gives it some",
}

// Semaphore describes a semaphore: a number of permits in Redis. Each Lock takes one permit and returns a Lease for it,
// which is renewed and has a token like a Mutex's. The permit of a holder that dies is free again after its lease. A
// Semaphore holds no state. Make one for every use, or share it freely.
//
// It has no permits until a program gives it some. EnsurePermits does that; call it at the start of every process, and
// again whenever Redis may have lost the number.
//
// It differs from a Mutex:
//
//   - As many leases may live at one time as there are permits, also several of one caller. There is no ErrDeadlock,
//     and WithReentrancy has no effect.
//   - The cause of a loss doesn't say who has the permit: it is CauseMissing whether the permit is free by now, another
//     holder has it, or the semaphore was deleted.
//   - Nobody can see who holds the permits: HeldError has no Owner.
//   - Nothing is handed over within a process.
//
// It shares its permits with Redisson's RPermitExpirableSemaphore. Redisson renews no permit, and goes by the clock of
// its machine: a clock that is fast by more than two thirds of our lease would make it take our permits for expired.
type Semaphore struct{ lock }

var _ Locker = (*Semaphore)(nil)

// Semaphore describes the semaphore with a name. It does no I/O and never fails. An invalid name or option is reported
// by the first use, as an error that matches ErrInvalid. A semaphore and a lock must not share a name.
func (c *Client) Semaphore(name string, opts ...LockOption) *Semaphore {
	return &Semaphore{c.describe(semaphoreKind, name, opts)}
}

// EnsurePermits sets the semaphore's total to n permits, 0 or more, whatever it was before. Permits that are held stay
// held. The others of the n permits are available afterwards. If more than n are held, Available is negative, and
// nobody gets a permit until enough have been released or have run out. If a larger total makes permits available,
// waiters are woken.
//
// It repairs a semaphore that Redis has lost (DEL, FLUSHALL, eviction, a failover, a restart without persistence).
// Leases that were lost with it don't count any more, though their holders may need a moment to notice.
//
// Every process may call it often: if the total is n already, it stays so. Processes that call it with different
// numbers overwrite each other; the last one wins. After an error it may have been done or not; repeat it.
func (s *Semaphore) EnsurePermits(ctx context.Context, n int) error {
	_, err := s.base().applyUpdate(ctx, "ensure permits", false, func() (*claim, error) {
		return s.newCounterUpdate(script.SemaphoreEnsure, n), s.checkCount("EnsurePermits", n, 0)
	})
	return err
}

// TrySetPermits gives the semaphore n permits if Redis has no number for it, and reports whether it did. Otherwise it
// changes nothing, also if all permits are taken. Most programs want EnsurePermits. After an error it may have been
// done or not; then it may be repeated.
func (s *Semaphore) TrySetPermits(ctx context.Context, n int) (bool, error) {
	return s.base().trySetPermits(ctx, n)
}

// AddPermits adds delta permits. A negative delta removes permits, even more than are left. Available is then negative,
// -2 for example: the first two permits that are released, or run out, go to nobody. After an error, the client may go
// on with it for two minutes: UnleasedSemaphore.Release says when not to repeat the call.
func (s *Semaphore) AddPermits(ctx context.Context, delta int) error {
	return s.base().addPermits(ctx, delta)
}

// Total returns how many permits the semaphore has, available or held: 0 if it was given none.
func (s *Semaphore) Total(ctx context.Context) (int, error) {
	return s.base().count(ctx, "total", script.CountTotal)
}

// Available returns how many permits are left, including those whose lease has run out. It is 0 if the semaphore was
// given none, and negative if more are held than its total.
func (s *Semaphore) Available(ctx context.Context) (int, error) {
	return s.base().count(ctx, "available", script.CountAvailable)
}

// TryLock takes a permit if one is left. Otherwise it fails at once with a *HeldError, which matches ErrHeld. Its
// Remaining is the time until the next lease runs out, unless that is renewed.
//
// Other errors: a *ReplicasError (WithReplicas); ErrClosed; ErrInvalid; the cause of ctx if ctx ended; or else what
// Redis answered, or why it didn't.
func (s *Semaphore) TryLock(ctx context.Context) (*Lease, error) { return s.base().acquire(ctx, false) }

// Lock takes a permit. It waits for one until ctx ends or WithWait is over. A released permit wakes the first waiter of
// each client, and so does the end of the next lease that runs out. Within a client, waiters get permits in the order
// of their calls, but those that ask at the same time in any order. If the semaphore has no permits (Redis lost it, or
// nobody gave it any), Lock waits until it gets some, and logs that once.
//
// The lease follows ctx, as a Mutex's does. The errors of a wait are those of Mutex.Lock, others those of TryLock.
func (s *Semaphore) Lock(ctx context.Context) (*Lease, error) { return s.base().acquire(ctx, true) }

// Do runs fn with a permit, in the lease's Context, and releases it. See the function Do for what it returns.
func (s *Semaphore) Do(ctx context.Context, fn func(ctx context.Context, l *Lease) error) error {
	return do(ctx, s, fn)
}

// TryDo is Do if a permit can be taken at once. If not, it fails as TryLock does, and doesn't call fn.
func (s *Semaphore) TryDo(ctx context.Context, fn func(ctx context.Context, l *Lease) error) error {
	return tryDo(ctx, s, fn)
}

func (s *Semaphore) base() *lock {
	if s == nil {
		return nil
	}
	return &s.lock
}
