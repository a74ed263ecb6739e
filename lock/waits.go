package lock

import (
	"container/list"
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/lockdog/lockdog/lock/internal/script"
	"github.com/lockdog/lockdog/telemetry"
)

// waitQueues are the client's waiters. Those of one lock stand in a queue, first come first served, and only the head
// talks to Redis. It sleeps until it is told of a release, by a message of Redis or by a holder in this very
// process, with a timer at the end of the holder's lease as the net under lost messages.
type waitQueues struct {
	c *Client

	mu      sync.Mutex // guards the queues and all in them
	queues  map[string]*waitQueue
	fair    fairQueues
	tracked map[*waiter]HeldError // they wait elsewhere, for what they saw
}

// waiter is one call of Lock that waits.
type waiter struct {
	lock     *lock
	q        *waitQueue
	claim    *claim
	terms    acquireParams
	until    time.Time     // the end of its wait, zero: none
	signal   chan struct{} // something has changed
	won      *acquireReply // the lock was handed over, or has opened
	handedBy *claim        // ... by whoever had it, nil for what opens
	since    time.Time
	place    uint64 // its number in the line, from 1
	failed   error  // of the last attempt, nil when Redis answered it

	failing trouble       // of tries before it stood in line; the line has those since
	quorum  *quorumWaiter // as what it waits elsewhere, nil where that isn't a Quorum
	node    int           // ... and at which of its nodes

	prev *waiter
	next *waiter
}

// wakeup is why the head asks.
type wakeup uint8

const (
	wakeNone wakeup = iota
	wakeMessage
	wakeLocal
	wakeExpiry
	wakePoll
	wakeFallback   // another client was called, and nothing was heard since
	wakeSubscribed // the subscription is there now: what was published before wasn't heard
)

const (
	// Hand-overs inside this process go on while no other process is seen to wait, but a process that polls isn't
	// seen: after so many, or so long, the lock is published.
	maxTurns    = 64
	maxTurnTime = 100 * time.Millisecond

	minRecheck   = 5 * time.Millisecond
	maxForesight = time.Second            // before the end of a lease: see queue.saw
	pollEvery    = 500 * time.Millisecond // without a subscription
)

func newWaitQueues(c *Client) *waitQueues {
	return &waitQueues{c: c, queues: make(map[string]*waitQueue), fair: fairQueues{byKey: make(map[string]*list.List)}, tracked: make(map[*waiter]HeldError)}
}

// busy says whether somebody stands in line for the lock already.
func (ws *waitQueues) busy(key string) bool {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	return ws.queues[key] != nil
}

// wake has the head of the line ask at once.
func (ws *waitQueues) wake(key string) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if q := ws.queues[key]; q != nil {
		q.wakeHead(wakeLocal)
	}
	if q := ws.fair.first(key); q != nil {
		q.wakeHead(wakeLocal)
	}
}

// wake has the waiter look again.
func (w *waiter) wake() {
	select {
	case w.signal <- struct{}{}:
	default:
	}
}

// enter puts a waiter at the end of the line. It has asked already: seen is who held the lock then, or failed why that isn't known.
func (ws *waitQueues) enter(lk *lock, b *claim, t acquireParams, until time.Time, seen acquireReply, failed error) *waiter {
	w := &waiter{lock: lk, claim: b, terms: t, until: until, signal: make(chan struct{}, 1), since: time.Now(), failed: failed}
	w.failing.note(failed)
	ws.join(w, seen)
	return w
}

// join puts it there.
func (ws *waitQueues) join(w *waiter, seen acquireReply) {
	line := w.lock.queueKey(w.claim)
	ws.mu.Lock()
	q := ws.queues[line]
	first := q == nil
	if first {
		q = &waitQueue{ws: ws, key: line, channel: w.lock.wakeChannel(w.claim), head: w, awaited: true, moving: seen.moving}
		if w.lock.kind.notifiesOne {
			q.own = q.channel + ":" + ws.c.number
		}
		q.noteHolder(*seen.held(""), seen.Traceparent)
		q.trouble = w.failing
		ws.queues[line] = q
		ws.fair.add(q)
	} else {
		w.prev = q.tail
		q.tail.next = w
	}
	w.q, q.tail = q, w
	q.count++
	q.joined++
	w.place = q.joined
	ws.mu.Unlock()

	if !first {
		return
	}
	heard := ws.listen(q)
	ws.mu.Lock()
	gone := q.head == nil // a hand-over has emptied the line before it was listening
	ws.mu.Unlock()
	switch {
	case gone:
		ws.unlisten(q)
	case heard:
		q.up()
	}
}

