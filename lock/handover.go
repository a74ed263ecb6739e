package lock

import (
	"context"
	"runtime"
	"time"

	"github.com/lockdog/lockdog/lock/internal/script"
	"github.com/lockdog/lockdog/telemetry"
)

// A release may hand the lock over to a waiter of this client: if no other client is seen to wait, or if this client
// has waited longest (package waitset). A client that polls isn't seen. So after maxHandoffs hand-overs in a row, or
// after maxHandoffTime of them, one release doesn't hand over.
const (
	maxHandoffs    = 64
	maxHandoffTime = 100 * time.Millisecond
)

// handOver is the attempt of a release to give the lock to the next waiter of this client.
type handOver struct {
	claim      *claim // the waiter's
	w          *waiter
	q          *waitQueue
	subscribed int  // how many of the channel's subscribers are this client's
	ended      bool // end was called; guarded by waitQueues.mu

	registered bool // the wait set may have the waiter's entry, and no other entry is to be removed
}

// handOverOrRelease releases the lock of a grant, or keeps it taken until g.keepUntil (WithMinHold). A release hands it
// over to the next waiter of this client if that is fair to other clients. Otherwise it may grant the lock to a waiter
// of another client, or wake waiters: see package waitset.
func (ws *waitQueues) handOverOrRelease(
	ctx context.Context, rel *telemetry.Release, g *grant, deadline time.Time,
) (releaseReply, error) {
	if until := g.keepUntil(); isAhead(until) {
		reply, err := ws.c.ops.releaseWithRetry(ctx, rel, g.claim, deadline, releaseParams{keepUntil: until})
		ws.wake(g.lock.key) // the waiters ask again, and learn how long it stays taken
		return reply, err
	}
	next, q, entry, tellHead := ws.beginHandOver(g.lock)
	policy := script.PassOnAnnounced
	if q != nil { // if the chosen client doesn't ask, this client does: see scheduleFallback
		policy = script.PassOnSilently
	}
	if entry.Remove == "" { // the set may have an entry of g if g was granted while it couldn't be removed
		entry.Remove = g.claim.WaitEntry()
	}
	reply, err := ws.c.ops.releaseWithRetry(ctx, rel, g.claim, deadline,
		releaseParams{passOn: policy, entry: entry, next: next})
	switch {
	case next != nil && err == nil && reply.Outcome == script.HandedOver:
		next.succeeded(g, reply)
		return reply, nil
	case next != nil:
		next.notTaken(tellHead || err != nil || reply.Outcome != script.Done)
		ws.wakeUnsubscribedFair(g.lock.key)
	case tellHead:
		ws.wake(g.lock.key)
	default:
		ws.wakeUnsubscribedFair(g.lock.key)
	}
	ws.scheduleFallback(q, g.claim, reply.GrantedRemotely)
	return reply, err
}

// beginHandOver begins a hand-over to the head of the lock's queue. next is nil if the release must not hand over, q is
// nil if there is no queue. entry is what the release changes in the wait set. tellHead reports whether this client
// must wake the head after the release, because the queue's subscription isn't up.
func (ws *waitQueues) beginHandOver(lk *lock) (next *handOver, q *waitQueue, entry script.EntryChange, tellHead bool) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	q = ws.queues[lk.key]
	if q == nil {
		return nil, nil, script.EntryChange{}, false
	}
	heard := q.subscription == subUp
	registered := q.membership.Registered(q.head.claim)
	entry = q.registerAtRelease()
	spent := q.handoffs >= maxHandoffs || q.handoffs > 0 && time.Since(q.handoffsSince) > maxHandoffTime
	can := lk.kind.handOver != nil && q.kind().handOver != nil && q.head.lock.cfg.replicas == 0
	if !can || q.state != headSleeps || spent || ws.c.isClosing() {
		q.handoffs = 0
		return nil, q, entry, !heard
	}
	q.state = headIsHanded
	// A release can remove one entry. If that is another one, it comes first: by one with an owner, a release might
	// grant the lock later.
	registered = registered && entry.Add != "" && entry.Remove == ""
	next = &handOver{claim: q.head.claim, w: q.head, q: q, registered: registered}
	if heard {
		next.subscribed = 1
	}
	return next, q, entry, !heard
}

// failed is called if the try to hand the lock over has failed. until is the time up to which the hand-over may still
// happen; zero: it can't. A further try of the release doesn't hand over.
func (h *handOver) failed(until time.Time) {
	h.q.ws.mu.Lock()
	defer h.q.ws.mu.Unlock()
	if !until.IsZero() { // the waiter may have the lock, or still get it: it finds out by asking
		h.claim.noteLateWrite(until)
		if h.w.q == nil { // the waiter has left
			h.claim.cleanUp()
		}
	}
	h.end(wakeLocal)
}

// notTaken is called after a release without a hand-over. If tell is true, the head then asks for the lock, unless
// failed has made it ask before.
func (h *handOver) notTaken(tell bool) {
	h.q.ws.mu.Lock()
	defer h.q.ws.mu.Unlock()
	h.q.handoffs = 0
	h.q.membership.NotHandedOver()
	why := wakeNone // a message or the fallback will make the head ask
	if tell {
		why = wakeLocal
	}
	h.end(why)
}

// succeeded is called when the lock of a grant was handed over. The waiter leaves its queue, and has the lock. If it
// gave up during the release, the cleanup gives the lock back.
func (h *handOver) succeeded(g *grant, reply releaseReply) {
	w, q, ws := h.w, h.q, h.q.ws
	ws.mu.Lock()
	w.won, w.handedBy = &acquireReply{
		AcquireReply: script.AcquireReply{Granted: true, Token: reply.Token}, sent: reply.sent,
	}, g.claim
	after := func() {}
	left := w.q == nil // it gave up during the release
	if !left {
		q.answered()
		q.noteHolder(HeldError{Owner: h.claim.owner, Remaining: w.lock.cfg.ttl()}, h.claim.traceparent)
		after = ws.leave(w)
		w.wake()
	}
	q.membership.HandedOver(h.claim, reply.OthersWait)
	if q.handoffs++; q.handoffs == 1 {
		q.handoffsSince = time.Now()
	}
	h.end(wakeNone)
	ws.mu.Unlock()
	runtime.Gosched() // let the waiter run first: it has the lock, and others wait for it
	after()
	if left {
		h.claim.cleanUp()
	}
}

// end ends the state headIsHanded, once. waitQueues.mu must be held.
func (h *handOver) end(why wakeup) {
	if !h.ended {
		h.ended = true
		h.q.handOverEnded(why)
	}
}
