package lock_test

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/internal/hashslot"
	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/telemetry"
)

// namesOn returns n names of locks that live on a node.
func namesOn(t *testing.T, c *redistest.Cluster, node *redistest.Server, n int) []string {
	t.Helper()
	var names []string
	for i := 0; len(names) < n; i++ {
		if name := fmt.Sprint("job:", i); c.Owner(t, c.Slot(t, name)) == node {
			names = append(names, name)
		}
	}
	return names
}

func openCluster(t *testing.T, c *redistest.Cluster) redis.UniversalClient {
	t.Helper()
	return redistest.Open(t, c.Universal())
}

// shardChannels are the sharded channels that a node has subscribers of.
func shardChannels(t *testing.T, s *redistest.Server) []string {
	t.Helper()
	channels, err := s.Client(t).PubSubShardChannels(t.Context(), "*").Result()
	if err != nil {
		t.Fatal(err)
	}
	return channels
}

// lockChannels are those on which all hear of a release.
func lockChannels(t *testing.T, s *redistest.Server) []string {
	t.Helper()
	return slices.DeleteFunc(shardChannels(t, s), regexp.MustCompile(`:\d{10}$`).MatchString)
}

// TestCluster takes turns on one cluster of three.
func TestCluster(t *testing.T) {
	t.Parallel()
	// One node's silence must not make the others refuse, two seconds later.
	c := redistest.StartCluster(t, 0, redistest.WithConfig("cluster-require-full-coverage", "no"))
	t.Run("the keys of a lock share its slot", func(t *testing.T) { keysShareASlot(t, c) })
	t.Run("a node's locks are renewed together", func(t *testing.T) { renewedTogether(t, c) })
	t.Run("slot by slot where that is refused", func(t *testing.T) { renewedSlotBySlot(t, c) })
	t.Run("renewed without asking for the layout", func(t *testing.T) { renewedWithoutAsking(t, c) })
	t.Run("a lock is released on the way", func(t *testing.T) { releasedOnTheWay(t, c) })
	t.Run("its waiter fell asleep before the way", func(t *testing.T) { asleepBeforeTheWay(t, c) })
	t.Run("subscriptions follow their slot", func(t *testing.T) { slotMoveIsNoNews(t, c) })
	t.Run("a waiter is granted the lock by a message", func(t *testing.T) { grantedByMessage(t, c) })
	t.Run("losses are told at every node", func(t *testing.T) { toldAtEveryNode(t, c) })
	t.Run("a silent node is alone", func(t *testing.T) { silentNodeIsAlone(t, c) })
}

func keysShareASlot(t *testing.T, c *redistest.Cluster) {
	rdb := openCluster(t, c)
	for i, prefix := range []string{"", "app:", "{app}:", "p{q}r"} {
		for j, name := range []string{"a", "orders:42", "{user7}:mail", "x{y}z{w}", "b{c}"} {
			s := newScope(t)
			holder := s.open(t, rdb, lock.WithKeyPrefix(prefix), lock.WithLease(far))
			waiter := s.open(t, rdb, lock.WithKeyPrefix(prefix), lock.WithWaitGraph(0)) // whose keys come when a wait is long
			m := holder.Mutex(name)
			l := try(t, m)
			next := begin(t.Context(), waiter.Mutex(name))
			slot := c.Slot(t, prefix+name)
			node := c.Owner(t, slot)
			var channels []string
			eventually(t, patience, func() bool {
				channels = shardChannels(t, node)
				return len(channels) == 2 // of all who wait, and of the one client
			})
			for _, channel := range channels {
				if got := c.Slot(t, channel); got != slot {
					t.Errorf("%d.%d: the channel %s is in slot %d, the lock in %d", i, j, channel, got, slot)
				}
			}
			// The lock, its counter and who waits are all that the slot has, and no other slot has anything.
			var keys []string
			eventually(t, patience, func() bool {
				keys = node.Client(t).ClusterGetKeysInSlot(t.Context(), slot, 10).Val()
				return len(keys) == 3
			})
			if !slices.Contains(keys, prefix+name) {
				t.Errorf("%d.%d: the slot has %q", i, j, keys)
			}
			total := int64(0)
			for _, n := range c.Nodes {
				total += n.Client(t).DBSize(t.Context()).Val()
			}
			if total != 3 {
				t.Errorf("%d.%d: the cluster has %d keys", i, j, total)
			}
			free(t, l)
			free(t, granted(t, next))
			for _, k := range keys {
				if err := rdb.Del(t.Context(), k).Err(); err != nil {
					t.Error(err)
				}
			}
			closeSoon(waiter)
		}
	}
}

