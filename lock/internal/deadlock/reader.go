package deadlock

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

// reader reads the graph as far as it can be reached from some waits of this client.
type reader struct {
	ctx       context.Context // when it ends, what wasn't read is unknown
	f         *Finder
	graph     waitgraph.Graph
	left      int               // commands that it may still send
	partial   bool              // something couldn't be read
	sighted   []waitgraph.Cycle // for the first time
	forbidden error             // by the ACL: no client's waits can be read

	asked   map[string]bool              // locks whose holders were asked for
	holders map[string]waitgraph.Holders // those that are known
	owners  map[string]bool              // that were met
}

func newReader(ctx context.Context, f *Finder) *reader {
	r := &reader{
		ctx: ctx, f: f,
		asked: make(map[string]bool), holders: make(map[string]waitgraph.Holders), owners: make(map[string]bool),
	}
	for _, w := range f.long { // of this client everything is known
		if len(w.record.Holds) > 0 {
			r.graph.Add(w.record)
		}
	}
	return r
}

// from reads what can be reached, in levels: the holders of the locks that are awaited, then the waits that carry their leases.
func (r *reader) from(due []*longWait) {
	r.left = maxSearch(len(due))
	maps.DeleteFunc(r.f.unreadable, func(_ string, until time.Time) bool { return !until.After(time.Now()) })
	known := make(map[waitgraph.Awaited]bool)
	var level []waitgraph.Awaited
	reach := func(w *waitgraph.Wait) {
		if to := w.Awaited(); !known[to] {
			known[to] = true
			level = append(level, to)
		}
	}
	for _, w := range due {
		reach(&w.record)
	}
	for depth := 0; depth < waitgraph.MaxDepth && len(level) > 0 && r.ctx.Err() == nil; depth++ {
		r.readWaits(r.readHolders(level))
		before := level
		level = nil
		for _, from := range before {
			for _, step := range r.graph.Next(from) {
				reach(&step.Wait)
			}
		}
	}
	r.partial = r.partial || r.ctx.Err() != nil
}

// take takes commands from those that are left. It returns how many may be sent.
func (r *reader) take(n int) int {
	if n > r.left {
		n, r.partial = r.left, true
	}
	r.left -= n
	r.f.budget.tokens -= float64(n)
	return n
}

// readHolders reads who holds the locks that are awaited. It returns the owners that weren't met before.
func (r *reader) readHolders(all []waitgraph.Awaited) (owners []string) {
	var names []string
	for _, a := range all {
		if !waitgraph.Followed(a.Kind) || r.asked[a.Name] {
			continue
		}
		r.asked[a.Name] = true
		if !r.f.unreadable[a.Name].After(time.Now()) {
			names = append(names, a.Name)
		}
	}
	names = names[:r.take(len(names))]
	found, errs := make([]waitgraph.Holders, len(names)), make([]error, len(names))
	inParallel(len(names), func(i int) {
		key := r.f.cfg.Prefix + names[i]
		args := func(q *script.Request) { script.HoldersArgs(q, key, waitgraph.MaxHolders) }
		errs[i] = r.f.call(r.ctx, callTimeout, 0, args, func(c *dispatch.Call) (err error) {
			found[i].Mode, found[i].Owners, err = script.ParseHolders(c.Reply)
			return err
		})
	})
	for i, h := range found {
		if errs[i] != nil {
			r.partial = true
			if redisfail.IsForbidden(errs[i]) { // it is another service's lock: somebody else's wait led here
				r.f.unreadable[names[i]] = time.Now().Add(DeniedPause)
			}
			continue
		}
		r.holders[names[i]] = h
		r.graph.SetHolders(names[i], h)
	}
	for _, a := range all {
		h := r.holders[a.Name]
		if !h.Block(a.Kind) {
			continue
		}
		for _, owner := range h.Owners {
			if !r.owners[owner] {
				r.owners[owner] = true
				owners = append(owners, owner)
			}
		}
	}
	return owners
}

// readWaits reads the waits of other clients that carry leases of those owners.
func (r *reader) readWaits(owners []string) {
	byClient := make(map[string][]string)
	var clients []string
	for _, owner := range owners {
		id, client := script.ClientOf(owner)
		if id == "" || client == r.f.random { // Redisson's, or known
			continue
		}
		if byClient[client] == nil {
			clients = append(clients, client)
		}
		byClient[client] = append(byClient[client], owner)
	}
	clients = clients[:r.take(len(clients))]
	type answer struct {
		sent  time.Time
		age   time.Duration
		texts []string
		err   error
	}
	answers := make([]answer, len(clients))
	inParallel(len(clients), func(i int) {
		a, fields := &answers[i], byClient[clients[i]]
		key := script.WaitsKey(r.f.cfg.Prefix, clients[i])
		a.sent = time.Now()
		args := func(q *script.Request) { script.WaitsReadArgs(q, key, fields) }
		a.err = r.f.call(r.ctx, callTimeout, 0, args, func(c *dispatch.Call) (err error) {
			a.age, a.texts, err = script.ParseWaitsRead(c.Reply, len(fields))
			return err
		})
	})
	for i, a := range answers {
		if a.err != nil {
			r.partial = true
			if redisfail.IsForbidden(a.err) {
				r.forbidden = a.err
			}
			continue
		}
		for n, text := range a.texts {
			if text != "" && a.age < waitgraph.StaleAfter {
				r.add(clients[i], byClient[clients[i]][n], text, a.sent.Add(-a.age))
			}
		}
	}
}

// add adds what a client has written of the waits that carry the lease of an owner. Anybody may have written it.
func (r *reader) add(client, owner, text string, refreshed time.Time) {
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
			r.graph.Add(w)
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
