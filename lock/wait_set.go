package lock

import (
	"time"

	"github.com/lockdog/lockdog/lock/internal/script"
	"github.com/lockdog/lockdog/lock/internal/waitset"
)

// What the queues have to do with package waitset.

// Owner implements waitset.Claim.
func (cl *claim) Owner() string { return cl.owner }

// Traceparent implements waitset.Claim.
func (cl *claim) Traceparent() string { return cl.traceparent }

// Entry implements waitset.Claim.
func (cl *claim) Entry() string {
	if e := cl.entry.Load(); e != nil {
		return *e
	}
	return ""
}

// SetEntry implements waitset.Claim.
func (cl *claim) SetEntry(entry string) {
	if entry == "" {
		cl.entry.Store(nil)
		return
	}
	cl.entry.Store(&entry)
}

// GiveBack implements waitset.Claim.
func (cl *claim) GiveBack() { cl.cleanUpOnce() }

// mayBeGranted reports whether a release may grant the claim the lock, by the entry that the wait set may have of it.
func (cl *claim) mayBeGranted() bool { return waitset.MayBeGranted(cl.Entry()) }

// grantTrust is how long a waiter for the lock may trust a message that grants it; 0: not at all, it has to ask.
func (lk *lock) grantTrust() time.Duration {
	if !lk.kind.usesWaitSet || lk.cfg.interval() == 0 || lk.cfg.replicas > 0 || lk.cfg.takeoverDelay > 0 {
		return 0
	}
	return min(lk.cfg.lease/renewalsPerLease, waitset.MaxTrust)
}

// ownChannel is the listener of the messages that are for this client alone.
type ownChannel struct{ q *waitQueue }

// Up implements pubsub.Listener.
func (c ownChannel) Up() { c.setReachable(true) }

// Down implements pubsub.Listener.
func (c ownChannel) Down() { c.setReachable(false) }

func (c ownChannel) setReachable(reachable bool) {
	c.q.ws.mu.Lock()
	defer c.q.ws.mu.Unlock()
	c.q.member.SetReachable(reachable, c.q.head == nil)
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
	if q.member.Message(payload, owner) {
		q.wakeHead(wakeMessage) // if it can't take what it is granted, it asks
	}
}

// replaceEntries has the heads ask that may be granted their locks: their next entries ask for calls. It is called with mu held.
func (ws *waitQueues) replaceEntries() {
	for _, q := range ws.queues {
		if q.head != nil && q.member.Grantable(q.head.claim) {
			q.dueUnless(wakePoll)
			q.signal()
		}
	}
}

// canRegister reports whether messages to this client alone would arrive, so that the wait set may have its entry.
func (q *waitQueue) canRegister() bool {
	return q.subscription == subUp && q.member.Reachable() && q.kind().usesWaitSet
}

// register makes the head the waiter of whom the wait set has an entry.
func (q *waitQueue) register() script.Entries {
	lk := q.head.lock
	return q.member.Register(q.head.claim, lk.grantTrust(), lk.cfg.leaseArg)
}

// registerAtRelease is called before a release. It returns what that changes in the wait set, if others wait.
func (q *waitQueue) registerAtRelease() script.Entries {
	switch {
	case !q.member.WorthRegistering():
		return script.Entries{}
	case q.canRegister():
		return q.register()
	}
	return q.member.Unregister()
}

// accept takes the lock that the head of a queue was granted by a message, if that can be trusted: see waitset.Member.
func (ws *waitQueues) accept(w *waiter) (v acquireReply, by script.RemoteGrant, ok bool) {
	ws.mu.Lock()
	q := w.q
	if q == nil || q.head != w || q.state != headSleeps { // a release here was faster
		ws.mu.Unlock()
		return acquireReply{}, by, false
	}
	by, sent, until, ok := q.member.Accept(w.claim, w.lock.grantTrust(), w.lock.cfg.margin())
	if !ok {
		ws.mu.Unlock()
		return acquireReply{}, by, false
	}
	v = acquireReply{AcquireReply: script.AcquireReply{Granted: true, Now: by.Now, Token: by.Token, Left: 1, Remaining: -1}, sent: sent, until: until}
	q.due = wakeNone
	after := q.headGranted(&headAttempt{claim: w.claim}, v)
	ws.mu.Unlock()
	after()
	return v, by, true
}

// outlived is called when a grant has been released. Where the wait set may still have the claim's entry, as its node was another than the lock's
// when the claim was granted, a release may grant it the lock once more.
func (ws *waitQueues) outlived(cl *claim) {
	if !cl.mayBeGranted() {
		return
	}
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.set.Abandon(cl)
}

// declineAll declines what those who left were granted, or may be, as the client closes.
func (ws *waitQueues) declineAll() {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.set.DeclineAll()
}

// fallbackAfter is the least time, and half of the longest, until a queue asks for a lock of whose release another client was told.
const fallbackAfter = 10 * time.Millisecond

// scheduleFallback follows a release that may have been silent: the queue asks for the lock later or, if it has no waiter any more, everybody is
// woken. granted: the lock isn't free, but another client's.
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
		claim.cleanUpAfter(wait) // which wakes everybody if the lock is free
	}
}

// listen subscribes a queue to releases, first to those that wake this client alone: the entry in the wait set needs both.
func (ws *waitQueues) listen(q *waitQueue) {
	if own := q.member.Channel(); own != "" {
		ws.c.pubsub.Listen(own, ownChannel{q})
	}
	ws.c.pubsub.Listen(q.channel, q)
}

func (ws *waitQueues) unlisten(q *waitQueue) {
	ws.c.pubsub.Unlisten(q.channel, q)
	own := q.member.Channel()
	switch {
	case own == "":
	case q.member.Lingers():
		time.AfterFunc(waitset.UnsubscribeDelay, func() {
			ws.mu.Lock()
			q.member.DeclineLast()
			ws.mu.Unlock()
			ws.c.pubsub.Unlisten(own, ownChannel{q})
		})
	default:
		ws.c.pubsub.Unlisten(own, ownChannel{q})
	}
}
