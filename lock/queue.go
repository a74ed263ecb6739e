package lock

import (
	"container/list"
	"math/rand/v2"
	"time"

	"github.com/lockdog/lockdog/lock/internal/script"
	"github.com/lockdog/lockdog/telemetry"
)

// waitQueue is the line before one lock. It exists while somebody stands in it.
type waitQueue struct {
	ws      *waitQueues
	key     string
	channel string
	own     string // the channel on which this client is called, "": it isn't
	head    *waiter
	tail    *waiter
	count   int
	joined  uint64        // how many have joined so far
	fairKey string        // of a waiter for a FairMutex: the lock's key, and ...
	place   *list.Element // ... its place among their lines

	attempting  bool      // the head is asking Redis
	handingOver bool      // a release is handing the lock over to the head
	due         wakeup    // why the head should ask now
	checkAt     time.Time // when the head asks anyway
	polling     bool      // ... although no lease is expected to have run out by then
	timer       *time.Timer
	timerAt     time.Time // when timer does, at the alarm or before it, zero: it isn't set
	seen        HeldError // the holder, when last seen
	traced      string    // the traceparent of its acquire, "" where that isn't known
	failing     time.Time // since when every attempt of its heads has failed, zero: the last one didn't
	trouble     trouble   // of the tries of its heads, of which an attempt may have several

	awaited     bool // the subscription is neither there nor refused yet
	subscribed  bool // releases are heard of
	interrupted bool // it was lost since the lock was last seen held
	overdue     bool // when last seen, the holder hadn't renewed since it was seen before
	moving      bool // the lock's slot is on its way to another node: releases may be published where nobody listens yet

	reachable  bool      // calls of this client are heard
	since      int64     // see script.Waiter
	fallbackAt time.Time // when the head asks for a lock to which another client was called, zero: none was since it last asked

	turns      int // hand-overs in a row
	turnsSince time.Time
}

// nextAsk is when the head asks without being told. It is called with mu held.
func (q *waitQueue) nextAsk() time.Time {
	if !q.fallbackAt.IsZero() && q.fallbackAt.Before(q.checkAt) {
		return q.fallbackAt
	}
	return q.checkAt
}

// setTimer sets the timer, unless it rings soon enough. It is called with mu held.
func (q *waitQueue) setTimer() {
	at := q.nextAsk()
	if !q.timerAt.IsZero() && !at.Before(q.timerAt) {
		return
	}
	q.timerAt = at
	if q.timer == nil {
		q.timer = time.AfterFunc(time.Until(at), q.timerFired)
		return
	}
	q.timer.Reset(time.Until(at))
}

// timerFired has the head ask if it is time.
func (q *waitQueue) timerFired() {
	q.ws.mu.Lock()
	defer q.ws.mu.Unlock()
	q.timerAt = time.Time{}
	if q.attempting || q.handingOver {
		return // the end of that sets it anew
	}
	now := time.Now()
	switch {
	case q.due != wakeNone || now.Before(q.nextAsk()):
	case now.Before(q.checkAt):
		q.due = wakeFallback
	case q.polling:
		q.due = wakePoll
	default:
		q.due = wakeExpiry
	}
	q.signal()
}

// waiterID is the client as one who waits here, if a release that calls it would be heard. It is called with mu held.
func (q *waitQueue) waiterID() script.Waiter {
	c := q.ws.c
	if !q.subscribed || !q.reachable || !q.head.lock.kind.notifiesOne {
		return script.Waiter{}
	}
	return script.Waiter{Number: c.number, Since: q.since, More: min(q.count-1, 1)}
}

// wakeHead has the head ask. It is called with mu held.
func (q *waitQueue) wakeHead(why wakeup) {
	q.due = why
	q.signal()
}

// signal has the head ask if it should, and else when it is time. It is called with mu held.
func (q *waitQueue) signal() {
	switch {
	case q.head == nil:
	case q.due != wakeNone:
		q.head.wake()
	default:
		q.setTimer()
	}
}

// noteHolder notes who holds the lock, and when to ask again: shortly before the lease ends, when a holder that lives has renewed it, and
// after its end if nobody has. It is called with mu held.
func (q *waitQueue) noteHolder(holder HeldError, traceparent string) {
	wait, before := holder.Remaining, q.seen
	q.overdue = holder.Owner == before.Owner && wait >= 0 && wait < before.Remaining/3
	q.seen, q.traced, q.interrupted = holder, traceparent, false
	deaf := q.moving || !q.subscribed // yet, or not any more: the connection may have died in silence
	q.polling = deaf
	if wait < 0 { // it never expires
		wait, q.polling = DefaultLease, true
		if h := q.head; h != nil && h.lock.kind.wakesNextOnGrant {
			wait = h.lock.cfg.lease / renewalsPerLease
		}
	}
	if !q.overdue {
		wait -= min(wait/4, maxForesight)
	}
	wait += minRecheck + rand.N(min(wait/50, 250*time.Millisecond)+minRecheck)
	if deaf {
		wait = min(wait, pollEvery/2+rand.N(pollEvery))
	}
	if h := q.head; h != nil && h.lock.kind.queuesInRedis { // it keeps its place by asking
		if renew := h.lock.cfg.lease / renewalsPerLease; renew < wait {
			wait, q.polling = renew, true
		}
	}
	q.checkAt = time.Now().Add(wait)
}

// name tells an acquire who holds the lock. It is called with mu held.
func (q *waitQueue) name(a *telemetry.Acquire) { a.BlockedBy(q.seen.Owner, q.traced) }

// up implements listener: releases are heard of from now on, so ask once more.
func (q *waitQueue) up() {
	q.ws.mu.Lock()
	defer q.ws.mu.Unlock()
	q.awaited, q.subscribed = false, true
	q.wakeHead(wakeSubscribed)
}

// down implements listener.
func (q *waitQueue) down() {
	q.ws.mu.Lock()
	defer q.ws.mu.Unlock()
	q.interrupted = q.interrupted || q.subscribed
	q.awaited, q.subscribed = false, false
	if poll := time.Now().Add(pollEvery/2 + rand.N(pollEvery)); poll.Before(q.checkAt) {
		q.checkAt = poll
	}
	q.polling = true
	q.signal()
}

// message implements listener: the lock was released, to all or to one client. See called.go.
func (q *waitQueue) message(payload string) {
	q.ws.mu.Lock()
	defer q.ws.mu.Unlock()
	switch {
	case len(payload) != numberDigits || q.head == nil || !q.head.lock.kind.notifiesOne:
		q.wakeHead(wakeMessage)
	case payload != q.ws.c.number: // else it was called, on its own channel
		q.setFallback()
	}
}
