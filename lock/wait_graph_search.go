package lock

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/lockdog/lockdog/lock/internal/dispatch"
	"github.com/lockdog/lockdog/lock/internal/redisfail"
	"github.com/lockdog/lockdog/lock/internal/script"
	"github.com/lockdog/lockdog/lock/internal/waitgraph"
)

// The wait that closes a cycle is the last to last, so its client sees the cycle first, and nudges those of the others. Each finds the cycle by itself.

const (
	lookPause    = 500 * time.Millisecond // between the first two looks for a wait; each pause is twice the one before
	maxLookPause = 10 * time.Second
	nudgedApart  = 200 * time.Millisecond // from the last look, for a nudge to have an effect

	maxParallel = 8  // calls at once
	maxTold     = 16 // deadlocks of one wait
)

// searchState is what was found for a wait so far.
type searchState struct {
	next   time.Time // when to look again
	last   time.Time
	looks  int
	nudged bool // since the last look

	sighting waitgraph.Sighting
	told     map[string]bool // by key of the cycle
}

// unconfirmed reports whether a cycle was seen once.
func (s *searchState) unconfirmed() bool { return s.sighting.Key != "" && !s.told[s.sighting.Key] }

// urgent reports whether a look is one that finds a deadlock: the wait that closes a cycle is the last to last, so the cycle is seen by the first look for it,
// by those of the others that this nudges, and by a second one of each.
func (s *searchState) urgent() bool { return s.looks == 0 || s.nudged || s.unconfirmed() }

// later returns the later of two times.
func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// looked notes that somebody has looked, and when to look again.
func (s *searchState) looked(now time.Time) {
	pause := lookPause
	for range s.looks {
		pause = min(2*pause, maxLookPause)
	}
	if !s.unconfirmed() {
		s.looks++
	}
	s.last, s.next, s.nudged = now, now.Add(pause), false
}

// search looks for deadlocks where it is time. It returns when to do so again, zero: there is no wait for which to look. It fails only if the ACL doesn't
// allow to read what clients have written.
func (g *waitGraph) search(now time.Time) (next time.Time, err error) {
	var due []*lastingWait
	for _, lw := range g.lasting {
		state := &lw.search
		if g.hurry && !state.unconfirmed() {
			state.nudged = true
			if soon := state.last.Add(nudgedApart); soon.Before(state.next) {
				state.next = soon
			}
		}
		if lw.follows && !now.Before(g.due(state, now)) {
			due = append(due, lw)
		}
	}
	g.hurry = false
	if len(due) > 0 {
		// A server that hangs mustn't keep the client's own waits from being refreshed.
		ctx, cancel := context.WithTimeout(g.ctx, graphPatience)
		defer cancel()
		s := newDeadlockSearch(ctx, g)
		s.from(due)
		at := time.Now()
		g.searched = at
		for _, lw := range due {
			if g.ctx.Err() != nil { // Close waits
				break
			}
			lw.search.looked(at)
			g.conclude(lw, s, at)
		}
		g.nudge(s.sighted)
		if s.forbidden != nil {
			return time.Time{}, s.forbidden
		}
	}
	for _, lw := range g.lasting {
		if !lw.follows {
			continue
		}
		if due := g.due(&lw.search, now); next.IsZero() || due.Before(next) {
			next = due
		}
	}
	return next, nil
}

// conclude acts on what was found for a wait.
func (g *waitGraph) conclude(lw *lastingWait, s *deadlockSearch, at time.Time) {
	cycle, state := s.graph.Through(lw.record.Waiter), &lw.search
	if cycle == nil {
		if !s.partial {
			state.sighting = waitgraph.Sighting{}
		}
		return
	}
	key := cycle.Key()
	switch {
	case state.told[key]:
		return
	case state.sighting.Key != key:
		state.sighting = waitgraph.Sight(cycle, at)
		state.next = state.sighting.Next
		s.sighted = append(s.sighted, cycle)
		return
	case !state.sighting.Confirmed(cycle, at):
		state.next = state.sighting.Next
		return
	}
	if state.told == nil || len(state.told) >= maxTold {
		state.told = make(map[string]bool)
	}
	state.told[key] = true
	victim := cycle.Victim()
	g.c.waits.setDeadlock(lw.w, newDeadlock(cycle, victim >= 0 && cycle[victim].Wait.Waiter == lw.record.Waiter))
}

