package fleet

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/lock/internal/script"
	"github.com/lockdog/lockdog/lock/internal/waitgraph"
)

// MostWaits is the maximum number of waits in a Graph, and of clients whose waits are read.
const MostWaits = 1000

const (
	mostCycles  = 100                    // in a Graph
	confirmRoom = 100 * time.Millisecond // minimum from the planned end of a reading to the deadline of ctx
)

// Graph has the long waits of all processes, the locks that they wait for, and the holders of these locks. A wait is
// long after a second, or after the time that its client gave to lock.WithWaitGraph.
type Graph struct {
	Time   time.Time // of the reading, by Redis's clock
	Waits  []Wait    // longest wait first, at most MostWaits
	Locks  []Lock    // the awaited locks that have a holder, sorted by name
	Cycles []Cycle   // the deadlocks

	More       bool // Redis has more waits than Waits
	Unreadable int  // records that can't be parsed or aren't their client's: from another version or another program
}

// Wait is a call of Lock that has waited for a long time: see Graph.
type Wait struct {
	Waiter   string    // the owner that the lock will have
	ClientID string    // as WithClientID
	Name     string    // of the awaited lock, without the key prefix
	Kind     string    // of that lock, as in metrics: "mutex", "fair", "multi", "write", "read", "semaphore", ...
	Since    time.Time // by the clock of the waiting process
	TraceID  string    // of the acquire; "" unless sampled
	SpanID   string    // of the acquire
	Holds    []Hold    // the leases that it carries: its client's leases in its ctx, and those its Multi has taken
	Breaks   bool      // it has WithDeadlockBreaking
}

// Hold is a lease that a Wait carries. As a rule, it isn't released before the wait ends.
type Hold struct {
	Name  string // of the lock, without the key prefix
	Kind  string // of the lock, as in metrics
	Owner string // as Lease.Owner
	Token int64  // as Lease.Token
}

// Cycle is a deadlock: each wait is for a lease that the next wait carries, and the last is for a lease of the first.
// No wait gets its lock unless another one ends without its lock (by its ctx, say), or a lease is lost.
type Cycle []CycleWait

// CycleWait is one wait in a Cycle.
type CycleWait struct {
	Wait  int  // index in Graph.Waits
	Holds Hold // the lease that the previous wait in the cycle waits for
}

// Graph reads who waits for whom. It reads the list of clients with long waits, their waits, and the holders and
// waiters of the awaited locks. It looks at no other key.
//
// It reads key after key. So a cycle in one reading may never have existed. Graph reports a cycle only if a later
// reading, at least half a second after the first, finds the same waits for the same leases, and each client in it has
// refreshed its records in between: the records of a killed process stay in Redis for seconds. Clients refresh their
// records every second. So with a cycle the call takes about a second longer, and up to three seconds if one of the
// clients is dead. Without a cycle there is one reading.
//
// If ctx ends before that later reading, or its deadline leaves no time for it, the Graph lacks the unconfirmed cycles,
// and the error says so.
//
// A Graph may come with an error: then some nodes or keys couldn't be read.
//
// See the package documentation for what it can't see.
func (r *Reader) Graph(ctx context.Context) (Graph, error) {
	var g Graph
	var err error
	var seen time.Time // the end of the first reading
	sightings := map[string]*waitgraph.Sighting{}
	for first := true; ; first = false {
		began := time.Now()
		read, found, readErr := r.graph(ctx)
		if !first && readErr != nil && ctx.Err() != nil {
			return g, errors.Join(err, unconfirmed(context.Cause(ctx)))
		}
		g, err = read, readErr
		now := time.Now()
		earliest := now.Add(1) // +1 ns: in a synctest bubble a reading takes no time
		if first {
			seen, earliest = now, now.Add(waitgraph.SightingsApart)
		}
		var next time.Time // zero: no cycle is left to confirm
		for _, c := range found {
			switch s := sightings[c.Key()]; {
			case first:
				sighted := waitgraph.Sight(c, seen)
				sightings[sighted.Key], next = &sighted, waitgraph.Later(next, sighted.Next)
			case s == nil: // the first reading didn't have this cycle
			case s.Confirmed(c, now):
				g.add(c)
			default:
				next = waitgraph.Later(next, s.Next)
			}
		}
		if next.IsZero() {
			return g, err
		}
		// A record that isn't refreshed by then is stale, and no cycle contains a stale record.
		if last := seen.Add(waitgraph.StaleAfter); next.After(last) {
			next = waitgraph.Later(last, earliest)
		}
		if deadline, ok := ctx.Deadline(); ok {
			// A reading that the deadline cuts off is useless. So read early enough, even before the next refreshes are
			// due: some records may have been refreshed.
			if latest := deadline.Add(-2*now.Sub(began) - confirmRoom); latest.Before(next) {
				next = latest
			}
			if next.Before(earliest) {
				return g, errors.Join(err, unconfirmed(context.DeadlineExceeded))
			}
		}
		select {
		case <-time.After(time.Until(next)):
		case <-ctx.Done():
			return g, errors.Join(err, unconfirmed(context.Cause(ctx)))
		}
	}
}

