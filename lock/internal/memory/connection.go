package memory

import (
	"context"
	"math"
	"time"

	"github.com/lockdog/lockdog/lock/internal/backend"
)

// Backend returns a client's way to the server.
func (s *Server) Backend() backend.Backend { return connection{s} }

// connection is a backend.Backend.
type connection struct{ s *Server }

// timeout is go-redis's default ReadTimeout.
const timeout = 5 * time.Second

// Eval implements backend.Backend.
func (c connection) Eval(_ context.Context, call backend.Call) (any, error) { return c.s.eval(call) }

// EvalEach implements backend.Backend.
func (c connection) EvalEach(_ context.Context, calls []backend.Call) []backend.Result {
	results := make([]backend.Result, len(calls))
	for i, call := range calls {
		results[i].Reply, results[i].Err = c.s.eval(call)
	}
	return results
}

// EvalWait implements backend.Backend: no replica ever confirms, as there is none.
func (c connection) EvalWait(_ context.Context, call backend.Call, _ int, timeout time.Duration) (any, int, error) {
	reply, err := c.s.eval(call)
	time.Sleep(timeout)
	return reply, 0, err
}

// Prepare implements backend.Backend.
func (connection) Prepare(context.Context, string) error { return nil }

// Node implements backend.Backend: there is one.
func (connection) Node(string) string { return "memory" }

// Layout implements backend.Backend.
func (connection) Layout() string { return "" }

// Follow implements backend.Backend.
func (connection) Follow(context.Context) bool { return true }

// Moved implements backend.Backend.
func (connection) Moved(context.Context) {}

// Traits implements backend.Backend.
func (connection) Traits() backend.Traits {
	return backend.Traits{Publish: "publish", NumSubCommand: "numsub"}
}

// Control implements backend.Backend.
func (connection) Control(string) backend.Endpoint { return backend.Endpoint{} }

// Soon implements backend.Backend.
func (connection) Soon() time.Duration { return 0 }

// PoolSize implements backend.Backend. Nothing is shared here.
func (connection) PoolSize() int { return math.MaxInt }

// Timeout implements backend.Backend.
func (connection) Timeout() time.Duration { return timeout }

// Close implements backend.Backend.
func (connection) Close() error { return nil }

// Subscribe implements backend.Backend.
func (c connection) Subscribe(context.Context, backend.Endpoint) (backend.PubSub, error) {
	return &conn{s: c.s, channels: make(map[string]struct{}), more: make(chan struct{}, 1), closed: make(chan struct{})}, nil
}
