package waitgraph

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
)

// MaxDepth is the largest number of waits in a cycle.
const MaxDepth = 16

// MaxHolders is the largest number of holders of a lock in a cycle: see Holders.Block.
const MaxHolders = 100

// Followed reports whether a wait for a lock of that kind ends only when all holders of the lock are gone: then a cycle
// may lead to any of them. A semaphore may have permits left, a latch has no holders, and no single node knows who
// holds a Quorum's lock. A wait for a read lock is only followed to a writer: see Holders.Block.
func Followed(kind string) bool {
	switch kind {
	case "mutex", "fair", "multi", "write", "read":
		return true
	}
	return false
}

// Holders are the holders of a lock.
type Holders struct {
	Owners []string
	Mode   string // of a read-write lock: "read" or "write"; "" for any other
}

// Block reports whether a wait of that kind waits for all of the holders. It reports false if there are more than
// MaxHolders.
func (h Holders) Block(kind string) bool {
	return Followed(kind) && len(h.Owners) <= MaxHolders && (kind != "read" || h.Mode == "write")
}

// Graph has waits, and the holders of the locks that they wait for. The zero value is empty and ready to use. A Graph
// isn't safe for concurrent use.
type Graph struct {
	waits    map[string]*Wait   // by waiter
	carriers map[string][]*Wait // by owner of a lease: the waits whose ctx carries it
	holders  map[string]Holders // by name of the lock
	next     map[Awaited][]Step // the results of Next; nil after a change
}

// Add adds a wait, unless the graph has a wait of that waiter.
func (g *Graph) Add(w Wait) {
	if g.waits[w.Waiter] != nil {
		return
	}
	if g.waits == nil {
		g.waits, g.carriers = make(map[string]*Wait), make(map[string][]*Wait)
	}
	added := &w
	g.waits[w.Waiter] = added
	for _, h := range w.Holds {
		if c := g.carriers[h.Owner]; len(c) == 0 || c[len(c)-1] != added {
			g.carriers[h.Owner] = append(c, added)
		}
	}
	g.next = nil
}

// SetHolders sets the holders of a lock.
func (g *Graph) SetHolders(name string, h Holders) {
	if g.holders == nil {
		g.holders = make(map[string]Holders)
	}
	g.holders[name] = h
	g.next = nil
}

// Step is one wait of a cycle.
type Step struct {
	Wait Wait // waits for the Hold of the next step
	Hold Hold // a lease that the wait's ctx carries, and that the step before waits for
}

// Cycle is a deadlock, if all of it is true at one moment: each step waits for the Hold of the next step, and the last
// step for that of the first. It begins with the smallest owner of a Hold: so all clients that find the cycle have its
// steps in the same order.
type Cycle []Step

// Next returns the steps that may follow a wait for a lock, in an order that only depends on the graph. Of steps whose
// waits wait for the same lock it returns the first: the others lead to the same steps.
func (g *Graph) Next(from Awaited) []Step {
	if steps, known := g.next[from]; known {
		return steps
	}
	var all []Step
	if held := g.holders[from.Name]; held.Block(from.Kind) {
		for _, owner := range held.Owners {
			for _, carrier := range g.carriers[owner] {
				if h := slices.IndexFunc(carrier.Holds, func(h Hold) bool {
					return h.Owner == owner && h.Name == from.Name
				}); h >= 0 {
					all = append(all, Step{*carrier, carrier.Holds[h]})
				}
			}
		}
	}
	slices.SortFunc(all, func(a, b Step) int {
		return cmp.Or(cmp.Compare(a.Hold.Owner, b.Hold.Owner), cmp.Compare(a.Wait.Waiter, b.Wait.Waiter))
	})
	var steps []Step
	known := make(map[Awaited]bool)
	for _, step := range all {
		if to := step.Wait.Awaited(); !known[to] {
			known[to] = true
			steps = append(steps, step)
		}
	}
	if g.next == nil {
		g.next = make(map[Awaited][]Step)
	}
	g.next[from] = steps
	return steps
}

