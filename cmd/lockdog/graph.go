package main

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lockdog/lockdog/cmd/lockdog/internal/text"
	"github.com/lockdog/lockdog/lock/fleet"
)

// mostShown is how many waits for one lock are printed even if they hold no awaited lock and aren't in a deadlock.
// --json has all waits.
const mostShown = 20

func (a *app) graphCommand() *cobra.Command {
	var traces traceURL
	cmd := &cobra.Command{
		Use:   "graph [PATTERN]",
		Short: "Show who waits for whom, and deadlocks",
		Long: `Show who waits for whom in all processes: first each deadlock, then each lock that is awaited, its holder, who waits for it, which locks the waiters hold meanwhile, and
who waits for those. With PATTERN, only what is connected with a lock whose name matches it, such as 'orders:*'; quote it.

Waits are seen once they last for a second, unless the program says otherwise. A deadlock is reported if two readings find it, about a second apart, between which all
clients in it have refreshed their records: those of a killed process stay for seconds. Waits that carry the same lease and wait for the same lock are shown as one.

It changes nothing, and doesn't look at all keys.

It doesn't see waits of Redisson, and which leases belong to a wait it only knows if the program passes the lease's context on. Redis doesn't know the holders of semaphores and
latches, so no deadlock through them is found.

Exits with 1 if there is a deadlock, with 0 if there is none, and with 69 if Redis can't be read or not all of it.`,
		Example: `  lockdog graph
  lockdog graph --json | jq '.cycles'`,
		Args: args(0, 1, "[PATTERN]"),
		RunE: func(cmd *cobra.Command, args []string) error {
			pattern := patternOf(args)
			if _, err := (&fleet.Graph{}).Filter(pattern); err != nil { // check the pattern before asking Redis
				return err
			}
			_, reader, err := a.reader(cmd.Context())
			if err != nil {
				return err
			}
			whole, readErr := reader.Graph(cmd.Context())
			g, err := whole.Filter(pattern)
			if err != nil {
				return err
			}
			if err := a.print(graphText(&g, time.Now(), traces), traces.graph(&g)); err != nil {
				return err
			}
			return a.graphResult(cmd, &g, readErr)
		},
	}
	traceFlag(cmd, &traces)
	return cmd
}

// graphResult prints on stderr what the graph lacks. It returns the error with which the command ends.
func (a *app) graphResult(cmd *cobra.Command, g *fleet.Graph, readErr error) error {
	if g.More {
		_, _ = fmt.Fprintf(a.stderr, "there are more than %d waits; these are the longest\n", fleet.MostWaits)
	}
	if g.Unreadable > 0 {
		_, _ = fmt.Fprintf(a.stderr,
			"%d records of waits can't be understood: another version wrote them, or another program\n", g.Unreadable)
	}
	switch {
	case len(g.Cycles) > 0:
		if readErr != nil {
			_, _ = fmt.Fprintln(a.stderr, errorText(readErr))
		}
		return &exitError{code: exitNo}
	case readErr != nil:
		return unread(cmd.Context(), readErr)
	case len(g.Waits) == 0:
		_, _ = fmt.Fprintln(a.stderr, "nobody has waited for long")
	}
	return nil
}

// graphView is the graph for --json. Its fields are API.
type graphView struct {
	Time       time.Time         `json:"time"`
	Cycles     [][]cycleWaitView `json:"cycles"`
	Waits      []lastingWaitView `json:"waits"`
	Locks      []lockView        `json:"locks"`
	More       bool              `json:"more,omitempty"`
	Unreadable int               `json:"unreadable,omitempty"`
}

type lastingWaitView struct {
	Waiter   string     `json:"waiter"`
	ClientID string     `json:"client_id,omitempty"`
	Name     string     `json:"name"` // of the awaited lock
	Kind     string     `json:"kind"`
	Since    time.Time  `json:"since"`
	TraceID  string     `json:"trace_id,omitempty"`
	TraceURL string     `json:"trace_url,omitempty"`
	Holds    []holdView `json:"holds,omitempty"`
	Breaks   bool       `json:"breaks,omitempty"`
	Cycle    bool       `json:"cycle,omitempty"` // it is part of a deadlock
}

