package lock

import (
	"container/list"
	"slices"
	"time"

	"github.com/lockdog/lockdog/telemetry"
)

// quorumLine is the line of this process's waiters before one lock of a Quorum. Only its head asks the nodes, when a majority of them
// may have the lock free. It is guarded by the Quorum's mu, and exists while somebody stands in it.
type quorumLine struct {
	q       *Quorum
	key     string
	waiters list.List // of *quorumWaiter
	nodes   []*quorumEar
	asked   time.Time // when the head last asked
	seen    HeldError // the holder, when last seen; without the name
	trace   string    // the traceparent of its acquire, "": unknown
}

// quorumWaiter is one call of Lock that waits.
type quorumWaiter struct {
	id     uint64
	name   string
	line   *quorumLine
	place  *list.Element
	guests []*waiter     // what it is to each client, for Leases
	signal chan struct{} // something has changed
}

// quorumEar hears of releases at one node.
type quorumEar struct {
	line  *quorumLine
	heard bool   // it does
	due   wakeup // why to ask now, though free is in the future
	sight
}

// sight is what was seen at a node: when the lock may be free there, or, blind, when to ask again as nothing was seen.
type sight struct {
	free    time.Time
	blind   bool
	failing trouble // of the calls to the node
}

// busy says whether somebody waits for the lock here already.
func (q *Quorum) busy(key string) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.lines[key] != nil
}

// enter puts a waiter at the end of the line.
func (q *Quorum) enter(t *quorumTry) *quorumWaiter {
	m := t.m
	w := &quorumWaiter{id: compositeIDs.Add(1), name: m.name, signal: make(chan struct{}, 1)}
	q.mu.Lock()
	ln := q.lines[m.key]
	first := ln == nil
	if first {
		ln = &quorumLine{q: q, key: m.key}
		for range m.locks {
			ln.nodes = append(ln.nodes, &quorumEar{line: ln})
		}
		q.lines[m.key] = ln
	}
	w.line, w.place = ln, ln.waiters.PushBack(w)
	seen := ln.seen
	q.mu.Unlock()

	for i := range m.locks {
		lk := &m.locks[i]
		w.guests = append(w.guests, &waiter{
			lock: lk, claim: &claim{lock: lk, traceparent: t.acquires[i].Traceparent()}, since: time.Now(), signal: w.signal, quorum: w, node: i,
		})
	}
	for i := range m.locks {
		lk := &m.locks[i]
		lk.c.waits.track(w.guests[i], seen)
		if first && lk.c.hub.listen(lk.kind.channel(lk.key), ln.nodes[i]) {
			ln.nodes[i].up()
		}
	}
	return w
}

// leave takes a waiter out of it.
func (q *Quorum) leave(w *quorumWaiter) {
	ln := w.line
	q.mu.Lock()
	ln.waiters.Remove(w.place)
	last := ln.waiters.Len() == 0
	if last {
		delete(q.lines, ln.key)
	}
	ln.rouse()
	q.mu.Unlock()
	for i, g := range w.guests {
		g.lock.c.waits.untrack(g)
		if last {
			g.lock.c.hub.unlisten(g.lock.kind.channel(g.lock.key), ln.nodes[i])
		}
	}
}

// rouse has the head look at the line. It is called with mu held.
func (ln *quorumLine) rouse() {
	if front := ln.waiters.Front(); front != nil {
		select {
		case front.Value.(*quorumWaiter).signal <- struct{}{}:
		default:
		}
	}
}

// up implements listener: releases are heard of from now on, so ask once more.
func (e *quorumEar) up() { e.tell(true, wakeSubscribed) }

// down implements listener.
func (e *quorumEar) down() { e.tell(false, wakeNone) }

// message implements listener: the lock was released at the node.
func (e *quorumEar) message(string) { e.tell(true, wakeMessage) }

func (e *quorumEar) tell(heard bool, due wakeup) {
	q := e.line.q
	q.mu.Lock()
	defer q.mu.Unlock()
	e.heard = heard
	if due != wakeNone {
		e.due = due
	}
	e.line.rouse()
}

// asking is called before the head asks: what is heard of after that is news.
func (ln *quorumLine) asking() {
	ln.q.mu.Lock()
	defer ln.q.mu.Unlock()
	ln.asked = time.Now()
	for _, e := range ln.nodes {
		e.due = wakeNone
	}
}

// saw notes what the head has seen, and the traceparent of the holder's acquire.
func (w *quorumWaiter) saw(nodes []sight, holder *HeldError, traceparent string) {
	ln := w.line
	ln.q.mu.Lock()
	if ln.waiters.Front() == w.place {
		for i, s := range nodes {
			if before := ln.nodes[i].failing; before.err != nil && s.failing.err != nil { // as those before it in line saw it
				s.failing.since = before.since
			}
			ln.nodes[i].sight = s
		}
		if holder != nil {
			ln.seen, ln.trace = HeldError{Owner: holder.Owner, Remaining: holder.Remaining}, traceparent
		}
	}
	seen := ln.seen
	ln.q.mu.Unlock()
	for _, g := range w.guests {
		g.lock.c.waits.track(g, seen)
	}
}

// next is when the waiter should ask, and why: when at need nodes the lock may be free. It says false while it isn't
// the head.
func (w *quorumWaiter) next(need int) (at time.Time, why wakeup, head bool) {
	ln := w.line
	ln.q.mu.Lock()
	defer ln.q.mu.Unlock()
	if ln.waiters.Front() != w.place {
		return time.Time{}, wakeNone, false
	}
	now := time.Now()
	type node struct {
		at  time.Time
		why wakeup
	}
	var nodes []node
	for _, e := range ln.nodes {
		n := node{e.free, wakeExpiry}
		switch {
		case e.due != wakeNone:
			n = node{now, e.due}
		case e.blind:
			n.why = wakePoll
		case !e.heard && e.free.After(ln.asked.Add(pollEvery)): // a release may go unheard
			n = node{ln.asked.Add(pollEvery), wakePoll}
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

// nameHolder tells an acquire who holds the lock.
func (w *quorumWaiter) nameHolder(a *telemetry.Acquire) {
	w.line.q.mu.Lock()
	defer w.line.q.mu.Unlock()
	a.BlockedBy(w.line.seen.Owner, w.line.trace)
}

// last is the holder, when last seen.
func (w *quorumWaiter) last(name string) *HeldError {
	w.line.q.mu.Lock()
	defer w.line.q.mu.Unlock()
	held := w.line.seen
	held.Name = name
	return &held
}
