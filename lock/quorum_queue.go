package lock

import (
	"cmp"
	"container/list"
	"slices"
	"time"

	"github.com/lockdog/lockdog/telemetry"
)

// quorumQueue is the queue of a Quorum's waiters for one lock. It exists while it has a waiter. Of the waiters, only
// the head asks the nodes, when the lock may be free at a majority of them, or as long as too few of them answer.
// Quorum.mu guards it.
type quorumQueue struct {
	q       *Quorum
	key     string
	waiters list.List // of *quorumWaiter
	nodes   []*quorumListener
	asked   time.Time // when the head last asked; the first asked before it entered
	failed  error     // pollResult.err of the head's last question
	failing time.Time // since when all questions of the heads have failed; zero if failed is nil
	gaveUp  bool      // the last head gave up as its questions had failed for a lease, and nobody has asked since
	answers uint64    // how many questions of the heads didn't fail
	seen    HeldError // the holder by the last answer of a majority; zero: there was none
	trace   string    // the traceparent of that holder's acquire; "": unknown
}

// quorumWaiter is one call of QuorumMutex.Lock that waits.
type quorumWaiter struct {
	id          uint64
	name        string
	queue       *quorumQueue
	place       *list.Element
	failed      error         // pollResult.err of the question that it asked before it entered behind others
	answersSeen uint64        // queue.answers when it entered
	tracked     []*waiter     // by node: the waiter that shows this one in the Leases of the node's client
	signal      chan struct{} // wakes it to look at the queue
}

// quorumListener listens for releases at one node.
type quorumListener struct {
	queue      *quorumQueue
	subscribed bool   // messages of releases arrive
	due        wakeup // why to ask now, although free is in the future
	nodeState
}

// nodeState is what was last seen at a node.
type nodeState struct {
	free       time.Time // when the lock may be free there or, with unknownEnd, when to ask again
	unknownEnd bool      // the node didn't say when the lock will be free there
	failures   failureStreak
}

func (q *Quorum) busy(key string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.queues[key] != nil
}

// enter adds a waiter to the end of the lock's queue.
func (q *Quorum) enter(t *quorumTry) *quorumWaiter {
	m := t.m
	w := &quorumWaiter{id: compositeIDs.Add(1), name: m.name, signal: make(chan struct{}, 1)}
	q.mu.Lock()
	queue := q.queues[m.key]
	first := queue == nil
	if first {
		queue = &quorumQueue{q: q, key: m.key, asked: time.Now()}
		for range m.locks {
			queue.nodes = append(queue.nodes, &quorumListener{queue: queue})
		}
		q.queues[m.key] = queue
	}
	w.queue, w.place, w.answersSeen = queue, queue.waiters.PushBack(w), queue.answers
	seen := queue.seen
	q.mu.Unlock()
	m.c.profile.Waiters(m.name, 1)

	for i := range m.locks {
		lk := &m.locks[i]
		w.tracked = append(w.tracked, &waiter{
			lock: lk, claim: &claim{lock: lk, traceparent: t.acquires[i].Traceparent()},
			since: time.Now(), signal: w.signal, quorum: w, nodeIndex: i,
		})
	}
	for i := range m.locks {
		lk := &m.locks[i]
		lk.c.waits.track(w.tracked[i], seen)
		if first {
			lk.c.pubsub.Listen(lk.kind.channel(lk.key), queue.nodes[i])
		}
	}
	return w
}

func (q *Quorum) leave(w *quorumWaiter) {
	queue := w.queue
	q.mu.Lock()
	queue.waiters.Remove(w.place)
	last := queue.waiters.Len() == 0
	if last {
		delete(q.queues, queue.key)
	}
	queue.wakeHead()
	q.mu.Unlock()
	w.tracked[0].lock.c.profile.Waiters(w.name, -1)
	for i, shown := range w.tracked {
		shown.lock.c.waits.untrack(shown)
		if last {
			shown.lock.c.pubsub.Unlisten(shown.lock.kind.channel(shown.lock.key), queue.nodes[i])
		}
	}
}

// wakeHead makes the head look at its queue. Quorum.mu must be held.
func (queue *quorumQueue) wakeHead() {
	if front := queue.waiters.Front(); front != nil {
		select {
		case front.Value.(*quorumWaiter).signal <- struct{}{}:
		default:
		}
	}
}

// Up implements pubsub.Listener. A release before this moment may have gone unheard, so the node becomes due once.
func (e *quorumListener) Up() {
	e.note(func() { e.subscribed, e.due = true, wakeSubscribed })
}

// Down implements pubsub.Listener.
func (e *quorumListener) Down() {
	e.note(func() { e.subscribed = false })
}

// Message implements pubsub.Listener. The lock may be free at the node now. The listener may be down, and stay so.
func (e *quorumListener) Message(string) {
	e.note(func() { e.due = wakeMessage })
}

// note changes the listener, and makes the head look at it.
func (e *quorumListener) note(change func()) {
	q := e.queue.q
	q.mu.Lock()
	defer q.mu.Unlock()
	change()
	e.queue.wakeHead()
}

// asking is called before the head asks. A release that is heard after that is a reason to ask again.
func (queue *quorumQueue) asking() {
	queue.q.mu.Lock()
	defer queue.q.mu.Unlock()
	queue.asked, queue.gaveUp = time.Now(), false
	for _, e := range queue.nodes {
		e.due = wakeNone
	}
}

