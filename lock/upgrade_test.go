package lock_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/telemetry"
)

// A cluster on its way from a version without sharded pub/sub to one that has it: both kinds of node live in it, and a release has to
// reach its waiters on either.

// mustWake releases a lock, whose waiter must hear of it: the leases here are far longer than we wait.
func mustWake(t *testing.T, what string, l *lock.Lease, next <-chan taken) *lock.Lease {
	t.Helper()
	if err := l.Release(context.Background()); err != nil {
		t.Errorf("%s: Release: %v", what, err)
	}
	got := await(t, what, next)
	if got.err != nil {
		t.Fatalf("%s: Lock: %v", what, got.err)
	}
	return got.Lease
}

// behindNode waits until a client's one waiter hears of releases.
func behindNode(t *testing.T, c *lock.Client, m *lock.Mutex) <-chan taken {
	t.Helper()
	next := begin(context.Background(), m)
	asleep(t, c, 1)
	return next
}

func TestRollingUpgrade(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 0, redistest.OnNode(0, redistest.PubSubBefore7(true)))
	t.Run("every kind on the old node", func(t *testing.T) { everyKindOnTheOldNode(t, c) })
	t.Run("a slot moves to an upgraded node", func(t *testing.T) { movesToAnUpgradedNode(t, c) })
	t.Run("a node is upgraded where it stands", func(t *testing.T) { upgradedWhereItStands(t, c) })
}

func upgradedWhereItStands(t *testing.T, c *redistest.Cluster) {
	before, after := c.Nodes[0], c.Nodes[1]
	names := map[string]string{"the old node": namesOn(t, c, before, 1)[0], "the new node": namesOn(t, c, after, 1)[0]}

	// Whichever node a client meets first, it wakes, and is woken, at either.
	clients := make(map[string]*lock.Client)
	for where, name := range names {
		clients[where] = newScope(t).open(t, openCluster(t, c), lock.WithLease(far))
		free(t, try(t, clients[where].Mutex(name)))
	}
	for holder, h := range clients {
		for waiter, w := range clients {
			for where, name := range names {
				what := fmt.Sprintf("released by who met %s first, awaited by who met %s first, at %s", holder, waiter, where)
				for _, turn := range []string{"first", "again"} {
					l := try(t, h.Mutex(name))
					if h == w {
						w = newScope(t).open(t, openCluster(t, c), lock.WithLease(far))
					}
					next := behindNode(t, w, w.Mutex(name))
					free(t, mustWake(t, what+", "+turn, l, next))
				}
			}
		}
	}

	// A node is upgraded where it stands, under a lock that is held and awaited.
	name := names["the old node"]
	holder, waiter := clients["the new node"], clients["the old node"]
	l := try(t, holder.Mutex(name))
	next := behindNode(t, waiter, waiter.Mutex(name))
	before.Restart(t, redistest.KeepData, redistest.PubSubBefore7(false))
	eventually(t, patience, func() bool { return len(lockChannels(t, before)) == 1 })
	l = mustWake(t, "after the upgrade", l, next)
	next = behindNode(t, holder, holder.Mutex(name))
	free(t, mustWake(t, "after the upgrade, the other way round", l, next))
	if n := len(before.Client(t).PubSubChannels(t.Context(), "redisson_lock__*").Val()); n != 0 {
		t.Errorf("%d channels are listened to that no release is published on", n)
	}
}

// On a node without sharded pub/sub, a release of any kind wakes a waiter in another client, and one in the same
// client.
func everyKindOnTheOldNode(t *testing.T, c *redistest.Cluster) {
	node := namesOn(t, c, c.Nodes[0], 1)[0]
	holder := newScope(t).open(t, openCluster(t, c), lock.WithLease(far))
	other := newScope(t).open(t, openCluster(t, c), lock.WithLease(far))
	for _, k := range append([]kindOfLock{several}, allKinds...) {
		for who, waiter := range map[string]*lock.Client{"another client": other, "the same client": holder} {
			name := "{" + node + "}" + k.name
			l := try(t, k.make(holder, name))
			next := begin(context.Background(), k.against(waiter, name))
			asleep(t, waiter, 1)
			free(t, mustWake(t, k.name+", awaited by "+who, l, next))
		}
	}

	// Those that are nobody's.
	s := holder.UnleasedSemaphore("{" + node + "}semaphore")
	_, err := s.TrySetPermits(t.Context(), 1)
	must(t, "TrySetPermits", err)
	must(t, "Acquire", s.Acquire(t.Context(), 1))
	gate := holder.Latch(node) // no other name of it may be in use
	_, err = gate.TrySetCount(t.Context(), 1)
	must(t, "TrySetCount", err)
	for what, turn := range map[string]struct{ wait, give func() error }{
		"unleased": {
			func() error { return other.UnleasedSemaphore("{"+node+"}semaphore").Acquire(context.Background(), 1) },
			func() error { return s.Release(t.Context(), 1) },
		},
		"latch": {
			func() error { return other.Latch(node).Wait(context.Background()) },
			func() error { return gate.CountDown(t.Context()) },
		},
	} {
		done := make(chan error, 1)
		go func() { done <- turn.wait() }()
		asleep(t, other, 1)
		must(t, what, turn.give())
		must(t, what, await(t, what, done))
	}
}

// A slot moves from an old node, which doesn't tell its subscribers, to a new one, which publishes to sharded channels.
func movesToAnUpgradedNode(t *testing.T, c *redistest.Cluster) {
	name := namesOn(t, c, c.Nodes[0], 1)[0]
	holder := newScope(t).open(t, openCluster(t, c), lock.WithLease(far))
	waiter := newScope(t).open(t, openCluster(t, c), lock.WithLease(far))
	l := try(t, holder.Mutex(name))
	next := behindNode(t, waiter, waiter.Mutex(name))
	c.Migrate(t, c.Slot(t, name), c.Nodes[1]).Finish(t)
	free(t, mustWake(t, "the slot has moved", l, next))
}

