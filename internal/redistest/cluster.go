package redistest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	clusterPrimaries = 3
	clusterSlots     = 16384
)

// Cluster is a Redis Cluster of three primaries, each with the same number of
// replicas.
type Cluster struct {
	Nodes []*Server // the first three are the primaries at the start, in the order of their slots
}

// StartCluster starts a Cluster, and waits until every node knows every other and all slots are served. It ends with
// the test. The options apply to all nodes, except those in [OnNode]. A node that is only slow doesn't count as down:
// see [Cluster.Notice].
func StartCluster(tb testing.TB, replicasPerPrimary int, opts ...Option) *Cluster {
	tb.Helper()
	cfg := newConfig(append([]Option{
		WithConfig("cluster-enabled", "yes"),
		WithConfig("cluster-config-file", "nodes.conf"),
		WithConfig("cluster-node-timeout", calm),
		// CLUSTER SLOTS omits a replica until its primary has sent something to it. An idle primary only sends a ping,
		// by default every ten seconds.
		WithConfig("repl-ping-replica-period", "1"),
	}, opts...))
	configs := make([]config, clusterPrimaries*(1+replicasPerPrimary))
	for i := range configs {
		configs[i] = cfg.forNode(i)
	}
	c := &Cluster{Nodes: startServers(tb, configs...)}
	if err := c.form(); err != nil {
		tb.Fatal(err)
	}
	c.replicate(tb)
	await(tb, "cluster ready", c.Nodes, func(ctx context.Context, s *Server) error {
		return c.complete(ctx, s, 1+replicasPerPrimary)
	})
	return c
}

