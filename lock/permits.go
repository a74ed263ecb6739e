package lock

import (
	"context"

	"github.com/lockdog/lockdog/lock/internal/script"
)

// permitKind is Redisson's RPermitExpirableSemaphore.
var permitKind = &kind{
	name:    "permit",
	acquire: script.PermitAcquire, release: script.PermitRelease,
	channel:     script.SemaphoreChannel,
	holding:     script.HoldsPermit,
	multiHolder: true, wakesNextOnGrant: true,
	number: "number of permits", refusal: "has no permit left",
	emptyHint: "has no permit left, nor is one leased that could come back: SetPermits gives it some",
}

// Permits describes a semaphore whose permits have leases: a number of them in Redis, of which each Lock takes one and gives
// a Lease for it, with watchdog and token as a Mutex's. The permit of a holder that dies is free again after its lease. It holds
// no state; it may be made for every use, or shared freely.
//
// It differs from a Mutex in this: as many leases live at one time as there are permits, also several of one caller (no ErrDeadlock;
// WithReentrancy has no effect); a Lease that is lost may have been lost to nobody (its cause is always CauseMissing where the
// permit has gone from Redis); nobody is told who holds them (HeldError has no Owner), and nothing is handed over
// within a process.
//
// It shares its permits with Redisson's RPermitExpirableSemaphore. Redisson renews no permit, and goes by the clock of its own machine: one
// that is fast by more than two thirds of our lease would take our permits for run out.
type Permits struct{ lock }

var _ Locker = (*Permits)(nil)

// Permits describes the semaphore with a name. It does no I/O and never fails: what is wrong with the name or the options
// is the error, matching ErrInvalid, of the first use. A name is that of a semaphore or of a lock, not of both.
func (c *Client) Permits(name string, opts ...LockOption) *Permits {
	return &Permits{c.describe(permitKind, name, opts)}
}

// SetPermits gives a semaphore that has none yet its permits, n of them, and reports whether it did. One whose permits are all
// taken has a number, 0, and is left alone. Every process may do it at its start. After an error it may have been done or
// not; then it may be repeated.
func (p *Permits) SetPermits(ctx context.Context, n int) (bool, error) {
	return p.base().setPermits(ctx, n)
}

// Resize adds delta permits, or takes -delta away, whether or not they are left: then fewer than 0 are, and as many have to be
// given back, or to run out, before somebody gets one. After an error that comes of Redis not answering, don't
// repeat it: the client goes on with it for two minutes.
func (p *Permits) Resize(ctx context.Context, delta int) error { return p.base().resize(ctx, delta) }

// Available is how many permits are left, those included whose lease has run out: 0 if it was given none, negative after a
// Resize that took more than there were.
func (p *Permits) Available(ctx context.Context) (int, error) {
	lk := p.base()
	if lk == nil || lk.err != nil {
		return 0, lk.usable(ctx, "available")
	}
	return lk.count(ctx, "available", true)
}

// TryLock takes a permit if one is left. It doesn't wait: it fails with a *HeldError, matching ErrHeld, if none is. Its Remaining
// is when the next lease runs out unless it is renewed.
//
// Other errors: ErrClosed; ErrInvalid; the cause of ctx when it ended; else what Redis answered, or why it didn't.
func (p *Permits) TryLock(ctx context.Context) (*Lease, error) { return p.base().acquire(ctx, false) }

// Lock takes a permit, waiting for one until ctx ends or WithWait is over. A permit that is given back wakes the first waiter of
// each process, and so does the end of the next lease that runs out. In one process waiters are served in the order they came.
//
// The lease follows ctx, as a Mutex's does. The error is a *HeldError when WithWait is over; it matches ErrHeld and the
// cause of ctx when ctx ended while waiting; else as for TryLock.
func (p *Permits) Lock(ctx context.Context) (*Lease, error) { return p.base().acquire(ctx, true) }

// Do runs fn with a permit, in the lease's Context, and gives it back. See the function Do for what it returns.
func (p *Permits) Do(ctx context.Context, fn func(ctx context.Context, l *Lease) error) error {
	return do(ctx, p, fn)
}

// TryDo is Do if a permit can be had at once. If not, it fails as TryLock does, and doesn't call fn.
func (p *Permits) TryDo(ctx context.Context, fn func(ctx context.Context, l *Lease) error) error {
	return tryDo(ctx, p, fn)
}

func (p *Permits) base() *lock {
	if p == nil {
		return nil
	}
	return &p.lock
}
