package lockdebug

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/lockdog/lockdog/lock/fleet"
)

const (
	graphTimeout = 2 * time.Second // how long a page waits for Redis; with a cycle, Graph reads twice, about a second apart
	mostWaits    = 100             // how many waits are listed; those of deadlocks come first
	mostCycles   = 10              // how many deadlocks are listed
	mostHolders  = 5               // of a lock that are named
)

// graphReader reads the graph for all requests: never twice at the same time, as Redis may be slow.
type graphReader struct {
	reader  *fleet.Reader
	timeout time.Duration

	mu      sync.Mutex
	running *graphReading // nil: none
}

// graphReading is one reading. Its result is there when done is closed.
type graphReading struct {
	done  chan struct{}
	graph fleet.Graph
	err   error
}

var errGraphTimeout = errors.New("no answer from Redis in time")

// read waits for a reading that began before or begins now, but no longer than the timeout: a client of go-redis may be set up to ignore deadlines of a ctx.
func (r *graphReader) read(ctx context.Context) (fleet.Graph, error) {
	r.mu.Lock()
	one := r.running
	if one == nil {
		one = &graphReading{done: make(chan struct{})}
		r.running = one
		go r.run(one)
	}
	r.mu.Unlock()
	late := time.NewTimer(r.timeout)
	defer late.Stop()
	select {
	case <-one.done:
		return one.graph, one.err
	case <-late.C:
		return fleet.Graph{}, errGraphTimeout
	case <-ctx.Done():
		return fleet.Graph{}, context.Cause(ctx)
	}
}

func (r *graphReader) run(one *graphReading) {
	ctx, cancel := context.WithTimeoutCause(context.Background(), r.timeout, errGraphTimeout)
	defer cancel()
	one.graph, one.err = r.reader.Graph(ctx)
	r.mu.Lock()
	r.running = nil
	r.mu.Unlock()
	close(one.done)
}

// graph is who waits for whom in all processes.
type graph struct {
	Time       time.Time     `json:"time,omitzero"`
	Error      string        `json:"error,omitempty"`
	Total      int           `json:"total"`
	More       bool          `json:"more,omitzero"`
	Unreadable int           `json:"unreadable,omitzero"`
	Cycles     [][]cycleWait `json:"cycles"`
	Waits      []graphWait   `json:"waits"`

	Drawing *drawing `json:"-"` // nil: there is nothing to draw
	Timeout seconds  `json:"-"`
}

// graphWait is a call of Lock that has waited for long.
type graphWait struct {
	Name     string        `json:"name"`
	Kind     string        `json:"kind"`
	Owner    string        `json:"owner"`
	ClientID string        `json:"client_id,omitempty"` // not with RedactOwner
	Since    time.Time     `json:"since"`
	Age      seconds       `json:"age_seconds"`
	TraceID  string        `json:"trace_id,omitempty"`
	TraceURL string        `json:"trace_url,omitempty"`
	Deadlock bool          `json:"deadlock,omitzero"`
	HeldBy   []graphHolder `json:"held_by,omitempty"`
	Held     int           `json:"held"` // how many hold the lock
	Holds    []graphHold   `json:"holds,omitempty"`
}

// Who is how the page names it.
func (w graphWait) Who() string { return who(w.ClientID, w.Owner) }

// Others are how many more hold the lock.
func (w graphWait) Others() int { return w.Held - len(w.HeldBy) }

type graphHolder struct {
	Owner    string    `json:"owner"`
	ClientID string    `json:"client_id,omitempty"`
	Redisson bool      `json:"redisson,omitzero"`
	Since    time.Time `json:"since,omitzero"`
	TraceID  string    `json:"trace_id,omitempty"`
	TraceURL string    `json:"trace_url,omitempty"`
	Age      *seconds  `json:"age_seconds,omitempty"`

	waits []int // that carry its lease
}

// Who is how the page names it.
func (h graphHolder) Who() string {
	if h.Redisson {
		return "Redisson " + h.Owner
	}
	return who(h.ClientID, h.Owner)
}

