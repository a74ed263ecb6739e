package lock

import (
	"fmt"
	"strings"
	"sync/atomic"
	"unicode/utf8"

	"github.com/lockdog/lockdog/lock/internal/backend"
)

// maxNameBytes bounds a lock's name: it travels in every command, log line and span.
const maxNameBytes = 1024

// checkName says what is wrong with the name of a lock, prefix included.
func checkName(name string) error {
	switch {
	case name == "":
		return fmt.Errorf("%w: the lock's name is empty", ErrInvalid)
	case len(name) > maxNameBytes:
		return fmt.Errorf("%w: the lock's name %.32q… has %d bytes, at most %d are allowed", ErrInvalid, name, len(name), maxNameBytes)
	case !utf8.ValidString(name):
		return fmt.Errorf("%w: the lock's name %q is not valid UTF-8", ErrInvalid, name)
	}
	if err := checkReserved("the lock's name", name); err != nil {
		return err
	}
	return checkBraces("the lock's name", name)
}

// fencePart is what the keys of token counters are named by.
const fencePart = "lockdog:fence:"

// reserved are the parts of names by which keys can be told that belong to a lock or to a slot, ours and Redisson's. A lock so named would
// overwrite another's state. A part is reserved wherever it stands: with another client's key prefix before it, it may be such a key.
//
// "{name}:timeout" isn't reserved, under which a Permits has its leases: programs name locks so, and no kind overwrites what it finds there,
// as it isn't of the kind's type.
var reserved = []string{
	fencePart, "lockdog_wait:", "lockdog_fair:", ":lockdog_writers", ":lockdog_turn", ":lockdog_receipt:",
	":rwlock_timeout:", "redisson_lock_queue:", "redisson_lock_timeout:", "redisson_lock_token:", "redisson_unlock_latch:",
}

// checkReserved rejects text that has a reserved part in it.
func checkReserved(what, s string) error {
	if !strings.Contains(s, "lock") { // which all of them have, and few names
		return nil
	}
	for _, part := range reserved {
		if strings.Contains(s, part) {
			return fmt.Errorf("%w: %s %q contains %q, which is reserved for keys that lockdog or Redisson keep beside locks; choose another name",
				ErrInvalid, what, s, part)
		}
	}
	return nil
}

// checkBraces rejects text whose braces give no hash tag: in a cluster the lock and its channel, which
// gets braces of its own only where the name has none, would live in different slots.
func checkBraces(what, s string) error {
	if !strings.ContainsAny(s, "{}") {
		return nil
	}
	if _, ok := backend.HashTag(s); !ok {
		return fmt.Errorf("%w: %s %q has braces that are no hash tag; use none, or one non-empty {tag}", ErrInvalid, what, s)
	}
	return nil
}

// channelOf is the channel on which the release of a lock is published: Redisson's, so that Go and Java
// holders wake each other's waiters.
func channelOf(key string) string { return prefixName("redisson_lock__channel", key) }

// waitsKey has the clients that wait for a lock. It lives in the lock's slot.
func waitsKey(key string) string { return prefixName("lockdog_wait", key) }

// prefixName is how Redisson names what belongs to a key, so that it lives in the key's slot.
func prefixName(prefix, key string) string {
	if strings.Contains(key, "{") {
		return prefix + ":" + key
	}
	return prefix + ":{" + key + "}"
}

// suffixName is the same with what it is behind the key.
func suffixName(key, suffix string) string {
	if strings.Contains(key, "{") {
		return key + ":" + suffix
	}
	return "{" + key + "}:" + suffix
}

// counters remembers the key of each slot's token counter, boxed as calls take it: making it anew for every call would cost as much as
// the rest of the call. It is bounded, however many names there are: 128 KiB, and a few MB once all slots were used.
type counters [backend.Slots]atomic.Pointer[any]

func (cs *counters) of(prefix, key string) any {
	at := &cs[backend.SlotOf(key)]
	if known := at.Load(); known != nil {
		return *known
	}
	var counter any = fenceKey(prefix, key)
	at.Store(&counter)
	return counter
}

// fenceKey is the counter that a lock draws its tokens from: one per slot, so that their number is bounded
// however many names there are, and in the lock's own slot, so that one script may use both.
func fenceKey(prefix, key string) string {
	return prefix + fencePart + "{" + backend.SlotTag(backend.SlotOf(key)) + "}"
}
