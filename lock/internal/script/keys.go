package script

import (
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/lockdog/lockdog/internal/hashslot"
)

// fencePart follows the key prefix in a FenceKey.
const fencePart = "lockdog:fence:"

// Reserved are the parts of names that mark the keys in which lockdog and Redisson keep the state of a lock, a slot or
// a client. A lock with such a name could overwrite that state. A part is reserved anywhere in a name: the text before
// it may be another client's key prefix, and the name then one of that client's keys.
//
// "{name}:timeout", the key of a Semaphore's permits, isn't reserved. Programs use such names for locks, and no kind of
// lock overwrites a key of another type.
var Reserved = []string{
	fencePart, waitsPart, waitingKey,
	"lockdog_wait:", "lockdog_fair:", ":lockdog_writers", ":lockdog_turn", ":lockdog_receipt:", ":rwlock_timeout:",
	"redisson_lock_queue:", "redisson_lock_timeout:", "redisson_lock_token:", "redisson_unlock_latch:",
}

// Channel returns the channel on which releases of a lock are published. All channels here are Redisson's, so that Go
// and Java holders wake each other's waiters.
func Channel(key string) string { return prefixed("redisson_lock__channel", key) }

// RWChannel returns the channel of a read-write lock.
func RWChannel(key string) string { return prefixed("redisson_rwlock", key) }

// SemaphoreChannel returns the channel of a semaphore, with leases or without.
func SemaphoreChannel(key string) string { return prefixed("redisson_sc", key) }

// LatchChannel returns the channel of a latch. As in Redisson, it gets braces even if the key has some.
func LatchChannel(key string) string { return "redisson_countdownlatch__channel__{" + key + "}" }

// WaitSetKey returns the key of a lock's wait set: see acquire.lua.
func WaitSetKey(key string) string { return prefixed("lockdog_wait", key) }

// QueueKey returns the key of the queue of a FairMutex.
func QueueKey(key string) string { return prefixed("redisson_lock_queue", key) }

// QueueTimeoutsKey returns the key of Redisson's deadlines for the waiters in the queue of a FairMutex.
func QueueTimeoutsKey(key string) string { return prefixed("redisson_lock_timeout", key) }

// QueueAliveKey returns the key of lockdog's deadlines for its own waiters in the queue of a FairMutex.
func QueueAliveKey(key string) string { return prefixed("lockdog_fair", key) }

// WritersKey returns the key of the writers that wait for a read-write lock: a sorted set of owner -> until when it
// counts as waiting, ms. See rw.lua.
func WritersKey(key string) string { return suffixed(key, "lockdog_writers") }

// markKeys returns the common prefix of the keys of one holder's marks. A holder of a read-write lock has one mark for
// each time that it entered the lock: see rw.lua.
func markKeys(key, owner string) string { return suffixed(key, owner+":rwlock_timeout:") }

// MarkKey returns the key of the first mark of a read-write lock's holder.
func MarkKey(key, owner string) string { return MarkKeyOf(key, owner, 1) }

// MarkKeyOf returns the key of the nth mark of a read-write lock's holder, counted from 1. See rw.lua.
func MarkKeyOf(key, owner string, n int) string { return markKeys(key, owner) + strconv.Itoa(n) }

// PermitsKey returns the key of the permits that are taken from a semaphore with leases.
func PermitsKey(key string) string { return suffixed(key, "timeout") }

// ReceiptKey returns the key of an operation's receipt. The receipt makes a repeated call harmless: see once.lua.
func ReceiptKey(key, owner string) string { return suffixed(key, "lockdog_receipt:"+owner) }

// JavaCounter returns the key of the counter from which Redisson draws the tokens of a lock.
func JavaCounter(key string) string { return prefixed("redisson_lock_token", key) }

// FenceKey returns the key of the counter from which a lock draws its tokens, unless that is JavaCounter. There is one
// per slot: so the number of counters is bounded, and a script may use both the lock and its counter.
func FenceKey(prefix, key string) string {
	return prefix + fencePart + "{" + hashslot.Tag(hashslot.Of(key)) + "}"
}

// IsCounterOf reports whether a key is the JavaCounter of a lock, or a FenceKey of it with any prefix.
func IsCounterOf(counter, key string) bool {
	return counter == JavaCounter(key) || strings.HasSuffix(counter, FenceKey("", key))
}

// Counters caches the FenceKey of each slot, boxed: building it for every lock would cost as much as a call. It takes
// 128 KiB, and about 1 MB more once all slots were used, however many names there are.
type Counters [hashslot.Count]atomic.Pointer[any]

// Of returns the FenceKey of a key. All calls must have the same prefix.
func (cs *Counters) Of(prefix, key string) any {
	at := &cs[hashslot.Of(key)]
	if known := at.Load(); known != nil {
		return *known
	}
	var counter any = FenceKey(prefix, key)
	at.Store(&counter)
	return counter
}

// prefixed returns a name as Redisson builds it for state that belongs to a key. It is in the key's slot.
func prefixed(prefix, key string) string {
	if strings.Contains(key, "{") {
		return prefix + ":" + key
	}
	return prefix + ":{" + key + "}"
}

// suffixed returns a name for state that belongs to a key: the key, then the suffix. It is in the key's slot.
func suffixed(key, suffix string) string {
	if strings.Contains(key, "{") {
		return key + ":" + suffix
	}
	return "{" + key + "}:" + suffix
}
