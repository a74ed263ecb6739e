package lock

import (
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/lockdog/lockdog/lock/internal/script"
)

// A release wakes one of the waiting clients, not all of them. Each client whose queue hears of releases has an entry in a sorted set in
// Redis, the wait set. The release takes out the entry that has been there longest and publishes on that client's own channel. If nobody
// listens there, it wakes everybody.
//
// The client that was woken may be stopped, cut off or dead. Then nobody takes the lock, so somebody else has to ask for it soon, 10 to
// 20 ms later: the client that released it, if it has a queue for the lock (script.WakeOneSilent, which nobody else hears of); otherwise every
// waiting client, so the message to all says who was woken (script.WakeOneAnnounced). This delay occurs once, as the entry is gone.
//
// A listener without an entry makes releases wake everybody. A listener that Redis doesn't count, such as a Redisson client that subscribes
// at a replica, is reached by one release in 64, which wakes everybody. If both the woken client and the releasing one die within those
// 20 ms, the others ask when the lease they saw last should have ended, as after the death of a holder.

const (
	fallbackAfter = 10 * time.Millisecond // to twice that, until a queue asks for a lock whose release another client was told of
	wakeAllOneIn  = 64                    // one release in so many wakes everybody

	// A client's number has this many digits. Any other message wakes everybody. Redisson reads it as a number and ignores it.
	numberDigits = 10
	firstNumber  = 1_000_000_000
	lastNumber   = 1<<31 - 1
)

func newNumber() string {
	return strconv.FormatInt(firstNumber+rand.Int64N(lastNumber-firstNumber+1), 10)
}

// wakes returns whom a release wakes: once in wakeAllOneIn times everybody.
func wakes(w script.Wake) script.Wake {
	if rand.IntN(wakeAllOneIn) == 0 {
		return script.WakeAll
	}
	return w
}

// wakeListener hears of the releases that wake this client alone.
type wakeListener struct{ q *waitQueue }

func (c wakeListener) Up()   { c.q.setReachable(true) }
func (c wakeListener) Down() { c.q.setReachable(false) }

func (c wakeListener) Message(string) {
	c.q.ws.mu.Lock()
	defer c.q.ws.mu.Unlock()
	c.q.wakeHead(wakeMessage)
}

func (q *waitQueue) setReachable(is bool) {
	q.ws.mu.Lock()
	defer q.ws.mu.Unlock()
	q.reachable = is
}

// scheduleFallback follows a release that may have been silent: the queue asks for the lock soon or, if it has no waiter any more, everybody is
// woken.
func (ws *waitQueues) scheduleFallback(q *waitQueue, claim *claim) {
	if q == nil || !claim.lock.kind.notifiesOne {
		return
	}
	ws.mu.Lock()
	left := q.head == nil
	if !left {
		q.setFallback()
	}
	ws.mu.Unlock()
	if left {
		claim.cleanUpOnce() // which wakes everybody if the lock is free
	}
}

// listen subscribes a queue to releases, first to those that wake this client alone: the entry in the wait set needs both.
func (ws *waitQueues) listen(q *waitQueue) {
	if q.own != "" {
		ws.c.pubsub.Listen(q.own, wakeListener{q})
	}
	ws.c.pubsub.Listen(q.channel, q)
}

func (ws *waitQueues) unlisten(q *waitQueue) {
	ws.c.pubsub.Unlisten(q.channel, q)
	if q.own != "" {
		ws.c.pubsub.Unlisten(q.own, wakeListener{q})
	}
}
