//go:build chaos

package chaos_test

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/lockdog/lockdog/internal/chaos/history"
)

// run is one schedule on one rig.
type run struct {
	rig      *rig
	schedule schedule
	dir      string
	store    *store
	slots    map[string]int // of a Cluster; asked for while all servers answer
	gates    [][]*gate      // by client, then by server; the agent's are the last
	agent    *process       // nil: there is none
	clients  []*process
	lastProc int
	log      []history.Event // what the parent did
	skew     time.Duration   // of the servers' clock: of the one that steps, or by which one differs
	losing   []history.Event // the ends of faults after which a failover may be under way until the rig is whole
}

const (
	warmLimit  = 20 * time.Second
	closeLimit = 15 * time.Second
	// How long a client may take to get what it wants at the end: far longer than it should, so that the history
	// shows by how much.
	idleLimit = 20 * time.Second
)

// play plays a schedule and returns its history.
func play(t *testing.T, rig *rig, s schedule, dir string) *run {
	t.Helper()
	for _, server := range rig.servers {
		rig.clock.set(t, server, 0)
	}
	rig.reset(t)
	r := &run{rig: rig, schedule: s, dir: dir, store: startStore(t), slots: make(map[string]int), gates: rig.gates}
	for _, target := range s.Targets {
		if rig.shape == cluster {
			r.slots[target.Name] = rig.cluster.Slot(t, target.Name)
		}
	}
	for i, gates := range r.gates {
		for j, g := range gates {
			g.reset(t, s.Seed<<8+uint64(i*len(gates)+j))
		}
	}
	r.giveNumbers(t)
	if s.Agent {
		r.startAgent(t, false)
	}
	for i := range s.Clients {
		r.clients = append(r.clients, r.start(t, i))
	}
	r.await(t, saysWarm, warmLimit)
	if s.Stale {
		r.tell(t, sayHold)
	}
	time.Sleep(warmUp) // the clients' own
	stopWatching := r.watch()
	t.Cleanup(func() { stopWatching() })
	r.misbehave(t)
	r.whole(t)
	rig.broken = false

	r.note(history.Event{What: history.Settle})
	slowest := r.askServers()
	r.tell(t, saySettle)
	r.await(t, saysIdle, idleLimit+s.Lease)
	r.note(history.Event{What: history.Stat, Counts: map[string]float64{history.StatSlowest: float64(slowest())}})
	r.log = append(r.log, stopWatching()...)
	if !t.Failed() {
		r.finish(t)
	}
	return r
}

// askServers asks all servers over and over, past all proxies, and says how long the slowest answer took: a server, too, may get no CPU.
func (r *run) askServers() (slowest func() time.Duration) {
	done, longest := make(chan struct{}), make(chan time.Duration)
	go func() {
		var all time.Duration
		for {
			for _, s := range r.rig.servers {
				ctx, cancel := context.WithTimeout(context.Background(), idleLimit)
				began := time.Now()
				_ = r.rig.admin(s).Ping(ctx).Err()
				all = max(all, time.Since(began))
				cancel()
			}
			select {
			case <-time.After(lookEvery):
			case <-done:
				longest <- all
				return
			}
		}
	}()
	return func() time.Duration {
		close(done)
		return <-longest
	}
}

// finish closes the clients, and looks at what they leave.
func (r *run) finish(t *testing.T) {
	conns := make([]int, len(r.clients))
	for i := range r.clients {
		for _, g := range r.gates[i] {
			conns[i] += g.Conns()
		}
	}
	r.countNumbers(t)
	r.tell(t, sayClose)
	r.await(t, saysClosed, closeLimit)
	for i, c := range r.clients {
		left := r.leftConns(i)
		r.note(history.Event{What: history.Stat, Proc: c.number, Counts: map[string]float64{
			history.StatConns: float64(conns[i]), history.StatLeft: float64(left),
			history.StatConnsMax: float64(len(r.rig.servers) * connsPerServer),
		}})
		_ = c.stdin.Close()
		if err := c.process.Wait(closeLimit); err != nil {
			t.Errorf("%s: %v", c.name(), err)
		}
	}
	if r.agent != nil {
		r.endAgent(t, r.agent)
	}
}

