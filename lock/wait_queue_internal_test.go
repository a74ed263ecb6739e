package lock

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockdog/lockdog/lock/internal/redisfail"
	"github.com/lockdog/lockdog/lock/internal/script"
	"github.com/lockdog/lockdog/telemetry"
)

// newTestQueue returns a queue with n waiters, whose subscription is up.
func newTestQueue(t *testing.T, k *kind, n int) *waitQueue {
	t.Helper()
	c := &Client{}
	ws := newWaitQueues(c)
	c.waits = ws
	lk := &lock{c: c, kind: k, key: "job", cfg: &lockConfig{lease: 30 * time.Second}}
	q := &waitQueue{ws: ws, key: lk.key, subscription: subUp}
	q.membership.Join(ws.set, lk.key, lk.key)
	q.membership.SetReachable(true, false)
	for range n {
		w := &waiter{lock: lk, q: q, claim: &claim{lock: lk, owner: "me"}, signal: make(chan struct{}, 1), since: time.Now(), prev: q.tail}
		if q.tail == nil {
			q.head = w
		} else {
			q.tail.next = w
		}
		q.tail = w
		q.count++
		q.joined++
		w.ticket = q.joined
	}
	ws.queues[lk.key] = q
	q.noteHolder(HeldError{Owner: "other", Remaining: 30 * time.Second}, "")
	t.Cleanup(func() {
		if q.timer != nil {
			q.timer.Stop()
		}
	})
	return q
}

var headStates = map[headState]string{headSleeps: "sleeps", headAsks: "asks", headIsHanded: "is handed"}

