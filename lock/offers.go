package lock

import (
	"time"

	"github.com/lockdog/lockdog/lock/internal/script"
)

// The client's entry in the wait set, and what releases of other clients grant by it: see notify_one.go.

// grantTrust is how long a waiter for the lock may trust a message that grants it; 0: not at all, it has to ask.
func (lk *lock) grantTrust() time.Duration {
	if !lk.kind.notifiesOne || lk.cfg.interval() == 0 || lk.cfg.replicas > 0 || lk.cfg.takeoverDelay > 0 {
		return 0
	}
	return min(lk.cfg.lease/renewalsPerLease, maxGrantTrust)
}

// entry returns the entry that the wait set may have of the claim; "" if it has none.
func (cl *claim) entry() string {
	if e := cl.entered.Load(); e != nil {
		return *e
	}
	return ""
}

// mayBeGranted reports whether a release may grant the claim the lock, by the entry that the wait set may have of it.
func (cl *claim) mayBeGranted() bool { return len(cl.entry()) > numberDigits }

// offerable reports whether a release may grant the lock to the head.
func (q *waitQueue) offerable() bool {
	return q.head != nil && q.registered == q.head.claim && q.head.claim.mayBeGranted()
}

// canBeTold reports whether messages to this client alone would arrive, so that the wait set may have its entry.
func (q *waitQueue) canBeTold() bool {
	return q.subscription == subUp && q.reachable && q.kind().notifiesOne
}

// replaceEntry makes the head the waiter of whom the wait set has an entry.
func (q *waitQueue) replaceEntry() script.Entries {
	claim, lk := q.head.claim, q.head.lock
	trust := lk.grantTrust()
	if q.ws.slow() {
		trust = 0
	}
	entry := script.Entry(lk.c.number, trust, claim.traceparent, claim.owner)
	e := script.Entries{Add: entry, Since: q.waitingSince, Lease: lk.cfg.leaseArg}
	if q.registered != nil {
		if before := q.registered.entry(); before != e.Add {
			e.TakeOut = before
		}
	}
	q.registered = claim
	if trust > 0 || !claim.mayBeGranted() { // otherwise the set may still have the entry before, by which it may be granted the lock
		claim.entered.Store(&entry)
	}
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

// clockGrain is more than the clocks' readings are cut off by.
const clockGrain = 100 * time.Microsecond

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
	if made.After(o.arrived.Add(clockGrain)) { // the server's clock was set forward, or this machine slept: the message may be of any age
		known = false
	}
	until := made.Add(trust - w.lock.cfg.margin())
	if !known || time.Until(until) < trust/2 {
		if known {
			ws.noteSlow()
		}
		ws.mu.Unlock()
		return acquireReply{}, script.Offer{}, false
	}
	v = acquireReply{AcquireReply: script.AcquireReply{Granted: true, Now: o.Now, Token: o.Token, Left: 1, Remaining: -1}, sent: made, until: until}
	q.due, q.registered = wakeNone, nil
	w.claim.entered.Store(nil)
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
	if claim.mayBeGranted() {
		q.ws.leavers.add(claim)
		q.lingers = true
	}
}

// leavers are the claims that were given up or released lately, while the wait set may have had their entries. What a release grants them is given
// back.
type leavers struct {
	claims map[string]*claim // by owner
	oldest []leaver
}

type leaver struct {
	owner string
	until time.Time
}

// add notes that nobody wants the lock by a claim any more.
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

// outlived is called when a grant has been released. Where the wait set may still have the claim's entry, as its node was another than the lock's
// when the claim was granted, a release may grant it the lock once more.
func (ws *waitQueues) outlived(cl *claim) {
	if !cl.mayBeGranted() {
		return
	}
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.leavers.add(cl)
}

// declineLast declines what the last waiter of a queue that has ended was granted, or may be: nobody may be there to hear of it.
func (q *waitQueue) declineLast() {
	if q.head == nil && q.registered != nil {
		q.ws.leavers.decline(q.registered.owner)
	}
}

// declineAll declines what those who left were granted, or may be, as the client closes.
func (ws *waitQueues) declineAll() {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for owner := range ws.leavers.claims {
		ws.leavers.decline(owner)
	}
}

// A client that reads a message late may let a grant pass, and keeps the lock from the others for as long. So it is woken, not granted, until it has
// read all messages in time for slowFor.
const (
	lateMessage = maxGrantTrust / 2
	slowFor     = time.Minute
)

// slow reports whether the client's messages have been late.
func (ws *waitQueues) slow() bool { return time.Now().Before(ws.slowUntil) }

// noteSlow notes that a message was late. The entries that the client has in wait sets are replaced.
func (ws *waitQueues) noteSlow() {
	was := ws.slow()
	ws.slowUntil = time.Now().Add(slowFor)
	if was {
		return
	}
	for _, q := range ws.queues {
		if q.offerable() {
			q.dueUnless(wakePoll)
			q.signal()
		}
	}
}

// noteMessage notes when a message of a time arrives, by the clock of the server of a key: µs, 0 = it doesn't tell.
func (ws *waitQueues) noteMessage(key string, now int64) {
	if now == 0 {
		return
	}
	if made, known := ws.c.dispatcher.Node(key).Clock.Earliest(now); known && time.Since(made) > lateMessage {
		ws.noteSlow()
	}
}