// leftConns is how many connections a client that has closed has left. A proxy doesn't notice before it has delivered what it delays.
func (r *run) leftConns(client int) (left int) {
	for end := time.Now().Add(longestDelay + time.Second); time.Now().Before(end); time.Sleep(25 * time.Millisecond) {
		left = 0
		for _, g := range r.gates[client] {
			left += g.Conns()
		}
		if left == 0 {
			break
		}
	}
	return left
}

// connsPerServer is what one client may have open to one server: the pool of the program, the two that lockdog keeps for
// renewals, subscriptions, and what go-redis has for looking after its own.
const connsPerServer = poolSize + 2 + 2 + 2

// whole waits until the rig is whole. Only then is no failover under way that may lose what was written after a fault had been healed.
func (r *run) whole(t *testing.T) {
	t.Helper()
	r.rig.whole(t)
	for _, e := range r.losing {
		r.note(e)
	}
	r.losing = nil
}

// misbehave puts the faults on, and takes them off.
func (r *run) misbehave(t *testing.T) {
	type action struct {
		at  time.Duration
		run func()
	}
	var actions []action
	for i, s := range r.schedule.Steps {
		f, ok := faultNamed(s.Fault)
		if !ok || !f.on(r.rig.shape) {
			t.Fatalf("no fault %q on %s", s.Fault, r.rig.shape)
		}
		id, heal := fmt.Sprint(i), nothing
		actions = append(actions, action{s.At, func() {
			if f.alone { // nobody elects a primary whose predecessor has yet to come back as its replica
				r.whole(t)
			}
			if f.ready != nil {
				f.ready(t, r, s)
			}
			e := history.Event{What: history.FaultOn, ID: id, Name: s.Fault, Silent: f.silent, Clock: f.clock, Loses: f.loses != nil && f.loses(r.rig.shape, s)}
			e.At = now()
			r.say("%v begins", s)
			before := r.skew
			heal = f.put(t, r, s)
			if e.Delay = r.skew - before; e.Delay < 0 {
				e.Back = true
			}
			if s.Client != theAgent { // else nothing is to be excused
				r.log = append(r.log, e)
			}
		}}, action{s.At + s.For, func() {
			heal(t)
			r.say("%s is over", s.Fault)
			if s.Client == theAgent {
				return
			}
			off := history.Event{What: history.FaultOff, ID: id, Name: s.Fault}
			if f.loses != nil && f.loses(r.rig.shape, s) && !f.loses(single, s) { // it loses only by a failover, for which nobody waits
				r.losing = append(r.losing, off)
			} else {
				r.note(off)
			}
		}})
	}
	slices.SortStableFunc(actions, func(a, b action) int { return cmp.Compare(a.at, b.at) })
	began := time.Now()
	for _, a := range actions {
		time.Sleep(a.at - time.Since(began))
		a.run()
	}
}

func (r *run) note(e history.Event) {
	e.At = now()
	r.log = append(r.log, e)
}

// say puts something into the history for its reader.
func (r *run) say(format string, args ...any) {
	r.note(history.Event{What: history.Note, Why: fmt.Sprintf(format, args...)})
}

func (r *run) tell(t *testing.T, word string) {
	for _, c := range r.clients {
		c.say(t, word)
	}
}

// await waits until all clients say a word.
func (r *run) await(t *testing.T, word string, within time.Duration) {
	t.Helper()
	over := time.Now().Add(within)
	for _, c := range r.clients {
		if err := c.expect(word, max(time.Until(over), time.Second)); err != nil { // who has said it is not late for another's sake
			t.Error(err)
		}
	}
}

// gatesOf are the proxies of one client, or of all.
func (r *run) gatesOf(client int) []*gate {
	if client == everybody {
		return slices.Concat(r.gates...)
	}
	return r.gates[client]
}

// history is what everybody has seen.
func (r *run) history() (*history.History, error) {
	events := slices.Concat(r.log, r.store.events())
	files, err := filepath.Glob(filepath.Join(r.dir, "client-*.jsonl"))
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		more, err := (&process{history: f}).events()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f, err)
		}
		events = append(events, more...)
	}
	return history.New(events)
}
