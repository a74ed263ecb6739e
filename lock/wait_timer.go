package lock

import (
	"math/rand/v2"
	"time"

	"github.com/lockdog/lockdog/lock/internal/waitset"
)

// asksAt returns when the head asks without a message.
func (q *waitQueue) asksAt() time.Time {
	if !q.fallback.IsZero() && q.fallback.Before(q.nextAsk.at) {
		return q.fallback
	}
	return q.nextAsk.at
}

// setTimer sets the timer, unless it is already set to fire early enough.
func (q *waitQueue) setTimer() {
	at := q.asksAt()
	if !q.timerAt.IsZero() && !at.Before(q.timerAt) {
		return
	}
	q.timerAt = at
	if q.timer == nil {
		q.timer = time.AfterFunc(time.Until(at), q.fire)
		return
	}
	q.timer.Reset(time.Until(at))
}

func (q *waitQueue) fire() {
	q.ws.mu.Lock()
	defer q.ws.mu.Unlock()
	q.timerFired()
}

// timerFired makes the head ask if it is time. In states other than headSleeps it only notes that the timer isn't set
// any more: when such a state ends, turnOf or wakeOrSetTimer sets it.
func (q *waitQueue) timerFired() {
	q.timerAt = time.Time{}
	if q.state != headSleeps {
		return
	}
	switch now := time.Now(); {
	case !now.Before(q.nextAsk.at):
		q.dueUnless(q.nextAsk.why)
	case !now.Before(q.asksAt()):
		q.dueUnless(wakeFallback)
	}
	q.wakeOrSetTimer()
}

// setFallback makes the head ask after a release that only another client was notified of: soon or, if that client was
// granted the lock, when its trust time is over.
func (q *waitQueue) setFallback(granted bool) {
	now, wait := time.Now(), fallbackAfter+rand.N(fallbackAfter)
	q.grantEnd = time.Time{}
	if granted {
		wait += min(q.head.lock.cfg.lease/renewalsPerLease, waitset.MaxTrust)
		q.grantEnd = now.Add(waitset.MaxTrust + fallbackAfter)
	}
	q.fallback = now.Add(wait)
	q.wakeOrSetTimer()
}

// noteHolder notes who holds the lock, and when to ask again: as a rule shortly before the lease ends, because a living
// holder has renewed it by that time: it keeps at least two thirds of its lease. If it hasn't (overdue), or has
// released the lock (WithMinHold), the next question comes after the end.
func (q *waitQueue) noteHolder(holder HeldError, traceparent string) {
	wait, before := holder.Remaining, q.seen
	q.seen = lastHolder{
		HeldError: holder, traceparent: traceparent, moving: before.moving,
		overdue: !holder.released && holder.Owner == before.Owner && wait >= 0 && wait < before.Remaining/3,
	}
	q.gap = false
	deaf := q.seen.moving || q.subscription != subUp // messages may not arrive
	q.nextAsk.why = wakeExpiry
	if deaf {
		q.nextAsk.why = wakePoll
	}
	if wait < 0 { // it never expires
		wait, q.nextAsk.why = DefaultLease, wakePoll
		if h := q.head; h != nil && h.lock.kind.shared {
			wait = h.lock.cfg.lease / renewalsPerLease
		}
	}
	if !q.seen.overdue && !holder.released {
		wait -= min(wait/4, maxForesight)
	}
	wait += minRecheck + rand.N(min(wait/50, 250*time.Millisecond)+minRecheck)
	if deaf {
		wait = min(wait, q.ws.pollPause())
	}
	if h := q.head; h != nil && h.lock.kind.queuesInRedis { // it keeps its place by asking
		if renew := h.lock.cfg.lease / renewalsPerLease; renew < wait {
			wait, q.nextAsk.why = renew, wakePoll
		}
	}
	q.nextAsk.at = time.Now().Add(wait)
}

// pollPause returns the time until a head without a subscription, or a head whose attempt failed, asks again. With more
// than 500 queues it grows with their number: the polls of thousands of queues would keep Redis and this process so
// busy that the subscriptions come later.
func (ws *waitQueues) pollPause() time.Duration {
	each := max(pollEvery, time.Duration(len(ws.queues))*time.Second/maxPolls)
	return each/2 + rand.N(each)
}
