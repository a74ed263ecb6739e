package lock

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock/internal/backend"
	"github.com/lockdog/lockdog/lock/internal/pubsub"
)

// stuckBackend lets nobody find out where to listen until it is opened.
type stuckBackend struct {
	*backend.Redis
	opened chan struct{}
}

func (b stuckBackend) Traits() backend.Traits {
	<-b.opened
	return b.Redis.Traits()
}

// A hand-over can empty a queue before its first waiter has subscribed. Then the subscription must not stay.
func TestEmptiedQueueDoesNotListen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := openFor(t, redistest.StartFake(t).Client(t))
		stuck := stuckBackend{c.backend, make(chan struct{})}
		c.pubsub = pubsub.New(pubsub.Config{Backend: stuck, Recorder: c.rec, Refused: c.subscriptionRefused, Gone: c.watchElsewhere})
		m := c.Mutex("job")
		cl := &claim{lock: &m.lock, owner: c.newOwner()}

		entered := make(chan *waiter)
		go func() { entered <- c.waits.enter(t.Context(), &m.lock, cl, &acquireParams{}, acquireReply{}, nil) }()
		synctest.Wait()
		if !c.waits.busy(m.key) {
			t.Fatal("the waiter isn't in the queue")
		}
		c.waits.mu.Lock()
		_ = c.waits.leave(c.waits.queues[m.key].head) // what it returns would find nothing to end
		c.waits.mu.Unlock()
		close(stuck.opened)
		<-entered

		synctest.Wait()
		if wanted, _ := c.pubsub.State(); wanted {
			t.Error("a channel is listened to for a queue without waiters")
		}
	})
}

// The timer of a line that rings while its head asks, or is handed the lock, is no reason to ask again: the answer says when to.
func TestTimerRingsWhileTheHeadAsks(t *testing.T) {
	t.Parallel()
	for name, busy := range map[string]func(q *waitQueue){
		"asks":   func(q *waitQueue) { q.state = headAsks },
		"handed": func(q *waitQueue) { q.state = headIsHanded },
		"idle":   func(*waitQueue) {},
	} {
		q := &waitQueue{ws: &waitQueues{}, head: &waiter{lock: &lock{kind: mutexKind}}, nextAsk: alarm{time.Now().Add(-time.Second), wakeExpiry}}
		busy(q)
		q.timerFired()
		if asks := q.due != wakeNone; asks != (name == "idle") {
			t.Errorf("%s: it is to ask: %v", name, asks)
		}
		q.state, q.due = headSleeps, wakeNone
		q.nextAsk.at = time.Now().Add(time.Hour)
		q.signal()
		if !q.timerAt.Equal(q.nextAsk.at) || !q.timer.Stop() {
			t.Errorf("%s: the timer isn't set for the time after that", name)
		}
	}
}
