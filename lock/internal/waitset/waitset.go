// Package waitset is a client's part in wait sets. With a wait set, a release passes the lock on to one waiting client,
// of any process and in one round trip, instead of waking all clients.
//
// To pass a lock on is one of three things: to hand it over, to a waiter of the releasing client, which the reply
// tells; to grant it remotely, to a waiter of another client, which a message tells; or to wake a client, which then
// asks.
//
// The wait set of a lock is a sorted set in Redis. It has one entry for each client that waits for the lock and is
// subscribed to its own channel (see the messages below). A lock is passed on in four steps:
//
//  1. Register. A client has a queue of its waiters; the head of the queue asks Redis for the lock. A script that
//     refuses the lock adds the client's entry, which contains the client's tag, the head's owner, and the trust time:
//     how long the head trusts a grant, and how old the score may be for one (script.Entry). A release by a client with
//     a queue adds that client's entry, too, if it passes the lock on to another client. The score is the time at which
//     the client began to wait, or last got the lock; after a hand-over within the client, that of its next request; of
//     an entry that a release has added, that of the release.
//  2. Release. A release removes the entry with the lowest score, and grants the lock to its owner for the trust time
//     (next.lua), unless the score is older than that: then it only wakes the client. It publishes the remote grant on
//     that client's channel and, with script.PassOnAnnounced, -tag on the lock's channel for all others. If the entry
//     is of the waiter to which the release may hand the lock over (hand_over.lua), that waiter gets it for a whole
//     lease instead, and nothing is published.
//  3. Take. Membership.Message gets the remote grant and wakes the head (waitQueue.wakeHead). The head takes the lock
//     if enough of the trust time is left: waitQueues.turnOf and accept, Membership.TakeGrant, waitQueue.noteGranted.
//     Otherwise it asks Redis, which answers that the lock is its own if the trust time isn't over.
//  4. Renew. The watchdog renews the lease within an eighth of the trust time that is left. From then on it is a lease
//     like any other.
//
// A client whose entry has no owner is woken instead: it gets a message at which its head asks for the lock. An entry
// has no owner if the head can't trust a grant, because its lease isn't renewed, needs replicas to confirm it, or has a
// takeover delay, or if the client has read messages late (Client.noteSlow). A client whose score is older than the
// trust time is woken, too: it may have been stopped since, and a grant would keep the lock from the others for that
// time. If somebody may wait for a FairMutex with the lock's name, or if Redis refuses a command of the grant, the
// client is woken as well.
//
// A grant or a wake-up may fail:
//
//   - The chosen client is stopped, cut off or dead. The lock is free when the trust time is over, or at once after a
//     wake-up. 10 to 20 ms later somebody must ask for it. With script.PassOnSilently that is the client that released
//     the lock, because it has a queue for it. With script.PassOnAnnounced it is all waiting clients, because they got
//     the message to all. If the releasing client dies after a silent release, the others ask when the last lease that
//     they saw should have ended, as after the death of a holder.
//   - The waiter has left, or the message was lost with the subscription. If the waiter is still there, it learns when
//     it asks that the lock is its own. If it has left, the client gives the lock back (Client.GiveBackAbandoned) when
//     the message arrives, or when another of its waiters asks and learns that this owner holds the lock. If neither
//     happens, the lock is given back when the subscription is up again, a second after the last waiter has left, or
//     when the client closes. If the client's entry stays in the set, a release deletes the set when it has more
//     entries than the channel has listeners.
//   - Redis counts no listener on the chosen client's channel, or the numbers of listeners and entries differ. Then
//     nothing is granted, and all clients are woken. A listener that Redis doesn't count, such as a Redisson client
//     that subscribes at a replica, is woken by one release in 64, which wakes all.
//
// The messages are, in the order in which next.lua and release.lua publish them:
//
//	channel           message                                to
//	<lock's>:<tag>    <token> <time> <traceparent>\n         one client: a remote grant to the owner
//	                    <owner>\n<owner that released>
//	<lock's>:<tag>    <time>                                 one client: wake up, and ask
//	<lock's>          -<tag>                                 the others: that client was granted the lock
//	<lock's>          <tag>                                  the others: that client was woken
//	<lock's>          0, or anything else                    all: wake up, and ask
//
// Redisson's waiters, which listen on the lock's channel only, read tags as numbers and ignore them.
package waitset

import (
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/lockdog/lockdog/lock/internal/dispatch"
	"github.com/lockdog/lockdog/lock/internal/script"
)

// MaxTrust is the longest trust time. It is longer than the usual pauses of a primary.
const MaxTrust = 3 * time.Second

