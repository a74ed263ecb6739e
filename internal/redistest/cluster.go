package redistest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/internal/hashslot"
)

const clusterPrimaries = 3

// Cluster is a Redis Cluster of three primaries, each with the same number of replicas.
type Cluster struct {
	Nodes     []*Server  // the first three are the primaries at the start, in the order of their slots
	migration sync.Mutex // see Migration.MoveKeys and Finish
}

// StartCluster starts a Cluster, and waits until every node knows every other and all slots are served. It ends with
// the test. The options apply to all nodes, except those in [OnNode]. A node that is only slow doesn't count as down:
// see [Cluster.Notice].
func StartCluster(tb testing.TB, replicasPerPrimary int, opts ...Option) *Cluster {
	tb.Helper()
	nodes, err := launchCluster(replicasPerPrimary, opts...)
	stopLater(tb, nodes)
	must(tb, err)
	return &Cluster{Nodes: nodes}
}

// launchCluster starts a Cluster. With an error it returns the nodes that have been started.
func launchCluster(replicasPerPrimary int, opts ...Option) ([]*Server, error) {
	cfg := newConfig(append([]Option{
		WithConfig("cluster-enabled", "yes"),
		WithConfig("cluster-config-file", "nodes.conf"),
		WithConfig("cluster-node-timeout", calm),
		// CLUSTER SLOTS omits a replica until its primary has sent something to it. An idle primary only sends a ping,
		// by default every ten seconds.
		WithConfig("repl-ping-replica-period", "1"),
	}, opts...))
	nodes, err := launchAll(slices.Repeat([]config{cfg}, clusterPrimaries*(1+replicasPerPrimary))...)
	if err != nil {
		return nodes, err
	}
	return nodes, form(nodes)
}

