package lock_test

import (
	"cmp"
	"context"
	"testing"
	"time"

	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/lock/internal/backend"
	"github.com/lockdog/lockdog/lock/internal/memory"
)

// hooked is a client's way to the server in memory, with hooks that may block, or lose what is under way: up before a call reaches the
// server, down before its answer is back, heard before the client is told what a subscription received: an error cuts it instead. Any may be nil.
type hooked struct {
	backend.Backend
	addr  string                   // of the server, as the client sees it
	up    func(backend.Call) error // what the caller is told, and the server isn't asked; nil: it is
	down  func(backend.Call) error // what the caller is told instead of the answer, nil: the answer
	heard func(backend.Event) error
}

func (h hooked) Node(key string) string { return cmp.Or(h.addr, h.Backend.Node(key)) }

func (h hooked) Eval(ctx context.Context, call backend.Call) (any, error) {
	if h.up != nil {
		if lost := h.up(call); lost != nil {
			return nil, lost
		}
	}
	reply, err := h.Backend.Eval(ctx, call)
	if h.down != nil {
		if lost := h.down(call); lost != nil {
			return nil, lost
		}
	}
	return reply, err
}

func (h hooked) Subscribe(ctx context.Context, at backend.Endpoint) (backend.PubSub, error) {
	ps, err := h.Backend.Subscribe(ctx, at)
	if err != nil || h.heard == nil {
		return ps, err
	}
	return &lateEar{ps, h.heard}, nil
}

// lateEar is a subscription that is told late.
type lateEar struct {
	backend.PubSub
	heard func(backend.Event) error
}

func (e *lateEar) Receive(ctx context.Context, timeout time.Duration) (backend.Event, error) {
	ev, err := e.PubSub.Receive(ctx, timeout)
	if err == nil {
		err = e.heard(ev)
	}
	return ev, err
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
