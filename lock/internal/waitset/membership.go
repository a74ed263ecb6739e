package waitset

import (
	"cmp"
	"time"

	"github.com/lockdog/lockdog/lock/internal/script"
)

// Membership is the membership of a client's queue in the wait set of its lock.
type Membership struct {
	client  *Client
	key     string // of the lock
	channel string

	reachable  bool         // messages on the channel arrive
	noOthers   bool         // the last hand-over in this process found that no other client waits
	registered Claim        // whose entry the wait set has, or may have; nil: none
	sent       string       // the entry that Register returned last: in a slow client a bare tag, unlike registered's
	since      int64        // when the client began to wait, or last got the lock: Redis's time in µs; 0: unknown
	grant      *remoteGrant // of the head, which hasn't looked at it yet; nil: none
	refusedAt  int64        // when the last request of a head was refused: Redis's time in µs; 0: never
	lingers    bool         // a claim was given up that may still be granted the lock
}

// remoteGrant is the message of a release that has granted the lock to the head of the queue.
type remoteGrant struct {
	script.RemoteGrant
	arrived time.Time
}

// Join initializes a zero Membership for the queue of the lock with a key. The lock's releases are published on
// lockChannel; "": the lock has no wait set.
func (m *Membership) Join(c *Client, key, lockChannel string) {
	m.client, m.key = c, key
	if lockChannel != "" {
		m.channel = lockChannel + ":" + c.tag
	}
}

// Channel returns the channel of the messages for this client alone; "": there is none.
func (m *Membership) Channel() string { return m.channel }

// Reachable reports whether messages on the channel arrive.
func (m *Membership) Reachable() bool { return m.reachable }

// SetReachable notes whether messages on the channel arrive. If the message of a grant was lost, the head finds the
// grant when it asks. If empty is true, the queue has no head: then SetReachable calls GiveBackLast when messages
// arrive again.
func (m *Membership) SetReachable(reachable, empty bool) {
	m.reachable = reachable
	if reachable && empty {
		m.GiveBackLast()
	}
}

// Message handles a message from the channel. It keeps a grant to the head for TakeGrant, unless a request of a head
// was refused after the grant. A grant to an abandoned claim is given back. owner is the head's owner; "": there is no
// head. wake is true if the head must wake up, to accept the grant or to ask.
func (m *Membership) Message(payload, owner string) (wake bool) {
	g, isGrant := script.ParseRemoteGrant(payload)
	if sent := cmp.Or(g.Now, script.ParseWakeUp(payload)); sent != 0 {
		if at, known := m.client.clock(m.key).Earliest(sent); known && time.Since(at) > lateMessage {
			m.client.noteSlow()
		}
	}
	switch {
	case !isGrant:
	case g.Owner != owner:
		m.client.GiveBackAbandoned(g.Owner)
		return false
	case g.Now <= m.refusedAt: // the grant was over by then: the head asks
	default:
		m.grant = &remoteGrant{g, time.Now()}
	}
	return true
}

// Register registers a claim. It returns the change of the wait set that the claim's request for the lock, or a
// release, must make. trust is the trust time; 0: the claim trusts no grant. lease is its lease in milliseconds, boxed.
func (m *Membership) Register(claim Claim, trust time.Duration, lease any) script.EntryChange {
	if m.client.slow() {
		trust = 0
	}
	entry := script.Entry(m.client.tag, trust, claim.Traceparent(), claim.Owner())
	e := script.EntryChange{Add: entry, Since: m.since, Lease: lease}
	if m.registered != nil {
		e.Remove = m.sent
		if e.Remove == e.Add {
			e.Remove = m.registered.WaitEntry() // an older one, which the set may still have: see below
		}
		if e.Remove == e.Add {
			e.Remove = ""
		}
	}
	m.registered, m.sent = claim, entry
	// An entry without an owner doesn't replace the claim's entry with an owner: the set may still have the latter, and
	// a release may grant the claim the lock.
	if trust > 0 || !MayBeGranted(claim.WaitEntry()) {
		claim.SetWaitEntry(entry)
	}
	return e
}

// Unregister unregisters the claim. It returns what a release must change in the wait set for that.
func (m *Membership) Unregister() (e script.EntryChange) {
	if m.registered != nil {
		e.Remove, m.registered = m.registered.WaitEntry(), nil
	}
	return e
}

