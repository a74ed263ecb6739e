package sim

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock/agent"
)

// agentTerm is the lease in a world with an agent: shorter leases are never renewed by it.
const agentTerm = 3 * time.Second

var quiet = slog.New(slog.DiscardHandler)

// renewedByAgents counts the renewals of all worlds.
var renewedByAgents atomic.Int64

// A node has the agent of all processes.
type node struct {
	w      *world
	wire   *redistest.Proxy // to Redis
	socket *redistest.Socket
	agent  *agent.Agent
	served chan error // gets what Serve returned
}

// start starts an agent, which takes over the socket.
func (n *node) start() {
	a, err := agent.New(n.w.dial(n.wire), agent.Config{Logger: quiet})
	if err != nil {
		n.w.t.Fatal(err)
	}
	served, l := make(chan error, 1), n.socket.Listen()
	go func() { served <- a.Serve(l) }()
	n.agent, n.served = a, served
}

// end closes the agent.
func (n *node) end(ctx context.Context) {
	_ = n.agent.Close(ctx) // says that ctx has ended, or that Redis was away
	if err := <-n.served; err != nil {
		n.w.t.Error("the agent: ", err)
	}
	renewedByAgents.Add(n.agent.Status().Renewed)
}
