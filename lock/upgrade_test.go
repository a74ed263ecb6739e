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

// A cluster's node is replaced where it stands, under a lock that is held and awaited.
func TestRollingUpgrade(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 0)
	node := c.Nodes[0]
	name := namesOn(t, c, node, 1)[0]
	holder := newScope(t).open(t, openCluster(t, c), lock.WithLease(far))
	waiter := newScope(t).open(t, openCluster(t, c), lock.WithLease(far))
	l := try(t, holder.Mutex(name))
	next := behindNode(t, waiter, waiter.Mutex(name))
	node.Restart(t, redistest.KeepData)
	eventually(t, patience, func() bool { return len(lockChannels(t, node)) == 1 })
	l = mustWake(t, "after the upgrade", l, next)
	next = behindNode(t, holder, holder.Mutex(name))
	free(t, mustWake(t, "after the upgrade, the other way round", l, next))
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
// waiter listens to sharded channels.
func controls(t *testing.T, rdb *redis.Client) int {
	t.Helper()
	list, err := rdb.Do(t.Context(), "client", "list", "type", "pubsub").Text()
	must(t, "CLIENT LIST", err)
	return strings.Count(list, " sub=1 ")
}

// Nobody passes messages on between servers without cluster mode: what a lock's waiters and its holder have to hear is said at its server.
func TestStandaloneServersAsACluster(t *testing.T) {
	t.Parallel()
	servers := make([]*redistest.Server, 3)
	for i := range servers {
		servers[i] = redistest.Start(t)
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

			// Its client listens there for forced unlocks.
			node, err := rdb.MasterForKey(t.Context(), name)
			must(t, "MasterForKey", err)
			eventually(t, patience, func() bool { return node.Publish(t.Context(), controlOf(l.Owner()), "nobody").Val() == 1 })
			// If it was granted by a message, its first renewal comes soon, and could find the lock missing before the message does.
			eventually(t, patience, func() bool { return time.Until(l.Deadline()) > time.Minute })
			return isToldOfForce(t, l, holder.Mutex(name))
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
	c := redistest.StartCluster(t, 1)
	holder := newScope(t).open(t, openCluster(t, c), lock.WithLease(far))
	waiter := newScope(t).open(t, openCluster(t, c), lock.WithLease(far))
	l := try(t, holder.Mutex("job"))
	slot := c.Slot(t, "job")
	listening := c.Owner(t, slot)
	replicated(t, listening)
	next := behindNode(t, waiter, waiter.Mutex("job"))
	c.Failover(t, slot, listening, replicaOf(t, c, listening))
	c.Remove(t, listening)
	free(t, l)
	free(t, granted(t, next))
}
