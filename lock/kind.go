package lock

import (
	"context"
	"strings"
	"time"

	"github.com/lockdog/lockdog/lock/internal/contention"
	"github.com/lockdog/lockdog/lock/internal/script"
)

// kind is what differs between the kinds of lock. Waiting, the watchdog, leases and telemetry are the same for all, and know a kind only by
// this table.
type kind struct {
	name string // lockdog.kind

	acquire *script.Acquirer
	release *script.Releaser // nil: an acquire leaves nothing in Redis
	retain  *script.Releaser // ends the lease and leaves the lock taken for a while; nil: WithMinHold isn't for it
	force   *script.Forcer
	inspect *script.Inspector

	// handOver is a release that may hand the lock to a waiter of the same client; nil: there is none.
	handOver *script.Releaser

	// channel is where a release is published.
	channel func(key string) string
	// holding is how its owners are stored in Redis.
	holding script.Holding

	// downgradesFrom is the kind whose holder gets a lock of this kind at once.
	downgradesFrom *kind
	// ownerSuffix ends the names of its owners.
	ownerSuffix string

	usesWaitSet      bool // a release may pass the lock to one of the waiting clients: see package waitset
	oneKey           bool // acquire and release work with the lock's key alone, as they must while its slot moves
	queuesInRedis    bool // the head of a queue has a place in Redis, which it keeps by asking again, and gives up when it leaves
	queuePerWaiter   bool // each waiter has a queue here and a channel of its own, for its place in Redis
	multiHolder      bool // a holder may take it again
	wakesNextOnGrant bool // when a waiter got in or left, there may be enough for the next
	grantsAllWaiters bool // a grant to one waiter is a grant to all
	usesReceipts     bool // its operations change a counter and leave a receipt: see receipts.go
	isCounterUpdate  bool // release is such an operation
	amount           int  // ... with this argument
	leaseless        bool // it is held without a lease

	number    string // what its key holds, if not a lock's hash
	refusal   string // why it was refused, if not because somebody holds it
	emptyHint string // ... if no lease is known that will end
}

// words returns the name as texts have it.
func (k *kind) words() string { return strings.ReplaceAll(k.name, "_", " ") }

// refuses returns why it was refused, "" if somebody holds it. No lease ends before remaining; negative: none will end.
func (k *kind) refuses(remaining time.Duration) string {
	if remaining < 0 && k.emptyHint != "" {
		return k.emptyHint
	}
	return k.refusal
}

// acquireParams say what a call of Lock or TryLock asks for.
type acquireParams struct {
	mayWait      bool               // it is Lock, which waits
	waitDeadline time.Time          // of Lock; zero: there is none, or WithWait says when
	tryDeadline  time.Time          // of TryLock, for Redis's answer; zero: each call may take one lease
	writer       string             // the owner of the caller's lease of the kind that this one downgrades from
	permits      int                // of a semaphore
	composite    *compositeLease    // of which it will be a member, nil for most
	sample       *contention.Sample // of the call, nil for most

	// These change from attempt to attempt:
	placeTTL time.Duration  // how long its place in Redis's queue is kept until it asks again; 0: it takes none
	waited   time.Duration  // since it first asked
	entries  script.Entries // how the wait set changes: see package waitset
	waiter   *waiter        // the waiter that asks; nil: a TryLock, or the first attempt of a Lock
}

// callContext returns the ctx of the calls to Redis, which have a moment more than the wait.
func (p *acquireParams) callContext(ctx context.Context) (context.Context, context.CancelFunc) {
	if p.waitDeadline.IsZero() {
		return ctx, func() {}
	}
	return context.WithDeadlineCause(ctx, p.waitDeadline.Add(lastAnswer), errNoAnswer)
}

// callTimeout is how long a call for a lock with that lease waits for Redis.
func (p *acquireParams) callTimeout(lease time.Duration) time.Duration {
	if p.tryDeadline.IsZero() {
		return lease
	}
	return max(min(lease, time.Until(p.tryDeadline)), 0)
}

// keys returns the lock as scripts take it.
func (lk *lock) keys() script.Lock { return script.Lock{Key: lk.key, Counter: lk.counter()} }

// counter returns the key of the lock's token counter, boxed.
func (lk *lock) counter() any {
	if lk.cfg.redissonTokens {
		return script.JavaCounter(lk.key)
	}
	return lk.c.counters.Of(lk.c.cfg.prefix, lk.key)
}

// spent returns receipts that an operation is to delete.
func (lk *lock) spent() []string {
	if !lk.kind.usesReceipts {
		return nil
	}
	return lk.c.receipts.take(lk.key)
}

// member returns the claim's owner as Redis stores it.
func (cl *claim) member() string { return cl.lock.kind.holding.Member(cl.owner) }

// renewedKey returns the key that stores the owners of the lock.
func (lk *lock) renewedKey() string { return lk.kind.holding.Key(lk.key) }

// wakeChannel returns the channel on which a waiter hears of a release.
func (lk *lock) wakeChannel(claim *claim) string {
	channel := lk.kind.channel(lk.key)
	if lk.kind.queuePerWaiter {
		channel += ":" + claim.owner
	}
	return channel
}

// queueKey returns the name of a waiter's queue in this client.
func (lk *lock) queueKey(claim *claim) string {
	if lk.kind.queuePerWaiter {
		return lk.key + " " + claim.owner
	}
	return lk.key
}
