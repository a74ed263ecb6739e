//go:build chaos

package chaos_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/lockdog/lockdog/internal/chaos/history"
	"github.com/lockdog/lockdog/lock/agent"
)

// In some runs, an agent renews for all client processes. It is a process, too: this test binary, started again. What
// goes wrong with it, or between it and Redis, must cost nobody a lease.

// agentEnv makes this binary an agent.
const agentEnv = "LOCKDOG_CHAOS_AGENT"

// theAgent is the agent as the client of a step.
const theAgent = clients

// withAgents are the shapes that have agents. A Quorum would need one for each server.
var withAgents = []string{single, replicated, sentinel, cluster}

// runAgent runs an agent until it is told to close.
func runAgent(input *bufio.Scanner) error {
	o, err := readOrders(input)
	if err != nil {
		return err
	}
	rdb := o.dial()
	a, err := agent.New(rdb, agent.Config{})
	if err != nil {
		return err
	}
	l, err := agent.Listen(o.Agent, 0o600)
	if err != nil {
		return err
	}
	served := make(chan error, 1)
	go func() { served <- a.Serve(l) }()
	fmt.Println(saysWarm)
	for input.Scan() && input.Text() != sayClose {
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeLimit)
	defer cancel()
	err = a.Close(ctx)
	fmt.Fprintf(os.Stderr, "chaos agent: %+v\n", a.Status())
	return errors.Join(err, <-served, rdb.Close())
}

// startAgent starts an agent, which takes over the socket. With full, nothing that it logs can be written.
func (r *run) startAgent(t *testing.T, full bool) {
	t.Helper()
	p := r.newProcess()
	p.full = full
	p.launch(t, agentEnv, r.orders(p.number).via(r.rig, r.rig.gates[theAgent]))
	if err := p.expect(saysWarm, warmLimit); err != nil {
		t.Fatal(err)
	}
	r.agent = p
}

// endAgent ends an agent as systemd does.
func (r *run) endAgent(t *testing.T, p *process) {
	t.Helper()
	p.say(t, sayClose)
	if err := p.process.Wait(2 * closeLimit); err != nil {
		t.Errorf("the agent, process %d: %v", p.number, err)
	}
	_ = p.stdin.Close()
}

// agentFaults are those of the agent. Clients then renew by themselves.
var agentFaults = []fault{
	{name: "agent stopped", agent: true, shapes: withAgents, put: func(t *testing.T, r *run, s step) func(*testing.T) {
		p := r.agent
		p.signal(t, syscall.SIGSTOP)
		release := nothing
		if s.Size >= 50 {
			release = crowd(r.socket())
		}
		return func(t *testing.T) {
			if p == r.agent { // not killed meanwhile
				p.signal(t, syscall.SIGCONT)
			}
			release(t)
		}
	}},
	{name: "agent killed", agent: true, shapes: withAgents, put: func(t *testing.T, r *run, s step) func(*testing.T) {
		if err := r.agent.process.Kill(); err != nil {
			t.Fatal(err)
		}
		killed := r.agent
		return func(t *testing.T) {
			if killed == r.agent {
				r.startAgent(t, s.Size >= 50)
			}
		}
	}},
	{name: "agent replaced", agent: true, shapes: withAgents, atOnce: true, put: func(t *testing.T, r *run, s step) func(*testing.T) {
		old := r.agent
		r.startAgent(t, s.Size >= 50)
		r.endAgent(t, old)
		return nothing
	}},
}

// crowd connects to a socket whose process is stopped until the kernel takes no more.
func crowd(socket string) (release func(*testing.T)) {
	var all []net.Conn
	for range 1 << 14 {
		c, err := net.DialTimeout("unix", socket, time.Second)
		if err != nil {
			break
		}
		all = append(all, c)
	}
	return func(*testing.T) {
		for _, c := range all {
			_ = c.Close()
		}
	}
}

// agentLeases are the leases in runs with an agent, which has no part in shorter ones.
var agentLeases = []time.Duration{3 * time.Second, 4 * time.Second}

// beforeAgentFaults is how long a run with an agent goes on before anything goes wrong: until the agent renews.
const beforeAgentFaults = 2500 * time.Millisecond

// addAgent gives a run an agent, if the seed says so, or one of its faults is asked for. Half of these runs have no faults but
// those of the agent, and of its way to Redis. Its random numbers are separate, so that the faults of other seeds don't change.
func (s *schedule) addAgent(f family, w wish) {
	rng := rand.New(rand.NewPCG(s.Seed, 0xA6E47))
	if s.Stale || f.numbers || !slices.Contains(withAgents, s.Shape) || !w.agent() && rng.IntN(3) > 0 {
		return
	}
	s.Agent, s.Lease = true, agentLeases[rng.IntN(len(agentLeases))]
	able := slices.DeleteFunc(slices.Concat(agentFaults, networkFaults), func(f fault) bool { return w.fault != "" && f.name != w.fault })
	if len(able) > 0 && rng.IntN(2) == 0 {
		s.Steps = nil
	}
	for n := 1 + rng.IntN(2); n > 0 && len(able) > 0; n-- {
		f := able[rng.IntN(len(able))]
		if f.agent { // two at a time would get in each other's way
			able = slices.DeleteFunc(able, func(f fault) bool { return f.agent })
		}
		st := step{
			Fault: f.name, At: time.Duration(rng.IntN(400)) * time.Millisecond, Client: theAgent, Size: rng.IntN(100),
			For: s.Lease + time.Duration(rng.IntN(2500))*time.Millisecond, // a shorter one couldn't cost a lease
		}
		if f.atOnce {
			st.For = 0
		}
		s.Steps = append(s.Steps, st)
	}
	for i := range s.Steps {
		s.Steps[i].At += beforeAgentFaults
	}
}

// renewedByAgents is how many requests to agents succeeded in a history.
func renewedByAgents(h *history.History) (n float64) {
	for _, s := range h.Summaries {
		n += s.Counts[history.Labeled(history.CountAgentRequests, "ok")]
	}
	return n
}
