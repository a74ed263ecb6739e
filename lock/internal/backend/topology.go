package backend

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/internal/hashslot"
)

// ErrGone is matched by the errors that say that a server has left, or has lost a channel (PubSub.Current).
var ErrGone = errors.New("lockdog: the server is gone")

// direct has the methods that are alike in most shapes.
type direct struct{}

func (direct) Prepare(context.Context, string) error { return nil }
func (direct) Topology() string                      { return "" }
func (direct) Follow(context.Context) bool           { return true }
func (direct) Moved(context.Context)                 {}
func (direct) during(string) context.Context         { return context.Background() }
func (direct) close()                                {}
func (direct) optionsAt(node string, rdb *redis.Client, conns int) *redis.Options {
	o := ownOptions(rdb, conns)
	o.Addr = node // rdb may now be the client of another node
	return o
}

// single is one server.
type single struct {
	direct
	rdb *redis.Client
}

func (s single) Node(string) string      { return s.rdb.Options().Addr }
func (s single) Control(string) Endpoint { return Endpoint{} }

func (s single) Traits() Traits {
	return Traits{MultiLockScripts: true, Publish: "publish", NumSubCommand: "numsub"}
}

func (s single) clientOf(context.Context, string) (*redis.Client, error) { return s.rdb, nil }

func (s single) at(context.Context, string) (*redis.Client, error) { return s.rdb, nil }

func (s single) Subscribe(ctx context.Context, _ Endpoint) (PubSub, error) {
	return &redisPubSub{s.rdb.Subscribe(ctx)}, nil
}

// ring is several servers that don't know each other. go-redis places a channel where its lock is: both have the same
// hash tag.
type ring struct {
	direct
	rdb *redis.Ring
}

func (r ring) Control(key string) Endpoint { return Endpoint{Node: r.Node(key)} }

func (r ring) Traits() Traits {
	return Traits{PerNode: true, Publish: "publish", NumSubCommand: "numsub"}
}

// Topology returns the shards that the Ring thinks alive. Before its first heartbeat these are all that it was given.
func (r ring) Topology() string {
	addrs := []string{"ring"}
	for _, shard := range r.rdb.GetShardClients() {
		addrs = append(addrs, shard.Options().Addr)
	}
	slices.Sort(addrs)
	return strings.Join(addrs, " ")
}

func (r ring) Node(key string) string {
	shard, err := r.rdb.GetShardClientForKey(key)
	if err != nil {
		return ""
	}
	return shard.Options().Addr
}

func (r ring) clientOf(_ context.Context, key string) (*redis.Client, error) {
	return r.rdb.GetShardClientForKey(key)
}

func (r ring) Subscribe(ctx context.Context, at Endpoint) (PubSub, error) {
	shard, err := r.at(ctx, at.Node)
	if err != nil {
		return nil, err
	}
	return &ringPubSub{redisPubSub{shard.Subscribe(ctx)}, r, at.Node}, nil
}

func (r ring) at(_ context.Context, addr string) (*redis.Client, error) {
	for _, shard := range r.rdb.GetShardClients() {
		if shard.Options().Addr == addr {
			return shard, nil
		}
	}
	return nil, fmt.Errorf("%w: the ring has no shard %q any more", ErrGone, addr)
}

// cluster is a Redis Cluster, or servers without cluster mode whose layout the program makes up for a ClusterClient.
//
// A lock's waiters listen at the node of its key, and its releases are published there, on sharded channels.
type cluster struct {
	direct
	rdb    *redis.ClusterClient
	given  bool        // the program makes up the layout: perhaps servers don't pass plain messages on to each other
	loaded atomic.Bool // rdb knows a layout
	mute   atomic.Bool // the servers don't say which slots they have: an ACL forbids it, or they lack cluster mode

	layout *question // if given: asks the program for its layout
	slots  atomic.Pointer[[]redis.ClusterSlot]
	ctx    context.Context // for calls of the program's ClusterSlots; ends with the client
	cancel context.CancelFunc
}

func newCluster(rdb *redis.ClusterClient) *cluster {
	c := &cluster{rdb: rdb, given: rdb.Options().ClusterSlots != nil}
	c.layout = newQuestion(c.ask)
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.slots.Store(&[]redis.ClusterSlot{})
	return c
}

// Prepare loads the cluster's layout.
func (c *cluster) Prepare(ctx context.Context, key string) error {
	if _, err := c.rdb.MasterForKey(ctx, key); err != nil {
		return err
	}
	c.loaded.Store(true)
	return nil
}