// The connections for renewals have the layout that the program's have: to ask for it again, one node after the other, may take
// longer than a lease when one is silent.
func renewedWithoutAsking(t *testing.T, c *redistest.Cluster) {
	asked := func() (n int64) {
		for _, node := range c.Nodes {
			sent := node.Commands(t)
			n += sent["cluster|slots"] + sent["cluster|shards"] + sent["command"]
		}
		return n
	}
	for range 5 {
		s := newScope(t)
		client := s.open(t, openCluster(t, c), lock.WithLease(12*time.Second))
		l := try(t, client.Mutex("job"))
		before := asked()
		if before == 0 {
			t.Error("the program's client hasn't asked, or that isn't seen")
		}
		eventually(t, patience, func() bool { return s.sum(t, telemetry.MetricRenewals, "lockdog.outcome=renewed") >= 1 })
		n, failed := asked()-before, s.series(t, telemetry.MetricErrors)
		free(t, l)
		if len(failed) == 0 {
			if n != 0 {
				t.Errorf("renewals asked for the layout or for the commands %d times", n)
			}
			return
		}
		t.Log("once more, for a call that failed is a reason to ask:", failed)
	}
	t.Error("calls failed in every try")
}

// A waiter is granted the lock by a message, as at a single server, and asks no more.
func grantedByMessage(t *testing.T, cluster *redistest.Cluster) {
	h, s := newScope(t).open(t, openCluster(t, cluster)), newScope(t)
	for { // one release of many wakes all instead, and so does one of a client that was slow
		c := s.open(t, openCluster(t, cluster))
		held := try(t, h.Mutex("job"))
		waiter := begin(t.Context(), c.Mutex("job"))
		asleep(t, c, 1)
		asked := s.sent(t, telemetry.PurposeAcquire)
		free(t, held)
		free(t, granted(t, waiter))
		if s.sent(t, telemetry.PurposeAcquire) == asked {
			return
		}
	}
}

// many takes n locks, spread over the slots.
func many(t *testing.T, c *lock.Client, n int) []*lock.Lease {
	t.Helper()
	leases := make([]*lock.Lease, n)
	var all sync.WaitGroup
	for w := range 8 {
		all.Go(func() {
			for i := w; i < n; i += 8 {
				l, err := c.Mutex(fmt.Sprint("many:", i)).TryLock(context.Background())
				if err != nil {
					t.Errorf("%d: %v", i, err)
					return
				}
				leases[i] = l
			}
		})
	}
	all.Wait()
	if t.Failed() {
		t.FailNow()
	}
	return leases
}

func mustAllLive(t *testing.T, leases []*lock.Lease) {
	t.Helper()
	for _, l := range leases {
		if err := l.Err(); err != nil {
			t.Errorf("%s: %v", l.Name(), err)
		}
	}
}

func freeAll(t *testing.T, leases []*lock.Lease) {
	t.Helper()
	for _, l := range leases {
		if err := l.Release(context.Background()); err != nil {
			t.Errorf("%s: %v", l.Name(), err)
		}
	}
}

