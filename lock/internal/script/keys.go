package script

import (
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/lockdog/lockdog/internal/hashslot"
)

// fencePart begins the name of a token counter, after the key prefix.
const fencePart = "lockdog:fence:"

// Reserved are the parts of names by which keys of lockdog and Redisson that belong to a lock or a slot are recognized. A lock with such a name would
// overwrite another's state. A part is reserved wherever it stands: with another client's key prefix before it, it may be such a key.
//
// "{name}:timeout", where a Semaphore has its leases, isn't reserved. Programs name locks so, and no kind overwrites a key that isn't of its type.
var Reserved = []string{
	fencePart, waitsPart, waitingKey, "lockdog_wait:", "lockdog_fair:", ":lockdog_writers", ":lockdog_turn", ":lockdog_receipt:",
	":rwlock_timeout:", "redisson_lock_queue:", "redisson_lock_timeout:", "redisson_lock_token:", "redisson_unlock_latch:",
}

// Channel is where the release of a lock is published. As with all channels here, it is Redisson's: Go and Java holders wake each other's
// waiters.
func Channel(key string) string { return prefixed("redisson_lock__channel", key) }

// RWChannel is that of a read-write lock.
func RWChannel(key string) string { return prefixed("redisson_rwlock", key) }

// SemaphoreChannel is that of a semaphore's permits, with leases or without.
func SemaphoreChannel(key string) string { return prefixed("redisson_sc", key) }

// LatchChannel is that of a latch. It gets braces even if the key has some.
func LatchChannel(key string) string { return "redisson_countdownlatch__channel__{" + key + "}" }

// WaitersKey has the clients that wait for a lock.
func WaitersKey(key string) string { return prefixed("lockdog_wait", key) }

// QueueKey has the waiters for a FairMutex in their order.
func QueueKey(key string) string { return prefixed("redisson_lock_queue", key) }

// QueueTimeoutsKey has Redisson's deadlines of the waiters in that queue.
func QueueTimeoutsKey(key string) string { return prefixed("redisson_lock_timeout", key) }

// QueueAliveKey has our deadlines of them.
func QueueAliveKey(key string) string { return prefixed("lockdog_fair", key) }

// WritersKey has the writers that wait for a read-write lock: owner -> until when its place is kept, ms.
func WritersKey(key string) string { return suffixed(key, "lockdog_writers") }

// markKeys is what the keys of the marks of a holder of a read-write lock begin with. See rw.lua.
func markKeys(key, owner string) string { return suffixed(key, owner+":rwlock_timeout:") }

// MarkKey has the first mark of such a holder.
func MarkKey(key, owner string) string { return MarkKeyOf(key, owner, 1) }

// MarkKeyOf has the nth mark of such a holder: it has one for each time it entered.
func MarkKeyOf(key, owner string, n int) string { return markKeys(key, owner) + strconv.Itoa(n) }

// PermitsKey has the permits of a semaphore that are taken.
func PermitsKey(key string) string { return suffixed(key, "timeout") }

// ReceiptKey has the receipt of an operation.
func ReceiptKey(key, owner string) string { return suffixed(key, "lockdog_receipt:"+owner) }

// JavaCounter is the counter from which Redisson draws the tokens of a lock.
func JavaCounter(key string) string { return prefixed("redisson_lock_token", key) }

// FenceKey is the counter from which a lock draws its tokens. There is one per slot: their number is bounded, and one script may use the lock and
// the counter.
func FenceKey(prefix, key string) string {
	return prefix + fencePart + "{" + hashslot.Tag(hashslot.Of(key)) + "}"
}

// Counters remembers the FenceKey of each slot, boxed as calls take it: making it for every call would cost as much as the rest of the call. It is
// bounded, however many names there are: 128 KiB, and a few MB once all slots were used.
type Counters [hashslot.Count]atomic.Pointer[any]

// Of returns the counter of a key.
func (cs *Counters) Of(prefix, key string) any {
	at := &cs[hashslot.Of(key)]
	if known := at.Load(); known != nil {
		return *known
	}
	var counter any = FenceKey(prefix, key)
	at.Store(&counter)
	return counter
}

// prefixed is how Redisson names what belongs to a key. It lives in the key's slot.
func prefixed(prefix, key string) string {
	if strings.Contains(key, "{") {
		return prefix + ":" + key
	}
	return prefix + ":{" + key + "}"
}

// suffixed is the same with the name after the key.
func suffixed(key, suffix string) string {
	if strings.Contains(key, "{") {
		return key + ":" + suffix
	}
	return "{" + key + "}:" + suffix
}
