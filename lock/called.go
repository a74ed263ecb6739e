package lock

import (
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/lockdog/lockdog/lock/internal/script"
)

// A release calls one of the clients that wait, so that one wakes up and asks, not all of them. Each client whose line hears of releases
// is in a sorted set in Redis; whichever has been there longest gets a message on a channel of its own, and if nobody listens to that, all
// are woken. If it is stopped, deaf or has just died, nobody takes the lock, so somebody else must ask for it soon: the client that
// released it, if others wait in its line, and then nobody else need hear of it (script.WakeOneSilent); else all who wait, so all are told whom it
// called (script.WakeOneAnnounced). Either costs 10 to 20 ms, once, for whoever was called isn't in the set any more.
//
// A client that isn't in the set, but is seen to listen, has all woken at every release; one that isn't even seen (Redisson's that listens at a
// replica), at one of 64. Nobody asks soon only where the one called is dead and the one that called dies within those 20 ms, while others of
// it wait. As after the death of a holder, the lock is then asked for when the lease seen last should have run out.

const (
	fallbackAfter = 10 * time.Millisecond // after it, or up to twice that, a lock to which another client was called is asked for
	wakeAllOneIn  = 64                    // one release of so many wakes all

	// A client's number has this many digits; all other messages wake everybody. Redisson takes it for a number, and ignores it.
	numberDigits = 10
	firstNumber  = 1_000_000_000
	lastNumber   = 1<<31 - 1
)

func newNumber() string {
	return strconv.FormatInt(firstNumber+rand.Int64N(lastNumber-firstNumber+1), 10)
}

// wakes is whom a release tells: at times all, see wakeAll.
func wakes(w script.Wake) script.Wake {
	if rand.IntN(wakeAllOneIn) == 0 {
		return script.WakeAll
	}
	return w
}

// wakeListener hears of the releases that call this client.
type wakeListener struct{ q *waitQueue }

func (c wakeListener) up()   { c.q.setReachable(true) }
func (c wakeListener) down() { c.q.setReachable(false) }

func (c wakeListener) message(string) {
	c.q.ws.mu.Lock()
	defer c.q.ws.mu.Unlock()
	c.q.wakeHead(wakeMessage)
}

func (q *waitQueue) setReachable(is bool) {
	q.ws.mu.Lock()
	defer q.ws.mu.Unlock()
	q.reachable = is
}

// setFallback has the line ask for a lock that was called to another client. It is called with mu held.
func (q *waitQueue) setFallback() {
	q.fallbackAt = time.Now().Add(fallbackAfter + rand.N(fallbackAfter))
	q.signal()
}

// scheduleFallback looks after a lock that the bid has given back, if it may have been called quietly: the line asks for it, or, if nobody stands in
// it any more, all are woken.
func (ws *waitQueues) scheduleFallback(q *waitQueue, b *claim) {
	if q == nil || !b.lock.kind.notifiesOne {
		return
	}
	ws.mu.Lock()
	left := q.head == nil
	if !left {
		q.setFallback()
	}
	ws.mu.Unlock()
	if left {
		b.cleanUpNow() // it wakes all if the lock is free
	}
}

// listen has a line hear of releases, first of those that call it: it is entered into the set when both are heard. It says whether messages
// come already.
func (ws *waitQueues) listen(q *waitQueue) bool {
	if q.own != "" && ws.c.hub.listen(q.own, wakeListener{q}) {
		q.setReachable(true)
	}
	return ws.c.hub.listen(q.channel, q)
}

func (ws *waitQueues) unlisten(q *waitQueue) {
	ws.c.hub.unlisten(q.channel, q)
	if q.own != "" {
		ws.c.hub.unlisten(q.own, wakeListener{q})
	}
}