func renewedTogether(t *testing.T, c *redistest.Cluster) {
	const locks, nodes, batch, lease = 600, 3, 256, 12 * time.Second
	s := newScope(t)
	client := s.open(t, openCluster(t, c), lock.WithLease(lease))
	leases := many(t, client, locks)
	sent := func() int { return s.sent(t, telemetry.PurposeRenew) }
	start, before := time.Now(), sent()
	renewedAll(t, "many", lease, leases)
	calls := sent() - before
	intervals := float64(time.Since(start)) / float64(lease/3)
	// The first renewals may be of cohorts yet to be filled.
	if most := float64((locks+batch-1)/batch+nodes) * (intervals + 2); float64(calls) > most || calls == 0 {
		t.Errorf("%d calls in %.1f intervals; at most %.0f are needed", calls, intervals, most)
	}
	t.Logf("%d locks on %d nodes: %.1f calls per interval", locks, nodes, float64(calls)/intervals)
	freeAll(t, leases)
}

// pass lets time pass.
func pass(t *testing.T, d time.Duration) {
	t.Helper()
	always(t, d, func() bool { return true })
}

// oneSlot is a proxy before a cluster that wants all locks of a renewal in one slot, though they are in ARGV.
type oneSlot struct {
	redistest.Hook
	refused, calls, trips atomic.Int64
}

type crossSlot struct{}

func (crossSlot) Error() string { return "CROSSSLOT Keys in request don't hash to the same slot" }
func (crossSlot) RedisError()   {}

func (h *oneSlot) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if strings.HasPrefix(cmd.Name(), "eval") && len(renewedSlots(cmd.Args())) > 1 {
			h.refused.Add(1)
			cmd.SetErr(crossSlot{})
			return crossSlot{}
		}
		return next(ctx, cmd)
	}
}

// renewedSlots returns the slots of the locks that a call of renew.lua renews.
func renewedSlots(args []any) map[int]bool {
	number := func(at int) (n int) {
		_, _ = fmt.Sscan(fmt.Sprint(args[at]), &n)
		return n
	}
	slots := make(map[int]bool)
	for at := 3 + number(2) + 1; at+3 < len(args); at += 3 + 2*number(at+2) { // after the not-after: the sections
		for i := range number(at + 2) {
			slots[hashslot.Of(fmt.Sprint(args[at+3+2*i]))] = true
		}
	}
	return slots
}

func (h *oneSlot) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		h.trips.Add(1)
		h.calls.Add(int64(len(cmds)))
		return next(ctx, cmds)
	}
}

func renewedSlotBySlot(t *testing.T, c *redistest.Cluster) {
	const locks, lease = 60, 12 * time.Second
	picky := redistest.Open(t, c.Universal())
	hook := &oneSlot{}
	picky.(*redis.ClusterClient).OnNewNode(func(node *redis.Client) { node.AddHook(hook) })
	s := newScope(t)
	client := s.open(t, openCluster(t, c), lock.WithLease(lease), lock.WithRenewalClient(picky))
	start := time.Now()
	leases := many(t, client, locks)
	renewedAll(t, "slot by slot", lease, leases)
	// Intervals of which some are under way; a trip goes to one node.
	intervals := int64(time.Since(start)/(lease/3)) + 2
	refused, calls, trips := hook.refused.Load(), hook.calls.Load(), hook.trips.Load()
	t.Logf("%d refused, then %d calls in %d trips", refused, calls, trips)
	if refused == 0 || refused > 12 || calls < locks || calls > intervals*locks {
		t.Errorf("%d calls were refused, then %d made, for %d locks in %d intervals", refused, calls, locks, intervals)
	}
	if trips > intervals*3*3 {
		t.Errorf("%d trips: the calls of a node don't go together", trips)
	}
	if n := s.sum(t, telemetry.MetricErrors, "error.type=clusterdown"); n != 0 { // a refusal counts as no error
		t.Errorf("%v calls failed: %v", n, errorsOf(t, s))
	}
	freeAll(t, leases)
}
