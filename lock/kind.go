package lock

import (
	"strconv"
	"time"

	"github.com/lockdog/lockdog/lock/internal/backend"
	"github.com/lockdog/lockdog/lock/internal/script"
)

// kind is what differs between the kinds of lock. What they share - waiting, the watchdog, leases, telemetry - knows
// a kind by this table only.
type kind struct {
	name string // lockdog.kind

	acquire, release, force, inspect *backend.Script

	// handOver is a release that may hand the lock to a waiter of the same client. Nil: none does.
	handOver *backend.Script

	// keys are those of its scripts: the lock, the token counter, and what the kind has besides. Nil: the first two.
	keys func(lk *lock, owner string) []string
	// channel is where a release is heard of.
	channel func(key string) string
	// asking and freeing are the arguments of acquire, and of release and force, after those that all kinds have.
	asking  func(lk *lock, t terms) []any
	freeing func(lk *lock) []any

	// above is the kind whose holder gets the lock of this one, too, and at once.
	above *kind
	// ending is what the names of its owners end in.
	ending string
	// member is what stands for an owner in Redis, nil: its name.
	member func(owner string) string
	// renewal goes before the lease in the renew script: how the owner holds the lock, "" as a field of a hash.
	renewal string
	// renewed is the key that the renew script is given, nil: the lock.
	renewed func(lk *lock) string

	calls     bool // a release may call one of the clients that wait, see called.go
	oneKey    bool // acquire and release can do with the lock's key alone, as they must while its slot moves
	enlists   bool // the head of a line has a place in Redis, which it keeps by asking again and has to give up
	alone     bool // a waiter stands in a line of its own: in Redis's queue it has a channel of its own
	many      bool // whoever holds it may take it once more
	shared    bool // when a waiter has got in, or has left, there may be enough for the next
	opens     bool // whoever gets in takes all waiters along
	counts    bool // its operations change a number for good: each leaves a receipt, see deed
	deed      bool // release does such an operation
	leaseless bool // nobody has a lease of it

	number  string // what its key holds where that is no lock's hash
	refusal string // says why it can't be had where that isn't because somebody holds it
	barren  string // ... and no lease is known that will run out
}

// refuses says why it can't be had, "" where somebody holds it. No lease runs out in less than remaining; negative: none will.
func (k *kind) refuses(remaining time.Duration) string {
	if remaining < 0 && k.barren != "" {
		return k.barren
	}
	return k.refusal
}

// terms are what somebody who asks for a lock wants beside it.
type terms struct {
	until   time.Time     // the end of the wait, zero: the lock's own options say it
	keep    time.Duration // how long a place in Redis's queue is kept until it asks again, 0: it takes none
	waited  time.Duration // since it first asked
	under   string        // owner of the lease of the kind above that the caller has
	permits int           // of a semaphore
	outside bool          // it means to wait, but doesn't stand in line yet
	caller  caller        // whom a release may call, where it hears of it
	waiter  *waiter       // on whose behalf it is asked, nil: not of one
	whole   *bundle       // of which it is to be a member, nil for most
}

// twoKeys are the keys of a lock that has no others: its own, and the counter that its tokens are drawn from.
func twoKeys(lk *lock, _ string) []string { return []string{lk.key, lk.counter()} }

// counter is the key of the lock's token counter.
func (lk *lock) counter() string {
	if lk.cfg.javaTokens {
		return script.JavaCounter(lk.key)
	}
	return lk.slotCounter().(string)
}

// slotCounter is the key of its slot's counter, boxed.
func (lk *lock) slotCounter() any { return lk.c.counters.Of(lk.c.cfg.prefix, lk.key) }

// keys are those of an operation on behalf of an owner.
func (lk *lock) keys(owner string) []string {
	if lk.kind.keys == nil {
		return twoKeys(lk, owner)
	}
	return lk.kind.keys(lk, owner)
}

// plainKeys are the keys of an operation that belongs to no owner.
func (lk *lock) plainKeys() []string {
	keys := lk.keys("")
	if lk.kind.oneKey {
		keys = keys[:1]
	}
	return keys
}

// member is what stands for the bid's owner in Redis.
func (b *bid) member() string {
	if of := b.lock.kind.member; of != nil {
		return of(b.owner)
	}
	return b.owner
}

// renewal is the lease as the renew script takes it.
func (lk *lock) renewal() any {
	ms := lk.cfg.lease.Milliseconds()
	if mode := lk.kind.renewal; mode != "" {
		return mode + strconv.FormatInt(ms, 10)
	}
	return ms
}

// renewedKey is the key that the renew script is given.
func (lk *lock) renewedKey() string {
	if of := lk.kind.renewed; of != nil {
		return of(lk)
	}
	return lk.key
}

// ear is the channel on which a waiter hears of a release.
func (lk *lock) ear(b *bid) string {
	channel := lk.kind.channel(lk.key)
	if lk.kind.alone {
		channel += ":" + b.owner
	}
	return channel
}

// line names the line in which a waiter of this client stands.
func (lk *lock) line(b *bid) string {
	if lk.kind.alone {
		return lk.key + " " + b.owner
	}
	return lk.key
}
