package fleet

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/lock/internal/script"
	"github.com/lockdog/lockdog/lock/internal/waitgraph"
)

// MostWaits bounds how many waits a Graph has, and how many clients' waits are read.
const MostWaits = 1000

// waitPages is how many answers of at most scanCount records are read of one client.
const waitPages = 20

// Graph is who waits for whom: the calls of Lock, in all processes, that have waited for long, the locks they wait for, and who holds
// those. How long is for each client to say, with lock.WithWaitGraph: by default a second.
type Graph struct {
	Time   time.Time // of the reading, by Redis's clock
	Waits  []Wait    // the longest first, at most MostWaits
	Locks  []Lock    // those that are awaited, by name; one that nobody holds any more is missing
	Cycles []Cycle   // the deadlocks

	More       bool // there are more waits than are here
	Unreadable int  // records that can't be parsed: of another version, or of another program

	carried map[lease][]int // which waits carry a lease
	locks   map[string]int  // where a lock is in Locks, by name
	waits   map[string]int  // where a wait is in Waits, by waiter
}

// lease is what a wait may carry.
type lease struct{ name, owner string }

// Wait is a call of Lock that has waited for long.
type Wait struct {
	Waiter   string    // the owner that the lock will have
	ClientID string    // as WithClientID
	Name     string    // of the lock it waits for, without the key prefix
	Kind     string    // of that lock, as in metrics: "mutex", "fair", "multi", "write", "read", "semaphore", ...
	Since    time.Time // by the clock of the waiting process
	TraceID  string    // of the acquire; "" unless sampled
	SpanID   string    // of the acquire
	Holds    []Hold    // the leases that it carries: those in its ctx, of the same client
	Breaks   bool      // it has WithDeadlockBreaking

	refreshed time.Time // when its client had refreshed its records, at the earliest, by this process's clock; zero: not known
}

// Hold is a lease that a Wait carries, so that it isn't released before the wait ends.
type Hold struct {
	Name  string // of the lock, without the key prefix
	Kind  string // of the lock, as in metrics
	Owner string // as Lease.Owner
	Token int64  // as Lease.Token
}

// Cycle is a deadlock: each wait is for a lease that the next one carries, and the last wait is for a lease of the first. None of them ends by itself.
type Cycle []CycleWait

// CycleWait is one wait in a Cycle.
type CycleWait struct {
	Wait  int  // index in Graph.Waits
	Holds Hold // the lease for which the wait before it waits
}

// Graph reads who waits for whom. It asks for the clients that have such waits, for those waits, and for the holders of the locks that are awaited, and doesn't look at other keys.
//
// What it returns was true when Redis was asked, key after key. A cycle is therefore only reported if a later reading, at least half a second after the first, finds the same
// waits wait for the same leases, and each client in it has refreshed its records in between: those of a process that was killed stay in Redis for seconds. Clients
// refresh their records every second. So with a cycle the call takes about a second longer, and up to three seconds if one of the clients is dead; without one, there is one reading.
//
// If ctx ends before that, or has a deadline that leaves no time for it, the Graph lacks the cycles that aren't confirmed, and the error says so.
//
// The error may be that of some nodes or keys, beside a Graph of the others.
//
// See the package documentation for what it can't see.
func (r *Reader) Graph(ctx context.Context) (Graph, error) {
	began := time.Now()
	g, err := r.graph(ctx)
	if len(g.Cycles) == 0 {
		return g, err
	}
	return r.confirm(ctx, g, err, time.Since(began))
}

// graph reads once.
func (r *Reader) graph(ctx context.Context) (Graph, error) {
	var g Graph
	clients, err := r.waitingClients(ctx, &g)
	if err != nil {
		return Graph{}, fmt.Errorf("fleet: %q: %w", script.WaitingKey(r.prefix), err)
	}
	errs := r.readWaits(ctx, &g, clients)
	errs = append(errs, r.readAwaited(ctx, &g)...)
	g.index()
	g.findCycles(ctx)
	return g, errors.Join(errs...)
}

// waitingClients reads which clients have waits.
func (r *Reader) waitingClients(ctx context.Context, g *Graph) ([]string, error) {
	key := script.WaitingKey(r.prefix)
	node, err := r.nodeOf(ctx, key)
	if err != nil {
		return nil, err
	}
	from := redis.UniversalClient(node)
	for {
		now, err := from.Time(ctx).Result()
		if err != nil {
			return nil, err
		}
		after := "(" + strconv.FormatInt(now.UnixMilli(), 10)
		clients, err := from.ZRangeByScore(ctx, key, &redis.ZRangeBy{Min: after, Max: "+inf", Count: MostWaits + 1}).Result()
		if from != r.rdb && movedSlot(err) {
			from = r.rdb // follows slots
			continue
		}
		if err != nil {
			return nil, err
		}
		g.Time, g.More = now, len(clients) > MostWaits
		return clients[:min(len(clients), MostWaits)], nil
	}
}

