package lock

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/lockdog/lockdog/lock/internal/memory"
	"github.com/lockdog/lockdog/lock/internal/script"
)

// A hand-over can empty a line before its first waiter has come to listen: then nobody is to listen for ever.
func TestNobodyListensForALineThatIsGone(t *testing.T) {
	t.Parallel()
	c, err := New(memoryProvider{backend: memory.New().Backend()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(context.Background()) })
	m := c.Mutex("job")
	b := &claim{lock: &m.lock, owner: c.newOwner()}

	c.hub.mu.Lock() // the waiter stands in line, and gets no further
	entered := make(chan *waiter)
	go func() { entered <- c.waits.enter(&m.lock, b, acquireParams{}, time.Time{}, acquireReply{}, nil) }()
	for start := time.Now(); !c.waits.busy(m.key); runtime.Gosched() {
		if time.Since(start) > 10*time.Second {
			t.Fatal("the waiter doesn't get in line")
		}
	}
	c.waits.mu.Lock()
	_ = c.waits.leave(c.waits.queues[m.key].head) // what it returns would find nothing to end
	c.waits.mu.Unlock()
	c.hub.mu.Unlock()
	<-entered

	c.hub.mu.Lock()
	defer c.hub.mu.Unlock()
	if channel := script.Channel(m.key); c.hub.where[channel] != nil {
		t.Errorf("the channel %s is listened to for nobody", channel)
	}
}

// The timer of a line that rings while its head asks, or is handed the lock, is no reason to ask again: the answer says when to.
func TestTimerRingsWhileTheHeadAsks(t *testing.T) {
	t.Parallel()
	for name, busy := range map[string]func(q *waitQueue){
		"asks":   func(q *waitQueue) { q.state = headAsks },
		"handed": func(q *waitQueue) { q.state = headIsHanded },
		"idle":   func(*waitQueue) {},
	} {
		q := &waitQueue{ws: &waitQueues{}, head: &waiter{lock: &lock{kind: mutexKind}}, check: alarm{time.Now().Add(-time.Second), wakeExpiry}}
		busy(q)
		q.timerFired()
		if asks := q.due != wakeNone; asks != (name == "idle") {
			t.Errorf("%s: it is to ask: %v", name, asks)
		}
		q.state, q.due = headSleeps, wakeNone
		q.check.at = time.Now().Add(time.Hour)
		q.signal()
		if !q.timerAt.Equal(q.check.at) || !q.timer.Stop() {
			t.Errorf("%s: the timer isn't set for the time after that", name)
		}
	}
}