// closing returns the step that closes a cycle: its Wait is to, and its Hold is a lease of the lock from that to
// carries. Of several such leases it takes the one with the smallest owner. ok is false if there is none.
func (g *Graph) closing(from Awaited, to *Wait) (step Step, ok bool) {
	held := g.holders[from.Name]
	if !held.Block(from.Kind) {
		return Step{}, false
	}
	for _, h := range to.Holds {
		if h.Name == from.Name && slices.Contains(held.Owners, h.Owner) && (!ok || h.Owner < step.Hold.Owner) {
			step, ok = Step{*to, h}, true
		}
	}
	return step, ok
}

// Through returns the shortest cycle that a waiter's wait is part of, nil if there is none of up to MaxDepth waits.
func (g *Graph) Through(waiter string) Cycle {
	start := g.waits[waiter]
	if start == nil || len(start.Holds) == 0 {
		return nil
	}
	type node struct {
		step   Step
		before *node
	}
	level := []*node{{step: Step{Wait: *start}}}
	seen := map[Awaited]bool{start.Awaited(): true}
	for range MaxDepth {
		var deeper []*node
		for _, n := range level {
			from := n.step.Wait.Awaited()
			if step, ok := g.closing(from, start); ok {
				cycle := Cycle{step}
				for ; n.before != nil; n = n.before {
					cycle = append(cycle, n.step)
				}
				slices.Reverse(cycle[1:])
				return cycle.rotated()
			}
			for _, step := range g.Next(from) {
				if to := step.Wait.Awaited(); !seen[to] {
					seen[to] = true
					deeper = append(deeper, &node{step, n})
				}
			}
		}
		level = deeper
	}
	return nil
}

// Cycles returns cycles so that each wait that is part of one is in at least one of them. It takes the waits by age,
// and adds the shortest cycle through each wait that is in no cycle yet. It stops early when the number of cycles
// reaches most, or ctx ends.
func (g *Graph) Cycles(ctx context.Context, most int) []Cycle {
	var all []Cycle
	known := map[string]bool{} // waiters that are in a cycle of all
	for _, w := range slices.SortedFunc(maps.Values(g.waits), func(a, b *Wait) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Waiter, b.Waiter))
	}) {
		if ctx.Err() != nil || len(all) == most {
			break
		}
		if known[w.Waiter] {
			continue
		}
		if c := g.Through(w.Waiter); c != nil {
			all = append(all, c)
			for _, s := range c {
				known[s.Wait.Waiter] = true
			}
		}
	}
	return all
}

// rotated returns the cycle so that it begins with the smallest owner.
func (c Cycle) rotated() Cycle {
	first := 0
	for i := range c {
		if c[i].Hold.Owner < c[first].Hold.Owner {
			first = i
		}
	}
	return append(c[first:len(c):len(c)], c[:first]...)
}

// Key returns a text that is the same for cycles with the same leases and waits in the same order.
func (c Cycle) Key() string {
	var key strings.Builder
	for _, s := range c {
		key.WriteString(s.Hold.Owner + "\n" + s.Wait.Waiter + "\n")
	}
	return key.String()
}

// Victim returns the index of the wait that is to fail so that the others go on, -1 if none may fail. Of those that
// may, it is the wait whose Hold has the largest token: as a rule, the Hold that was granted last. All clients that
// find the cycle choose the same wait.
func (c Cycle) Victim() int {
	victim := -1
	for i, s := range c {
		if !s.Wait.Breaks {
			continue
		}
		if victim < 0 ||
			cmp.Or(cmp.Compare(s.Hold.Token, c[victim].Hold.Token),
				cmp.Compare(s.Hold.Owner, c[victim].Hold.Owner)) > 0 {
			victim = i
		}
	}
	return victim
}

// Index returns the index of a waiter's wait, -1 if it isn't in the cycle.
func (c Cycle) Index(waiter string) int {
	return slices.IndexFunc(c, func(s Step) bool { return s.Wait.Waiter == waiter })
}