// nudge has the other clients of cycles look for them now. Each is told once: it looks for all its waits.
func (g *waitGraph) nudge(cycles []waitgraph.Cycle) {
	var channels, keys []string
	known := make(map[string]bool)
	for _, cycle := range cycles {
		for _, step := range cycle {
			id, random := script.ClientOf(step.Wait.Waiter)
			channel := g.c.cfg.prefix + controlPrefix + id + ":" + random
			if random == g.random || known[channel] {
				continue
			}
			known[channel] = true
			channels, keys = append(channels, channel), append(keys, g.c.cfg.prefix+step.Hold.Name)
		}
	}
	ctx, cancel := context.WithTimeout(g.ctx, graphPatience)
	defer cancel()
	g.budget.tokens -= float64(len(channels))
	inParallel(len(channels), func(i int) {
		_ = g.call(ctx, graphPatience, 0, func(q *script.Request) { script.WaitsNudgeArgs(q, keys[i], channels[i], nudge) },
			func(*dispatch.Call) error { return nil }) // it looks by itself, later
	})
}

// deadlockSearch reads the graph as far as it can be reached from some waits of this client.
type deadlockSearch struct {
	ctx       context.Context // ends the search: what wasn't read by then is unknown
	g         *waitGraph
	graph     waitgraph.Graph
	left      int               // commands that it may still send
	partial   bool              // something couldn't be read
	sighted   []waitgraph.Cycle // for the first time
	forbidden error             // by the ACL: no client's waits can be read

	asked   map[string]bool              // locks of which the holders were asked for
	holders map[string]waitgraph.Holders // those that are known
	owners  map[string]bool              // that were met
}

func newDeadlockSearch(ctx context.Context, g *waitGraph) *deadlockSearch {
	s := &deadlockSearch{
		ctx: ctx, g: g,
		asked: make(map[string]bool), holders: make(map[string]waitgraph.Holders), owners: make(map[string]bool),
	}
	for _, lw := range g.lasting { // of this client all is known
		if len(lw.record.Holds) > 0 {
			s.graph.Add(lw.record)
		}
	}
	return s
}

// from reads what can be reached, in levels: the holders of the locks that are awaited, then the waits that carry the leases of these.
func (s *deadlockSearch) from(due []*lastingWait) {
	s.left = maxSearch(len(due))
	maps.DeleteFunc(s.g.unreadable, func(_ string, until time.Time) bool { return !until.After(time.Now()) })
	known := make(map[waitgraph.Awaited]bool)
	var level []waitgraph.Awaited
	reach := func(w *waitgraph.Wait) {
		if to := w.Awaited(); !known[to] {
			known[to] = true
			level = append(level, to)
		}
	}
	for _, lw := range due {
		reach(&lw.record)
	}
	for depth := 0; depth < waitgraph.MaxDepth && len(level) > 0 && s.ctx.Err() == nil; depth++ {
		s.readWaits(s.readHolders(level))
		before := level
		level = nil
		for _, from := range before {
			for _, step := range s.graph.Next(from) {
				reach(&step.Wait)
			}
		}
	}
	s.partial = s.partial || s.ctx.Err() != nil
}

// take takes commands from those that are left. It returns how many may be sent.
func (s *deadlockSearch) take(n int) int {
	if n > s.left {
		n, s.partial = s.left, true
	}
	s.left -= n
	s.g.budget.tokens -= float64(n)
	return n
}