// standalones are servers without cluster mode behind a cluster client, whose slots the program gives out.
func standalones(t *testing.T, all func() []*redistest.Server) *redis.ClusterClient {
	t.Helper()
	c := redis.NewClusterClient(&redis.ClusterOptions{
		ClusterSlots: func(context.Context) ([]redis.ClusterSlot, error) {
			servers := all()
			slots := make([]redis.ClusterSlot, len(servers))
			for i, s := range servers {
				slots[i] = redis.ClusterSlot{
					Start: i * 16384 / len(servers), End: (i+1)*16384/len(servers) - 1, Nodes: []redis.ClusterNode{{Addr: s.Addr()}},
				}
			}
			return slots, nil
		},
	})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// controls counts the connections to a server that listen to exactly one plain channel. That is a control channel: a
// waiter listens to two channels.
func controls(t *testing.T, rdb *redis.Client) int {
	t.Helper()
	list, err := rdb.Do(t.Context(), "client", "list", "type", "pubsub").Text()
	must(t, "CLIENT LIST", err)
	return strings.Count(list, " sub=1 ")
}

// Nobody passes messages on between servers without cluster mode: what a lock's waiters and its holder have to hear is said at its server.
func TestStandaloneServersAsACluster(t *testing.T) {
	t.Parallel()
	for _, before7 := range []bool{false, true} {
		t.Run(fmt.Sprint("before 7: ", before7), func(t *testing.T) {
			t.Parallel()
			servers := make([]*redistest.Server, 3)
			for i := range servers {
				servers[i] = redistest.Start(t, redistest.PubSubBefore7(before7))
			}
			all := func() []*redistest.Server { return servers }
			rdb := standalones(t, all)
			holder := newScope(t).open(t, rdb, lock.WithLease(far))
			waiter := newScope(t).open(t, standalones(t, all), lock.WithLease(far))
			for i := range 6 {
				name := fmt.Sprint("job:", i)
				eventually(t, patience, func() bool {
					l := try(t, holder.Mutex(name))
					l = mustWake(t, name, l, behindNode(t, waiter, waiter.Mutex(name)))

					// Its client listens there for forced unlocks. (CLIENT LIST shows so much of who has just waited, too.)
					node, err := rdb.MasterForKey(t.Context(), name)
					must(t, "MasterForKey", err)
					eventually(t, patience, func() bool { return node.Publish(t.Context(), controlOf(l.Owner()), "nobody").Val() == 1 })
					// If it was granted by a message, its first renewal comes soon, and could find the lock missing before the message does.
					eventually(t, patience, func() bool { return time.Until(l.Deadline()) > time.Minute })
					return isToldOfForce(t, l, holder.Mutex(name))
				})
			}
		})
	}
}

// The program takes a server out of those it gives slots to. What is held at the others is looked after there, and nobody goes on asking for
// the one that is gone.
func TestStandaloneServerIsTakenOut(t *testing.T) {
	t.Parallel()
	all := []*redistest.Server{redistest.Start(t), redistest.Start(t)}
	var left atomic.Int32
	rdb := standalones(t, func() []*redistest.Server { return all[left.Load():] })
	s := newScope(t)
	client := s.open(t, rdb, lock.WithLease(far))
	nodes := make(map[*redis.Client]bool)
	for i := 0; len(nodes) < 2; i++ {
		l := try(t, client.Mutex(fmt.Sprint("job:", i)))
		node, err := rdb.MasterForKey(t.Context(), l.Name())
		must(t, "MasterForKey", err)
		nodes[node] = true
	}
	eventually(t, patience, func() bool { return controls(t, all[0].Client(t)) == 1 && controls(t, all[1].Client(t)) == 1 })
	left.Store(1)
	all[0].Kill(t)
	free(t, try(t, client.Mutex("job:new")))
	attempts := func() float64 { return s.sum(t, telemetry.MetricPubSubReconnects) }
	eventually(t, 4*patience, func() bool { // it stops asking, which it would do each second
		before := attempts()
		pass(t, 3*time.Second)
		return attempts() == before && s.sum(t, telemetry.MetricPubSubConnected) == 1
	})
}

// A server that has left the cluster goes on answering PING. Whoever listens there has to notice.
func TestNodeLeavesTheCluster(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 1, redistest.PubSubBefore7(true))
	holder := newScope(t).open(t, openCluster(t, c), lock.WithLease(far))
	waiter := newScope(t).open(t, openCluster(t, c), lock.WithLease(far))
	l := try(t, holder.Mutex("job"))
	replicated(t, c.Owner(t, c.Slot(t, "job")))
	next := behindNode(t, waiter, waiter.Mutex("job"))
	var listening *redistest.Server
	for _, node := range c.Nodes {
		list, err := node.Client(t).Do(t.Context(), "client", "list", "type", "pubsub").Text()
		must(t, "CLIENT LIST", err)
		if strings.Contains(list, " sub=2 ") {
			listening = node
		}
	}
	if listening == nil {
		t.Fatal("nobody listens")
	}
	if listening.Info(t, "replication")["role"] == "master" {
		for slot := range 16384 {
			if c.Owner(t, slot) == listening {
				c.Failover(t, slot, listening, replicaOf(t, c, listening))
				break
			}
		}
	}
	c.Remove(t, listening)
	free(t, l)
	free(t, granted(t, next))
}
