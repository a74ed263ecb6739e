package lock

import (
	"math"
	"sync"
	"sync/atomic"
)

// gate counts what runs in the client: its calls, except Lease.Release, or its reports. After shut, enter returns
// false, and the call must not run. Exceptions, which then run uncounted: UnleasedSemaphore.Release, Latch.CountDown
// and reports.
type gate struct {
	n     atomic.Int64
	once  sync.Once
	empty chan struct{}
}

const gateShut = math.MinInt64 / 2

func newGate() *gate { return &gate{empty: make(chan struct{})} }

func (g *gate) enter() bool {
	if g.n.Add(1) > 0 {
		return true
	}
	g.leave()
	return false
}

func (g *gate) leave() {
	if g.n.Add(-1) == gateShut {
		g.once.Do(func() { close(g.empty) })
	}
}

// shut may be called once. It returns a channel that is closed when the last call has left.
func (g *gate) shut() <-chan struct{} {
	if g.n.Add(gateShut) == gateShut {
		g.once.Do(func() { close(g.empty) })
	}
	return g.empty
}