// What an event makes of the head and of its reason to ask, in each state.
func TestWaitQueue_Transitions(t *testing.T) {
	t.Parallel()
	const soon, late = 20 * time.Millisecond, 31 * time.Second
	for _, tt := range []struct {
		event  string
		do     func(q *waitQueue)
		from   headState
		due    wakeup        // before the event
		state  headState     // after it
		want   wakeup        // after it
		within time.Duration // when the head asks without being told, if it isn't due
	}{
		{"message", func(q *waitQueue) { q.Message("0") }, headSleeps, wakeNone, headSleeps, wakeMessage, 0},
		{"message", func(q *waitQueue) { q.Message("0") }, headAsks, wakeNone, headAsks, wakeMessage, 0},
		{"message", func(q *waitQueue) { q.Message("0") }, headIsHanded, wakeNone, headIsHanded, wakeMessage, 0},
		{"message to another client", func(q *waitQueue) { q.Message("1000000002") }, headSleeps, wakeNone, headSleeps, wakeNone, soon},
		{"message to this client, to all", func(q *waitQueue) { q.Message(q.ws.set.Tag()) }, headSleeps, wakeNone, headSleeps, wakeNone, late},
		{"message to this client alone", func(q *waitQueue) { ownChannel{q}.Message("") }, headSleeps, wakeNone, headSleeps, wakeMessage, 0},
		{"subscription up", (*waitQueue).Up, headSleeps, wakeNone, headSleeps, wakeSubscribed, 0},
		{"subscription up", (*waitQueue).Up, headAsks, wakeNone, headAsks, wakeSubscribed, 0},
		{"subscription down", (*waitQueue).Down, headSleeps, wakeNone, headSleeps, wakeNone, 750 * time.Millisecond},
		{"local release", func(q *waitQueue) { q.ws.wake("job") }, headSleeps, wakeNone, headSleeps, wakeLocal, 0},
		{"ask", func(q *waitQueue) { q.startAsking() }, headSleeps, wakeMessage, headAsks, wakeNone, late},
		{"refused", func(q *waitQueue) {
			q.headRefused(&headAttempt{}, acquireReply{AcquireReply: script.AcquireReply{Owner: "other", Remaining: time.Second}})
		}, headAsks, wakeNone, headSleeps, wakeNone, 1050 * time.Millisecond},
		{"refused after a message", func(q *waitQueue) {
			q.headRefused(&headAttempt{}, acquireReply{AcquireReply: script.AcquireReply{Owner: "other", Remaining: time.Second}})
		}, headAsks, wakeMessage, headSleeps, wakeMessage, 0},
		{"failed", func(q *waitQueue) { q.headFailed(&headAttempt{began: time.Now()}, redisfail.ErrLate) }, headAsks, wakeNone, headSleeps, wakeNone, 750 * time.Millisecond},
		{"stopped", func(q *waitQueue) { q.headStopped(&headAttempt{why: wakeExpiry}) }, headAsks, wakeNone, headSleeps, wakeExpiry, 0},
		{"stopped after a message", func(q *waitQueue) { q.headStopped(&headAttempt{why: wakeExpiry}) }, headAsks, wakeMessage, headSleeps, wakeMessage, 0},
		{"hand-over published", func(q *waitQueue) { q.handOverEnded(wakeNone) }, headIsHanded, wakeNone, headSleeps, wakeNone, late},
		{"hand-over failed", func(q *waitQueue) { q.handOverEnded(wakeLocal) }, headIsHanded, wakeNone, headSleeps, wakeLocal, 0},
		{"timer", func(q *waitQueue) { q.nextAsk.at = time.Now(); q.timerFired() }, headSleeps, wakeNone, headSleeps, wakeExpiry, 0},
		{"timer", func(q *waitQueue) { q.nextAsk.at = time.Now(); q.timerFired() }, headAsks, wakeNone, headAsks, wakeNone, 0},
		{"timer", func(q *waitQueue) { q.nextAsk.at = time.Now(); q.timerFired() }, headIsHanded, wakeNone, headIsHanded, wakeNone, 0},
		{"timer, too early", (*waitQueue).timerFired, headSleeps, wakeNone, headSleeps, wakeNone, late},
		{"timer of a fallback", func(q *waitQueue) { q.fallback = time.Now(); q.timerFired() }, headSleeps, wakeNone, headSleeps, wakeFallback, 0},
		{"timer of a fallback, and the lease is over", func(q *waitQueue) {
			q.fallback = time.Now().Add(-time.Second)
			q.nextAsk.at = time.Now()
			q.timerFired()
		}, headSleeps, wakeNone, headSleeps, wakeExpiry, 0},
		{"granted, and another waits", func(q *waitQueue) {
			q.noteGranted(q.head, &headAttempt{claim: q.head.claim}, acquireReply{AcquireReply: script.AcquireReply{Granted: true}})
		}, headAsks, wakeNone, headSleeps, wakeNone, late},
	} {
		t.Run(fmt.Sprintf("%s while the head %s", tt.event, headStates[tt.from]), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				q := newTestQueue(t, mutexKind, 2)
				q.state, q.due = tt.from, tt.due
				began := time.Now()
				tt.do(q)
				if q.state != tt.state || q.due != tt.want {
					t.Errorf("the head %s, due %d; want %s, %d", headStates[q.state], q.due, headStates[tt.state], tt.want)
				}
				if in := q.asksAt().Sub(began); q.due == wakeNone && in > tt.within {
					t.Errorf("it asks after %v, want at most %v", in, tt.within)
				}
				if strings.HasPrefix(tt.event, "timer") && q.state == headSleeps && q.due == wakeNone && !q.timerAt.Equal(q.asksAt()) {
					t.Errorf("the timer is set for %v, want %v", q.timerAt, q.asksAt())
				}
				if asks := len(q.head.signal) > 0; tt.from == headSleeps && tt.want != wakeNone && tt.due == wakeNone && !asks {
					t.Error("the head wasn't woken")
				}
			})
		})
	}
}