// form makes a Cluster of nodes.
func form(nodes []*Server) error {
	var errs []error
	for i, s := range nodes {
		if i < clusterPrimaries {
			from, to := i*hashslot.Count/clusterPrimaries, (i+1)*hashslot.Count/clusterPrimaries-1
			errs = append(errs, s.do("CLUSTER", "ADDSLOTSRANGE", from, to).Err())
		}
		// Different epochs from the start: nodes with equal ones would have to resolve that first.
		errs = append(errs, s.do("CLUSTER", "SET-CONFIG-EPOCH", i+1).Err())
		// Each node meets each other one: learning of a node through a third one can take another second.
		for _, other := range nodes[:i] {
			errs = append(errs, s.do("CLUSTER", "MEET", "127.0.0.1", other.port).Err())
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("redistest: form cluster: %w", err)
	}
	// The nodes after the first three become replicas, of each primary in turn.
	for i, s := range nodes[clusterPrimaries:] {
		id, err := nodes[i%clusterPrimaries].do("CLUSTER", "MYID").Text()
		if err != nil {
			return err
		}
		if err := awaitDo([]*Server{s}, "CLUSTER", "REPLICATE", id); err != nil { // refused until s knows that primary
			return err
		}
	}
	// A line of CLUSTER NODES is "<id> <host>:<port>@<bus port> <flags> <primary's id, or -> <3 more> connected
	// <slots>...". A node may not know its own host yet.
	err := awaitReply(nodes, map[string]int{
		" 127.0.0.1:": len(nodes), " connected": len(nodes), " - ": clusterPrimaries, "handshake": 0, "fail": 0,
	}, "CLUSTER", "NODES")
	if err != nil {
		return err
	}
	if err := awaitReply(nodes, map[string]int{stateOK: 1, "cluster_slots_assigned:16384": 1}, "CLUSTER", "INFO"); err != nil {
		return err
	}
	return awaitLinks(nodes[clusterPrimaries:])
}

const stateOK = "cluster_state:ok" // in the reply to CLUSTER INFO

func (s *Server) nodeID(tb testing.TB) string {
	tb.Helper()
	id, err := s.do("CLUSTER", "MYID").Text()
	must(tb, err)
	return id
}

// Universal returns the options of a cluster client that gets the addresses of all nodes.
func (c *Cluster) Universal() *redis.UniversalOptions {
	return &redis.UniversalOptions{IsClusterMode: true, Password: c.Nodes[0].cfg.password, Addrs: addrsOf(c.Nodes)}
}

// Slot returns the hash slot of a key.
func (c *Cluster) Slot(_ testing.TB, key string) int { return hashslot.Of(key) }

// Owner returns the primary that serves a slot, as the first running node sees it.
func (c *Cluster) Owner(tb testing.TB, slot int) *Server {
	tb.Helper()
	return awaitPrimary(tb, c.running(tb)[:1], nil, c.ownerOf(slot), justWait)
}

// ownerOf returns a function that returns the primary that serves a slot, as a node sees it.
func (c *Cluster) ownerOf(slot int) func(*Server) (*Server, error) {
	return func(s *Server) (*Server, error) {
		ranges, err := s.admin.ClusterSlots(context.Background()).Result() //nolint:staticcheck // it names the primary of each range first
		if err != nil {
			return nil, err
		}
		for _, r := range ranges {
			if r.Start <= slot && slot <= r.End {
				return byAddr(c.Nodes, r.Nodes[0].Addr)
			}
		}
		return nil, fmt.Errorf("redistest: server %d: nobody serves slot %d", s.port, slot)
	}
}

// How many milliseconds a server may be silent before it counts as down: calm at first, alert after Notice.
const (
	calm  = "60000"
	alert = "2000"
)

// Notice makes the running nodes, from now on, take a node for down when it is silent for two seconds. Then one of its
// replicas, if any, takes over a second later. On a busy machine a healthy node may be silent for as long, so kill or
// pause the node before calling Notice.
func (c *Cluster) Notice(tb testing.TB) {
	tb.Helper()
	noticeDeath(tb, c.running(tb))
}

func noticeDeath(tb testing.TB, nodes []*Server) {
	tb.Helper()
	must(tb, awaitDo(nodes, "CONFIG", "SET", "cluster-node-timeout", alert))
}

// AwaitFailover waits until every running node but old sees that another primary than old serves the slot, and that the
// cluster is ok. It returns that primary. It doesn't start the failover: kill or pause old for that. It makes the
// running nodes but old notice a death, as Notice does.
func (c *Cluster) AwaitFailover(tb testing.TB, slot int, old *Server) *Server {
	tb.Helper()
	return c.awaitFailover(tb, slot, old, justWait)
}

// Failover orders a failover from old, the slot's primary, to one of its replicas, and waits for it. old must be
// healthy. On a busy machine a replica may give up after 5 s, so the order is repeated. Failover makes the running
// nodes but old notice a death, as Notice does.
func (c *Cluster) Failover(tb testing.TB, slot int, old, replica *Server) {
	tb.Helper()
	c.awaitFailover(tb, slot, old, ordering(func() error { return replica.do("CLUSTER", "FAILOVER").Err() }))
}

// awaitFailover is AwaitFailover. Each time a node says that old serves the slot, the function still is called.
func (c *Cluster) awaitFailover(tb testing.TB, slot int, old *Server, still func() error) *Server {
	tb.Helper()
	nodes := slices.DeleteFunc(c.running(tb), func(s *Server) bool { return s == old })
	noticeDeath(tb, nodes)
	owner := awaitPrimary(tb, nodes, old, c.ownerOf(slot), still)
	must(tb, awaitReply(nodes, map[string]int{stateOK: 1}, "CLUSTER", "INFO"))
	return owner
}

// Remove makes a node without slots leave the cluster. It keeps running alone, and the others forget it.
func (c *Cluster) Remove(tb testing.TB, s *Server) {
	tb.Helper()
	id := s.nodeID(tb)
	must(tb, s.do("CLUSTER", "RESET").Err())
	for _, other := range c.running(tb) {
		if other != s {
			must(tb, other.do("CLUSTER", "FORGET", id).Err())
		}
	}
}

func (c *Cluster) running(tb testing.TB) []*Server {
	tb.Helper()
	run := slices.DeleteFunc(slices.Clone(c.Nodes), func(s *Server) bool { return !s.runs() })
	if len(run) == 0 {
		tb.Fatal("redistest: no node of the cluster runs")
	}
	return run
}
