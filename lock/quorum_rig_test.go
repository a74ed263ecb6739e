package lock_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/lock/internal/script"
)

// quorumLease is the lease of a quorum's clients, unless a test says otherwise.
const quorumLease = 1500 * time.Millisecond

// nodes are the servers of a quorum, each behind a proxy.
type nodes struct {
	t       *testing.T
	servers []*redistest.Fake
	wires   []*wireTap
	raw     []*redis.Client // past the proxies
}

func startNodes(t *testing.T, n int) *nodes {
	t.Helper()
	ns := &nodes{t: t, servers: make([]*redistest.Fake, n)}
	for i := range n {
		ns.servers[i] = redistest.StartFake(t)
		ns.wires = append(ns.wires, listenOn(t, redistest.NewProxy(t, ns.servers[i].Addr())))
		ns.raw = append(ns.raw, ns.servers[i].Client(t))
	}
	ns.drift()
	return ns
}

// drift sets the nodes' token counters apart, so that a grant has to raise some. Their clocks, which do that elsewhere, are one clock here.
func (ns *nodes) drift() {
	ns.t.Helper()
	for i, rdb := range ns.raw {
		counter := time.Now().Add(time.Duration(i+1) * time.Hour).UnixMicro()
		must(ns.t, "SET", rdb.Set(context.Background(), script.FenceKey("", "job"), counter, 0).Err())
	}
}

// party is a quorum as one process has it.
type party struct {
	*lock.Quorum
	*scope
	clients []*lock.Client
}

// quorum returns one, with the lease quorumLease unless opts say otherwise.
func (ns *nodes) quorum(opts ...lock.Option) *party {
	ns.t.Helper()
	p := &party{scope: newScope(ns.t)}
	for i, s := range ns.servers {
		rdb := s.Client(ns.t, func(o *redis.Options) { o.Addr = ns.wires[i].proxy.Addr() }, answerWithin(time.Second))
		p.clients = append(p.clients, p.open(ns.t, rdb, append([]lock.Option{lock.WithLease(quorumLease)}, opts...)...))
	}
	var err error
	if p.Quorum, err = lock.NewQuorum(p.clients...); err != nil {
		ns.t.Fatal(err)
	}
	return p
}

// holders are the owners of a lock, by node; "" where it is free.
func (ns *nodes) holders(name string) []string {
	ns.t.Helper()
	owners := make([]string, len(ns.raw))
	for i, rdb := range ns.raw {
		owners[i] = holderOf(rdb, name)
	}
	return owners
}

// held returns the number of nodes at which a lock is held.
func (ns *nodes) held(name string) int {
	return len(slices.DeleteFunc(ns.holders(name), func(o string) bool { return o == "" }))
}

// mustBeFree fails the test if a lock is held at a node once all that was sent to it is answered.
func (ns *nodes) mustBeFree(name string) {
	ns.t.Helper()
	synctest.Wait()
	if n := ns.held(name); n != 0 {
		ns.t.Errorf("%s is held at %d nodes", name, n)
	}
}

// everywhere takes the lock at all nodes, and waits for those that weren't needed.
func (p *party) everywhere(t *testing.T, m lock.Locker) *lock.Lease {
	t.Helper()
	l := try(t, m)
	synctest.Wait()
	for i, c := range p.clients {
		if !slices.ContainsFunc(c.Leases(), func(i lock.LeaseInfo) bool { return i.State == lock.StateHeld }) {
			t.Errorf("node %d isn't part of the lease", i)
		}
	}
	return l
}

// refuse has all nodes refuse every script with an error, or none if that is empty.
func (ns *nodes) refuse(text string) {
	for _, srv := range ns.servers {
		srv.SetRefusal(func(cmd string, _ ...string) string {
			if strings.HasPrefix(cmd, "EVAL") {
				return text
			}
			return ""
		})
	}
}

// jitter has every request take up to two milliseconds, so that votes are split.
func (ns *nodes) jitter() {
	for _, w := range ns.wires {
		w.set(func(c redistest.Chunk) redistest.Verdict {
			if c.Dir == redistest.Down {
				return redistest.Pass
			}
			return redistest.Delay(rand.N(2 * time.Millisecond))
		})
	}
}

// mute has a node swallow all requests, or answer again.
func (ns *nodes) mute(i int, on bool) {
	if on {
		ns.wires[i].set(redistest.When(redistest.Up, redistest.Drop))
		return
	}
	ns.wires[i].set(nil)
	ns.wires[i].proxy.CutAll()
}
