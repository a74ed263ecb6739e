package script

import (
	"strconv"
	"strings"
	"time"
)

// Entries are how a call changes the client's entries in the wait set. The zero value leaves it alone.
type Entries struct {
	Add     string // see Entry; "": none
	TakeOut string // that of an earlier waiter; "": the same, or none
	Since   int64  // when the client began to wait, or last had the lock: Redis's time in µs, 0 for now. A release takes now
	Lease   any    // of the waiter, in ms: an int64, boxed
}

// Entry returns the entry of a client in a wait set. By it a release may call the client with that tag. With a trust it may also grant the
// lock to the waiter with that owner, for so long: see RemoteGrant.
func Entry(tag string, trust time.Duration, traceparent, owner string) string {
	if trust <= 0 {
		return tag
	}
	if traceparent == "" {
		traceparent = "-"
	}
	return tag + " " + strconv.FormatInt(trust.Milliseconds(), 10) + " " + traceparent + " " + owner
}

// ParseEntry reads an entry: the owner whom a release may grant the lock, and the traceparent of its acquire; "" where a release may only wake the client.
func ParseEntry(entry string) (owner, traceparent string) {
	words := strings.SplitN(entry, " ", 4)
	if len(words) < 4 {
		return "", ""
	}
	return words[3], strings.TrimPrefix(words[2], "-")
}

// ParseCall reads the message that calls a client: when it was sent, Redis's time in µs. Anybody may have published it: 0 if it isn't a time.
func ParseCall(payload string) int64 {
	now, err := strconv.ParseInt(payload, 10, 64)
	if err != nil || now <= LeastTime {
		return 0
	}
	return now
}

// RemoteGrant is the message of a release that has granted the lock to a waiter.
type RemoteGrant struct {
	Owner string // the waiter
	Token int64
	Now   int64 // when that was: Redis's time, µs

	From        string // who released it
	Traceparent string // of that owner's acquire
}

// ParseRemoteGrant reads the message. Anybody may have published it: what doesn't parse is none.
func ParseRemoteGrant(payload string) (RemoteGrant, bool) {
	lines := strings.Split(payload, "\n")
	if len(lines) != 3 || lines[1] == "" {
		return RemoteGrant{}, false
	}
	words := strings.Split(lines[0], " ")
	if len(words) != 3 {
		return RemoteGrant{}, false
	}
	token, err1 := strconv.ParseInt(words[0], 10, 64)
	now, err2 := strconv.ParseInt(words[1], 10, 64)
	if err1 != nil || err2 != nil || token <= 0 || now <= LeastTime {
		return RemoteGrant{}, false
	}
	o := RemoteGrant{Owner: lines[1], Token: token, Now: now, From: lines[2]}
	if words[2] != "-" {
		o.Traceparent = words[2]
	}
	return o, true
}
