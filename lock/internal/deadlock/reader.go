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

// reader reads the part of the graph that can be reached from some waits of this client.
type reader struct {
	ctx       context.Context // of the calls
	f         *Finder
	graph     waitgraph.Graph
	left      int               // commands that the reader may still send
	partial   bool              // something couldn't be read
	sighted   []waitgraph.Cycle // seen for the first time
	forbidden error             // the ACL forbids reading waits, or holders of any lock

	holders map[string]waitgraph.Holders // by lock; zero: there are none, or they couldn't be read
	owners  map[string]bool              // all owners in holders that block a wait
}

// read reads the graph from the due waits on, in levels: the holders of the awaited locks, then the waits whose ctx
// carries a lease of such a holder, which wait for the locks of the next level.
func (f *Finder) read(ctx context.Context, due []*longWait) *reader {
	r := &reader{
		ctx: ctx, f: f, left: maxSearch(len(due)),
		holders: make(map[string]waitgraph.Holders), owners: make(map[string]bool),
	}
	for _, w := range f.long { // the waits of this client needn't be read
		if len(w.record.Holds) > 0 {
			r.graph.Add(w.record)
		}
	}
	maps.DeleteFunc(f.unreadable, func(_ string, until time.Time) bool { return !until.After(time.Now()) })
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
	for depth := 0; depth < waitgraph.MaxDepth && len(level) > 0 && ctx.Err() == nil; depth++ {
		r.readWaits(r.readHolders(level))
		before := level
		level = nil
		for _, from := range before {
			for _, step := range r.graph.Next(from) {
				reach(&step.Wait)
			}
		}
	}
	r.partial = r.partial || ctx.Err() != nil
	return r
}

// take reserves up to n commands of those that are left, and returns how many.
func (r *reader) take(n int) int {
	if n > r.left {
		n, r.partial = r.left, true
	}
	r.left -= n
	r.f.budget.tokens -= float64(n)
	return n
}

// readHolders reads the holders of the awaited locks. It returns those that block a wait and weren't returned before.
func (r *reader) readHolders(all []waitgraph.Awaited) (owners []string) {
	var names []string
	for _, a := range all {
		if _, asked := r.holders[a.Name]; asked || !waitgraph.Followed(a.Kind) {
			continue
		}
		r.holders[a.Name] = waitgraph.Holders{}
		if !r.f.unreadable[a.Name].After(time.Now()) {
			names = append(names, a.Name)
		}
	}
	names = names[:r.take(len(names))]
	found, errs := make([]waitgraph.Holders, len(names)), make([]error, len(names))
	inParallel(len(names), func(i int) {
		key := r.f.cfg.Prefix + names[i]
		args := func(q *script.Request) { script.HoldersArgs(q, key, waitgraph.MaxHolders) }
		errs[i] = r.f.call(r.ctx, callTimeout, 0, args, func(reply dispatch.Reply) (err error) {
			found[i].Mode, found[i].Owners, err = script.ParseHolders(reply.Value)
			return err
		})
	})
	for i, h := range found {
		if errs[i] != nil {
			r.partial = true
			switch {
			case redisfail.IsForbidden(errs[i]): // another service's lock, which a wait of another client led to
				r.f.unreadable[names[i]] = time.Now().Add(DeniedPause)
			case redisfail.IsForbiddenInScript(errs[i]):
				r.forbidden = errs[i]
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

// readWaits reads the waits of other clients whose ctx carries a lease with one of those owners.
func (r *reader) readWaits(owners []string) {
	byClient := make(map[string][]string)
	var clients []string
	for _, owner := range owners {
		id, client := script.ClientOf(owner)
		if id == "" || client == r.f.random { // Redisson's; or this client's, whose waits are known
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
		a.err = r.f.call(r.ctx, callTimeout, 0, args, func(reply dispatch.Reply) (err error) {
			a.age, a.texts, err = script.ParseWaitsRead(reply.Value, len(fields))
			return err
		})
	})
	for i, a := range answers {
		if a.err != nil {
			r.partial = true
			if isForbidden(a.err) {
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

// add adds the waits that a client has written for the lease with an owner. Anybody may have written the text: a wait
// is skipped unless it carries that lease, and its waiter and all its holds are of that client.
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
		if carries && of(w.Waiter) &&
			!slices.ContainsFunc(w.Holds, func(h waitgraph.Hold) bool { return !of(h.Owner) }) {
			w.Refreshed = refreshed
			r.graph.Add(w)
		}
	}
}

// inParallel calls f with 0 to n-1, maxParallel at a time, and waits for all.
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
