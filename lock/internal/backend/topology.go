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

// ErrGone matches the outcome of looking for a server that isn't one of them any more.
var ErrGone = errors.New("lockdog: the server is gone")

// direct is what the shapes have in common that don't need Follow.
type direct struct{}

func (direct) Topology() string              { return "" }
func (direct) Follow(context.Context) bool   { return true }
func (direct) during(string) context.Context { return context.Background() }
func (direct) close()                        {}
func (direct) optionsAt(node string, rdb *redis.Client, conns int) *redis.Options {
	o := ownOptions(rdb, conns)
	o.Addr = node // rdb may be another's by now
	return o
}

// single is one server.
type single struct {
	direct
	rdb *redis.Client
}

func (s single) Prepare(context.Context, string) error { return nil }
func (s single) Node(string) string                    { return s.rdb.Options().Addr }
func (s single) Moved(context.Context)                 {}
func (s single) Control(string) Endpoint               { return Endpoint{} }

func (s single) Traits() Traits {
	return Traits{MultiLockScripts: true, Publish: "publish", NumSubCommand: "numsub"}
}

func (s single) clientOf(context.Context, string) (*redis.Client, error) { return s.rdb, nil }

func (s single) at(context.Context, string) (*redis.Client, error) { return s.rdb, nil }

func (s single) Subscribe(ctx context.Context, _ Endpoint) (PubSub, error) {
	return &redisPubSub{s.rdb.Subscribe(ctx)}, nil
}

// ring is several servers that know nothing of each other. A channel lives where its lock does: go-redis hashes both by
// the tag.
type ring struct {
	direct
	rdb *redis.Ring
}

func (r ring) Prepare(context.Context, string) error { return nil }
func (r ring) Moved(context.Context)                 {}
func (r ring) Control(key string) Endpoint           { return Endpoint{Node: r.Node(key)} }

func (r ring) Traits() Traits {
	return Traits{PerNode: true, Publish: "publish", NumSubCommand: "numsub"}
}

// Topology names the shards that the Ring thinks alive. Before its first heartbeat, too: it has those that it was given.
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

// cluster is a Redis Cluster, or what a ClusterClient takes for one: servers without cluster mode whose slots the program gives out.
//
// A lock's waiters listen at the node of its key, and its releases are published there: by sharded pub/sub where the node has it, else
// plainly. Each side learns which from that very node whenever it matters: a subscription by its first command on each connection, a
// release inside its script, which publishes with the other command where the first is refused. So nobody has to know what a node was
// when it was met first, and nodes of both kinds can live in one cluster while it is upgraded.
type cluster struct {
	direct
	rdb    *redis.ClusterClient
	given  bool        // the program gives out the slots: nothing says that the servers pass plain messages on to each other
	loaded atomic.Bool // rdb knows a layout
	mute   atomic.Bool // the servers don't tell which slots they have: an ACL forbids it, or they are without cluster mode

	layout *question // if given: what it is now
	slots  atomic.Pointer[[]redis.ClusterSlot]
	ctx    context.Context // ends with the client; the program may be asked until then
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

// Node is "" where the layout has nobody for the slot, as that of a node that was just reset. go-redis then names any node that it knows,
// another each time, and doesn't say so.
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

// namedAlike is how often go-redis has to name a node before we believe it. It takes 50 ns each time.
const namedAlike = 8

// Topology is where the first slot is, of a layout that the program makes up: NewFailoverClusterClient's has one primary for all.
func (c *cluster) Topology() string {
	if !c.given {
		return ""
	}
	return "made up " + c.Node(hashslot.Tag(0))
}

// Follow asks for the layout where the servers don't tell that it has changed: those behind a layout that the program makes up, as
// NewFailoverClusterClient does, aren't in cluster mode. It is false where go-redis has yet to hear of the answer.
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

// Moved has go-redis look for a new layout. It does so itself when it is told MOVED, but not when a node is gone; and else once a minute.
func (c *cluster) Moved(ctx context.Context) { c.rdb.ReloadState(ctx) }

func (c *cluster) Traits() Traits {
	return Traits{
		MultiLockScripts: true, UndeclaredKeys: true, Redirects: !c.given, PerNode: true, OneSlot: true, Publish: "spublish", NumSubCommand: "shardnumsub",
	}
}

// Control is a plain channel: it belongs to a client, not to a slot, and a cluster passes it on to every node.
func (c *cluster) Control(key string) Endpoint {
	if c.given {
		return Endpoint{Node: c.Node(key), Bus: true}
	}
	return Endpoint{Bus: true}
}

func (c *cluster) clientOf(ctx context.Context, key string) (*redis.Client, error) {
	return c.rdb.MasterForKey(ctx, key)
}

// Subscribe connects to the very node. go-redis's own cluster subscription goes to the node of the first channel it is given, but to
// any node when somebody reads from it before it is given one; and there it stays, and is told MOVED.
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
	return &shardedPubSub{clusterPubSub: ps}, nil
}

// at is the client of the node with an address. go-redis tells the node of a key without asking the cluster, but not
// that of an address; so every slot is tried until one lives there.
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
