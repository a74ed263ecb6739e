package lock

import (
	"context"
	"fmt"

	"github.com/lockdog/lockdog/internal/hashslot"
	"github.com/lockdog/lockdog/lock/internal/script"
)

// latchKind is Redisson's RCountDownLatch. Its acquire only waits: it leaves nothing in Redis.
var latchKind = &kind{
	name:    "latch",
	acquire: script.LatchWait,
	channel: script.LatchChannel,
	shared:  true, grantsAllWaiters: true, leaseless: true,
	number: "latch's count", refusal: "is not open yet",
}

// Latch describes a latch: a number in Redis that processes count down while others wait. At 0 the latch is open, and
// the waiters go on. A Latch holds no state: make one for every use, or share it. It is Redisson's RCountDownLatch.
//
// A latch that was never set is open, so set it before others wait for it. Don't set it again after a restart: if it
// was counted down to 0 before, nobody counts the new one down. Give each round its own name.
//
// A latch that Redis lost (DEL, FLUSHALL, eviction, a failover, a restart without persistence) is open, too, without a
// message or an error. A latch has no lease: if a process that should count it down died, it stays closed. So bound the
// wait, by ctx or by WithWait.
//
// WithFixedLease, WithMaxHold, WithMinHold, WithHeartbeat and WithTakeoverDelay are refused. If New was given them as
// defaults, they are ignored, but the ttl of WithFixedLease counts like that of WithLease. A waiter that isn't woken
// asks again about every third of WithLease's ttl, 10 s at most. If Redis doesn't answer, or refuses for a while,
// TrySetCount and CountDown are repeated for that ttl, 30 s at most; then they fail. As with an UnleasedSemaphore,
// receipts make sure that nothing is counted twice.
//
// In a cluster, and over a Ring, its name (with the client's prefix) can't have a {tag}: Redisson would publish on a
// channel in another slot. Such a name is refused with an error that matches ErrInvalid.
type Latch struct{ lock }

// Latch describes the latch with a name. It does no I/O and never fails: if the name or an option is invalid, the first
// use returns an error that matches ErrInvalid. A name belongs to a latch or to a lock, not to both.
func (c *Client) Latch(name string, opts ...LockOption) *Latch {
	l := &Latch{c.describeNumber(latchKind, name, opts)}
	if l.err == nil && l.cfg.replicas > 0 { // a latch grants nothing that replicas could confirm
		cfg := *l.cfg
		cfg.replicas = 0
		l.cfg = &cfg
	}
	return l
}

// TrySetCount closes the latch if it is open, and reports whether it did. The latch then has to be counted down n
// times, 1 or more. A closed latch isn't changed. After an error, the latch may have been set or not.
func (l *Latch) TrySetCount(ctx context.Context, n int) (bool, error) {
	lk := l.base()
	return lk.applyUpdate(ctx, "set count", false, func() (*claim, error) {
		if err := lk.checkCount("TrySetCount", n, 1); err != nil {
			return nil, err
		}
		return lk.newCounterUpdate(script.LatchSet, n), lk.hearable(ctx)
	})
}

// CountDown counts the latch down by 1, and only once if the request is repeated. At 0 the latch opens, and all waiters
// go on. An open latch isn't changed. CountDown also works on a ctx that has ended, and then takes no longer than
// WithLease's ttl, and 30 s at most. Otherwise it returns when ctx ends at the latest.
//
// If Redis didn't answer, or refused for a while (READONLY, NOREPLICAS, LOADING and the like), don't repeat the call
// after the error: the client goes on with it for two minutes. If Redis refused the first try for good (NOPERM, OOM),
// nothing was counted, and you may repeat the call. If it refused a later one, after a try without an answer, the
// client goes on, too: the error then is "<refusal>, after: <the earlier error>". A closed client counts nothing down
// (ErrClosed).
func (l *Latch) CountDown(ctx context.Context) error {
	lk := l.base()
	return lk.applyRelease(ctx, "count down", func() (*claim, error) {
		return lk.newCounterUpdate(script.LatchCountDown, 0), lk.hearable(ctx)
	})
}

// Wait waits until the latch is open, ctx ends, or WithWait is over. All waiters of one client share their questions to
// Redis. If the latch is set again at once, some waiters may find it closed: they go on waiting.
//
// The error is a *HeldError if WithWait is over. It matches ErrHeld and the cause of ctx if ctx ended during the wait.
// In both cases, if the last question to Redis failed, it has that failure in place of ErrHeld. Other errors:
// ErrClosed; ErrInvalid; the cause of ctx if ctx had ended before; else what Redis answered, or why it didn't.
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

// Count returns how often the latch still has to be counted down: 0 if it is open, or was never set.
func (l *Latch) Count(ctx context.Context) (int, error) {
	n, err := l.base().count(ctx, "count", script.CountNumber)
	return max(n, 0), err
}

// hearable returns an error if the latch's channel may live on another server than the latch.
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