// form assigns the slots and makes the nodes meet.
func (c *Cluster) form() error {
	ctx, cancel := adminContext()
	defer cancel()
	var errs []error
	for i, s := range c.Nodes {
		if i < clusterPrimaries {
			from, to := i*clusterSlots/clusterPrimaries, (i+1)*clusterSlots/clusterPrimaries-1
			slots := make([]int, 0, to-from+1) // no range: servers before 7 don't know CLUSTER ADDSLOTSRANGE
			for slot := from; slot <= to; slot++ {
				slots = append(slots, slot)
			}
			errs = append(errs, s.admin.ClusterAddSlots(ctx, slots...).Err())
		}
		// Different epochs from the start: nodes with equal ones would have to resolve that first.
		errs = append(errs, s.admin.Do(ctx, "CLUSTER", "SET-CONFIG-EPOCH", i+1).Err())
		// Each node meets each other one: learning of a node through a third one can take another second.
		for _, other := range c.Nodes[:i] {
			errs = append(errs, s.admin.ClusterMeet(ctx, "127.0.0.1", strconv.Itoa(other.port)).Err())
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("redistest: form cluster: %w", err)
	}
	return nil
}

// replicate makes the nodes after the first three replicas, of each primary in turn.
func (c *Cluster) replicate(tb testing.TB) {
	tb.Helper()
	for i, s := range c.Nodes[clusterPrimaries:] {
		id := c.Nodes[i%clusterPrimaries].nodeID(tb)
		await(tb, "CLUSTER REPLICATE", []*Server{s}, func(ctx context.Context, s *Server) error {
			return s.admin.ClusterReplicate(ctx, id).Err() // refused until s knows that primary
		})
	}
}

func (s *Server) nodeID(tb testing.TB) string {
	tb.Helper()
	ctx, cancel := adminContext()
	defer cancel()
	id, err := s.admin.Do(ctx, "CLUSTER", "MYID").Text()
	if err != nil {
		tb.Fatalf("redistest: CLUSTER MYID of %d: %v", s.port, err)
	}
	return id
}

// complete returns nil if s sees that all slots are served, by shards with the right number of nodes, and follows its
// primary if it is a replica.
func (c *Cluster) complete(ctx context.Context, s *Server, perShard int) error {
	if err := stateOK(ctx, s); err != nil {
		return err
	}
	shards, err := s.shards(ctx)
	if err != nil {
		return err
	}
	covered := 0
	for _, shard := range shards {
		covered += len(shard.slots)
		if shard.online != perShard {
			return fmt.Errorf("it knows %d nodes of the shard of %d, want %d",
				shard.online, shard.primary, perShard)
		}
	}
	if covered != clusterSlots {
		return fmt.Errorf("it knows who serves %d slots of %d", covered, clusterSlots)
	}
	info, err := s.info(ctx, "replication")
	if err != nil {
		return err
	}
	if info["role"] != "slave" {
		return nil
	}
	return linkUp(info)
}

func stateOK(ctx context.Context, s *Server) error {
	text, err := s.admin.ClusterInfo(ctx).Result()
	if err != nil {
		return err
	}
	if state := infoFields(text)["cluster_state"]; state != "ok" {
		return fmt.Errorf("its cluster_state is %s", state)
	}
	return nil
}

// Universal returns the options of a cluster client that gets the addresses of all nodes.
func (c *Cluster) Universal() *redis.UniversalOptions {
	o := &redis.UniversalOptions{IsClusterMode: true, Password: c.Nodes[0].cfg.password}
	for _, s := range c.Nodes {
		o.Addrs = append(o.Addrs, s.Addr())
	}
	return o
}

// Slot returns the hash slot of a key.
func (c *Cluster) Slot(tb testing.TB, key string) int {
	tb.Helper()
	var slot int
	await(tb, "CLUSTER KEYSLOT", c.running(tb)[:1], func(ctx context.Context, s *Server) error {
		n, err := s.admin.ClusterKeySlot(ctx, key).Result()
		slot = int(n)
		return err
	})
	return slot
}

// Owner returns the primary that serves a slot, as the first running node sees it.
func (c *Cluster) Owner(tb testing.TB, slot int) *Server {
	tb.Helper()
	var owner *Server
	await(tb, "owner of a slot", c.running(tb)[:1], func(ctx context.Context, s *Server) (err error) {
		owner, err = c.ownerSeenBy(ctx, s, slot)
		return err
	})
	return owner
}

func (c *Cluster) ownerSeenBy(ctx context.Context, s *Server, slot int) (*Server, error) {
	shards, err := s.shards(ctx)
	if err != nil {
		return nil, err
	}
	for _, shard := range shards {
		if shard.slots[slot] {
			return byPort(c.Nodes, shard.primary)
		}
	}
	return nil, fmt.Errorf("nobody serves slot %d", slot)
}

// shard is a primary and its replicas, as a node sees them.
type shard struct {
	primary int // its port
	slots   map[int]bool
	online  int // number of nodes that are up, including the primary
}

// shards parses CLUSTER NODES, which every version has: "<id> <host>:<port>@<bus port> <flags> <primary's id, or -> <4
// more> <slots>...". It returns the shards with slots.
func (s *Server) shards(ctx context.Context) ([]*shard, error) {
	text, err := s.admin.ClusterNodes(ctx).Result()
	if err != nil {
		return nil, err
	}
	byID, online := make(map[string]*shard), make(map[string]int)
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) < 8 {
			return nil, fmt.Errorf("redistest: unreadable line of CLUSTER NODES: %q", line)
		}
		id := f[0]
		if f[3] != "-" {
			id = f[3]
		}
		if !strings.Contains(f[2], "fail") && !strings.Contains(f[2], "handshake") && f[7] == "connected" {
			online[id]++
		}
		if len(f) == 8 || f[3] != "-" {
			continue
		}
		sh := &shard{slots: make(map[int]bool)}
		if _, err := fmt.Sscanf(f[1], "127.0.0.1:%d", &sh.primary); err != nil {
			return nil, fmt.Errorf("redistest: unreadable address in CLUSTER NODES: %q", line)
		}
		for _, r := range f[8:] {
			if strings.HasPrefix(r, "[") { // a slot that is being moved
				continue
			}
			from, to, found := strings.Cut(r, "-")
			if !found {
				to = from
			}
			first, err1 := strconv.Atoi(from)
			last, err2 := strconv.Atoi(to)
			if err := errors.Join(err1, err2); err != nil {
				return nil, err
			}
			for slot := first; slot <= last; slot++ {
				sh.slots[slot] = true
			}
		}
		byID[id] = sh
	}
	shards := make([]*shard, 0, len(byID))
	for id, sh := range byID {
		sh.online = online[id]
		if len(sh.slots) > 0 {
			shards = append(shards, sh)
		}
	}
	return shards, nil
}

