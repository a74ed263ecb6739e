package lock_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock"
)

// TestRingLosesAShard shows what a Ring can't promise: its servers know nothing of each other, so a shard that leaves takes its
// locks along. Their holders are told soon; until then somebody else may get such a lock from another shard. The
// locks of the other shards don't notice.
func TestRingLosesAShard(t *testing.T) {
	t.Parallel()
	const lease, locks = 10 * time.Second, 60
	addrs := make(map[string]string)
	var last *redistest.Server
	for i := range 3 {
		last = redistest.Start(t)
		addrs[fmt.Sprint("shard", i)] = last.Addr()
	}
	two := maps.Clone(addrs)
	delete(two, "shard2")

	ring := openRing(t, &redis.RingOptions{Addrs: addrs})
	holder := newScope(t).open(t, ring, lock.WithLease(lease))
	leases := many(t, holder, locks)
	var leaving, staying []*lock.Lease
	for _, l := range leases {
		if shardOf(t, ring, l) == addrs["shard2"] {
			leaving = append(leaving, l)
		} else {
			staying = append(staying, l)
		}
	}
	renewedAll(t, "all are there", lease, leases)

	other := newScope(t).open(t, openRing(t, &redis.RingOptions{Addrs: two}), lock.WithLease(lease))
	stolen := try(t, other.Mutex(leaving[0].Name())) // held twice: this is the limit
	ring.SetAddrs(two)
	mustBeLost(t, leaving[0], lock.CauseTaken)
	for _, l := range leaving[1:] {
		mustBeLost(t, l, lock.CauseMissing)
	}
	between := try(t, holder.Mutex(leaving[1].Name())) // lives on another shard now
	if between.Token() <= leaving[1].Token() || stolen.Token() <= leaving[0].Token() {
		t.Errorf("tokens %d after %d, %d after %d", between.Token(), leaving[1].Token(), stolen.Token(), leaving[0].Token())
	}
	renewedAll(t, "a shard has left", lease, append(staying, between, stolen))

	must(t, "FLUSHALL", last.Client(t).FlushAll(t.Context()).Err())
	ring.SetAddrs(addrs) // the same again, for what was taken meanwhile
	mustBeLost(t, between, lock.CauseMissing)
	renewedAll(t, "it is back", lease, append(staying, stolen))
	freeAll(t, append(staying, stolen))
}

// shardOf is the address of the server that has a lock.
func shardOf(t *testing.T, ring *redis.Ring, l *lock.Lease) string {
	t.Helper()
	shard, err := ring.GetShardClientForKey(l.Name())
	must(t, "the shard", err)
	return shard.Options().Addr
}

// TestRingGrows adds a shard: what is taken on it is kept. Then it leaves right after a lock on it was taken, with a lease of which the first renewal
// is far away: that is told at once.
func TestRingGrows(t *testing.T) {
	t.Parallel()
	const lease = 12 * time.Second
	one := map[string]string{"shard0": redistest.Start(t).Addr()}
	two := map[string]string{"shard0": one["shard0"], "shard1": redistest.Start(t).Addr()}
	ring := openRing(t, &redis.RingOptions{Addrs: one})
	client := newScope(t).open(t, ring, lock.WithLease(lease))
	first := try(t, client.Mutex("first")) // the connections for renewals come with the first of them
	renewedPast(t, first, first.Deadline())
	free(t, first)
	ring.SetAddrs(two)
	leases := many(t, client, 20)
	renewedAll(t, "it has grown", lease, leases)
	freeAll(t, leases)

	leases = many(t, newScope(t).open(t, ring, lock.WithLease(far)), 20)
	leaving := slices.IndexFunc(leases, func(l *lock.Lease) bool { return shardOf(t, ring, l) == two["shard1"] })
	ring.SetAddrs(one)
	mustBeLost(t, leases[leaving], lock.CauseMissing)
}
