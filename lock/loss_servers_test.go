package lock_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/telemetry"
)

// toldAtEveryNode has locks of every node of a cluster deleted, and one whose slot has moved.
func toldAtEveryNode(t *testing.T, c *redistest.Cluster) {
	client := newScope(t).open(t, openCluster(t, c), lock.WithLossNotifications(), lock.WithLease(far))
	leases := make(map[*redistest.Server][]*lock.Lease)
	for _, node := range c.Nodes {
		for _, name := range namesOn(t, c, node, 2) {
			leases[node] = append(leases[node], try(t, client.Mutex("{"+name+"}told")))
		}
	}
	for _, node := range c.Nodes {
		transact(t, node.Client(t), "DEL KEY", leases[node][0].Name())
		mustBeLost(t, leases[node][0], lock.CauseMissing)
	}
	for _, node := range c.Nodes {
		mustAllLive(t, leases[node][1:])
	}

	from := c.Nodes[0]
	moving := leases[from][1]
	slot := c.Slot(t, moving.Name())
	to := otherNode(t, c, slot)
	looks := to.Commands(t)["hmget"]
	m := c.Migrate(t, slot, to)
	keys, err := from.Client(t).ClusterGetKeysInSlot(t.Context(), slot, 100).Result()
	must(t, "CLUSTER GETKEYSINSLOT", err)
	m.MoveKeys(t, keys...)
	m.Finish(t)
	eventually(t, patience, func() bool { return to.Commands(t)["hmget"] > looks })
	mustAllLive(t, []*lock.Lease{moving})
	transact(t, to.Client(t), "DEL KEY", moving.Name())
	mustBeLost(t, moving, lock.CauseMissing)
	for _, node := range c.Nodes[1:] {
		freeAll(t, leases[node][1:])
	}
}

// Each shard of a Ring tells of its locks, and each node of a Quorum of its member.
func TestLossNotificationsOfServersApart(t *testing.T) {
	t.Parallel()
	servers := []*redistest.Server{redistest.Start(t), redistest.Start(t), redistest.Start(t)}
	addrs := make(map[string]string)
	var clients []*lock.Client
	seen := newScope(t)
	for i, s := range servers {
		addrs[fmt.Sprint(i)] = s.Addr()
		clients = append(clients, seen.open(t, s.Client(t), lock.WithLossNotifications(), lock.WithLease(far)))
	}
	ring := newScope(t).open(t, openRing(t, &redis.RingOptions{Addrs: addrs}), lock.WithLossNotifications(), lock.WithLease(far))
	q, err := lock.NewQuorum(clients...)
	must(t, "NewQuorum", err)

	var member *lock.Lease
	eventually(t, patience, func() bool { // a node that is late may be left out
		member = try(t, q.Mutex("quorum"))
		time.Sleep(10 * time.Millisecond) // it may join yet
		for _, c := range clients {
			if at := c.Leases(); len(at) == 1 && at[0].Composite != nil && at[0].Composite.Held() == len(clients) {
				return true
			}
		}
		free(t, member)
		return false
	})
	transact(t, servers[0].Client(t), "DEL KEY", "quorum")
	eventually(t, patience, func() bool { return len(seen.records(t, telemetry.LogMember)) == 1 })
	if lost := seen.records(t, telemetry.LogMember); lost[0]["kind"] != "quorum" || lost[0]["node"] != servers[0].Addr() {
		t.Errorf("which node has lost it isn't told: %v", lost)
	}
	mustAllLive(t, []*lock.Lease{member}) // a majority is left
	transact(t, servers[1].Client(t), "DEL KEY", "quorum")
	await(t, "Quorum", member.Ended())
	leases := many(t, ring, 20)
	for _, s := range servers {
		must(t, "FLUSHALL", s.Client(t).FlushAll(t.Context()).Err())
	}
	for _, l := range leases {
		mustBeLost(t, l, lock.CauseMissing)
	}
}

// What it costs, in commands: without the option none; with it almost none for who releases soon, and two for a grant that is
// kept and for each renewal. A fixed lease is never watched.
func TestLossNotificationsCost(t *testing.T) {
	t.Parallel()
	t.Run("without", func(t *testing.T) { t.Parallel(); lossCost(t, false) })
	t.Run("with", func(t *testing.T) { t.Parallel(); lossCost(t, true, lock.WithLossNotifications()) })
}

func lossCost(t *testing.T, on bool, opts ...lock.Option) {
	const pairs, locks, lease = 200, 40, 12 * time.Second
	server := redistest.Start(t)
	c := newScope(t).open(t, server.Client(t), append(opts, lock.WithLease(lease))...)
	began := time.Now()
	for range pairs {
		free(t, try(t, c.Mutex("pair")))
	}
	allowed := pairs/20 + int64(time.Since(began)/(20*time.Millisecond)) // there are so many looks, and one may come at any time
	soon := server.Commands(t)
	for i := range 3 * locks {
		try(t, c.Mutex(fmt.Sprint("fixed:", i), lock.WithFixedLease(far)))
	}
	began = time.Now()
	leases := many(t, c, locks)
	renewedAll(t, "all", lease, leases)
	all := server.Commands(t)
	most := locks * (2 + int64(time.Since(began)/(lease/3))) // renewals
	held := all.Since(soon)
	freeAll(t, leases)
	looks, renewals := held["hmget"], held["pexpireat"]
	early := soon["hmget"] - pairs // a release has one, too
	switch {
	case !on && (early != 0 || looks != 0 || all["client|tracking"] > 0 || all["client|id"] > 0):
		t.Errorf("without the option: %v", all)
	case on && (early > allowed || held["pttl"] != looks || looks < renewals/2 || looks > renewals+2*locks || renewals < locks || renewals > most):
		t.Errorf("%d looks for %d pairs; %d, and %d PTTL, for %d locks and %d renewals", early, pairs, looks, held["pttl"], locks, renewals)
	case on:
		t.Logf("%d looks for %d pairs; %d for %d locks and %d renewals", early, pairs, looks, locks, renewals)
	}
}