// Node returns the address of the node that has the key's slot. It returns "" before Prepare has succeeded, and if the
// layout has no node for the slot, as after a reset of a node. In that case go-redis returns a random node without
// saying so. So Node asks go-redis several times, and returns "" if the answers differ.
func (c *cluster) Node(key string) (addr string) {
	if !c.loaded.Load() { // MasterForKey would load the layout
		return ""
	}
	for n := range namedAlike {
		node, err := c.rdb.MasterForKey(context.Background(), key)
		if err != nil || n > 0 && node.Options().Addr != addr {
			return ""
		}
		addr = node.Options().Addr
	}
	return addr
}

// namedAlike is how often go-redis must return the same node before we believe it. Each time takes 50 ns.
const namedAlike = 8

// Topology returns the node of the first slot of a made-up layout: NewFailoverClusterClient's has one primary for all
// slots. For a Redis Cluster it returns "".
func (c *cluster) Topology() string {
	if !c.given {
		return ""
	}
	return "made up " + c.Node(hashslot.Tag(0))
}

// Follow asks the program for the layout if the program makes it up, as NewFailoverClusterClient does. The servers then
// lack cluster mode, and don't report a new layout. Follow returns false if go-redis has another layout (it then makes
// go-redis reload it), or if ctx ends before the program has answered (but see question.answered). For a Redis Cluster
// it returns true.
func (c *cluster) Follow(ctx context.Context) bool {
	if !c.given {
		return true
	}
	if !c.layout.answered(ctx) {
		return false
	}
	for _, r := range *c.slots.Load() {
		node, err := c.rdb.MasterForKey(ctx, hashslot.Tag(r.Start))
		if err == nil && len(r.Nodes) > 0 && node.Options().NodeAddress != r.Nodes[0].Addr {
			c.rdb.ReloadState(ctx)
			return false
		}
	}
	return true
}

// ask asks the program for its layout.
func (c *cluster) ask() error {
	slots, err := c.rdb.Options().ClusterSlots(c.ctx)
	if err == nil {
		c.slots.Store(&slots)
	}
	return err
}

func (c *cluster) close() { c.cancel() }

// Moved makes go-redis load the layout. By itself go-redis does so after a redirection or READONLY and, by default,
// once a minute, but not because a node is gone.
func (c *cluster) Moved(ctx context.Context) { c.rdb.ReloadState(ctx) }

func (c *cluster) Traits() Traits {
	return Traits{
		MultiLockScripts: true, KeysAsArguments: true, Redirects: !c.given, PerNode: true, SubscribeOneSlot: true,
		Publish: "spublish", NumSubCommand: "shardnumsub",
	}
}

// Control returns an endpoint for plain channels: a control channel belongs to a client, not to a slot, and a cluster
// passes its messages on to every node. If the layout is made up, the endpoint is at the node of the key.
func (c *cluster) Control(key string) Endpoint {
	if c.given {
		return Endpoint{Node: c.Node(key), Bus: true}
	}
	return Endpoint{Bus: true}
}

func (c *cluster) clientOf(ctx context.Context, key string) (*redis.Client, error) {
	return c.rdb.MasterForKey(ctx, key)
}

// Subscribe connects to the endpoint's node itself, or to a random primary if the endpoint is for plain channels of all
// nodes. go-redis's own cluster subscription connects to the node of the first channel, or to any node if it is read
// before it has a channel. There it stays, even if the node replies MOVED.
func (c *cluster) Subscribe(ctx context.Context, at Endpoint) (PubSub, error) {
	var node *redis.Client
	var err error
	if at.Node == "" && at.Bus {
		node, err = c.rdb.MasterForKey(ctx, hashslot.Tag(rand.IntN(hashslot.Count)))
	} else {
		node, err = c.at(ctx, at.Node)
	}
	if err != nil {
		return nil, err
	}
	ps := clusterPubSub{redisPubSub: redisPubSub{node.Subscribe(ctx)}, cluster: c, node: node}
	if at.Bus {
		return &ps, nil
	}
	return &shardedPubSub{ps}, nil
}

// at returns the client of the node with an address. go-redis returns the node of a key without asking the cluster, but
// not that of an address. So at tries every slot.
func (c *cluster) at(ctx context.Context, addr string) (*redis.Client, error) {
	for slot := range hashslot.Count {
		node, err := c.rdb.MasterForKey(ctx, hashslot.Tag(slot))
		if err != nil {
			return nil, err
		}
		if node.Options().Addr == addr {
			return node, nil
		}
	}
	return nil, fmt.Errorf("%w: the cluster has no primary %q any more", ErrGone, addr)
}
