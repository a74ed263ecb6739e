package waitset

import (
	"cmp"
	"time"

	"github.com/lockdog/lockdog/lock/internal/script"
)

// Member is the membership of a client's queue in the wait set of its lock.
type Member struct {
	client  *Client
	key     string // of the lock
	channel string

	reachable  bool         // messages on the channel arrive
	alone      bool         // the last release found that no other client waits
	registered Claim        // the one of whom the wait set has an entry, or may have; nil: of nobody
	since      int64        // Redis's time in µs since when the client waits, or last had the lock; 0: unknown
	grant      *remoteGrant // nil: the head was granted nothing that it hasn't looked at
	lingers    bool         // a claim was given up that may be granted the lock
}

// remoteGrant is the message of a release that has granted the lock to the head of the queue.
type remoteGrant struct {
	script.RemoteGrant
	arrived time.Time
}

// Join makes the Member, zero until then, that of a queue for the lock with a key. lockChannel is where the lock's releases are published,
// "" if the lock has no wait set.
func (m *Member) Join(c *Client, key, lockChannel string) {
	m.client, m.key = c, key
	if lockChannel != "" {
		m.channel = lockChannel + ":" + c.tag
	}
}

// Channel returns the channel of the messages that are for this client alone, "" if there is none.
func (m *Member) Channel() string { return m.channel }

// Reachable reports whether messages on the channel arrive.
func (m *Member) Reachable() bool { return m.reachable }

// SetReachable notes whether messages on the channel arrive. What was granted before, the head finds out when it asks. empty: there is no head.
func (m *Member) SetReachable(reachable, empty bool) {
	m.reachable = reachable
	if reachable && empty {
		m.DeclineLast()
	}
}

// Message reads a message from the channel. owner is that of the head, "" if there is none. It reports whether the head is to look: at the
// grant, or by asking.
func (m *Member) Message(payload, owner string) (wake bool) {
	g, isGrant := script.ParseRemoteGrant(payload)
	if sent := cmp.Or(g.Now, script.ParseCall(payload)); sent != 0 {
		if at, known := m.client.clock(m.key).Earliest(sent); known && time.Since(at) > lateMessage {
			m.client.noteSlow()
		}
	}
	switch {
	case !isGrant:
	case g.Owner != owner:
		m.client.Decline(g.Owner)
		return false
	default:
		m.grant = &remoteGrant{g, time.Now()}
	}
	return true
}

// Register makes a claim the one of whom the wait set has an entry, and returns what the claim's call for the lock, or a release, changes in the set. trust is
// how long the claim trusts a message that grants it the lock, 0: not at all. lease is its lease in milliseconds, boxed.
func (m *Member) Register(claim Claim, trust time.Duration, lease any) script.Entries {
	if m.client.slow() {
		trust = 0
	}
	entry := script.Entry(m.client.tag, trust, claim.Traceparent(), claim.Owner())
	e := script.Entries{Add: entry, Since: m.since, Lease: lease}
	if m.registered != nil {
		if before := m.registered.Entry(); before != e.Add {
			e.TakeOut = before
		}
	}
	m.registered = claim
	if trust > 0 || !MayBeGranted(claim.Entry()) { // otherwise the set may still have the entry before, by which it may be granted the lock
		claim.SetEntry(entry)
	}
	return e
}

// Unregister takes the entry out of the set by a release.
func (m *Member) Unregister() (e script.Entries) {
	if m.registered != nil {
		e.TakeOut, m.registered = m.registered.Entry(), nil
	}
	return e
}

// WorthRegistering reports whether others may wait. Where none did at the last release, an entry isn't worth its while: once others wait, the release wakes
// all.
func (m *Member) WorthRegistering() bool { return !m.alone || m.registered != nil }

// Registered reports whether the wait set has an entry of a claim, or may have.
func (m *Member) Registered(claim Claim) bool { return m.registered == claim }

// Grantable reports whether a release may grant the lock to a claim.
func (m *Member) Grantable(claim Claim) bool {
	return m.registered == claim && MayBeGranted(claim.Entry())
}

// Granted reports whether a message has granted the lock to the head, which hasn't looked yet.
func (m *Member) Granted() bool { return m.grant != nil }

// clockGrain is more than the clocks' readings are cut off by.
const clockGrain = 100 * time.Microsecond

// Accept takes the lock that a message has granted to a claim, the head's, if the message can be trusted for at least half of the time of trust: from sent
// until until. If not, the head asks: then it is granted what is its own already.
//
//	sent  = the earliest time at which the server's clock may have shown the time in the message
//	until = sent + trust - margin
func (m *Member) Accept(claim Claim, trust, margin time.Duration) (g script.RemoteGrant, sent, until time.Time, ok bool) {
	if m.grant == nil || m.grant.Owner != claim.Owner() {
		return g, sent, until, false
	}
	grant := m.grant
	m.grant = nil
	sent, known := m.client.clock(m.key).Earliest(grant.Now)
	if sent.After(grant.arrived.Add(clockGrain)) { // the server's clock was set forward, or this machine slept: the message may be of any age
		known = false
	}
	until = sent.Add(trust - margin)
	if !known || time.Until(until) < trust/2 {
		if known {
			m.client.noteSlow()
		}
		return g, sent, until, false
	}
	m.registered = nil
	claim.SetEntry("")
	return grant.RemoteGrant, sent, until, true
}

// Took notes that a claim, the head's, has taken the lock at a time of Redis's clock. inSet: its call for the lock may have added its entry; moving: to another node than the one that
// granted the lock, as the slot is moving.
func (m *Member) Took(claim Claim, now int64, inSet, moving bool) {
	m.since = now
	m.forget(claim)
	if inSet {
		if !moving {
			claim.SetEntry("")
		}
		m.registered = nil
	}
}

// Refused notes that the head's call was refused at a time of Redis's clock. inSet: it has added the entry.
func (m *Member) Refused(now int64, inSet bool) {
	if m.since == 0 && inSet {
		m.since = now
	}
}

// HandedOver notes that a release in this process has handed the lock to a claim. othersWait: other clients wait.
func (m *Member) HandedOver(claim Claim, othersWait bool) {
	m.since = 0 // others have waited longer, if any do
	m.registered, m.alone = nil, !othersWait
	claim.SetEntry("")
	m.forget(claim)
}

// NotHandedOver notes that a release in this process gave the lock to another client, or to none.
func (m *Member) NotHandedOver() { m.alone = false }

// forget drops the message that has granted the lock to a claim, which has got it otherwise.
func (m *Member) forget(claim Claim) {
	if m.grant != nil && m.grant.Owner == claim.Owner() {
		m.grant = nil
	}
}

// GiveUp notes that the head gives up its claim. A release may still grant it the lock.
func (m *Member) GiveUp(claim Claim) {
	if m.grant != nil {
		m.grant = nil
		claim.GiveBack()
		return
	}
	if MayBeGranted(claim.Entry()) {
		m.client.Abandon(claim)
		m.lingers = true
	}
}

// Lingers reports whether the client goes on listening on the channel for UnsubscribeDelay after its last waiter has left, and then calls DeclineLast.
func (m *Member) Lingers() bool { return m.lingers }

// DeclineLast gives back what the last waiter of a queue that has ended was granted, or may be: nobody may be there to hear of it.
func (m *Member) DeclineLast() {
	if m.registered != nil {
		m.client.Decline(m.registered.Owner())
	}
}