type holdView struct {
	Name  string `json:"name"`
	Kind  string `json:"kind"`
	Owner string `json:"owner"`
	Token int64  `json:"token,omitempty"`
}

// cycleWaitView is one wait of a deadlock. Holds is this waiter's lease that the previous wait in the cycle is for. For
// the first wait, the previous one is the last.
type cycleWaitView struct {
	Waiter   string   `json:"waiter"`
	ClientID string   `json:"client_id,omitempty"`
	Name     string   `json:"name"`
	Holds    holdView `json:"holds"`
	TraceID  string   `json:"trace_id,omitempty"`
	TraceURL string   `json:"trace_url,omitempty"`
}

// graph converts a graph for --json.
func (t traceURL) graph(g *fleet.Graph) graphView {
	v := graphView{
		Time: g.Time.UTC(), Cycles: [][]cycleWaitView{}, Waits: []lastingWaitView{}, Locks: []lockView{},
		More: g.More, Unreadable: g.Unreadable,
	}
	for _, c := range g.Cycles {
		var cycle []cycleWaitView
		for _, step := range c {
			w := &g.Waits[step.Wait]
			cycle = append(cycle, cycleWaitView{
				Waiter: w.Waiter, ClientID: w.ClientID, Name: w.Name, Holds: holdView(step.Holds),
				TraceID: w.TraceID, TraceURL: t.of(w.TraceID),
			})
		}
		v.Cycles = append(v.Cycles, cycle)
	}
	stuck := inCycle(g)
	for i, w := range g.Waits {
		one := lastingWaitView{
			Waiter: w.Waiter, ClientID: w.ClientID, Name: w.Name, Kind: w.Kind, Since: w.Since.UTC(),
			TraceID: w.TraceID, TraceURL: t.of(w.TraceID), Breaks: w.Breaks, Cycle: stuck[i],
		}
		for _, h := range w.Holds {
			one.Holds = append(one.Holds, holdView(h))
		}
		v.Waits = append(v.Waits, one)
	}
	for _, l := range g.Locks {
		v.Locks = append(v.Locks, t.view(l))
	}
	return v
}

// inCycle returns the indices of the waits that are part of a deadlock.
func inCycle(g *fleet.Graph) map[int]bool {
	stuck := map[int]bool{}
	for _, c := range g.Cycles {
		for _, step := range c {
			stuck[step.Wait] = true
		}
	}
	return stuck
}

// graphText returns the graph as text for people.
func graphText(g *fleet.Graph, now time.Time, traces traceURL) string {
	p := &graphPrinter{
		g: g, now: now, traces: traces, stuck: inCycle(g), waits: map[string][]int{}, done: map[string]bool{},
	}
	for i, w := range g.Waits {
		p.waits[w.Name] = append(p.waits[w.Name], i)
	}
	for _, c := range g.Cycles {
		p.cycle(c)
	}
	// First the locks whose holders don't wait. The second pass writes the rest: locks in cycles, and those behind
	// them.
	for _, roots := range []bool{true, false} {
		for _, w := range g.Waits {
			if !p.done[w.Name] && (!roots || !p.blocked(w.Name)) {
				p.lock(w.Name, 0)
			}
		}
	}
	return p.out.String()
}

// graphPrinter writes a graph: each awaited lock, its waiters, and below each waiter the awaited locks that it holds.
type graphPrinter struct {
	g      *fleet.Graph
	now    time.Time
	traces traceURL
	stuck  map[int]bool
	waits  map[string][]int // indices of the waits by the name of the awaited lock
	done   map[string]bool  // names of locks that are written already
	out    strings.Builder
}

func (p *graphPrinter) line(depth int, format string, args ...any) {
	p.out.WriteString(strings.Repeat("  ", min(depth, 20)))
	fmt.Fprintf(&p.out, format, args...)
	p.out.WriteString("\n")
}