// leave takes a waiter out of the line. It is called with mu held; what it returns is run without.
func (ws *waitQueues) leave(w *waiter) (after func()) {
	q := w.q
	if w.prev != nil {
		w.prev.next = w.next
	} else {
		q.head = w.next
	}
	if w.next != nil {
		w.next.prev = w.prev
	} else {
		q.tail = w.prev
	}
	w.prev, w.next, w.q = nil, nil, nil
	q.count--
	if q.head == nil {
		delete(ws.queues, q.key)
		ws.fair.remove(q)
		if q.timer != nil {
			q.timer.Stop()
		}
		return func() { ws.unlisten(q) }
	}
	q.signal()
	return func() {}
}

// rejoin has a waiter start again in another line, with another bid.
func (ws *waitQueues) rejoin(w *waiter, b *claim) {
	ws.mu.Lock()
	w.failing = w.q.trouble
	after := ws.leave(w)
	w.claim = b
	ws.mu.Unlock()
	after()
	ws.join(w, acquireReply{AcquireReply: script.AcquireReply{Remaining: pollEvery}})
}

// asks is what the waiter asks for now.
func (w *waiter) asks() acquireParams {
	t := w.terms
	t.keep, t.waited, t.waiter = w.lock.keep(w.until), time.Since(w.since), w
	return t
}

// wait stands in line until the bid wins, ctx ends, the wait is over or the client closes. Redis is asked in asking, which ends with ctx or before.
func (ws *waitQueues) wait(ctx, asking context.Context, w *waiter, a *telemetry.Acquire, patience <-chan time.Time) (*claim, acquireReply, error) {
	a.WaitStart()
	defer a.WaitEnd()
	var failing time.Time // since when every attempt has failed
	for {
		ws.mu.Lock()
		if w.won != nil {
			ws.mu.Unlock()
			a.Wakeup(telemetry.WakeupLocal)
			if w.handedBy != nil {
				a.BlockedBy(w.handedBy.owner, w.handedBy.traceparent)
			}
			return w.claim, *w.won, nil
		}
		q := w.q
		q.name(a)
		head := q.head == w && !q.handingOver
		if !head || q.due == wakeNone {
			if head {
				q.setTimer()
			}
			ws.mu.Unlock()
			select {
			case <-w.signal:
			case <-ctx.Done():
				return ws.quit(w, a, w.stopped(context.Cause(ctx)))
			case <-patience:
				return ws.quit(w, a, w.stopped(nil))
			case <-ws.c.closing:
				return ws.quit(w, a, ErrClosed)
			}
			continue
		}
		if ctx.Err() != nil { // it is the next's turn to ask
			ws.mu.Unlock()
			return ws.quit(w, a, w.stopped(context.Cause(ctx)))
		}
		why, interrupted, awaited, overdue := q.due, q.interrupted, q.awaited, q.overdue
		q.due, q.attempting, q.fallbackAt = wakeNone, true, time.Time{}
		asked, began, last := w.asks(), time.Now(), q.joined
		asked.caller = q.waiterID()
		ws.mu.Unlock()

		if s, ok := wakeupSources[why]; ok {
			a.Wakeup(s)
		}
		v, err := w.lock.attempt(asking, a, w.claim, asked)

		ws.mu.Lock()
		q.attempting = false
		switch {
		case err == nil && v.Granted:
			b := w.claim
			q.since, q.fallbackAt, q.failing, q.trouble = v.Now, time.Time{}, time.Time{}, trouble{} // it was claimed
			unheard := why == wakeExpiry && q.subscribed                                             // its release, or that of whoever had it since
			channel := q.channel
			after := ws.passOn(w, v, last)
			ws.mu.Unlock()
			if unheard {
				ws.c.hub.doubt(channel)
			}
			after()
			switch {
			case why == wakePoll && !awaited, why == wakeSubscribed && interrupted, why == wakeExpiry && interrupted:
				a.Takeover(telemetry.TakeoverMessageMissed)
			case why == wakeExpiry && overdue: // else it was released just now: the message is on its way
				a.Takeover(telemetry.TakeoverExpired)
			}
			return b, v, nil
		case err == nil:
			failing, q.failing, q.trouble, w.failed, q.moving = time.Time{}, time.Time{}, trouble{}, nil, v.moving
			q.noteHolder(*v.held(""), v.Traceparent)
			if q.since == 0 && asked.caller.Number != "" {
				q.since = v.Now
			}
			ws.mu.Unlock()
		case ctx.Err() != nil:
			if q.due == wakeNone {
				q.due = why // for the next in line: the lock may be free
			}
			ws.mu.Unlock()
			return ws.quit(w, a, w.stopped(context.Cause(ctx)))
		default:
			if q.failing.IsZero() {
				q.failing = began
			}
			if failing.IsZero() {
				failing = q.failing // also as those before it in line saw it
				if w.since.After(failing) {
					failing = w.since
				}
			}
			w.failed = err
			q.trouble.note(err)
			q.checkAt = time.Now().Add(pollEvery/2 + rand.N(pollEvery))
			replicas := (*ReplicasError)(nil)
			spent := asking.Err() != nil || errors.Is(err, errLeft) || errors.As(err, &replicas) // the bid: its last try is being swept
			if spent && w.claim.mayWriteLate() {                                                 // an earlier try may have won
				w.claim.cleanUp()
			}
			if spent && !w.lock.kind.queuePerWaiter {
				w.claim = w.lock.newClaim(a)
			}
			// A failover takes a while. Who waits anyway need not hear of it, unless it lasts.
			final := !attemptFailure(err).Retry || time.Since(failing) > w.lock.cfg.lease
			if final && q.due == wakeNone {
				q.due = why // as above
			}
			ws.mu.Unlock()
			if spent && w.lock.kind.queuePerWaiter {
				ws.rejoin(w, w.lock.newClaim(a))
			}
			if final {
				return ws.quit(w, a, err)
			}
		}
	}
}