type graphHold struct {
	Name  string `json:"name"`
	Owner string `json:"owner"`
	Token int64  `json:"token,omitzero"`
}

// cycleWait is a wait for the lease that the next one of the cycle holds; the last waits for that of the first.
type cycleWait struct {
	Name       string    `json:"name"`
	Owner      string    `json:"owner"`
	ClientID   string    `json:"client_id,omitempty"`
	Since      time.Time `json:"since"`
	Age        seconds   `json:"age_seconds"`
	TraceID    string    `json:"trace_id,omitempty"`
	TraceURL   string    `json:"trace_url,omitempty"`
	HoldsName  string    `json:"holds_name"`
	HoldsOwner string    `json:"holds_owner"`
}

// Who is how the page names it.
func (c cycleWait) Who() string { return who(c.ClientID, c.Owner) }

func who(clientID, owner string) string {
	if clientID != "" {
		return clientID
	}
	return owner
}

// graph reads who waits for whom. Everything in it is redacted.
func (h *handler) graph(ctx context.Context, now time.Time) *graph {
	g, err := h.graphs.read(ctx) // others may have the same: it isn't changed
	r := h.redactor()
	out := &graph{Total: len(g.Waits), More: g.More, Unreadable: g.Unreadable, Cycles: [][]cycleWait{}, Waits: []graphWait{}, Timeout: seconds(h.graphs.timeout)}
	if !g.Time.IsZero() {
		out.Time = utc(g.Time)
	}
	all := make([]graphWait, len(g.Waits))
	for i := range g.Waits {
		all[i] = h.graphWait(r, &g, i, now)
	}
	for _, c := range g.Cycles {
		var cycle []cycleWait
		for _, step := range c {
			w := &all[step.Wait]
			w.Deadlock = true
			cycle = append(cycle, cycleWait{
				Name: w.Name, Owner: w.Owner, ClientID: w.ClientID, Since: w.Since, Age: w.Age, TraceID: w.TraceID, TraceURL: w.TraceURL,
				HoldsName: r.names.replace(step.Holds.Name), HoldsOwner: r.owners.replace(step.Holds.Owner),
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
	out.Drawing = draw(&g, all)
	out.Error = r.text(err)
	return out
}

func (h *handler) graphWait(r *redactor, g *fleet.Graph, i int, now time.Time) graphWait {
	w := &g.Waits[i]
	out := graphWait{
		Name: r.names.replace(w.Name), Kind: w.Kind, Owner: r.owners.replace(w.Waiter), ClientID: r.clientID(w.ClientID), Since: utc(w.Since), Age: since(w.Since, now),
		TraceID: w.TraceID, TraceURL: h.traceLink(w.TraceID),
	}
	if l := g.Awaited(i); l != nil {
		out.Held = l.Held
		for _, holder := range l.Holders[:min(len(l.Holders), mostHolders)] {
			one := graphHolder{
				Owner: r.owners.replace(holder.Owner), ClientID: r.clientID(holder.ClientID), Redisson: holder.Redisson,
				TraceID: holder.TraceID, TraceURL: h.traceLink(holder.TraceID), waits: g.Carriers(l.Name, holder.Owner),
			}
			if !holder.Since.IsZero() {
				age := since(holder.Since, now)
				one.Since, one.Age = utc(holder.Since), &age
			}
			out.HeldBy = append(out.HeldBy, one)
		}
	}
	for _, hold := range w.Holds {
		out.Holds = append(out.Holds, graphHold{Name: r.names.replace(hold.Name), Owner: r.owners.replace(hold.Owner), Token: hold.Token})
	}
	return out
}

// clientID is the id of a client, unless owners are redacted: they begin with it.
func (r *redactor) clientID(id string) string {
	if r.owners.redact != nil {
		return ""
	}
	return id
}

// Listed is how many waits are listed, if those aren't all; otherwise 0.
func (g *graph) Listed() int {
	if len(g.Waits) == g.Total {
		return 0
	}
	return len(g.Waits)
}