// UnsubscribeDelay is how long a client goes on listening on its own channel after its last waiter has left, if it
// must: see Membership.Lingers.
const UnsubscribeDelay = time.Second

// One release in wakeAllOneIn wakes all clients, because Redis may not count all listeners.
const wakeAllOneIn = 64

// WakeAllAtTimes returns p or, at random in one of wakeAllOneIn calls, script.WakeAll.
func WakeAllAtTimes(p script.PassOn) script.PassOn {
	if rand.IntN(wakeAllOneIn) == 0 {
		return script.WakeAll
	}
	return p
}

// A client's tag is a number of tagDigits digits.
const (
	tagDigits = 10
	firstTag  = 1_000_000_000
	lastTag   = 1<<31 - 1
)

func newTag() string {
	return strconv.FormatInt(firstTag+rand.Int64N(lastTag-firstTag+1), 10)
}

// IsTag reports whether a message on the lock's channel, without its '-', has the form of a tag.
func IsTag(message string) bool { return len(message) == tagDigits }

// MayBeGranted reports whether an entry has an owner, to which a release may grant the lock. "": there is no entry.
func MayBeGranted(entry string) bool { return len(entry) > tagDigits }

// Claim is the part of a waiter's request for a lock that a wait set needs.
type Claim interface {
	Owner() string
	Traceparent() string
	// WaitEntry returns the claim's last entry with an owner, or else the last one, that the wait set may have; "":
	// none.
	WaitEntry() string
	SetWaitEntry(entry string)
	// GiveBack releases the lock if it was granted to the claim, and wakes the next waiter.
	GiveBack()
}

// Client is a client's part in all wait sets. The mutex of the client's queues must be held for its methods and those
// of its Memberships, except Tag, Channel and, for a queue that has ended, Lingers.
type Client struct {
	tag       string
	clock     func(key string) *dispatch.Clock // of the server where a key lives
	closing   func() bool
	slowed    func()           // see NewClient
	abandoned map[string]Claim // by owner; see Abandon
	expiries  []expiry         // of abandoned, the earliest first
	slowUntil time.Time
}

type expiry struct {
	owner string
	at    time.Time
}

// NewClient returns a Client. clock returns the clock of the server where a key lives; closing reports whether the
// client is closing. slowed is called when the client begins to be slow (see noteSlow). It must replace the client's
// entries in wait sets, so that releases only wake the client.
func NewClient(clock func(key string) *dispatch.Clock, closing func() bool, slowed func()) *Client {
	return &Client{tag: newTag(), clock: clock, closing: closing, slowed: slowed, abandoned: make(map[string]Claim)}
}

// Tag returns the client's name in entries and messages.
func (c *Client) Tag() string { return c.tag }

// Abandon notes that a claim was given up, or released, while a wait set may have its entry. If the client learns
// within 2*MaxTrust that a release has granted the claim the lock, GiveBackAbandoned gives the lock back. A closing
// client won't learn of a grant: Abandon then calls GiveBack at once.
func (c *Client) Abandon(claim Claim) {
	now := time.Now()
	for len(c.expiries) > 0 && now.After(c.expiries[0].at) {
		delete(c.abandoned, c.expiries[0].owner)
		c.expiries = c.expiries[1:]
	}
	if c.closing() { // nobody will hear of a grant
		claim.GiveBack()
		return
	}
	c.abandoned[claim.Owner()] = claim
	c.expiries = append(c.expiries, expiry{claim.Owner(), now.Add(2 * MaxTrust)})
}

// GiveBackAbandoned gives back the lock that was granted to an owner, if the owner's claim was abandoned. Any other
// owner keeps the lock: the owner has got it by asking, or is another client's.
func (c *Client) GiveBackAbandoned(owner string) {
	if claim := c.abandoned[owner]; claim != nil {
		delete(c.abandoned, owner)
		claim.GiveBack()
	}
}

// GiveBackAll calls GiveBack for all abandoned claims, because a release may have granted them their locks, or may
// still do so. It is called when the client closes.
func (c *Client) GiveBackAll() {
	for owner := range c.abandoned {
		c.GiveBackAbandoned(owner)
	}
}

// A client that reads messages late may miss a grant, and then nobody has the lock for the trust time. So such a client
// is slow: releases only wake it, and don't grant it a lock, until it has read no message late for slowFor.
const (
	lateMessage = MaxTrust / 2
	slowFor     = time.Minute
)

func (c *Client) slow() bool { return time.Now().Before(c.slowUntil) }

func (c *Client) noteSlow() {
	began := !c.slow()
	c.slowUntil = time.Now().Add(slowFor)
	if began {
		c.slowed()
	}
}
