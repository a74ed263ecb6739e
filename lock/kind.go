package lock

import (
	"time"

	"github.com/lockdog/lockdog/lock/internal/script"
)

// kind is what differs between the kinds of lock. What they share - waiting, the watchdog, leases, telemetry - knows
// a kind by this table only.
type kind struct {
	name string // lockdog.kind

	acquire *script.Acquirer
	release *script.Releaser // nil: a lock leaves nothing
	force   *script.Forcer
	inspect *script.Inspector

	// handOver is a release that may hand the lock to a waiter of the same client. Nil: none does.
	handOver *script.Releaser

	// channel is where a release is heard of.
	channel func(key string) string
	// holding is how Redis knows its owners.
	holding script.Holding

	// downgradesFrom is the kind whose holder gets the lock of this one, too, and at once.
	downgradesFrom *kind
	// ownerSuffix is what the names of its owners end in.
	ownerSuffix string

	notifiesOne      bool // a release may wake one of the waiting clients, see notify_one.go
	oneKey           bool // acquire and release can do with the lock's key alone, as they must while its slot moves
	queuesInRedis    bool // the head of a line has a place in Redis, which it keeps by asking again and has to give up
	queuePerWaiter   bool // a waiter stands in a line of its own: in Redis's queue it has a channel of its own
	multiHolder      bool // whoever holds it may take it once more
	wakesNextOnGrant bool // when a waiter has got in, or has left, there may be enough for the next
	grantsAllWaiters bool // whoever gets in takes all waiters along
	usesReceipts     bool // its operations change a number for good: each leaves a receipt, see deed
	isCounterUpdate  bool // release does such an operation
	amount           int  // ... with this number
	leaseless        bool // nobody has a lease of it

	number    string // what its key holds where that is no lock's hash
	refusal   string // says why it can't be had where that isn't because somebody holds it
	emptyHint string // ... and no lease is known that will run out
}

// refuses says why it can't be had, "" where somebody holds it. No lease runs out in less than remaining; negative: none will.
func (k *kind) refuses(remaining time.Duration) string {
	if remaining < 0 && k.emptyHint != "" {
		return k.emptyHint
	}
	return k.refusal
}

// acquireParams are what somebody who asks for a lock wants beside it.
type acquireParams struct {
	until    time.Time     // the end of the wait, zero: the lock's own options say it
	keep     time.Duration // how long a place in Redis's queue is kept until it asks again, 0: it takes none
	waited   time.Duration // since it first asked
	under    string        // owner of the lease of the kind above that the caller has
	permits  int           // of a semaphore
	outside  bool          // it means to wait, but doesn't stand in line yet
	waiterID script.Waiter // whom a release may call, where it hears of it
	waiter   *waiter       // on whose behalf it is asked, nil: not of one
	whole    *bundle       // of which it is to be a member, nil for most
}

// keys are what scripts need to know of the lock.
func (lk *lock) keys() script.Lock { return script.Lock{Key: lk.key, Counter: lk.counter()} }

// counter is the key of the lock's token counter, boxed.
func (lk *lock) counter() any {
	if lk.cfg.redissonTokens {
		return script.JavaCounter(lk.key)
	}
	return lk.c.counters.Of(lk.c.cfg.prefix, lk.key)
}

// spent are receipts that an operation is to delete.
func (lk *lock) spent() []string {
	if !lk.kind.usesReceipts {
		return nil
	}
	return lk.c.receipts.take(lk.key)
}

// member is what stands for the bid's owner in Redis.
func (b *claim) member() string { return b.lock.kind.holding.Member(b.owner) }

// renewedKey is where the owners of the lock are.
func (lk *lock) renewedKey() string { return lk.kind.holding.Key(lk.key) }

// wakeChannel is the channel on which a waiter hears of a release.
func (lk *lock) wakeChannel(b *claim) string {
	channel := lk.kind.channel(lk.key)
	if lk.kind.queuePerWaiter {
		channel += ":" + b.owner
	}
	return channel
}

// queueKey names the queueKey in which a waiter of this client stands.
func (lk *lock) queueKey(b *claim) string {
	if lk.kind.queuePerWaiter {
		return lk.key + " " + b.owner
	}
	return lk.key
}
