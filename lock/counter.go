package lock

import (
	"context"
	"fmt"
	"math"

	"github.com/lockdog/lockdog/lock/internal/script"
	"github.com/lockdog/lockdog/telemetry"
)

// What semaphores, with leases or without, and latches have in common: a number in Redis.

const maxCount = math.MaxInt32 // Redisson's numbers are no larger

// count reads the number from Redis. The argument what says which permits are added to that number.
func (lk *lock) count(ctx context.Context, op string, what script.Counting) (n int, err error) {
	err = lk.call(ctx, op, func() error {
		reply, err := lk.c.ops.simple(ctx, telemetry.OpInspect, func(r *script.Request) {
			script.CountArgs(r, lk.key, what)
		})
		if err != nil {
			return err
		}
		n, err = script.ParseCount(reply)
		return err
	})
	return n, err
}

// acquireLeaseless takes permits that have no lease, or waits until a latch is open. The client has no grant
// afterwards: there is nothing to renew or to lose.
func (lk *lock) acquireLeaseless(ctx context.Context, op string, wait bool, params acquireParams) error {
	if err := lk.usable(ctx, op); err != nil {
		return err
	}
	if !lk.c.gate.enter() {
		return lk.wrap(op, ErrClosed)
	}
	defer lk.c.gate.leave()
	sctx, a := lk.c.rec.StartAcquire(ctx, &lk.tel, 0)
	params.sample = lk.c.profile.Sample(lk.tel.Group(), lk.kind.name)
	claim, _, err := lk.acquireOrWait(sctx, &a, wait, params)
	if err == nil && lk.c.isClosing() { // a closed client can't give permits back
		claim.cleanUp()
		err = ErrClosed
	}
	if err != nil {
		err = lk.wrap(op, err)
		a.Fail(outcomeOf(ctx, wait, err), err)
		return err
	}
	lk.c.receipts.add(claim)
	a.Pass()
	return nil
}

// checkCount returns an error if n isn't allowed as the argument of op.
func (lk *lock) checkCount(op string, n, least int) error {
	if n >= least && n <= maxCount {
		return nil
	}
	return fmt.Errorf("%w: %q: %s(%d): %d to %d are allowed", ErrInvalid, lk.name, op, n, least, maxCount)
}

// describeNumber is describe for kinds without leases. Their WithLease sets how long an operation is repeated, and how
// often a waiter asks.
func (c *Client) describeNumber(k *kind, name string, opts []LockOption) lock {
	lk := c.describe(k, name, opts)
	if lk.err == nil {
		lk.cfg = lk.cfg.patient()
	}
	return lk
}

// patient returns the configuration with a lease of DefaultLease at most. An operation is repeated for one lease, and
// its receipt must live longer.
func (c *lockConfig) patient() *lockConfig {
	if c.lease <= DefaultLease {
		return c
	}
	capped := *c
	capped.lease = DefaultLease
	return &capped
}

// trySetPermits implements TrySetPermits of both kinds of semaphore.
func (lk *lock) trySetPermits(ctx context.Context, n int) (bool, error) {
	return lk.applyUpdate(ctx, "set permits", false, func() (*claim, error) {
		return lk.newCounterUpdate(script.SemaphoreSet, n), lk.checkCount("TrySetPermits", n, 0)
	})
}

// addPermits implements AddPermits of both kinds of semaphore.
func (lk *lock) addPermits(ctx context.Context, delta int) error {
	_, err := lk.applyUpdate(ctx, "add permits", true, func() (*claim, error) {
		return lk.newCounterUpdate(script.SemaphoreAdd, delta), lk.checkCount("AddPermits", delta, -maxCount)
	})
	return err
}