// How many milliseconds a server may be silent before it counts as down: at first, and once a test waits for that.
const (
	calm  = "60000"
	alert = "2000"
)

// Notice makes the running nodes, from now on, take a node for down when it is silent for two seconds. Then one of its
// replicas, if any, takes over a second later. On a busy machine a healthy node may be silent for as long, so end the
// node first.
func (c *Cluster) Notice(tb testing.TB) {
	tb.Helper()
	noticeDeath(tb, c.running(tb))
}

func noticeDeath(tb testing.TB, nodes []*Server) {
	tb.Helper()
	await(tb, "cluster-node-timeout", nodes, func(ctx context.Context, s *Server) error {
		return s.admin.ConfigSet(ctx, "cluster-node-timeout", alert).Err()
	})
}

// AwaitFailover waits until every running node but old sees that another primary than old serves the slot, and that the
// cluster is ok. It returns that primary. It doesn't start the failover: kill or pause old for that. It calls Notice.
func (c *Cluster) AwaitFailover(tb testing.TB, slot int, old *Server) *Server {
	tb.Helper()
	return c.awaitFailover(tb, slot, old, func() {})
}

// Failover orders a failover from old, the slot's primary, to one of its replicas, and waits for it. old must be
// healthy. On a busy machine a replica may give up after 5 s; then Failover orders it again. Like AwaitFailover it
// calls Notice.
func (c *Cluster) Failover(tb testing.TB, slot int, old, replica *Server) {
	tb.Helper()
	var ordered time.Time
	c.awaitFailover(tb, slot, old, func() {
		if time.Since(ordered) > orderAgain {
			ordered = time.Now()
			// The error is ignored: if the order fails, the failover doesn't happen, which awaitFailover notices.
			_ = replica.admin.Do(context.Background(), "CLUSTER", "FAILOVER").Err()
		}
	})
}

// awaitFailover is AwaitFailover. It calls still each time it sees that old still serves the slot.
func (c *Cluster) awaitFailover(tb testing.TB, slot int, old *Server, still func()) *Server {
	tb.Helper()
	var owner *Server
	nodes := slices.DeleteFunc(c.running(tb), func(s *Server) bool { return s == old })
	noticeDeath(tb, nodes)
	await(tb, "failover", nodes, func(ctx context.Context, s *Server) (err error) {
		if owner, err = c.ownerSeenBy(ctx, s, slot); err != nil {
			return err
		}
		if owner == old {
			still()
			return fmt.Errorf("slot %d is still served by %d", slot, old.port)
		}
		return stateOK(ctx, s)
	})
	return owner
}

// Remove makes a node without slots leave the cluster. It keeps running alone, and the others forget it.
func (c *Cluster) Remove(tb testing.TB, s *Server) {
	tb.Helper()
	id := s.nodeID(tb)
	ctx, cancel := adminContext()
	defer cancel()
	errs := []error{s.admin.Do(ctx, "CLUSTER", "RESET").Err()}
	for _, other := range c.running(tb) {
		if other != s {
			errs = append(errs, other.admin.Do(ctx, "CLUSTER", "FORGET", id).Err())
		}
	}
	if err := errors.Join(errs...); err != nil {
		tb.Fatalf("redistest: remove node %d: %v", s.port, err)
	}
}

func (c *Cluster) running(tb testing.TB) []*Server {
	tb.Helper()
	run := slices.DeleteFunc(slices.Clone(c.Nodes), func(s *Server) bool { return s.process().Ended() })
	if len(run) == 0 {
		tb.Fatal("redistest: no node of the cluster runs")
	}
	return run
}