// waitsHash is a client's hash of waits, which is being read.
type waitsHash struct {
	random, key string
	refreshed   time.Time // at the earliest; zero: not known
	fields      []string  // texts of records
	cursor      uint64
	more        bool
	err         error
}

// readWaits reads the waits of clients. The nodes are asked at the same time, so that one that doesn't answer leaves time for the others.
func (r *Reader) readWaits(ctx context.Context, g *Graph, clients []string) []error {
	if deadline, ok := ctx.Deadline(); ok { // the rest is for their locks
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Until(deadline)/2)
		defer cancel()
	}
	hashes := map[string]*waitsHash{}
	for _, random := range clients {
		if isRandom(random) {
			key := script.WaitsKey(r.prefix, random)
			hashes[key] = &waitsHash{random: random, key: key}
		} else {
			g.Unreadable++
		}
	}
	errs := r.atNodes(ctx, slices.Sorted(maps.Keys(hashes)), func(ctx context.Context, node *redis.Client, keys []string) error {
		var some []*waitsHash
		for _, key := range keys {
			some = append(some, hashes[key])
		}
		return r.readHashesOfWaits(ctx, node, some)
	})
	seen := map[string]bool{}
	for _, key := range slices.Sorted(maps.Keys(hashes)) {
		h := hashes[key]
		if h.err != nil {
			errs = append(errs, fmt.Errorf("fleet: %q: %w", h.key, h.err))
		}
		g.More = g.More || h.more
		for _, text := range h.fields {
			waits, err := waitgraph.Decode(text)
			if err != nil {
				g.Unreadable++
				continue
			}
			for _, w := range waits {
				_, random := script.ClientOf(w.Waiter)
				switch {
				case seen[w.Waiter]: // it is there once for each lease it carries
				case random != h.random: // another program's text
					g.Unreadable++
				default:
					wait := newWait(w)
					wait.refreshed = h.refreshed
					g.Waits = append(g.Waits, wait)
					seen[w.Waiter] = true
				}
			}
		}
	}
	slices.SortFunc(g.Waits, func(a, b Wait) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Waiter, b.Waiter), cmp.Compare(a.Name, b.Name))
	})
	if len(g.Waits) > MostWaits {
		g.Waits, g.More = g.Waits[:MostWaits], true
	}
	return errs
}

func newWait(w waitgraph.Wait) Wait {
	wait := Wait{Waiter: w.Waiter, ClientID: script.ClientIDOf(w.Waiter), Name: w.Name, Kind: w.Kind, Since: w.Since, Breaks: w.Breaks}
	wait.TraceID, wait.SpanID = parseTrace(w.Traceparent)
	for _, h := range w.Holds {
		wait.Holds = append(wait.Holds, Hold{Name: h.Name, Kind: h.Kind, Owner: h.Owner, Token: h.Token})
	}
	return wait
}

// readHashesOfWaits reads hashes that a node should have.
func (r *Reader) readHashesOfWaits(ctx context.Context, node *redis.Client, hashes []*waitsHash) error {
	from := redis.UniversalClient(node)
	for pages := 0; len(hashes) > 0; pages++ {
		var moved, rest []*waitsHash
		for some := range slices.Chunk(hashes, readCount) {
			pipe := from.Pipeline()
			lives, answers := make([]*redis.IntCmd, len(some)), make([]*redis.ScanCmd, len(some))
			for i, h := range some {
				if h.cursor == 0 { // before the records: a wait in them may have ended when a later refresh was made
					lives[i] = askPTTL(ctx, pipe, h.key)
				}
				answers[i] = pipe.HScan(ctx, h.key, h.cursor, "", scanCount)
			}
			sent := time.Now()
			if err := exec(ctx, pipe); err != nil {
				return err
			}
			for i, h := range some {
				fields, cursor, err := answers[i].Result()
				if lives[i] != nil && err == nil {
					err = lives[i].Err()
				}
				switch {
				case from != r.rdb && movedSlot(err):
					moved = append(moved, h)
					continue
				case err != nil:
					h.err = err
					continue
				}
				if lives[i] != nil {
					h.refreshed = refreshedAt(sent, lives[i].Val())
				}
				for f := 1; f < len(fields); f += 2 {
					h.fields = append(h.fields, fields[f])
				}
				if h.cursor = cursor; cursor == 0 {
					continue
				}
				if pages >= waitPages {
					h.more = true
					continue
				}
				rest = append(rest, h)
			}
		}
		if len(rest) == 0 && len(moved) > 0 {
			from = r.rdb // follows slots
			rest, moved = moved, nil
		}
		hashes = append(rest, moved...)
	}
	return nil
}

// refreshedAt is when records were refreshed, at the earliest, if a server that was asked at a time says how long they live. It is zero if they live for
// ever: none of ours has written them. The server counts both ends of the time since then, so that its clock needn't be ours.
func refreshedAt(asked time.Time, ms int64) time.Time {
	if ms < 0 {
		return time.Time{}
	}
	return asked.Add(-max(script.WaitsLife-script.Millis(ms), 0))
}