// stoppedAsking is called after asking if the head's ctx has ended. The nodes may not have been asked, so the next head
// asks at once. why is the reason for which this one asked.
func (w *quorumWaiter) stoppedAsking(why wakeup) {
	queue := w.queue
	queue.q.mu.Lock()
	defer queue.q.mu.Unlock()
	for _, e := range queue.nodes {
		if e.due == wakeNone {
			e.due = why
		}
	}
}

// noteNodes notes what the waiter has seen at the nodes, if it is the head.
func (w *quorumWaiter) noteNodes(nodes []nodeState) {
	queue := w.queue
	queue.q.mu.Lock()
	if queue.waiters.Front() == w.place {
		for i, s := range nodes {
			// A streak of failures may have begun under an earlier head.
			if before := queue.nodes[i].failures; before.err != nil && s.failures.err != nil {
				s.failures.since = before.since
			}
			queue.nodes[i].nodeState = s
		}
	}
	queue.q.mu.Unlock()
}

// noteAnswer notes the result of the waiter's question: the state of the nodes, the holder that a majority has named,
// and the traceparent of the holder's acquire. failed is pollResult.err. A waiter that isn't the head asked before it
// entered the queue. Then only failed is noted.
func (w *quorumWaiter) noteAnswer(nodes []nodeState, holder *HeldError, traceparent string, failed error) {
	w.noteNodes(nodes)
	queue := w.queue
	queue.q.mu.Lock()
	if queue.waiters.Front() == w.place {
		queue.noteHead(holder, traceparent, failed)
	} else {
		w.failed = failed
	}
	seen := queue.seen
	queue.q.mu.Unlock()
	for _, shown := range w.tracked {
		shown.lock.c.waits.track(shown, seen)
	}
}

// noteHead notes the result of the head's question. Quorum.mu must be held.
func (queue *quorumQueue) noteHead(holder *HeldError, traceparent string, failed error) {
	if failed == nil {
		queue.answers++
		queue.failing = time.Time{}
	} else if queue.failed == nil {
		queue.failing = time.Now()
	}
	queue.failed = failed
	if holder != nil {
		queue.seen, queue.trace = *holder, traceparent
	}
}

// next reports whether the waiter is the head. If it is, next also returns when it should ask, and why: the lock may be
// free at need nodes then or, if too few have answered the last question, a majority may answer.
func (w *quorumWaiter) next(need int) (at time.Time, why wakeup, head bool) {
	queue := w.queue
	queue.q.mu.Lock()
	defer queue.q.mu.Unlock()
	if queue.waiters.Front() != w.place {
		return time.Time{}, wakeNone, false
	}
	now := time.Now()
	type node struct {
		at  time.Time
		why wakeup
	}
	var nodes []node
	for _, e := range queue.nodes {
		n := node{e.free, wakeExpiry}
		switch {
		case e.due != wakeNone:
			n = node{now, e.due}
		case e.unknownEnd:
			n.why = wakePoll
		case (!e.subscribed || queue.failed != nil) && // a release may go unheard; a majority may answer now
			e.free.After(queue.asked.Add(pollEvery)):
			n = node{queue.asked.Add(pollEvery), wakePoll}
		}
		nodes = append(nodes, n)
	}
	slices.SortStableFunc(nodes, func(a, b node) int { return a.at.Compare(b.at) })
	why = nodes[need-1].why
	for _, n := range nodes[:need] {
		if n.why == wakeMessage {
			why = wakeMessage
		}
	}
	return nodes[need-1].at, why, true
}

func (w *quorumWaiter) reportHolder(a *telemetry.Acquire) {
	w.queue.q.mu.Lock()
	defer w.queue.q.mu.Unlock()
	a.BlockedBy(w.queue.seen.Owner, w.queue.trace)
}

// failing returns for how long all questions of the heads have failed while the waiter was in the queue.
func (w *quorumWaiter) failing() time.Duration {
	w.queue.q.mu.Lock()
	defer w.queue.q.mu.Unlock()
	since := w.queue.failing
	if since.IsZero() {
		return 0
	}
	return min(time.Since(since), time.Since(w.tracked[0].since))
}

// giveUp notes that the waiter, the head, gives up because its questions have failed for a lease. If a message or a
// subscription has come since its last question, the next head asks all the same.
func (w *quorumWaiter) giveUp() {
	w.queue.q.mu.Lock()
	defer w.queue.q.mu.Unlock()
	w.queue.gaveUp = !slices.ContainsFunc(w.queue.nodes, func(e *quorumListener) bool { return e.due != wakeNone })
}

// mustGiveUp reports whether the waiter, now the head, needn't ask: the head before gave up, and all questions have
// failed for longer than a lease while the waiter was in the queue.
func (w *quorumWaiter) mustGiveUp(lease time.Duration) bool {
	w.queue.q.mu.Lock()
	gaveUp := w.queue.gaveUp
	w.queue.q.mu.Unlock()
	return gaveUp && w.failing() > lease
}

// last returns the holder that a majority has named last, and the error of the head's last question. If that question
// didn't fail, and no head has had an answer since the waiter entered, failed is the error of the waiter's own
// question.
func (w *quorumWaiter) last(name string) (held *HeldError, failed error) {
	w.queue.q.mu.Lock()
	defer w.queue.q.mu.Unlock()
	seen := w.queue.seen
	seen.Name = name
	if w.queue.answers == w.answersSeen { // no head has had an answer since
		failed = w.failed
	}
	return &seen, cmp.Or(w.queue.failed, failed)
}
