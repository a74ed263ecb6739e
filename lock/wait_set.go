package lock

import (
	"time"

	"github.com/lockdog/lockdog/lock/internal/script"
	"github.com/lockdog/lockdog/lock/internal/waitset"
)

// How the queues use package waitset.

// grantTrust returns how long a waiter for the lock may trust a message that grants it; 0: not at all, it has to ask.
func (lk *lock) grantTrust() time.Duration {
	if !lk.kind.usesWaitSet || lk.cfg.interval() == 0 || lk.cfg.replicas > 0 || lk.cfg.takeoverDelay > 0 {
		return 0
	}
	return min(lk.cfg.lease/renewalsPerLease, waitset.MaxTrust)
}

// ownChannel listens for the messages that are for this client alone.
type ownChannel struct{ q *waitQueue }

// Up implements pubsub.Listener.
func (c ownChannel) Up() { c.setReachable(true) }

// Down implements pubsub.Listener.
func (c ownChannel) Down() { c.setReachable(false) }

func (c ownChannel) setReachable(reachable bool) {
	c.q.ws.mu.Lock()
	defer c.q.ws.mu.Unlock()
	c.q.membership.SetReachable(reachable, c.q.head == nil)
}

// Message implements pubsub.Listener.
func (c ownChannel) Message(payload string) {
	q := c.q
	q.ws.mu.Lock()
	defer q.ws.mu.Unlock()
	owner := ""
	if q.head != nil {
		owner = q.head.claim.owner
	}
	if q.membership.Message(payload, owner) {
		q.wakeHead(wakeMessage) // the head takes the granted lock or, if it doesn't trust the message, asks
	}
}

// replaceEntries makes a head ask if its entry in the wait set lets a release grant it the lock. It is called when the
// client begins to be slow: a head that asks then replaces its entry by one with which a release only wakes the client.
// mu must be held.
func (ws *waitQueues) replaceEntries() {
	for _, q := range ws.queues {
		if q.head != nil && q.membership.Grantable(q.head.claim) {
			q.dueUnless(wakePoll)
			q.wakeOrSetTimer()
		}
	}
}

// canRegister reports whether messages to this client alone would arrive, so that the wait set may have its entry.
func (q *waitQueue) canRegister() bool {
	return q.subscription == subUp && q.membership.Reachable() && q.kind().usesWaitSet
}

// register registers the head as this client's waiter in the wait set. It returns the change of the set, which the
// caller must send with its request or its release.
func (q *waitQueue) register() script.EntryChange {
	lk := q.head.lock
	return q.membership.Register(q.head.claim, lk.grantTrust(), lk.cfg.ttlArg)
}

// registerAtRelease returns what a release changes in the wait set. The script adds the entry only if others wait.
func (q *waitQueue) registerAtRelease() script.EntryChange {
	switch {
	case !q.membership.WorthRegistering():
		return script.EntryChange{}
	case q.canRegister():
		return q.register()
	}
	return q.membership.Unregister()
}

// accept takes the lock that a message has granted to the head, if the message can be trusted: see
// waitset.Membership.TakeGrant. Otherwise the head must ask.
func (ws *waitQueues) accept(w *waiter) (v acquireReply, by script.RemoteGrant, ok bool) {
	ws.mu.Lock()
	q := w.q
	if q == nil || q.head != w || q.state != headSleeps { // a release here was faster
		ws.mu.Unlock()
		return acquireReply{}, by, false
	}
	trust := w.lock.grantTrust()
	by, sent, until, ok := q.membership.TakeGrant(w.claim, trust, marginOf(trust))
	if !ok {
		ws.mu.Unlock()
		return acquireReply{}, by, false
	}
	v = acquireReply{
		AcquireReply: script.AcquireReply{Granted: true, Now: by.Now, Token: by.Token, Left: 1, Remaining: -1},
		sent:         sent, until: until,
	}
	q.due = wakeNone
	after := q.noteGranted(w, &headAttempt{claim: w.claim}, v) // of an attempt that sent nothing
	ws.mu.Unlock()
	after()
	return v, by, true
}

// abandonEntry is called when the release of a grant is over. If the wait set may still have the claim's entry, such as
// at another node because the slot was moving at the time of the grant, a release may grant the claim the lock once
// more: the client then gives the lock back.
func (ws *waitQueues) abandonEntry(cl *claim) {
	if !cl.mayBeGranted() {
		return
	}
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.set.Abandon(cl)
}

// giveBackAll gives back each lock that was, or may be, granted to a waiter that has left. It is called when the client
// closes.
func (ws *waitQueues) giveBackAll() {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.set.GiveBackAll()
}

// fallbackAfter is the shortest time from a release that only woke another client until a queue asks. The longest is
// twice that.
const fallbackAfter = 10 * time.Millisecond

// scheduleFallback is called after a release that may have notified one client only. The queue asks for the lock later
// or, if it has no waiter any more, the cleanup wakes everybody. If q is nil, nothing is done. granted: the lock isn't
// free, because the release granted it to another client.
func (ws *waitQueues) scheduleFallback(q *waitQueue, claim *claim, granted bool) {
	if q == nil || !claim.lock.kind.usesWaitSet {
		return
	}
	ws.mu.Lock()
	left := q.head == nil
	if !left {
		q.setFallback(granted)
	}
	ws.mu.Unlock()
	if left {
		var wait time.Duration
		if granted {
			wait = waitset.MaxTrust + fallbackAfter
		}
		claim.giveBackAfter(wait)
	}
}

// listen subscribes a queue to its channels, the client's own first: when the lock's channel is up, the head asks and
// registers, for which it needs both.
func (ws *waitQueues) listen(q *waitQueue) {
	if own := q.membership.Channel(); own != "" {
		ws.c.pubsub.Listen(own, ownChannel{q})
	}
	ws.c.pubsub.Listen(q.channel, q)
}

func (ws *waitQueues) unlisten(q *waitQueue) {
	ws.c.pubsub.Unlisten(q.channel, q)
	own := q.membership.Channel()
	switch {
	case own == "":
	case q.membership.Lingers():
		time.AfterFunc(waitset.UnsubscribeDelay, func() {
			ws.mu.Lock()
			q.membership.GiveBackLast()
			ws.mu.Unlock()
			ws.c.pubsub.Unlisten(own, ownChannel{q})
		})
	default:
		ws.c.pubsub.Unlisten(own, ownChannel{q})
	}
}