func unconfirmed(why error) error {
	return fmt.Errorf("fleet: a cycle could not be confirmed: %w", why)
}

func (g *Graph) add(found waitgraph.Cycle) {
	var c Cycle
	for _, step := range found {
		at := slices.IndexFunc(g.Waits, func(w Wait) bool { return w.Waiter == step.Wait.Waiter })
		c = append(c, CycleWait{Wait: at, Holds: Hold(step.Hold)})
	}
	g.Cycles = append(g.Cycles, c)
}

// graph makes one reading. It returns the cycles of the reading separately, not in the Graph: they aren't confirmed
// yet.
func (r *Reader) graph(ctx context.Context) (Graph, []waitgraph.Cycle, error) {
	var g Graph
	waits, errs := r.readWaits(ctx, &g)
	if g.Time.IsZero() {
		return Graph{}, nil, errors.Join(errs...)
	}
	awaited := map[string]bool{} // keys
	for _, w := range waits {
		awaited[r.prefix+w.Name] = true
	}
	locks, lockErrs := atNodes(ctx, r, maps.Keys(awaited), func(node *redis.Client, keys []string) ([]Lock, error) {
		return r.read(ctx, node, keys, false, (*batch).hash, (*batch).number)
	})
	slices.SortFunc(locks, func(a, b Lock) int { return cmp.Compare(a.Name, b.Name) })
	g.Locks, errs = locks, append(errs, lockErrs...)
	var search waitgraph.Graph
	for _, w := range waits {
		wait := Wait{
			Waiter: w.Waiter, ClientID: script.ClientIDOf(w.Waiter), Name: w.Name, Kind: w.Kind,
			Since: w.Since, Breaks: w.Breaks,
		}
		wait.TraceID, wait.SpanID = parseTrace(w.Traceparent)
		for _, h := range w.Holds {
			wait.Holds = append(wait.Holds, Hold(h))
		}
		g.Waits = append(g.Waits, wait)
		if time.Since(w.Refreshed) < waitgraph.StaleAfter { // its client is probably alive
			search.Add(w)
		}
	}
	for _, l := range g.Locks {
		if l.Held > len(l.Holders) { // some holders aren't known
			continue
		}
		holders := waitgraph.Holders{Mode: l.Mode}
		for _, h := range l.Holders {
			holders.Owners = append(holders.Owners, h.Owner)
		}
		search.SetHolders(l.Name, holders)
	}
	return g, search.Cycles(ctx, mostCycles), errors.Join(errs...)
}

// readWaits reads the waits of all clients, longest first. It asks the nodes concurrently, so that a silent node leaves
// time for the others. It sets g.Time, g.More and g.Unreadable. g.Time stays zero if the list of clients can't be read.
func (r *Reader) readWaits(ctx context.Context, g *Graph) ([]waitgraph.Wait, []error) {
	clients, err := r.waitingClients(ctx, g)
	if err != nil {
		return nil, []error{fmt.Errorf("fleet: %q: %w", script.WaitingKey(r.prefix), err)}
	}
	if deadline, ok := ctx.Deadline(); ok { // half of the time is for reading the locks
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Until(deadline)/2)
		defer cancel()
	}
	clientOf := map[string]string{}
	for _, random := range clients {
		if bytes, err := hex.DecodeString(random); err != nil || len(bytes) != script.OwnerRandomBytes {
			g.Unreadable++
			continue
		}
		clientOf[script.WaitsKey(r.prefix, random)] = random
	}
	type record struct {
		key    string
		asked  time.Time
		life   *redis.IntCmd
		fields *redis.ScanCmd
	}
	records, errs := atNodes(ctx, r, maps.Keys(clientOf), func(node *redis.Client, keys []string) ([]record, error) {
		pipe := node.Pipeline()
		list := make([]record, len(keys))
		for i, key := range keys { // PTTL first: read last, it might show a refresh that came after the end of a wait
			list[i] = record{key, time.Now(), askPTTL(ctx, pipe, key), pipe.HScan(ctx, key, 0, "", mostRead)}
		}
		_, err := r.exec(ctx, pipe)
		return list, err
	})
	var waits []waitgraph.Wait
	seen := map[string]bool{}
	for _, rec := range records {
		fields, cursor, err := rec.fields.Result()
		if err = cmp.Or(err, rec.life.Err()); err != nil {
			errs = append(errs, fmt.Errorf("fleet: %q: %w", rec.key, err))
			continue
		}
		g.More = g.More || cursor != 0
		for _, w := range g.decode(clientOf[rec.key], fields) {
			if !seen[w.Waiter] { // the record has a wait once for each lease that it carries
				w.Refreshed = refreshedAt(rec.asked, rec.life.Val())
				waits, seen[w.Waiter] = append(waits, w), true
			}
		}
	}
	slices.SortFunc(waits, func(a, b waitgraph.Wait) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Waiter, b.Waiter), cmp.Compare(a.Name, b.Name))
	})
	g.More = g.More || len(waits) > MostWaits
	return waits[:min(len(waits), MostWaits)], errs
}