// movedSlot reports whether a node no longer has the slot of a key.
func movedSlot(err error) bool {
	return redis.HasErrorPrefix(err, "MOVED") || redis.HasErrorPrefix(err, "ASK")
}

// readAwaited reads the locks that are awaited.
func (r *Reader) readAwaited(ctx context.Context, g *Graph) []error {
	hashes, semaphores := map[string]bool{}, map[string]bool{}
	for _, w := range g.Waits {
		switch w.Kind {
		case "semaphore":
			semaphores[r.prefix+w.Name] = true
		case "unleased_semaphore", "latch": // numbers, which nobody holds
		default:
			hashes[r.prefix+w.Name] = true
		}
	}
	var mu sync.Mutex
	var refused []error
	read := func(keys map[string]bool, how func(*batch, context.Context) error) []error {
		return r.atNodes(ctx, slices.Sorted(maps.Keys(keys)), func(ctx context.Context, node *redis.Client, keys []string) error {
			for some := range slices.Chunk(keys, readCount) {
				locks, err := r.read(ctx, node, some, how, false)
				mu.Lock()
				g.Locks = append(g.Locks, locks...)
				var part *refusedError
				if errors.As(err, &part) {
					refused, err = append(refused, fmt.Errorf("fleet: %q: %w", part.first, part)), nil
				}
				mu.Unlock()
				if err != nil {
					return err
				}
			}
			return nil
		})
	}
	errs := append(read(hashes, (*batch).hashes), read(semaphores, (*batch).semaphores)...)
	slices.SortFunc(g.Locks, func(a, b Lock) int { return cmp.Compare(a.Name, b.Name) })
	return append(errs, refused...)
}

// atNodes calls a function for each primary that has some of the keys, for all of them at the same time.
func (r *Reader) atNodes(ctx context.Context, keys []string, read func(ctx context.Context, node *redis.Client, keys []string) error) []error {
	byNode := map[*redis.Client][]string{}
	var errs []error
	for _, key := range keys {
		node, err := r.nodeOf(ctx, key)
		if err != nil {
			errs = append(errs, fmt.Errorf("fleet: %q: %w", key, err))
			continue
		}
		byNode[node] = append(byNode[node], key)
	}
	var mu sync.Mutex
	var all sync.WaitGroup
	for node, keys := range byNode {
		all.Go(func() {
			if err := read(ctx, node, keys); err != nil {
				mu.Lock()
				defer mu.Unlock()
				errs = append(errs, fmt.Errorf("fleet: %s: %w", node.Options().Addr, err))
			}
		})
	}
	all.Wait()
	return errs
}

// Carriers are the waits that carry a holder's lease of a lock, as indices in Waits: while they wait, it isn't released.
func (g *Graph) Carriers(name, owner string) []int { return g.carried[lease{name, owner}] }

// Awaited is the lock that a wait is for, nil if nobody holds it any more, or it couldn't be read.
func (g *Graph) Awaited(wait int) *Lock {
	if i, ok := g.locks[g.Waits[wait].Name]; ok {
		return &g.Locks[i]
	}
	return nil
}

// Filter returns the parts of the graph that have to do with a name that matches a pattern, which is one as for Locks; "" is "*". Those are the waits for such a lock, the waits that carry
// a lease of one, and all that they are connected with.
func (g *Graph) Filter(pattern string) (Graph, error) {
	if pattern == "" {
		pattern = "*"
	}
	if err := checkPattern(pattern); err != nil {
		return Graph{}, patternError(pattern, err)
	}
	parts := partition{map[string]string{}}
	for i, w := range g.Waits {
		parts.join(waitNode(i), w.Name)
		for _, h := range w.Holds {
			parts.join(waitNode(i), h.Name)
		}
	}
	wanted := map[string]bool{}
	for i, w := range g.Waits {
		if matches(pattern, w.Name) || slices.ContainsFunc(w.Holds, func(h Hold) bool { return matches(pattern, h.Name) }) {
			wanted[parts.of(waitNode(i))] = true
		}
	}
	out := *g
	out.Waits, out.Locks, out.Cycles = nil, nil, nil
	now := map[int]int{} // where a wait is now
	for i, w := range g.Waits {
		if wanted[parts.of(waitNode(i))] {
			now[i] = len(out.Waits)
			out.Waits = append(out.Waits, w)
		}
	}
	for _, l := range g.Locks {
		if wanted[parts.of(l.Name)] {
			out.Locks = append(out.Locks, l)
		}
	}
	for _, c := range g.Cycles {
		if _, ok := now[c[0].Wait]; !ok {
			continue
		}
		moved := slices.Clone(c)
		for i := range moved {
			moved[i].Wait = now[c[i].Wait]
		}
		out.Cycles = append(out.Cycles, moved)
	}
	out.index()
	return out, nil
}
