package renewal

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/lockdog/lockdog/lock/internal/agentlink"
	"github.com/lockdog/lockdog/watchdog"
)

const (
	// warmFor is how long a client may do without renewing at a node by itself, unless a lease is longer. So it has an
	// open connection when the agent fails: to open one takes too long while Redis is slow.
	warmFor = 2 * time.Minute
	// mostAsked is how many batches of a node may be at the agent at a time. It answers later than Redis, because it
	// waits for leases of other clients. The watchdog makes at most 8 calls at a time, and the others must not wait.
	mostAsked = 2
	// leastTime is the shortest time of an attempt in which the agent may have a part: that of a lease of 2.7 s. If the
	// agent fails, an extra call follows, and that may have to wait for a tenth of a second for its turn.
	leastTime = 450 * time.Millisecond
)

// agent is the way through the agent of the machine.
type agent struct {
	link *agentlink.Link // nil: there is no agent

	mu    sync.Mutex
	nodes map[string]*agentNode
}

// agentNode is a node at which the agent may renew.
type agentNode struct {
	direct time.Time         // when this client last renewed there by itself
	asked  int               // batches at the agent
	absent []*watchdog.Lease // the last batch of which the agent has found nothing
}

// begin reports whether the agent may renew a batch of leases with an expiry. If so, end must be called afterwards.
func (a *agent) begin(ctx context.Context, b *watchdog.Batch, expiry time.Duration) bool {
	if a.link == nil || b.Urgent {
		return false
	}
	if deadline, _ := ctx.Deadline(); deadline.Sub(b.Sent) < leastTime {
		return false
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	n := a.nodes[b.Node]
	if n == nil || n.asked == mostAsked || time.Since(n.direct) >= max(warmFor, expiry) {
		return false
	}
	n.asked++
	return true
}

// end ends what begin has begun.
func (a *agent) end(node string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.nodes[node].asked--
}

// noteAbsent notes that the agent has found none of the leases of a batch, and has named no reason.
func (a *agent) noteAbsent(b *watchdog.Batch) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.nodes[b.Node].absent = slices.Clone(b.Leases)
}

// noteDirect notes the results of a call that this client has made to a node by itself. If it has renewed a lease that
// the agent didn't find, the agent isn't asked for a while.
func (a *agent) noteDirect(b *watchdog.Batch, results []watchdog.Result) {
	if a.link == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	n := a.nodes[b.Node]
	for i, r := range results {
		if r.Outcome != watchdog.Renewed {
			continue
		}
		if n == nil {
			n = &agentNode{}
			a.nodes[b.Node] = n
		}
		n.direct = time.Now()
		if slices.Contains(n.absent, b.Leases[i]) {
			n.absent = nil
			a.link.Rest(agentlink.ErrUseless)
		}
	}
}

// renewBatch makes one attempt to renew a batch: by the agent as far as it can, and in Redis for the rest. If the agent
// took some time, the rest is left to an extra attempt. renewBatch returns how many leases the agent has renewed, and
// an error if a call failed as a whole.
func (r *Renewer) renewBatch(ctx context.Context, b *watchdog.Batch) (byAgent int, err error) {
	all := &Attempt{Node: b.Node, Targets: make([]Target, len(b.Leases)), Results: b.Results}
	for i, l := range b.Leases {
		all.Targets[i] = holderOf(l).Target()
	}
	if !r.agent.begin(ctx, b, all.Targets[0].Expiry) {
		err = r.cfg.Renew(ctx, all)
		r.agent.noteDirect(b, all.Results)
		return 0, err
	}
	defer r.agent.end(b.Node)
	left, refused := r.askAgent(ctx, all)
	byAgent = len(b.Leases) - len(left)
	if len(left) == 0 {
		return byAgent, nil
	}
	if byAgent == 0 && refused == nil {
		r.agent.noteAbsent(b)
	}
	if end, _ := ctx.Deadline(); time.Since(b.Sent) > end.Sub(b.Sent)/50 {
		// While Redis is slow, a call with less than all of the time fails, and closes the connection. So the watchdog
		// makes an extra one, at once.
		for _, i := range left {
			all.Results[i] = watchdog.Result{Outcome: watchdog.Moved, Node: b.Node}
		}
		return byAgent, refused
	}
	rest := &Attempt{Node: b.Node, Results: make([]watchdog.Result, len(left))}
	for _, i := range left {
		rest.Targets = append(rest.Targets, all.Targets[i])
	}
	err = r.cfg.Renew(ctx, rest)
	for n, i := range left {
		all.Results[i] = rest.Results[n]
	}
	if byAgent == 0 {
		r.agent.noteDirect(b, all.Results)
	}
	return byAgent, err
}

// askAgent asks the agent to renew the leases of an attempt. It returns those that Redis must be asked for, and why. A
// lease that lives on another node, in this client's view, is one of them: the agent's view may be older.
func (r *Renewer) askAgent(ctx context.Context, a *Attempt) (left []int, refused error) {
	leases := make([]agentlink.Lease, len(a.Targets))
	for i := range a.Targets {
		leases[i] = a.Targets[i].AgentLease()
	}
	renewed, refused := r.agent.link.Renew(ctx, a.Node, leases)
	if !errors.Is(refused, agentlink.ErrResting) {
		r.cfg.Recorder.AgentRequest(ctx, len(renewed), len(leases))
	}
	for _, i := range renewed {
		a.Results[i].Outcome = watchdog.Renewed
	}
	for i := range a.Results {
		if a.Results[i].Outcome != watchdog.Renewed || r.cfg.redirectIfMoved(a, i) {
			left = append(left, i)
		}
	}
	return left, refused
}
