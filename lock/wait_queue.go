package lock

import (
	"container/list"
	"strings"
	"time"

	"github.com/lockdog/lockdog/lock/internal/script"
	"github.com/lockdog/lockdog/lock/internal/waitset"
	"github.com/lockdog/lockdog/telemetry"
)

// waitQueue is the queue of this client's waiters for one lock, or of one waiter for a FairMutex. It exists while it
// has a waiter. As a rule only its head asks Redis, on behalf of all. While a lock that several may hold has shares
// left, others ask beside the head (askTogether). The states are those of the head:
//
//	              due: a wake-up or the timer
//	headSleeps ─────────────────────────────────▶ headAsks
//	   │  ▲                                         │ │
//	   │  └──────── refused, failed ────────────────┘ │ granted: the head leaves, the next waiter is the head
//	   │  ◀───────────────────────────────────────────┘
//	   │  ▲
//	   │  └─ not handed over: due, or a message follows ──┐
//	   ▼                                                  │
//	headIsHanded ─────────────────────────────────────────┴─▶ handed over: the head leaves with the lock
//
// A release by another client may grant the lock to the head, by a message. The head looks at the message in
// headSleeps, before it asks. If it trusts the message, it leaves with the lock: see waitQueues.accept.
//
// due is the reason to ask that the head hasn't acted on. It may be set in every state, and is acted on in headSleeps.
// So a wake-up that arrives while the head asks makes it ask once more: Redis may have answered before the release.
//
//	event                      effect on due                       in
//	a release message          wakeMessage                         Message
//	... to this client alone   wakeMessage, perhaps with a grant   ownChannel.Message
//	... to another client      wakeFallback, 10 to 20 ms later,    setFallback, timerFired
//	                           or when its trust time is over
//	a release or loss here     wakeLocal                           handOverEnded, waitQueues.wake, fair_queues.go
//	a new subscription         wakeSubscribed                      Up
//	the lease seen should end  wakeExpiry                          noteHolder, timerFired
//	no subscription            wakePoll, every 250 to 750 ms       Down, noteHolder, timerFired
//	... perhaps a lost grant   wakePoll, at once                   Down
//	a failed attempt           wakePoll, after 250 to 750 ms       headFailed, timerFired
//	a place in Redis to keep   wakePoll, every third of a lease    noteHolder, timerFired
//	the head left or got in    wakeLocal where the next must ask   leaving, askTogether
//	the head gave up asking    why it asked                        headStopped
//	messages were read late    wakePoll                            replaceEntries
//
// All methods are called with waitQueues.mu held, except those that lock it: Up, Down, Message and fire.
type waitQueue struct {
	ws         *waitQueues
	key        string
	channel    string
	membership waitset.Membership

	head   *waiter
	tail   *waiter
	count  int
	joined uint64 // waiters so far

	// Only in the queue of a FairMutex's waiter: the lock's key, and the queue's element in fairQueues.
	fairKey   string
	fairPlace *list.Element

	state    headState
	due      wakeup    // why the head is to ask
	nextAsk  alarm     // when it asks without a message
	fallback time.Time // when it asks after a release that nobody may have heeded yet; zero: there is none
	grantEnd time.Time // when the grant that this release made, unless it was renewed, has ended; zero: it made none
	timer    *time.Timer
	timerAt  time.Time // zero: the timer isn't set

	subscription subState
	gap          bool // the subscription was lost since the lock was last seen held

	seen         lastHolder
	failingSince time.Time     // since when every attempt of its heads has failed; zero: the last one didn't
	gaveUp       bool          // the last head gave up as errors had outlasted its lease; no head has asked since
	failures     failureStreak // of the tries of its heads; an attempt may have several tries
	answers      uint64        // how often answered was called

	handoffs      int // hand-overs in a row
	handoffsSince time.Time
}

const (
	minRecheck   = 5 * time.Millisecond   // a head that waits for the end of a lease asks so much later, at least
	maxForesight = time.Second            // how long before the end of a lease the head asks, at most
	pollEvery    = 500 * time.Millisecond // the time between two questions without a subscription, on average
	maxPolls     = 1000                   // per second and client: with more than 500 queues, each polls less often
)

// headState is what the head of a queue does.
type headState uint8

const (
	headSleeps   headState = iota // until it is due to ask
	headAsks                      // its attempt is on its way
	headIsHanded                  // a release by this client is handing the lock to it
)

// subState says whether messages of releases arrive.
type subState uint8

const (
	subPending subState = iota // not yet: the subscription is neither there nor refused
	subUp                      // yes
	subDown                    // no: the subscription was refused, or broke
)

// alarm is when a head asks without a message, and why.
type alarm struct {
	at  time.Time
	why wakeup
}

// lastHolder is the last known holder of the lock.
type lastHolder struct {
	HeldError
	traceparent string // of the holder's acquire; "": unknown
	overdue     bool   // the holder hadn't renewed since it was seen before
	moving      bool   // the lock's slot is moving to another node: releases may be published where nobody listens
}

