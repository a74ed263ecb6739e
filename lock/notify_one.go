package lock

import (
	"cmp"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/lockdog/lockdog/lock/internal/script"
)

// A release is for one of the waiting clients, not for all of them. Each client whose queue hears of releases has an entry in a sorted set in
// Redis, the wait set. The release takes out the entry that has been there longest, and grants the lock to the head of that client's queue, whose
// owner the entry names: the lock travels to the next holder with one message (see script.Offer), in one round trip.
//
// The message is trusted for a short time only, grantTrust. It was made before it arrived, by the clock of a server of which the client knows how
// late it can be: the lease counts from the earliest time at which that clock may have shown the time in the message. The first renewal, an
// eighth of that time later, makes it a lease like any other. The client that was granted the lock may be stopped, cut off or dead. Then it is
// free again when that time is over, and somebody has to ask: the client that released it, if it has a queue for the lock
// (script.WakeOneSilent, which nobody else hears of); otherwise every waiting client, so the message to all says that it was granted
// (script.WakeOneAnnounced). This delay occurs once for a client that reads its messages late: it notices, and is woken from then on (see noteSlow).
// What the client does with its entry and its offers is in offers.go.
//
// A grant may get lost on its way: with the subscription, or since the waiter has left. Then nobody waits for its end. Whoever asks next is told that
// an owner of its own client holds the lock, which has left, and declines for it. Where nobody asks any more, the last one's entry is taken out,
// with the lock if it was granted: as the subscription comes back, when nobody listens any longer, and as the client closes.
//
// A client that has waited in silence for longer than that may have stopped since, and so may many others with it. It is woken by a message
// on its own channel, and asks. So is one whose head can't trust a message: its lease isn't renewed, or replicas have to confirm it. If
// it doesn't ask, somebody else does 10 to 20 ms later, as above.
//
// If Redis counts no listener on the client's own channel, nothing is granted, and everybody is woken. A listener without an entry makes releases wake everybody. A listener that
// Redis doesn't count, such as a Redisson client that subscribes at a replica, is reached by one release in 64, which wakes everybody. If both
// the chosen client and the releasing one die, the others ask when the lease they saw last should have ended, as after the death of a holder.

const (
	fallbackAfter = 10 * time.Millisecond // to twice that, until a queue asks for a lock whose release another client was told of
	wakeAllOneIn  = 64                    // one release in so many wakes everybody

	maxGrantTrust = 3 * time.Second // how long a waiter may trust a message that grants it the lock: longer than a primary stands still at times

	linger = time.Second // how long a client listens on its own channel after its last waiter has left without the lock, to decline it

	// A client's number has this many digits. A message to all is the number of the client that was woken, or -number if it was granted the lock.
	// Any other wakes everybody. Redisson reads these as numbers and ignores them.
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

// Up implements pubsub.Listener. What the head was granted before, it finds out when it asks: see waitQueue.Up.
func (c wakeListener) Up() {
	c.q.ws.mu.Lock()
	defer c.q.ws.mu.Unlock()
	c.q.reachable = true
	c.q.declineLast()
}

// Down implements pubsub.Listener.
func (c wakeListener) Down() {
	c.q.ws.mu.Lock()
	defer c.q.ws.mu.Unlock()
	c.q.reachable = false
}

func (c wakeListener) Message(payload string) {
	q := c.q
	q.ws.mu.Lock()
	defer q.ws.mu.Unlock()
	o, ok := script.ParseOffer(payload)
	q.ws.noteMessage(q.key, cmp.Or(o.Now, script.ParseCall(payload)))
	if ok {
		if q.head == nil || q.head.claim.owner != o.Owner {
			q.ws.leavers.decline(o.Owner)
			return
		}
		q.offer = &offer{o, time.Now()}
	}
	q.wakeHead(wakeMessage) // if it can't take what it is offered, it asks
}

// scheduleFallback follows a release that may have been silent: the queue asks for the lock later or, if it has no waiter any more, everybody is
// woken. granted: the lock isn't free, but another client's.
func (ws *waitQueues) scheduleFallback(q *waitQueue, claim *claim, granted bool) {
	if q == nil || !claim.lock.kind.notifiesOne {
		return
	}
	ws.mu.Lock()
	left := q.head == nil
	if !left {
		q.setFallback(granted)
	}
	ws.mu.Unlock()
	if left {
		var wait time.Duration
		if granted {
			wait = maxGrantTrust + fallbackAfter
		}
		claim.cleanUpAfter(wait) // which wakes everybody if the lock is free
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
	switch {
	case q.own == "":
	case q.lingers:
		time.AfterFunc(linger, func() {
			ws.mu.Lock()
			q.declineLast()
			ws.mu.Unlock()
			ws.c.pubsub.Unlisten(q.own, wakeListener{q})
		})
	default:
		ws.c.pubsub.Unlisten(q.own, wakeListener{q})
	}
}
