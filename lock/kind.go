package lock

import (
	"strings"
	"time"

	"github.com/lockdog/lockdog/lock/internal/script"
)

// kind is what differs between the kinds of lock. Waiting, the watchdog, leases and telemetry are the same for all.
type kind struct {
	name string // the value of the attribute lockdog.kind

	acquire *script.Acquirer
	release *script.Releaser // nil: an acquire leaves nothing in Redis
	retain  *script.Releaser // ends the lease, but keeps the lock taken for WithMinHold; nil: not for this kind
	force   *script.Forcer
	inspect *script.Inspector

	// handOver is a release that may hand the lock over to a waiter of the same client; nil: there is none.
	handOver *script.Releaser

	// channel returns the channel on which a release is published.
	channel func(key string) string
	// holding is how Redis stores its owners.
	holding script.Holding

	// downgradesFrom is the kind whose holder gets a lock of this kind at once: the writer, for a reader.
	downgradesFrom *kind
	// ownerSuffix is the end of each owner of this kind.
	ownerSuffix string

	usesWaitSet      bool // a release may pass the lock to one of the waiting clients: see package waitset
	oneKey           bool // acquire and release work with the lock's key alone, as they must while its slot moves
	queuesInRedis    bool // the head of a queue has a place in Redis. It keeps the place by asking again
	queuePerWaiter   bool // each waiter has its own queue here, its own channel, and its own place in Redis
	retakable        bool // a caller may hold it several times
	shared           bool // several may hold it: after a grant to a waiter, or when one leaves, the next may get it
	grantsAllWaiters bool // a grant to one waiter is a grant to all that waited when it asked
	usesReceipts     bool // it takes from a counter, and leaves a receipt: see receipts.go
	leaseless        bool // what it grants has no lease
	ofOneNode        bool // it is a Quorum's lock at one node, which alone grants nothing

	number    string // what its key holds, if not the hash of a lock
	refusal   string // why an acquire was refused, if not because of a holder
	emptyHint string // replaces refusal if no lease is known that will end
}

// named returns a copy of the kind with another name.
func (k kind) named(name string) *kind {
	k.name = name
	return &k
}

// words returns the name as error texts have it.
func (k *kind) words() string { return strings.ReplaceAll(k.name, "_", " ") }

// refuses returns why an acquire was refused, "" if there is a holder. remaining is the time until the first lease
// ends; negative: none will end.
func (k *kind) refuses(remaining time.Duration) string {
	if remaining < 0 && k.emptyHint != "" {
		return k.emptyHint
	}
	return k.refusal
}

// keys returns the keys of the lock for a script.
func (lk *lock) keys() script.Lock { return script.Lock{Key: lk.key, Counter: lk.counter} }

// counterOf returns the key of the token counter of the lock that is stored at key, boxed.
func (c *Client) counterOf(key string, cfg *lockConfig) any {
	if cfg.redissonTokens {
		return script.JavaCounter(key)
	}
	return c.counters.Of(c.cfg.prefix, key)
}

// storedOwner returns the claim's owner as Redis stores it.
func (cl *claim) storedOwner() string { return cl.lock.kind.holding.StoredOwner(cl.owner) }

// renewedKey returns the key that stores the owners of the lock.
func (lk *lock) renewedKey() string { return lk.kind.holding.Key(lk.key) }

// wakeChannel returns the channel on which a waiter is woken.
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