// headAttempt is one question of a head, or of a waiter beside it: what it asks for, why, and what was known at that
// time.
type headAttempt struct {
	beside     bool // it isn't the head's
	claim      *claim
	params     acquireParams
	why        wakeup
	fallback   time.Time // of the queue, before the question
	began      time.Time
	lastTicket uint64 // of the last waiter that had joined by then

	subscription subState
	gap          bool
	seen         lastHolder
}

// takeover returns what a grant says about the previous holder: its release wasn't heard here (MessageMissed), or there
// was none, and its lease ran out (Expired). It reports false if the grant says neither.
func (h *headAttempt) takeover() (telemetry.TakeoverReason, bool) {
	switch {
	// While messages arrive, a poll that finds the lock free shows no missed message: it may just come before the
	// message, such as the poll of a FairMutex. But if the lease never ends, polls are so rare that the message should
	// have come first.
	case h.why == wakePoll && (h.subscription == subDown || h.seen.moving || h.seen.Remaining < 0),
		h.gap && (h.why == wakeSubscribed || h.why == wakeExpiry):
		return telemetry.TakeoverMessageMissed, true
	case h.why == wakeExpiry && h.seen.overdue: // otherwise it was just released, and the message is on its way
		return telemetry.TakeoverExpired, true
	}
	return "", false
}

// attemptOf returns the attempt of a waiter that asks now.
func (q *waitQueue) attemptOf(w *waiter, why wakeup) headAttempt {
	return headAttempt{
		claim: w.claim, params: w.currentParams(), why: why, began: time.Now(),
		lastTicket: q.joined, subscription: q.subscription, gap: q.gap, seen: q.seen,
	}
}

func (q *waitQueue) startAsking() headAttempt {
	attempt := q.attemptOf(q.head, q.due)
	attempt.fallback = q.fallback
	if q.canRegister() {
		attempt.params.entry = q.register()
	}
	q.state, q.due, q.fallback, q.gaveUp = headAsks, wakeNone, time.Time{}, false
	return attempt
}

// maxBeside is the maximum number of waiters for shares that ask at the same time, the head included.
const maxBeside = 64

// askTogether is called when a waiter has got its share of a lock that several may hold. It has the next waiters ask
// for the shares that are left: the head, and beside it others of the same kind. One after the other, each would need a
// round trip. A waiter for several permits isn't overtaken.
func (q *waitQueue) askTogether(k *kind, left int64) {
	if q.head == nil || left <= 0 {
		return
	}
	q.dueUnless(wakeLocal)
	q.wakeOrSetTimer()
	if k.holding == script.HoldsMark { // any number of readers
		left = maxBeside
	}
	n := min(left, maxBeside)
	for w := q.head; w != nil && w.lock.kind == k && w.params.permits <= 1 && n > 0; w = w.next {
		if w != q.head && !w.beside { // otherwise it asks already
			w.beside = true
			w.wake()
		}
		n--
	}
}

// noteGranted notes that a waiter, the head as a rule, has got the lock, or its share of it, and lets it leave. If the
// kind grants all waiters, they leave too, except those that joined after the attempt began: the answer says nothing
// about them.
func (q *waitQueue) noteGranted(w *waiter, attempt *headAttempt, v acquireReply) (after func()) {
	ws := q.ws
	q.answered()
	if attempt.beside {
		after = ws.leave(w)
		q.askTogether(w.lock.kind, v.Left)
		return after
	}
	q.state = headSleeps
	q.fallback, q.grantEnd = time.Time{}, time.Time{} // the head has got the lock of that release
	q.membership.Took(attempt.claim, v.Now, attempt.params.entry.Add != "", v.moving)
	switch kind := w.lock.kind; {
	case kind.grantsAllWaiters:
		after = ws.leave(w)
		for q.head != nil && q.head.ticket <= attempt.lastTicket {
			next := q.head
			after = ws.leave(next)
			next.won = &v
			next.wake()
		}
		if q.head != nil {
			q.wakeHead(wakeLocal) // what it waits for may have happened before it joined
		}
		return after
	case kind.shared:
		q.noteHolder(v.holder(), "")
		after = ws.leave(w)
		q.askTogether(kind, v.Left)
		return after
	default:
		q.noteHolder(HeldError{Owner: attempt.claim.owner, Remaining: w.lock.cfg.ttl()}, attempt.claim.traceparent)
	}
	return ws.leave(w)
}

// headRefused notes who holds the lock.
func (q *waitQueue) headRefused(attempt *headAttempt, v acquireReply) {
	q.state, q.seen.moving = headSleeps, v.moving
	q.answered()
	if !v.Released { // otherwise it isn't the owner's any more
		q.ws.set.GiveBackAbandoned(v.Owner) // if that is a waiter of ours that has left: its message was lost
	}
	q.noteHolder(v.holder(), v.Traceparent)
	q.membership.Refused(v.Now, attempt.params.entry.Add != "")
}

// answered notes that Redis has answered: the failures before are over.
func (q *waitQueue) answered() {
	q.failingSince, q.failures, q.gaveUp = time.Time{}, failureStreak{}, false
	q.answers++
}

