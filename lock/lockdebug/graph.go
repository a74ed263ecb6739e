package lockdebug

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/lockdog/lockdog/lock/fleet"
)

const (
	graphTimeout = 2 * time.Second // for Redis; with a cycle, Graph reads at least twice, about a second apart
	mostWaits    = 100             // in the list; those of deadlocks come first
	mostCycles   = 10              // deadlocks in the list
	mostHolders  = 5               // in the list of a lock's holders
)

// graphReader reads the graph for all requests. It never reads twice at the same time: Redis may be slow.
type graphReader struct {
	reader *fleet.Reader

	mu      sync.Mutex
	running *graphReading // nil: none
}

// graphReading is one reading. graph and err are set before done is closed.
type graphReading struct {
	done  chan struct{}
	graph fleet.Graph
	err   error
}

var errGraphTimeout = errors.New("no answer from Redis in time")

// read returns the result of the running reading, or of a new one if none is running. It waits no longer than
// graphTimeout, because go-redis may be set up to ignore deadlines of a ctx.
func (r *graphReader) read(ctx context.Context) (fleet.Graph, error) {
	r.mu.Lock()
	one := r.running
	if one == nil {
		one = &graphReading{done: make(chan struct{})}
		r.running = one
		go r.run(one)
	}
	r.mu.Unlock()
	ctx, cancel := context.WithTimeoutCause(ctx, graphTimeout, errGraphTimeout)
	defer cancel()
	select {
	case <-one.done:
		return one.graph, one.err
	case <-ctx.Done():
		return fleet.Graph{}, context.Cause(ctx)
	}
}

func (r *graphReader) run(one *graphReading) {
	ctx, cancel := context.WithTimeoutCause(context.Background(), graphTimeout, errGraphTimeout)
	defer cancel()
	one.graph, one.err = r.reader.Graph(ctx)
	r.mu.Lock()
	r.running = nil
	r.mu.Unlock()
	close(one.done)
}

// graph is the JSON field graph.
type graph struct {
	Time       time.Time     `json:"time,omitzero"`
	Error      string        `json:"error,omitempty"`
	Total      int           `json:"total"`
	More       bool          `json:"more,omitzero"`
	Unreadable int           `json:"unreadable,omitzero"`
	Cycles     [][]cycleWait `json:"cycles"`
	Waits      []graphWait   `json:"waits"`
}

// party is a holder or a waiter.
type party struct {
	Owner    string    `json:"owner"`
	ClientID string    `json:"client_id,omitempty"` // not with RedactOwner: owners begin with it
	Since    time.Time `json:"since,omitzero"`
	Age      *float64  `json:"age_seconds,omitempty"`
	TraceID  string    `json:"trace_id,omitempty"`
	TraceURL string    `json:"trace_url,omitempty"`
}

// graphWait is a call of Lock that has waited for a long time: see fleet.Graph.
type graphWait struct {
	Name string `json:"name"`
	Kind string `json:"kind"`
	party
	Deadlock bool          `json:"deadlock,omitzero"`
	HeldBy   []graphHolder `json:"held_by,omitempty"`
	Held     int           `json:"held"` // number of holders of the lock
	Holds    []graphHold   `json:"holds,omitempty"`
}

type graphHolder struct {
	party
	Redisson bool `json:"redisson,omitzero"`
}

type graphHold struct {
	Name  string `json:"name"`
	Owner string `json:"owner"`
	Token int64  `json:"token,omitzero"`
}

// cycleWait is one wait of a deadlock. HoldsName and HoldsOwner are of the lease that the previous wait waits for.
type cycleWait struct {
	Name string `json:"name"`
	party
	HoldsName  string `json:"holds_name"`
	HoldsOwner string `json:"holds_owner"`
}

// graph reads the graph of all processes, and redacts the names and owners in it.
func (v *view) graph(ctx context.Context) *graph {
	g, err := v.graphs.read(ctx) // read-only: concurrent requests share it
	out := &graph{
		Time: utc(g.Time), Total: len(g.Waits), More: g.More, Unreadable: g.Unreadable,
		Cycles: [][]cycleWait{}, Waits: []graphWait{},
	}
	all := make([]graphWait, len(g.Waits))
	for i := range g.Waits {
		all[i] = v.graphWait(&g, i)
	}
	for _, c := range g.Cycles {
		var cycle []cycleWait
		for _, step := range c {
			w := &all[step.Wait]
			w.Deadlock = true
			cycle = append(cycle, cycleWait{
				w.Name, w.party, v.names.replace(step.Holds.Name), v.owners.replace(step.Holds.Owner),
			})
		}
		if len(out.Cycles) < mostCycles {
			out.Cycles = append(out.Cycles, cycle)
		}
	}
	for _, first := range []bool{true, false} {
		for _, w := range all {
			if w.Deadlock == first && len(out.Waits) < mostWaits {
				out.Waits = append(out.Waits, w)
			}
		}
	}
	out.Error = v.textOf(err)
	return out
}

func (v *view) graphWait(g *fleet.Graph, i int) graphWait {
	w := &g.Waits[i]
	out := graphWait{
		Name: v.names.replace(w.Name), Kind: w.Kind, party: v.party(w.Waiter, w.ClientID, w.TraceID, w.Since),
	}
	if l := g.Awaited(i); l != nil {
		out.Held = l.Held
		for _, h := range l.Holders[:min(len(l.Holders), mostHolders)] {
			out.HeldBy = append(out.HeldBy, graphHolder{v.party(h.Owner, h.ClientID, h.TraceID, h.Since), h.Redisson})
		}
	}
	for _, hold := range w.Holds {
		out.Holds = append(out.Holds, graphHold{v.names.replace(hold.Name), v.owners.replace(hold.Owner), hold.Token})
	}
	return out
}

func (v *view) party(owner, client, trace string, began time.Time) party {
	if v.owners.redact != nil {
		client = ""
	}
	return party{v.owners.replace(owner), client, utc(began), since(began, v.now), trace, v.traceLink(trace)}
}
