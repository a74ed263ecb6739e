package lock

import (
	"container/list"
	"context"
	"sync"
	"time"

	"github.com/lockdog/lockdog/lock/internal/dispatch"
	"github.com/lockdog/lockdog/lock/internal/script"
	"github.com/lockdog/lockdog/lock/internal/waitset"
)

// waitQueues are the queues of this client's waiters: one for each lock, or one for each waiter of a FairMutex. They
// are first come, first served. The head of a queue asks Redis; others ask beside it only while shares are left. The
// head sleeps until it learns of a release: from a message, or from a holder of this client. A timer shortly before the
// end of the holder's lease, or after it, makes up for lost messages.
type waitQueues struct {
	c *Client

	mu      sync.Mutex // guards the queues and everything in them
	queues  map[string]*waitQueue
	fair    fairQueues
	tracked map[*waiter]HeldError // waiters without a queue here, and who held the lock when they last asked
	set     *waitset.Client
}

func newWaitQueues(c *Client) *waitQueues {
	ws := &waitQueues{
		c: c, queues: make(map[string]*waitQueue),
		fair: fairQueues{byKey: make(map[string]*list.List)}, tracked: make(map[*waiter]HeldError),
	}
	ws.set = waitset.NewClient(
		func(key string) *dispatch.Clock { return &c.dispatcher.Node(key).Clock }, c.isClosing, ws.replaceEntries)
	return ws
}

func (ws *waitQueues) busy(key string) bool {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	return ws.queues[key] != nil
}

// wake makes the head of the lock's queue ask, and the first waiter for a FairMutex with this key.
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

// enter adds a waiter to the lock's queue. seen and failed are the reply and the error of its first attempt. Both are
// zero if it made none, because others of this client waited already.
func (ws *waitQueues) enter(
	ctx context.Context, lk *lock, claim *claim, params *acquireParams, seen acquireReply, failed error,
) *waiter {
	w := &waiter{
		lock: lk, ctx: ctx, claim: claim, params: *params, signal: make(chan struct{}, 1),
		since: time.Now(),
	}
	w.ownFailures.note(failed)
	ws.join(w, seen)
	ws.c.graph.Joined()
	return w
}

// join adds a waiter to the end of its queue, and makes the queue if there is none.
func (ws *waitQueues) join(w *waiter, seen acquireReply) {
	key := w.lock.queueKey(w.claim)
	ws.mu.Lock()
	q := ws.queues[key]
	first := q == nil
	if first {
		q = &waitQueue{ws: ws, key: key, channel: w.lock.wakeChannel(w.claim), head: w}
		q.seen.moving = seen.moving
		lockChannel := ""
		if w.lock.kind.usesWaitSet {
			lockChannel = q.channel
		}
		q.membership.Join(ws.set, key, lockChannel)
		q.noteHolder(seen.holder(), seen.Traceparent)
		q.failures = w.ownFailures
		ws.queues[key] = q
		ws.fair.add(q)
	} else {
		w.prev = q.tail
		q.tail.next = w
	}
	w.q, q.tail, w.answersSeen = q, w, q.answers
	q.count++
	q.joined++
	w.ticket = q.joined
	ws.c.profile.Waiters(w.lock.name, 1)
	ws.mu.Unlock()

	if !first {
		return
	}
	ws.listen(q)
	ws.mu.Lock()
	gone := q.head == nil // a hand-over emptied the queue before it listened
	ws.mu.Unlock()
	if gone {
		ws.unlisten(q)
	}
}

// leave removes a waiter from its queue. mu must be held. after must be called without mu: it locks pubsub's mutex,
// which is held while listeners are called, and they lock mu.
func (ws *waitQueues) leave(w *waiter) (after func()) {
	q := w.q
	ws.c.profile.Waiters(w.lock.name, -1)
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
	q.wakeOrSetTimer()
	return func() {}
}

// rejoin moves a waiter to another queue, with another claim.
func (ws *waitQueues) rejoin(w *waiter, claim *claim) {
	ws.mu.Lock()
	w.ownFailures = w.q.failures
	after := ws.leave(w)
	w.claim = claim
	ws.mu.Unlock()
	after()
	ws.join(w, acquireReply{AcquireReply: script.AcquireReply{Remaining: pollEvery}})
}

// failed notes a failed try for a waiter. w may be nil.
func (ws *waitQueues) failed(w *waiter, err error) {
	if w == nil {
		return
	}
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if w.q != nil && w.q.head == w {
		w.q.failures.note(err)
	} else {
		w.ownFailures.note(err)
	}
}

func (ws *waitQueues) size() (n int) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	n = len(ws.tracked)
	for _, q := range ws.queues {
		n += q.count
	}
	return n
}

func (ws *waitQueues) each(f func(w *waiter, seen HeldError)) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for _, q := range ws.queues {
		for w := q.head; w != nil; w = w.next {
			f(w, q.seen.HeldError)
		}
	}
	for w, seen := range ws.tracked {
		f(w, seen)
	}
}