// readHolders reads who holds the locks that are awaited. It returns the owners that weren't met before.
func (s *deadlockSearch) readHolders(all []waitgraph.Awaited) (owners []string) {
	var names []string
	for _, a := range all {
		if !waitgraph.Followed(a.Kind) || s.asked[a.Name] {
			continue
		}
		s.asked[a.Name] = true
		if !s.g.unreadable[a.Name].After(time.Now()) {
			names = append(names, a.Name)
		}
	}
	names = names[:s.take(len(names))]
	found, errs := make([]waitgraph.Holders, len(names)), make([]error, len(names))
	inParallel(len(names), func(i int) {
		key := s.g.c.cfg.prefix + names[i]
		errs[i] = s.g.call(s.ctx, graphPatience, 0, func(q *script.Request) { script.HoldersArgs(q, key, waitgraph.MaxHolders) },
			func(c *dispatch.Call) (err error) {
				found[i].Mode, found[i].Owners, err = script.ParseHolders(c.Reply)
				return err
			})
	})
	for i, h := range found {
		if errs[i] != nil {
			s.partial = true
			if redisfail.IsForbidden(errs[i]) { // it is another service's lock, which a wait of somebody else led to
				s.g.unreadable[names[i]] = time.Now().Add(deniedPause)
			}
			continue
		}
		s.holders[names[i]] = h
		s.graph.SetHolders(names[i], h)
	}
	for _, a := range all {
		h := s.holders[a.Name]
		if !h.Block(a.Kind) {
			continue
		}
		for _, owner := range h.Owners {
			if !s.owners[owner] {
				s.owners[owner] = true
				owners = append(owners, owner)
			}
		}
	}
	return owners
}

// readWaits reads the waits of other clients that carry leases of those owners.
func (s *deadlockSearch) readWaits(owners []string) {
	byClient := make(map[string][]string)
	var clients []string
	for _, owner := range owners {
		id, client := script.ClientOf(owner)
		if id == "" || client == s.g.random { // Redisson's, or known
			continue
		}
		if byClient[client] == nil {
			clients = append(clients, client)
		}
		byClient[client] = append(byClient[client], owner)
	}
	clients = clients[:s.take(len(clients))]
	type answer struct {
		sent  time.Time
		age   time.Duration
		texts []string
		err   error
	}
	answers := make([]answer, len(clients))
	inParallel(len(clients), func(i int) {
		a, fields := &answers[i], byClient[clients[i]]
		key := script.WaitsKey(s.g.c.cfg.prefix, clients[i])
		a.sent = time.Now()
		a.err = s.g.call(s.ctx, graphPatience, 0, func(q *script.Request) { script.WaitsReadArgs(q, key, fields) },
			func(c *dispatch.Call) (err error) {
				a.age, a.texts, err = script.ParseWaitsRead(c.Reply, len(fields))
				return err
			})
	})
	for i, a := range answers {
		if a.err != nil {
			s.partial = true
			if redisfail.IsForbidden(a.err) {
				s.forbidden = a.err
			}
			continue
		}
		for n, text := range a.texts {
			if text != "" && a.age < waitgraph.StaleAfter {
				s.add(clients[i], byClient[clients[i]][n], text, a.sent.Add(-a.age))
			}
		}
	}
}

// add adds what a client has written of the waits that carry the lease of an owner. Anybody may have written it.
func (s *deadlockSearch) add(client, owner, text string, refreshed time.Time) {
	waits, err := waitgraph.Decode(text)
	if err != nil {
		return
	}
	of := func(owner string) bool {
		id, random := script.ClientOf(owner)
		return id != "" && random == client
	}
	for _, w := range waits {
		carries := slices.ContainsFunc(w.Holds, func(h waitgraph.Hold) bool { return h.Owner == owner })
		if carries && of(w.Waiter) && !slices.ContainsFunc(w.Holds, func(h waitgraph.Hold) bool { return !of(h.Owner) }) {
			w.Refreshed = refreshed
			s.graph.Add(w)
		}
	}
}

// inParallel calls f for each of n, and waits for all.
func inParallel(n int, f func(i int)) {
	if n == 1 {
		f(0)
		return
	}
	var all sync.WaitGroup
	room := make(chan struct{}, maxParallel)
	for i := range n {
		room <- struct{}{}
		all.Go(func() {
			defer func() { <-room }()
			f(i)
		})
	}
	all.Wait()
}
