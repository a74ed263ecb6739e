package lock

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockdog/lockdog/watchdog"
)

// layoutCheck is how often a client looks whether keys live on other servers by now.
const layoutCheck = 100 * time.Millisecond

// layoutWatch renews all leases at once when keys live on other servers than before, in a Ring for instance. No server tells: a lease whose lock
// is on a shard that left would otherwise be trusted until its next renewal, while others take the lock on another shard. It runs while
// leases are held. Nil where the servers tell.
type layoutWatch struct {
	c    *Client
	stop chan struct{}
	done sync.WaitGroup

	running atomic.Bool // changed with mu held
	mu      sync.Mutex
	closed  bool
}

func newLayoutWatch(c *Client) *layoutWatch {
	if c.backend.Layout() == "" {
		return nil
	}
	return &layoutWatch{c: c, stop: make(chan struct{})}
}

// start is called for each grant once the registry has it.
func (w *layoutWatch) start() {
	if w == nil || w.running.Load() {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.closed && !w.running.Swap(true) {
		w.done.Go(w.run)
	}
}

func (w *layoutWatch) run() {
	tick := time.NewTicker(layoutCheck)
	defer tick.Stop()
	for known := w.c.backend.Layout(); ; {
		select {
		case <-tick.C:
		case <-w.stop:
			return
		}
		if w.idle() {
			return
		}
		if now := w.c.backend.Layout(); now != known {
			known = now
			var leases []*watchdog.Lease
			w.c.grants.each(func(g *grant) { leases = append(leases, &g.wd) })
			w.c.engine.Verify(leases...)
		}
	}
}

// idle reports whether nothing is held. Then run ends, and the next grant starts it again.
func (w *layoutWatch) idle() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.c.grants.size() > 0 {
		return false
	}
	w.running.Store(false)
	if w.c.grants.size() == 0 {
		return true
	}
	w.running.Store(true) // a grant that came meanwhile may have found it running
	return false
}

func (w *layoutWatch) close() {
	if w == nil {
		return
	}
	w.mu.Lock()
	w.closed = true
	close(w.stop)
	w.mu.Unlock()
	w.done.Wait()
}
