package lock

import (
	"context"
	"fmt"

	"github.com/lockdog/lockdog/internal/hashslot"
	"github.com/lockdog/lockdog/lock/internal/script"
)

// latchKind is Redisson's RCountDownLatch. What takes a lock waits here; it leaves nothing in Redis.
var latchKind = &kind{
	name:             "latch",
	acquire:          script.LatchWait,
	channel:          script.LatchChannel,
	wakesNextOnGrant: true, grantsAllWaiters: true, leaseless: true,
	number: "latch's count", refusal: "is not open yet",
}

// Latch describes a latch: a number in Redis that is counted down, once or by many processes, while others wait for it to be
// open, which it is at 0. It holds no state; it may be made for every use, or shared freely. Redisson's RCountDownLatch is the same.
//
// A latch that was never set is open: set it before anybody waits for it, and not again after a restart: if it had been counted down by then, nobody counts the
// new one down. Give each round a name. So is one that Redis lost (DEL, FLUSHALL, eviction, a
// failover, a restart without persistence), and nobody is told. It has no lease. If somebody who was to count it down
// died, it stays closed; bound the wait, by ctx or by WithWait.
//
// WithFixedLease, WithMaxHold, WithHeartbeat and WithTakeoverDelay are refused. If New was given them as defaults, they are ignored. A waiter that isn't woken asks
// again every third of WithLease's ttl, 10 s at most. A call that Redis doesn't answer, or refuses for the moment, is repeated for that ttl,
// 30 s at most; then it fails. As with an UnleasedSemaphore, receipts see to it that nothing is counted twice.
//
// In a cluster, and over a Ring, its name (with the client's prefix) can't have a {tag}: Redisson would publish on a channel
// in another slot. That is refused with an error that matches ErrInvalid.
type Latch struct{ lock }

// Latch describes the latch with a name. It does no I/O and never fails: what is wrong with the name or the options
// is the error, matching ErrInvalid, of the first use. A name is that of a latch or of a lock, not of both.
func (c *Client) Latch(name string, opts ...LockOption) *Latch {
	l := &Latch{c.describeNumber(latchKind, name, opts)}
	if l.err == nil && l.cfg.replicas > 0 { // nothing is granted that they could have
		cfg := *l.cfg
		cfg.replicas = 0
		l.cfg = &cfg
	}
	return l
}

// TrySetCount closes the latch if it is open: it has to be counted down n times, 1 or more. It reports whether it did. It changes nothing if
// the latch is closed. After an error it may have been done or not.
func (l *Latch) TrySetCount(ctx context.Context, n int) (bool, error) {
	lk := l.base()
	return lk.applyUpdate(ctx, "set count", false, func() (*claim, error) {
		if err := lk.checkCount("TrySetCount", n, 1); err != nil {
			return nil, err
		}
		return lk.counterUpdate(script.LatchSet, n), lk.hearable(ctx)
	})
}

// CountDown counts the latch down by 1, once however often the request has to be repeated. At 0 it opens, and all who wait
// for it go on. An open latch stays as it is. It works on a ctx that has ended, and then goes on for one lease at most;
// otherwise it returns at the latest when ctx ends.
//
// After an error that comes of Redis not answering, or of a state that Redis leaves by itself (READONLY, NOREPLICAS, LOADING and the like), don't
// repeat it: the client goes on with it for two minutes. What Redis refused for good (NOPERM, OOM) was not done, and is yours to repeat. A
// client that is closed counts nothing down (ErrClosed).
func (l *Latch) CountDown(ctx context.Context) error {
	lk := l.base()
	return lk.applyRelease(ctx, "count down", func() (*claim, error) {
		return lk.counterUpdate(script.LatchCountDown, 0), lk.hearable(ctx)
	})
}

// Wait waits until the latch is open, ctx ends, or WithWait is over. However many wait for it in one process, it is asked for
// once, and again when it has been counted down to 0. One that is set again at once may be found closed by some who waited for it
// to open: they go on waiting.
//
// The error is a *HeldError when WithWait is over; it matches ErrHeld and the cause of ctx when ctx ended while waiting.
// Others: ErrClosed; ErrInvalid; else what Redis answered, or why it didn't.
func (l *Latch) Wait(ctx context.Context) error {
	lk := l.base()
	if err := lk.usable(ctx, "wait"); err != nil {
		return err
	}
	if err := lk.hearable(ctx); err != nil {
		return lk.wrap("wait", err)
	}
	return lk.acquireLeaseless(ctx, "wait", true, acquireParams{})
}

// Count is how often the latch has yet to be counted down: 0 if it is open, or was never set.
func (l *Latch) Count(ctx context.Context) (int, error) {
	n, err := l.base().count(ctx, "count", script.CountNumber)
	return max(n, 0), err
}

// hearable reports whether the latch's channel can be published on where the latch lives.
func (lk *lock) hearable(ctx context.Context) error {
	key, channel := lk.key, script.LatchChannel(lk.key)
	if hashslot.Of(key) == hashslot.Of(channel) {
		return nil
	}
	if lk.c.backend.Traits().PerNode {
		return fmt.Errorf("%w: latch %q: its key %q has a {tag}, but Redisson's channel of it, %q, lives in another slot of the cluster; use a name, and a key prefix, without braces",
			ErrInvalid, lk.name, key, channel)
	}
	return nil
}

func (l *Latch) base() *lock {
	if l == nil {
		return nil
	}
	return &l.lock
}