func (p *graphPrinter) cycle(c fleet.Cycle) {
	if len(c) == 1 {
		p.line(0, "DEADLOCK: a wait for a lease that it holds itself")
	} else {
		p.line(0, "DEADLOCK of %d: each waits for the next one, and the last for the first", len(c))
	}
	for _, step := range c {
		w := &p.g.Waits[step.Wait]
		p.line(1, "%s holds %s and waits for %s, for %s%s", text.Owner(w.Waiter, w.ClientID, false),
			name(step.Holds.Name), name(w.Name), text.Age(w.Since, p.now), p.trace(w.TraceID))
	}
	p.out.WriteString("\n")
}

// blocked reports whether a holder of an awaited lock waits too.
func (p *graphPrinter) blocked(name string) bool {
	l := p.g.Awaited(p.waits[name][0])
	return l != nil && slices.ContainsFunc(l.Holders, func(h fleet.Holder) bool {
		return len(p.g.Carriers(name, h.Owner)) > 0
	})
}

// lock writes an awaited lock: its holders, its waiters, and below each waiter the awaited locks that it holds. If the
// lock was written before, it writes only the name.
func (p *graphPrinter) lock(of string, depth int) {
	waits := p.waits[of]
	if p.done[of] {
		p.line(depth, "%s: see above", name(of))
		return
	}
	p.done[of] = true
	p.line(depth, "%s %s", name(of), p.held(waits[0]))
	left := 0
	for n, i := range waits {
		w := &p.g.Waits[i]
		var behind []string
		for _, h := range w.Holds {
			if len(p.waits[h.Name]) > 0 && !slices.Contains(behind, h.Name) {
				behind = append(behind, h.Name)
			}
		}
		if n >= mostShown && len(behind) == 0 && !p.stuck[i] {
			left++
			continue
		}
		line := fmt.Sprintf("%s waits for %s", text.Owner(w.Waiter, w.ClientID, false), text.Age(w.Since, p.now))
		if p.stuck[i] {
			line += ", DEADLOCK"
		}
		if held := namesOf(w.Holds); held != "" {
			line += ", holds " + held
		}
		p.line(depth+1, "%s%s", line, p.trace(w.TraceID))
		for _, name := range behind {
			p.lock(name, depth+2)
		}
	}
	if left > 0 {
		p.line(depth+1, "and %d more, which hold no lock that others wait for: --json has them", left)
	}
}

// held says who holds an awaited lock.
func (p *graphPrinter) held(wait int) string {
	kind := p.g.Waits[wait].Kind
	l := p.g.Awaited(wait)
	if l == nil {
		if kind == "latch" || kind == "unleased_semaphore" {
			return "(" + text.Safe(kind) + "), a number: Redis doesn't know who holds it"
		}
		return "(" + text.Safe(kind) + "), held by nobody now"
	}
	if l.Kind == fleet.Semaphore {
		return "(semaphore), " + text.Holder(*l) + " held; Redis doesn't know by whom"
	}
	line := "(" + text.Safe(kind) + "), held by " + text.Holder(*l)
	if since := text.Since(*l); !since.IsZero() {
		line += " for " + text.Age(since, p.now)
	}
	if len(l.Holders) == 1 {
		line += p.trace(l.Holders[0].TraceID)
	}
	return line
}

// trace returns the end of a line about a wait or a holder: the address of its trace, or the trace's id if there is no
// address. It is "" if there is no trace.
func (p *graphPrinter) trace(id string) string {
	if id == "" {
		return ""
	}
	return ", trace " + cmp.Or(p.traces.of(id), id)
}

// name returns a lock's name for people: in quotes if it isn't a single word.
func name(s string) string {
	if safe := text.Safe(s); !strings.ContainsAny(safe, " ,") && safe != "" {
		return safe
	}
	return `"` + text.Safe(s) + `"`
}

// mostHolds is the maximum number of a wait's leases that are named.
const mostHolds = 4

func namesOf(holds []fleet.Hold) string {
	var names []string
	for _, h := range holds[:min(len(holds), mostHolds)] {
		names = append(names, name(h.Name))
	}
	if left := len(holds) - mostHolds; left > 0 {
		names = append(names, strconv.Itoa(left)+" more")
	}
	return strings.Join(names, ", ")
}