// decode returns the waits in the hash of a client. It counts in g.Unreadable what that client can't have written.
func (g *Graph) decode(client string, fields []string) (waits []waitgraph.Wait) {
	for f := 1; f < len(fields); f += 2 {
		list, err := waitgraph.Decode(fields[f])
		if err != nil {
			g.Unreadable++
		}
		for _, w := range list {
			if _, random := script.ClientOf(w.Waiter); random == client {
				waits = append(waits, w)
			} else { // written by another program
				g.Unreadable++
			}
		}
	}
	return waits
}

// waitingClients returns the clients with long waits, each as the random digits in its owners. It sets g.Time and
// g.More.
func (r *Reader) waitingClients(ctx context.Context, g *Graph) ([]string, error) {
	key := script.WaitingKey(r.prefix)
	node, err := r.nodeOf(ctx, key)
	if err != nil {
		return nil, err
	}
	now, err := node.Time(ctx).Result()
	if err != nil {
		return nil, err
	}
	pipe := node.Pipeline()
	clients := pipe.ZRangeByScore(ctx, key, &redis.ZRangeBy{
		Min: "(" + strconv.FormatInt(now.UnixMilli(), 10), Max: "+inf", Count: MostWaits + 1,
	})
	_, err = r.exec(ctx, pipe)
	list, answer := clients.Result()
	if err = cmp.Or(err, answer); err != nil {
		return nil, err
	}
	g.Time, g.More = now, len(list) > MostWaits
	return list[:min(len(list), MostWaits)], nil
}

// refreshedAt returns the earliest time, by our clock, at which a client can have last refreshed records. asked is when
// their PTTL was asked for, and ms is the answer. The result is zero if they had no TTL (no client of lockdog writes
// such records), or didn't exist. The PTTL is a duration by the server's clock, so the two clocks needn't agree.
func refreshedAt(asked time.Time, ms int64) time.Time {
	if ms < 0 {
		return time.Time{}
	}
	return asked.Add(-max(script.WaitsLife-script.Millis(ms), 0))
}

// Carriers returns the indices in Waits of the waits that carry a holder's lease of a lock. As a rule, the lease isn't
// released while they wait.
func (g *Graph) Carriers(name, owner string) (waits []int) {
	for i, w := range g.Waits {
		if slices.ContainsFunc(w.Holds, func(h Hold) bool { return h.Name == name && h.Owner == owner }) {
			waits = append(waits, i)
		}
	}
	return waits
}

// Awaited returns the lock that a wait is for. It is nil if that lock has no holder, or couldn't be read.
func (g *Graph) Awaited(wait int) *Lock {
	i := slices.IndexFunc(g.Locks, func(l Lock) bool { return l.Name == g.Waits[wait].Name })
	if i < 0 {
		return nil
	}
	return &g.Locks[i]
}

// Filter returns the part of the graph that is connected with the locks whose names match a pattern (see Reader.Locks):
// the waits for these locks, the waits that carry a lease of one of them, and everything connected with these waits.
func (g *Graph) Filter(pattern string) (Graph, error) {
	matches, err := matcher(pattern)
	if err != nil {
		return Graph{}, err
	}
	names, waits := map[string]bool{}, map[int]bool{} // to keep
	for first, grows := true, true; grows; first = false {
		grows = false
		for i, w := range g.Waits {
			touches := []string{w.Name}
			for _, h := range w.Holds {
				touches = append(touches, h.Name)
			}
			if waits[i] || !slices.ContainsFunc(touches, func(name string) bool {
				return names[name] || first && matches(name)
			}) {
				continue
			}
			waits[i], grows = true, true
			for _, name := range touches {
				names[name] = true
			}
		}
	}
	out := *g
	out.Waits, out.Cycles = nil, nil
	out.Locks = slices.DeleteFunc(slices.Clone(g.Locks), func(l Lock) bool { return !names[l.Name] })
	now := map[int]int{} // index in g.Waits -> index in out.Waits
	for i, w := range g.Waits {
		if waits[i] {
			now[i] = len(out.Waits)
			out.Waits = append(out.Waits, w)
		}
	}
	for _, c := range g.Cycles {
		if waits[c[0].Wait] {
			c = slices.Clone(c)
			for i := range c {
				c[i].Wait = now[c[i].Wait]
			}
			out.Cycles = append(out.Cycles, c)
		}
	}
	return out, nil
}
