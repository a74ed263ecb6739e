package renewal

import (
	"sync"
	"sync/atomic"
	"time"
)

// topologyPause is how often a client checks whether keys now live on other servers.
const topologyPause = 100 * time.Millisecond

// topologyWatch renews all leases at once when keys have moved to other servers without any server saying so, as in a
// Ring. Otherwise a lease on a shard that has left would be trusted until its next renewal, while others take the lock
// on another shard. It runs while leases are held. Nil: not needed, because Backend.Topology is "".
type topologyWatch struct {
	r    *Renewer
	stop chan struct{}
	done sync.WaitGroup

	running atomic.Bool // changed with mu held
	mu      sync.Mutex
	closed  bool
}

func newTopologyWatch(r *Renewer) *topologyWatch {
	if r.cfg.Backend.Topology() == "" {
		return nil
	}
	return &topologyWatch{r: r, stop: make(chan struct{})}
}

// start starts run unless it runs already, or close was called. start is called for each new lease.
func (w *topologyWatch) start() {
	if w == nil || w.running.Load() {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.closed && !w.running.Swap(true) {
		w.done.Go(w.run)
	}
}

func (w *topologyWatch) run() {
	tick := time.NewTicker(topologyPause)
	defer tick.Stop()
	// The first look renews in any case: a shard may have left the Ring since the first lease was asked for.
	for known := ""; ; {
		select {
		case <-tick.C:
		case <-w.stop:
			return
		}
		if w.idle() {
			return
		}
		if now := w.r.cfg.Backend.Topology(); now != known {
			known = now
			w.r.Verify(w.r.cfg.Leases.All()...)
		}
	}
}

// idle reports whether no lease is held. Then run must end, and the next lease starts it again.
func (w *topologyWatch) idle() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.r.cfg.Leases.Count() > 0 {
		return false
	}
	w.running.Store(false)
	if w.r.cfg.Leases.Count() == 0 {
		return true
	}
	w.running.Store(true) // a lease that came in the meantime may have found it running
	return false
}

func (w *topologyWatch) close() {
	if w == nil {
		return
	}
	w.mu.Lock()
	w.closed = true
	close(w.stop)
	w.mu.Unlock()
	w.done.Wait()
}
