package peer

import (
	"context"
	"sync"
)

// gated is a floor in which only one goroutine of the process at a time waits for a name in Redis. A channel serves its
// senders in the order in which they came.
type gated struct {
	*floor
	gates sync.Map // name -> chan struct{}; never deleted, because there are few names
}

// gatedHeld is a lock of a gated.
type gatedHeld struct {
	Held
	gate chan struct{}
}

func openGate(cfg Config) (Locks, error) { return &gated{floor: newFloor(cfg)}, nil }

func (g *gated) gate(name string) chan struct{} {
	c, ok := g.gates.Load(name)
	if !ok {
		c, _ = g.gates.LoadOrStore(name, make(chan struct{}, 1))
	}
	return c.(chan struct{})
}

func (g *gated) Lock(ctx context.Context, name string) (Held, error) {
	gate := g.gate(name)
	select {
	case gate <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	h, err := g.floor.Lock(ctx, name)
	if err != nil {
		<-gate
		return nil, err
	}
	return &gatedHeld{Held: h, gate: gate}, nil
}

func (h *gatedHeld) Release(ctx context.Context) error {
	err := h.Held.Release(ctx)
	<-h.gate
	return err
}
