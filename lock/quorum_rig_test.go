package lock_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock"
)

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
	return ns
}

// party is a quorum as one process has it.
type party struct {
	*lock.Quorum
	*scope
	clients []*lock.Client
}

// quorum returns one, with the lease ttl unless opts say otherwise.
func (ns *nodes) quorum(opts ...lock.Option) *party {
	ns.t.Helper()
	p := &party{scope: newScope(ns.t)}
	for i, s := range ns.servers {
		rdb := s.Client(ns.t, func(o *redis.Options) { o.Addr = ns.wires[i].proxy.Addr() }, answerWithin(time.Second))
		p.clients = append(p.clients, p.open(ns.t, rdb, append([]lock.Option{lock.WithWatchdog(ttl)}, opts...)...))
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
		for field := range rdb.HGetAll(context.Background(), name).Val() {
			if field != "@lockdog" {
				owners[i] = field
			}
		}
	}
	return owners
}

// held is at how many nodes a lock is held.
func (ns *nodes) held(name string) int {
	return len(slices.DeleteFunc(ns.holders(name), func(o string) bool { return o == "" }))
}

// everywhere takes the lock at all nodes: a busy machine may not have the time in which each has to answer. It is the clients that
// are asked, as Redis also holds what came too late to count and is about to be given back.
func (p *party) everywhere(t *testing.T, m lock.Locker) *lock.Lease {
	t.Helper()
	missing := func(c *lock.Client) bool {
		return !slices.ContainsFunc(c.Leases(), func(i lock.LeaseInfo) bool { return i.State == lock.StateHeld })
	}
	for range 5 {
		l := try(t, m)
		for end := time.Now().Add(time.Second); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
			if !slices.ContainsFunc(p.clients, missing) {
				return l
			}
		}
		free(t, l)
	}
	t.Fatal("it isn't to be had at all nodes")
	return nil
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