// Which waiter asks next when the head has left the queue or has got the lock.
func TestWaitQueue_NextWaiter(t *testing.T) {
	t.Parallel()
	share := acquireReply{AcquireReply: script.AcquireReply{Granted: true, Left: 1, Remaining: -1}}
	for _, tt := range []struct {
		name  string
		kind  *kind
		n     int
		leave func(q *waitQueue) (unheeded bool)
		due   wakeup
		left  int
		want  bool
	}{
		{"a mutex's head leaves", mutexKind, 2, leaves(wakeNone), wakeNone, 1, false},
		{"a mutex's head leaves before it has heeded a message", mutexKind, 2, leaves(wakeMessage), wakeMessage, 1, false},
		{"a mutex's only waiter leaves", mutexKind, 1, leaves(wakeNone), wakeNone, 0, false},
		{"a mutex's only waiter leaves before it has heeded a message", mutexKind, 1, leaves(wakeMessage), wakeMessage, 0, true},
		{"a mutex's only waiter leaves before its fallback", mutexKind, 1, func(q *waitQueue) bool {
			q.fallback = time.Now()
			return leaves(wakeNone)(q)
		}, wakeNone, 0, true},
		{"a mutex's only waiter leaves after its questions have failed", mutexKind, 1, func(q *waitQueue) bool {
			for _, due := range []wakeup{wakeMessage, wakePoll} {
				q.due = due
				a := q.startAsking()
				q.headFailed(&a, io.EOF)
			}
			return leaves(wakeNone)(q)
		}, wakeNone, 0, true},
		{"a reader's only waiter leaves before it has heeded a message", readKind, 1, leaves(wakeMessage), wakeMessage, 0, readKind.usesWaitSet},
		{"a reader leaves", readKind, 2, leaves(wakeNone), wakeLocal, 1, false},
		{"a reader gets in, and there is room", readKind, 2, gets(share), wakeLocal, 1, false},
		{"a permit is had, and none is left", semaphoreKind, 2, gets(acquireReply{AcquireReply: script.AcquireReply{Granted: true, Remaining: -1}}), wakeNone, 1, false},
		{"a latch opens for all who had come", latchKind, 3, func(q *waitQueue) bool {
			q.noteGranted(q.head, &headAttempt{claim: q.head.claim, lastTicket: 2}, share)
			return false
		}, wakeLocal, 1, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				q := newTestQueue(t, tt.kind, tt.n)
				unheeded := tt.leave(q)
				if q.due != tt.due || q.count != tt.left || unheeded != tt.want {
					t.Errorf("due %d, %d left, unheeded %v; want %d, %d, %v", q.due, q.count, unheeded, tt.due, tt.left, tt.want)
				}
			})
		})
	}
}

func leaves(due wakeup) func(q *waitQueue) bool {
	return func(q *waitQueue) bool {
		q.due = due
		unheeded := q.leaving(q.head)
		q.ws.leave(q.head)
		return unheeded
	}
}

func gets(v acquireReply) func(q *waitQueue) bool {
	return func(q *waitQueue) bool {
		t := q.startAsking()
		q.noteGranted(q.head, &t, v)
		return false
	}
}

// What a grant says of the holder before.
func TestAttempt_Takeover(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		attempt headAttempt
		want    telemetry.TakeoverReason
		ok      bool
	}{
		{headAttempt{why: wakeMessage, gap: true, seen: lastHolder{overdue: true}}, "", false},
		{headAttempt{why: wakePoll, subscription: subPending}, "", false},
		{headAttempt{why: wakePoll, subscription: subUp}, "", false}, // a fair waiter that keeps its place
		{headAttempt{why: wakePoll, subscription: subUp, seen: lastHolder{moving: true}}, telemetry.TakeoverMessageMissed, true},
		{headAttempt{why: wakePoll, subscription: subUp, seen: lastHolder{HeldError: HeldError{Remaining: -1}}}, telemetry.TakeoverMessageMissed, true}, // a semaphore's permits
		{headAttempt{why: wakePoll, subscription: subDown}, telemetry.TakeoverMessageMissed, true},
		{headAttempt{why: wakeSubscribed}, "", false},
		{headAttempt{why: wakeSubscribed, gap: true}, telemetry.TakeoverMessageMissed, true},
		{headAttempt{why: wakeExpiry, gap: true, seen: lastHolder{overdue: true}}, telemetry.TakeoverMessageMissed, true},
		{headAttempt{why: wakeExpiry, seen: lastHolder{overdue: true}}, telemetry.TakeoverExpired, true},
		{headAttempt{why: wakeExpiry}, "", false},
	} {
		if got, ok := tt.attempt.takeover(); got != tt.want || ok != tt.ok {
			t.Errorf("%+v: %v, %v; want %v, %v", tt.attempt, got, ok, tt.want, tt.ok)
		}
	}
}

// Without a subscription each queue polls twice a second, and all of a client together no more than maxPolls times.
func TestWaitQueues_PollPause(t *testing.T) {
	t.Parallel()
	for queues, want := range map[int]time.Duration{1: pollEvery, 500: pollEvery, 5000: 5 * time.Second} {
		ws := newWaitQueues(&Client{})
		for i := range queues {
			ws.queues[fmt.Sprint(i)] = &waitQueue{}
		}
		for range 1000 {
			if pause := ws.pollPause(); pause < want/2 || pause >= want*3/2 {
				t.Fatalf("%d queues: %v, want %v to %v", queues, pause, want/2, want*3/2)
			}
		}
	}
}
