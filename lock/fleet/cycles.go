package fleet

import (
	"context"
	"encoding/hex"
	"slices"
	"strconv"
	"time"

	"github.com/lockdog/lockdog/lock/internal/script"
	"github.com/lockdog/lockdog/lock/internal/waitgraph"
)

// mostCycles bounds how many cycles a Graph has.
const mostCycles = 100

// index fills the maps of the Graph.
func (g *Graph) index() {
	g.carried, g.locks, g.waits = map[lease][]int{}, map[string]int{}, map[string]int{}
	for i, w := range g.Waits {
		g.waits[w.Waiter] = i
		for _, h := range w.Holds {
			if l := (lease{h.Name, h.Owner}); !slices.Contains(g.carried[l], i) {
				g.carried[l] = append(g.carried[l], i)
			}
		}
	}
	for i, l := range g.Locks {
		g.locks[l.Name] = i
	}
}

// findCycles finds the deadlocks: for each wait that is part of some, at least one that it is part of. It leaves out the waits of clients that seem to be dead.
func (g *Graph) findCycles(ctx context.Context) {
	var search waitgraph.Graph
	now := time.Now()
	for _, w := range g.Waits {
		if now.Sub(w.refreshed) >= waitgraph.StaleAfter {
			continue
		}
		s := waitgraph.Wait{Waiter: w.Waiter, Name: w.Name, Kind: w.Kind, Since: w.Since}
		for _, h := range w.Holds {
			s.Holds = append(s.Holds, waitgraph.Hold(h))
		}
		search.Add(s)
	}
	for _, l := range g.Locks {
		if l.Held > len(l.Holders) { // not all are known
			continue
		}
		holders := waitgraph.Holders{Mode: l.Mode}
		for _, h := range l.Holders {
			holders.Owners = append(holders.Owners, h.Owner)
		}
		search.SetHolders(l.Name, holders)
	}
	stuck := map[int]bool{} // the waits that are in a cycle
	for i, w := range g.Waits {
		if stuck[i] || len(w.Holds) == 0 {
			continue
		}
		if ctx.Err() != nil || len(g.Cycles) == mostCycles {
			return
		}
		var c Cycle
		for _, s := range search.Through(w.Waiter) {
			at := g.waits[s.Wait.Waiter]
			stuck[at] = true
			c = append(c, CycleWait{Wait: at, Holds: Hold(s.Hold)})
		}
		if c != nil {
			g.Cycles = append(g.Cycles, c)
		}
	}
}

// blocks reports whether a waiter waits for a lease that another wait carries.
func (g *Graph) blocks(waiter string, by lease, carrier string) bool {
	wait, ok := g.waits[waiter]
	if !ok || g.Waits[wait].Name != by.name {
		return false
	}
	l := g.Awaited(wait)
	return l != nil && slices.ContainsFunc(l.Holders, func(h Holder) bool { return h.Owner == by.owner }) &&
		slices.ContainsFunc(g.carried[by], func(i int) bool { return g.Waits[i].Waiter == carrier })
}

// partition is which names are connected.
type partition struct{ above map[string]string }

// of is the part that a name belongs to.
func (p *partition) of(name string) string {
	root := name
	for p.above[root] != "" {
		root = p.above[root]
	}
	for name != root { // shorten the way
		name, p.above[name] = p.above[name], root
	}
	return root
}

func (p *partition) join(a, b string) {
	if a, b = p.of(a), p.of(b); a != b {
		p.above[a] = b
	}
}

func isRandom(text string) bool {
	bytes, err := hex.DecodeString(text)
	return err == nil && len(bytes) == script.OwnerRandomBytes
}

// waitNode is the name of a wait in a partition: no lock has it, as it begins with a 0.
func waitNode(wait int) string { return "\x00" + strconv.Itoa(wait) }
