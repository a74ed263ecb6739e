package lock_test

import (
	"context"
	"testing"
	"time"

	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/lock/internal/backend"
	"github.com/lockdog/lockdog/lock/internal/memory"
)

// hooked is a client's way to the server in memory, with hooks that may block or fail: up before a call reaches the server, down before
// its answer is back. Either may be nil.
type hooked struct {
	backend.Backend
	up   func(backend.Call)
	down func(backend.Call) error // what the caller is told instead of the answer, nil: the answer
}

func (h hooked) Eval(ctx context.Context, call backend.Call) (any, error) {
	if h.up != nil {
		h.up(call)
	}
	reply, err := h.Backend.Eval(ctx, call)
	if h.down != nil {
		if lost := h.down(call); lost != nil {
			return nil, lost
		}
	}
	return reply, err
}

func (h hooked) EvalEach(ctx context.Context, calls []backend.Call) []backend.Result {
	results := make([]backend.Result, len(calls))
	for i, call := range calls {
		results[i].Reply, results[i].Err = h.Eval(ctx, call)
	}
	return results
}

// openHooked returns a client of the server in memory. The test's end closes it, and abandons what it still holds.
func openHooked(t *testing.T, srv *memory.Server, h hooked, opts ...lock.Option) *lock.Client {
	t.Helper()
	h.Backend = srv.Backend()
	c, err := lock.New(memoryProvider{backend: h}, append([]lock.Option{lock.WithLogger(silent)}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeSoon(c) })
	return c
}

// gate lets nobody through until it is opened.
type gate struct{ reached, opened chan struct{} }

func newGate() *gate { return &gate{make(chan struct{}, 1), make(chan struct{})} }

// pass waits at the gate.
func (g *gate) pass() {
	select {
	case g.reached <- struct{}{}:
	default:
	}
	<-g.opened
}

// isOpen reports whether it is.
func (g *gate) isOpen() bool {
	select {
	case <-g.opened:
		return true
	default:
		return false
	}
}

// sleepUntil sleeps until then, in a bubble.
func sleepUntil(then time.Time) { time.Sleep(time.Until(then)) }
