package lock

import (
	"testing"
	"testing/synctest"

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
