// Package waitset is a client's part in wait sets: through them a release passes a lock to one of the waiting clients, in whatever
// process, in one round trip, and doesn't wake all of them.
//
// The wait set of a lock is a sorted set in Redis. It has an entry of each client that waits for the lock and hears messages for it alone,
// on its own channel. A lock travels so:
//
//  1. Register. A client has a queue of its waiters; the head of the queue asks Redis for the lock. A script that refuses the lock adds the client's entry,
//     which names the client, the head's owner, and for how long the head trusts a message (script.Entry). So does a release by a client that has a
//     queue itself. The score is the time at which the client began to wait, or last had the lock.
//  2. Release. A release takes out the entry with the least score, and grants the lock to its owner for the time of trust (next.lua). It publishes the
//     remote grant on that client's channel and, with script.WakeOneAnnounced, -tag on the lock's channel for all others. If the entry is that of its own
//     client's next waiter, it hands the lock over instead, for a whole lease, and publishes nothing.
//  3. Accept. The head takes the lock, if enough is left of that time: Member.Accept. Otherwise it asks. As long as the time lasts, Redis then answers that
//     the lock is its own.
//  4. Renew. After an eighth of what is left of that time the watchdog renews the lease. From then on it is a lease like any other.
//
// An entry without an owner asks for a call in place of a grant: a message at which the head asks. A head that can't trust a message has such an entry, as
// its lease isn't renewed, replicas have to confirm it, or it has a takeover delay. So does a client that has read messages late (Client.noteSlow). A client
// whose score is older than the time of trust is called, too: it may have been stopped since, and many others with it.
//
// A grant or a call may come to nothing:
//
//   - The chosen client is stopped, cut off or dead. The lock is free when the time of trust is over, and after a call at once. Then somebody must ask,
//     10 to 20 ms later: the client that released the lock, if it has a queue for it (script.WakeOneSilent); otherwise all waiting clients, whom the message to
//     all has told (script.WakeOneAnnounced). If a client that released in silence has died, too, the others ask when the lease that they saw last should have
//     ended, as after the death of a holder.
//   - The waiter has left, or the message was lost with the subscription. Whoever of its client asks next is told that the lock is held by an owner
//     that has left, and gives the lock back: Client.Decline. If nobody asks any more, it is given back as the subscription comes back, a second after the last
//     waiter has left, and as the client closes. An entry that stays behind is deleted by a release that finds more entries than listeners.
//   - Redis counts no listener on the chosen client's channel, or another number of listeners than of entries. Then nothing is granted, and all are woken.
//     A listener that Redis doesn't count, such as a Redisson client that subscribes at a replica, is reached by one release in 64, which wakes all.
package waitset

import (
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/lockdog/lockdog/lock/internal/dispatch"
	"github.com/lockdog/lockdog/lock/internal/script"
)

// MaxTrust is the longest time for which a waiter trusts a message that grants it the lock. It is longer than a primary stands still at times.
const MaxTrust = 3 * time.Second

// UnsubscribeDelay is how long a client goes on listening on its own channel after its last waiter has left without the lock, to decline it.
const UnsubscribeDelay = time.Second

// wakeAllOneIn: one release in so many wakes all.
const wakeAllOneIn = 64

// WakePolicy returns whom a release wakes: once in a while all.
func WakePolicy(w script.Wake) script.Wake {
	if rand.IntN(wakeAllOneIn) == 0 {
		return script.WakeAll
	}
	return w
}

// A client's tag is a number with tagDigits digits. A message to all is the tag of the client that was called, or -tag if it was granted the lock.
// Any other message wakes all. Redisson reads these messages as numbers and ignores them.
const (
	tagDigits = 10
	firstTag  = 1_000_000_000
	lastTag   = 1<<31 - 1
)

func newTag() string {
	return strconv.FormatInt(firstTag+rand.Int64N(lastTag-firstTag+1), 10)
}

// IsTag reports whether a message to all names a client.
func IsTag(message string) bool { return len(message) == tagDigits }

// MayBeGranted reports whether a release may grant the lock to the owner of an entry, "" = no entry. The alternative is a call.
func MayBeGranted(entry string) bool { return len(entry) > tagDigits }

// Claim is what a wait set needs of a waiter's request for a lock.
type Claim interface {
	Owner() string
	Traceparent() string
	// Entry returns the entry that the wait set may have of the claim, "" if it has none. SetEntry changes it.
	Entry() string
	SetEntry(entry string)
	// GiveBack releases what the claim was granted, if it was, and wakes the next.
	GiveBack()
}

// Client is a client's part in all wait sets. Its methods, and those of its Members, are called with the mutex of the client's queues held.
type Client struct {
	tag       string
	clock     func(key string) *dispatch.Clock // of the server where a key lives
	closing   func() bool
	slowed    func()           // see NewClient
	abandoned map[string]Claim // by owner; see Abandon
	expiries  []expiry         // of them, the first to expire first
	slowUntil time.Time
}

type expiry struct {
	owner string
	at    time.Time
}

// NewClient returns the part of a client that knows the clocks of its servers, and whether it is closing. slowed is called when the client begins to be
// slow: the entries that it has in wait sets are to be replaced.
func NewClient(clock func(key string) *dispatch.Clock, closing func() bool, slowed func()) *Client {
	return &Client{tag: newTag(), clock: clock, closing: closing, slowed: slowed, abandoned: make(map[string]Claim)}
}

// Tag returns what entries and messages call the client.
func (c *Client) Tag() string { return c.tag }

// Abandon notes that nobody wants the lock by a claim any more, of which a wait set may have the entry: the claim was given up, or
// has been released. If a release grants it the lock after all, the lock is given back.
func (c *Client) Abandon(claim Claim) {
	now := time.Now()
	for len(c.expiries) > 0 && now.After(c.expiries[0].at) {
		delete(c.abandoned, c.expiries[0].owner)
		c.expiries = c.expiries[1:]
	}
	if c.closing() { // nobody will listen
		claim.GiveBack()
		return
	}
	c.abandoned[claim.Owner()] = claim
	c.expiries = append(c.expiries, expiry{claim.Owner(), now.Add(2 * MaxTrust)})
}

// Decline gives back a lock that was granted to an owner, if that owner was abandoned. Otherwise it has asked in the meantime, and has the lock.
func (c *Client) Decline(owner string) {
	if claim := c.abandoned[owner]; claim != nil {
		delete(c.abandoned, owner)
		claim.GiveBack()
	}
}

// DeclineAll gives back what abandoned claims were granted, or may be, as the client closes.
func (c *Client) DeclineAll() {
	for owner := range c.abandoned {
		c.Decline(owner)
	}
}

// A client that reads a message late may let a grant pass, and keeps the lock from the others for as long. So it is called, not granted, until it has
// read all messages in time for slowFor.
const (
	lateMessage = MaxTrust / 2
	slowFor     = time.Minute
)

func (c *Client) slow() bool { return time.Now().Before(c.slowUntil) }

// noteSlow notes that a message was read late.
func (c *Client) noteSlow() {
	began := !c.slow()
	c.slowUntil = time.Now().Add(slowFor)
	if began {
		c.slowed()
	}
}
