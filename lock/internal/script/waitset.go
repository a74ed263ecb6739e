package script

import (
	"strconv"
	"strings"
	"time"
)

// EntryChange says how a call changes the client's entry in a lock's wait set. The zero value asks for no change.
type EntryChange struct {
	Add    string // see Entry; "": none
	Remove string // an earlier entry of the client; "": none
	Since  int64  // for an acquire: Redis's time in µs when the client began to wait or last got the lock; 0: now
	Lease  any    // of the waiter that Add is for, in ms: an int64, boxed
	// MayHaveAdd is for a hand-over to the waiter of Add, if the wait set may have Add already. Remove is then ignored,
	// and Add is removed unless another client is chosen.
	MayHaveAdd bool
}

// Entry returns the entry of a client in a wait set, by which a release may wake the client. With a trust over 0, a
// release may also grant the lock to the waiter with that owner, for the trust time: see RemoteGrant.
func Entry(tag string, trust time.Duration, traceparent, owner string) string {
	if trust <= 0 {
		return tag
	}
	if traceparent == "" {
		traceparent = "-"
	}
	return tag + " " + strconv.FormatInt(trust.Milliseconds(), 10) + " " + traceparent + " " + owner
}

// ParseEntry returns the owner to which an entry allows a release to grant the lock, and the traceparent of its
// acquire. Both are "" if a release may only wake the client.
func ParseEntry(entry string) (owner, traceparent string) {
	words := strings.SplitN(entry, " ", 4)
	if len(words) < 4 {
		return "", ""
	}
	return words[3], strings.TrimPrefix(words[2], "-")
}

// ParseWakeUp returns the time in a message that wakes one client: when it was sent, Redis's time in µs. Anybody may
// have published the message: ParseWakeUp returns 0 if the message isn't a time.
func ParseWakeUp(payload string) int64 {
	now, err := strconv.ParseInt(payload, 10, 64)
	if err != nil || now <= LeastTime {
		return 0
	}
	return now
}

// RemoteGrant is the message by which a release grants the lock to a waiter, nearly always to one of another client.
type RemoteGrant struct {
	Owner string // the waiter
	Token int64
	Now   int64 // of the grant: Redis's time, µs

	From        string // the owner that released the lock
	Traceparent string // of From's acquire
}

// ParseRemoteGrant parses a message. Anybody may have published it: the result is false unless the message has the form
// of a RemoteGrant.
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