// WorthRegistering reports whether a release should send an entry. If no other client waited at the last hand-over, and
// no claim is registered, the entry isn't worth its cost: if others do wait now, the release without an entry wakes
// all.
func (m *Membership) WorthRegistering() bool { return !m.noOthers || m.registered != nil }

// Registered reports whether the wait set has, or may have, an entry of a claim.
func (m *Membership) Registered(claim Claim) bool { return m.registered == claim }

// Grantable reports whether a claim is registered, and a release may grant it the lock. (An entry of a claim that isn't
// registered any more may still be in the wait set: see claim.mayBeGranted in package lock.)
func (m *Membership) Grantable(claim Claim) bool {
	return m.registered == claim && MayBeGranted(claim.WaitEntry())
}

// HasGrant reports whether a message has granted the lock to the head, which hasn't looked at it yet.
func (m *Membership) HasGrant() bool { return m.grant != nil }

// clockGrain is more than the rounding of the clocks' readings.
const clockGrain = 100 * time.Microsecond

// TakeGrant takes the lock that a message has granted to the head's claim, if the age of the message is known and at
// least half of the trust time is left. The lease lasts from sent to until. If ok is false, the head must ask: the lock
// may be its own.
//
//	sent  = the earliest time at which the server's clock may have shown the time in the message
//	until = sent + trust - margin
func (m *Membership) TakeGrant(claim Claim, trust, margin time.Duration) (
	g script.RemoteGrant, sent, until time.Time, ok bool,
) {
	grant := m.grant
	m.grant = nil
	if grant == nil || grant.Owner != claim.Owner() {
		return g, sent, until, false
	}
	sent, known := m.client.clock(m.key).Earliest(grant.Now)
	// If the server's clock was set forward, or this machine slept, the message may be of any age.
	if sent.After(grant.arrived.Add(clockGrain)) {
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
	claim.SetWaitEntry("")
	return grant.RemoteGrant, sent, until, true
}

// Took notes that the head's claim has taken the lock at now, Redis's time. hadEntry: the attempt had the claim's
// entry to send, and the script removes that entry from the wait set, unless an ACL forbids the set. moving: the lock's
// slot is moving, so the entry wasn't sent, and may still be at the other node.
func (m *Membership) Took(claim Claim, now int64, hadEntry, moving bool) {
	m.since = now
	m.forget(claim)
	if hadEntry {
		if !moving {
			claim.SetWaitEntry("")
		}
		m.registered = nil
	}
}

// Refused notes that the head's request was refused at now, Redis's time. hadEntry: the attempt had the claim's entry
// to send, so the wait set may have the entry now.
func (m *Membership) Refused(now int64, hadEntry bool) {
	if m.since == 0 && hadEntry {
		m.since = now
	}
	m.refusedAt = now
	if m.grant != nil && m.grant.Now <= now {
		m.grant = nil // the lock was taken away since (by ForceUnlock, say)
	}
}

// HandedOver notes that a release in this process has handed the lock over to a claim. othersWait: other clients wait.
func (m *Membership) HandedOver(claim Claim, othersWait bool) {
	m.since = 0 // the next entry gets the time of its request, because other clients have waited longer
	m.registered, m.noOthers = nil, !othersWait
	claim.SetWaitEntry("")
	m.forget(claim)
}

// NotHandedOver notes that a release in this process tried to hand the lock over, and didn't.
func (m *Membership) NotHandedOver() { m.noOthers = false }

// forget drops the grant of a claim that has got the lock in another way.
func (m *Membership) forget(claim Claim) {
	if m.grant != nil && m.grant.Owner == claim.Owner() {
		m.grant = nil
	}
}

// GiveUp notes that the head gives up its claim. If a release has granted the lock to the claim, or does so later, the
// lock is given back.
func (m *Membership) GiveUp(claim Claim) {
	if m.grant != nil {
		m.grant = nil
		claim.GiveBack()
		return
	}
	if MayBeGranted(claim.WaitEntry()) {
		m.client.Abandon(claim)
		m.lingers = true
	}
}

// Lingers reports whether the client, when its last waiter has left, must go on listening on the channel for
// UnsubscribeDelay and then call GiveBackLast.
func (m *Membership) Lingers() bool { return m.lingers }

// GiveBackLast is for a queue that has ended. If the waiter that was registered last has left without the lock,
// GiveBackLast gives the lock back, because a release may have granted it to that waiter.
func (m *Membership) GiveBackLast() {
	if m.registered != nil {
		m.client.GiveBackAbandoned(m.registered.Owner())
	}
}
