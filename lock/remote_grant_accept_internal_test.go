package lock

import (
	"testing"
	"testing/synctest"

	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/telemetry"
)

// Between a waiter's look at a remote grant and its taking it, a release in this process hands it the lock.
func TestAcceptAfterHandOver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := openFor(t, redistest.StartFake(t).Client(t))
		m := c.Mutex("job")
		holder := &claim{lock: &m.lock, owner: c.newOwner()}
		cl := &claim{lock: &m.lock, owner: c.newOwner()}
		w := c.waits.enter(t.Context(), &m.lock, cl, &acquireParams{}, acquireReply{}, nil)
		c.waits.mu.Lock()
		w.q.member.Message("7 1700000000000000 -\n"+cl.owner+"\nanother:1", cl.owner)
		c.waits.mu.Unlock()
		if next, _ := c.waits.turnOf(t.Context(), w, &telemetry.Acquire{}); next != turnOffered {
			t.Fatal(next)
		}
		h, _, _, _ := c.waits.beginHandOver(&m.lock) // the release of the holder, on another goroutine
		if h == nil {
			t.Fatal("it isn't handed over")
		}
		h.succeeded(&grant{lock: &m.lock, claim: holder}, releaseReply{})
		if _, _, ok := c.waits.accept(w); ok {
			t.Error("it takes the remote grant, too")
		}
	})
}
