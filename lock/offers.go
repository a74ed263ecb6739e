package lock

import (
	"time"

	"github.com/lockdog/lockdog/lock/internal/script"
)

// The client's entry in the wait set, and what releases of other clients grant by it: see notify_one.go.

// grantTrust is how long a waiter for the lock may trust a message that grants it; 0: not at all, it has to ask.
func (lk *lock) grantTrust() time.Duration {
	if !lk.kind.notifiesOne || lk.cfg.interval() == 0 || lk.cfg.replicas > 0 {
		return 0
	}
	return min(lk.cfg.lease/renewalsPerLease, maxGrantTrust)
}

// entry is what the wait set has of the client while the claim's waiter is the head.
func (cl *claim) entry() string {
	return script.Entry(cl.lock.c.number, cl.lock.grantTrust(), cl.traceparent, cl.owner)
}

// canBeTold reports whether messages to this client alone would arrive, so that the wait set may have its entry.
func (q *waitQueue) canBeTold() bool {
	return q.subscription == subUp && q.reachable && q.kind().notifiesOne
}

// replaceEntry makes the head the waiter of whom the wait set has an entry.
func (q *waitQueue) replaceEntry() script.Entries {
	e := script.Entries{Add: q.head.claim.entry(), Since: q.waitingSince, Lease: q.head.lock.cfg.leaseArg}
	if q.registered != nil {
		if before := q.registered.entry(); before != e.Add {
			e.TakeOut = before
		}
	}
	q.registered = q.head.claim
	q.registered.entered.Store(true)
	return e
}

// registerAtRelease is called before a release. It returns what that changes in the wait set, if others wait. Where none did at the last one, that
// isn't worth its while: once others do, the release wakes all.
func (q *waitQueue) registerAtRelease() (e script.Entries) {
	switch {
	case q.alone && q.registered == nil:
	case q.canBeTold():
		return q.replaceEntry()
	case q.registered != nil:
		e.TakeOut, q.registered = q.registered.entry(), nil
	}
	return e
}

// offer is the message of a release that has granted the lock to the head of a queue, and when it arrived.
type offer struct {
	script.Offer
	arrived time.Time
}

// accept takes the lock that the head of a queue was offered, if the offer can be trusted for most of its time. If not, it asks: then it is granted
// what is its own already.
func (ws *waitQueues) accept(w *waiter) (v acquireReply, by script.Offer, ok bool) {
	ws.mu.Lock()
	q := w.q
	if q == nil || q.head != w || q.state != headSleeps || q.offer == nil || q.offer.Owner != w.claim.owner { // a release here was faster
		ws.mu.Unlock()
		return acquireReply{}, script.Offer{}, false
	}
	o := q.offer
	q.offer = nil
	trust := w.lock.grantTrust()
	made, known := ws.c.dispatcher.Node(q.key).Clock.Earliest(o.Now)
	if made.After(o.arrived) { // the server's clock was set forward
		made = o.arrived
	}
	until := made.Add(trust - w.lock.cfg.margin())
	if !known || time.Until(until) < trust/2 {
		ws.mu.Unlock()
		return acquireReply{}, script.Offer{}, false
	}
	v = acquireReply{AcquireReply: script.AcquireReply{Granted: true, Now: o.Now, Token: o.Token, Left: 1, Remaining: -1}, sent: made, until: until}
	q.due, q.registered = wakeNone, nil
	w.claim.entered.Store(false)
	after := q.headGranted(&headAttempt{claim: w.claim}, v)
	ws.mu.Unlock()
	after()
	return v, o.Offer, true
}

// forgetOffer is called when a claim has got the lock otherwise than by an offer.
func (q *waitQueue) forgetOffer(claim *claim) {
	if q.offer != nil && q.offer.Owner == claim.owner {
		q.offer = nil
	}
}

// giveUp is called when the claim of the head is given up, of which the wait set may have an entry. A release may still grant it the lock.
func (q *waitQueue) giveUp(claim *claim) {
	if o := q.offer; o != nil {
		q.offer = nil
		claim.cleanUpOnce()
		return
	}
	if claim.entered.Load() && claim.lock.grantTrust() > 0 {
		q.ws.leavers.add(claim)
		q.lingers = true
	}
}

// leavers are the claims that were given up lately, while the wait set may have had their entries. What a release grants them is given back.
type leavers struct {
	claims map[string]*claim // by owner
	oldest []leaver
}

type leaver struct {
	owner string
	until time.Time
}

// add notes that a claim was given up.
func (l *leavers) add(cl *claim) {
	now := time.Now()
	for len(l.oldest) > 0 && now.After(l.oldest[0].until) {
		delete(l.claims, l.oldest[0].owner)
		l.oldest = l.oldest[1:]
	}
	if cl.lock.c.isClosing() {
		cl.cleanUpOnce() // for nobody will listen
		return
	}
	l.claims[cl.owner] = cl
	l.oldest = append(l.oldest, leaver{cl.owner, now.Add(2 * maxGrantTrust)})
}

// decline gives back a lock that was granted to an owner, if that has left without it. Otherwise it has got the lock by asking meanwhile.
func (l *leavers) decline(owner string) {
	if cl := l.claims[owner]; cl != nil {
		delete(l.claims, owner)
		cl.cleanUpOnce()
	}
}