// headFailed notes that the head's attempt has failed.
func (q *waitQueue) headFailed(attempt *headAttempt, err error) {
	q.state = headSleeps
	if q.failingSince.IsZero() {
		q.failingSince = attempt.began
	}
	q.failures.note(err)
	q.nextAsk = alarm{time.Now().Add(q.ws.pollPause()), wakePoll}
	if attempt.why == wakeMessage {
		q.grantEnd = time.Time{} // the lock was released since
	}
	if attempt.why == wakeMessage || !attempt.fallback.IsZero() { // perhaps nobody else heard of the release
		q.fallback = q.nextAsk.at // if the head leaves before, leaving knows that the release is unheeded
	}
}

// failedSince returns since when every attempt on a waiter's behalf has failed. Those of earlier heads count, if it
// waited then.
func (q *waitQueue) failedSince(w *waiter) time.Time {
	if w.since.After(q.failingSince) {
		return w.since
	}
	return q.failingSince
}

// headStopped notes that the head's ctx ended before Redis answered, or that it gives up after an error. The lock may
// be free: the next waiter asks.
func (q *waitQueue) headStopped(attempt *headAttempt) {
	q.state = headSleeps
	q.dueUnless(attempt.why)
	if q.fallback.IsZero() {
		q.fallback = attempt.fallback
	}
}

// leaving is called before w leaves without the lock. It reports whether the cleanup must wake all clients: w is the
// last waiter here, and a release may have woken only this client, or another client that may not ask for the lock.
func (q *waitQueue) leaving(w *waiter) (unheeded bool) {
	kind := w.lock.kind
	if q.head == w {
		if kind.shared || kind.queuesInRedis {
			q.dueUnless(wakeLocal) // the next may get a share, or has to take its own place in Redis
		}
		q.membership.GiveUp(w.claim)
	}
	if !kind.usesWaitSet || q.count > 1 {
		return false
	}
	grantedElsewhere := time.Now().Before(q.grantEnd) // to another client, and perhaps nobody else hears of the end
	if grantedElsewhere {
		w.claim.giveBackAfter(time.Until(q.grantEnd))
		if !q.fallback.IsZero() { // if all leases are alike, the grant has ended by then
			w.claim.giveBackAfter(time.Until(q.fallback))
		}
	}
	// A grant elsewhere is taken care of above.
	return q.due == wakeMessage || q.due == wakeFallback || !grantedElsewhere && !q.fallback.IsZero()
}

// handOverEnded ends headIsHanded. why is wakeNone if the head has left with the lock, or if a message or the fallback
// will make it ask.
func (q *waitQueue) handOverEnded(why wakeup) {
	q.state = headSleeps
	if why != wakeNone {
		q.due = why
	}
	q.wakeOrSetTimer()
}

// dueUnless makes the head due, unless it is due already. It doesn't wake the head: see wakeOrSetTimer.
func (q *waitQueue) dueUnless(why wakeup) {
	if q.due == wakeNone {
		q.due = why
	}
}

// wakeHead makes the head ask: now or, in states other than headSleeps, when the state has ended.
func (q *waitQueue) wakeHead(why wakeup) {
	q.due = why
	q.wakeOrSetTimer()
}

// wakeOrSetTimer wakes the head if it is due to ask, and sets the timer otherwise.
func (q *waitQueue) wakeOrSetTimer() {
	switch {
	case q.head == nil:
	case q.due != wakeNone:
		q.head.wake()
	default:
		q.setTimer()
	}
}

// kind returns the kind of lock that the head waits for. There must be a head.
func (q *waitQueue) kind() *kind { return q.head.lock.kind }

func (q *waitQueue) reportHolder(a *telemetry.Acquire) { a.BlockedBy(q.seen.Owner, q.seen.traceparent) }

// Up implements pubsub.Listener. What was published before the subscription wasn't heard, so the head asks once.
func (q *waitQueue) Up() {
	q.ws.mu.Lock()
	defer q.ws.mu.Unlock()
	q.subscription = subUp
	q.wakeHead(wakeSubscribed)
}

// Down implements pubsub.Listener.
func (q *waitQueue) Down() {
	q.ws.mu.Lock()
	defer q.ws.mu.Unlock()
	q.gap = q.gap || q.subscription == subUp
	q.subscription, q.nextAsk.why = subDown, wakePoll
	if poll := time.Now().Add(q.ws.pollPause()); poll.Before(q.nextAsk.at) {
		q.nextAsk.at = poll
	}
	if q.head != nil && q.membership.Grantable(q.head.claim) {
		q.dueUnless(wakePoll) // a grant may have been lost on its way
	}
	q.wakeOrSetTimer()
}

// Message implements pubsub.Listener. A release has woken all clients, or has woken one or granted it the lock: see
// package waitset.
func (q *waitQueue) Message(payload string) {
	q.ws.mu.Lock()
	defer q.ws.mu.Unlock()
	tag, granted := strings.CutPrefix(payload, "-")
	switch {
	case !waitset.IsTag(tag) || q.head == nil || !q.kind().usesWaitSet:
		q.wakeHead(wakeMessage)
	case tag != q.ws.set.Tag(): // if the tag is ours, ownChannel gets the message
		q.setFallback(granted)
	}
}