// wakeupSources are those that count as wake-ups; a new subscription's first question doesn't.
var wakeupSources = map[wakeup]telemetry.WakeupSource{
	wakeMessage:  telemetry.WakeupMessage,
	wakeLocal:    telemetry.WakeupLocal,
	wakeExpiry:   telemetry.WakeupExpiry,
	wakePoll:     telemetry.WakeupPoll,
	wakeFallback: telemetry.WakeupPoll,
}

// quit leaves the line without the lock, unless it was just handed over: then it is given back.
func (ws *waitQueues) quit(w *waiter, a *telemetry.Acquire, err error) (*claim, acquireReply, error) {
	ws.mu.Lock()
	after, unheeded := func() {}, false
	if q := w.q; q != nil {
		q.name(a)
		if kind := w.lock.kind; q.head == w && (kind.wakesNextOnGrant || kind.queuesInRedis) && q.due == wakeNone {
			q.due = wakeLocal // there may be enough for the next, or it has to take its own place in Redis
		}
		after = ws.leave(w)
		called := q.due == wakeMessage || q.due == wakeFallback || !q.fallbackAt.IsZero()
		unheeded = q.head == nil && w.lock.kind.notifiesOne && called // nobody else may be about to ask
	}
	won, late := w.won != nil, w.claim.mayWriteLate()
	ws.mu.Unlock()
	after()
	if won || unheeded || w.lock.kind.queuesInRedis || late {
		w.claim.cleanUp()
	}
	return w.claim, acquireReply{}, err
}

// stopped is the error of a wait that ended without the lock: by cause, or, with none, because it was over.
func (w *waiter) stopped(cause error) error {
	ws := w.lock.c.waits
	ws.mu.Lock()
	held := HeldError{}
	if w.q != nil {
		held = w.q.seen
	}
	held.Name, held.refusal = w.lock.name, w.lock.kind.refuses(held.Remaining)
	ws.mu.Unlock()
	switch {
	case w.failed != nil: // then whether it is held isn't known
		return errors.Join(cause, w.failed)
	case cause != nil:
		return &waitError{held: &held, cause: cause}
	}
	return &held
}

// failed notes that a try on behalf of a waiter, if there is one, has failed.
func (ws *waitQueues) failed(w *waiter, err error) {
	if w == nil {
		return
	}
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if w.q != nil {
		w.q.trouble.note(err)
	} else {
		w.failing.note(err)
	}
}

// size is how many wait.
func (ws *waitQueues) size() (n int) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	n = len(ws.tracked)
	for _, q := range ws.queues {
		n += q.count
	}
	return n
}

// each calls f for every waiter.
func (ws *waitQueues) each(f func(w *waiter, seen HeldError)) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for _, q := range ws.queues {
		for w := q.head; w != nil; w = w.next {
			f(w, q.seen)
		}
	}
	for w, seen := range ws.tracked {
		f(w, seen)
	}
}
