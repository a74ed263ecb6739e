package lock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/telemetry"
)

// What a cluster does to locks while it changes.

// otherNode is a primary that doesn't have the slot.
func otherNode(t *testing.T, c *redistest.Cluster, slot int) *redistest.Server {
	t.Helper()
	owner := c.Owner(t, slot)
	return c.Nodes[(slices.Index(c.Nodes, owner)+1)%3]
}

// A slot that moves under its waiters is ordinary: their subscriptions follow, and the log has nothing to say.
func slotMoveIsNoNews(t *testing.T, c *redistest.Cluster) {
	const names = 20
	holder := newScope(t).open(t, openCluster(t, c), lock.WithLease(far))
	s := newScope(t)
	waiter := s.open(t, openCluster(t, c), lock.WithLease(far))
	var held []*lock.Lease
	var next []<-chan taken
	for i := range names {
		name := fmt.Sprintf("{moving}%d", i)
		held = append(held, try(t, holder.Mutex(name)))
		next = append(next, begin(context.Background(), waiter.Mutex(name)))
	}
	asleep(t, waiter, names)
	slot := c.Slot(t, "{moving}")
	for range 3 {
		from, to := c.Owner(t, slot), otherNode(t, c, slot)
		c.Migrate(t, slot, to).Finish(t)
		eventually(t, patience, func() bool { return len(lockChannels(t, to)) == names && len(lockChannels(t, from)) == 0 })
		asleep(t, waiter, names)
	}
	for i := range names {
		free(t, mustWake(t, "after the moves", held[i], next[i]))
	}
	eventually(t, patience, func() bool { return len(lockChannels(t, c.Owner(t, slot))) == 0 })
	if got := append(s.records(t, subscriptionRefused), s.records(t, subscriptionTaken)...); len(got) != 0 {
		t.Errorf("%d log records: %v", len(got), got[0])
	}
}

func silentNodeIsAlone(t *testing.T, c *redistest.Cluster) {
	const lease, answer = 12 * time.Second, 4 * patience // the last is what a call to the silent node takes
	// A client that has seen a node hang must not be slow with the others.
	o := c.Universal()
	o.ReadTimeout = answer
	client := newScope(t).open(t, redistest.Open(t, o), lock.WithLease(lease))
	sick := c.Nodes[1]
	silent := namesOn(t, c, sick, 80)
	fine := slices.Concat(namesOn(t, c, c.Nodes[0], 3), namesOn(t, c, c.Nodes[2], 3))
	lost := granted(t, begin(t.Context(), client.Mutex(silent[0], lock.WithLease(2*time.Second)))) // TryLock would wait for a third of that
	var kept []*lock.Lease
	for _, name := range fine {
		kept = append(kept, try(t, client.Mutex("kept{"+name+"}")))
		free(t, try(t, client.Mutex(name)))
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	sick.Pause(t)
	paused := time.Now()
	var stuck sync.WaitGroup
	for _, name := range silent[1:] { // more than it has workers
		stuck.Go(func() {
			if l, err := client.Mutex(name).Lock(ctx); err == nil {
				t.Errorf("%s was taken: %v", l.Name(), l.Release(context.Background()))
			}
		})
	}
	await(t, "the lease of the silent node", lost.Ended())
	mustMatch(t, lost.Err(), lock.ErrLost) // or, if we stood still, as stalled
	for range 10 {
		for _, name := range fine {
			l := granted(t, begin(context.Background(), client.Mutex(name)))
			next := begin(context.Background(), client.Mutex(name))
			free(t, l)
			free(t, granted(t, next))
		}
	}
	for _, l := range kept {
		renewedPast(t, l, paused.Add(lease))
	}
	mustAllLive(t, kept)
	cancel()
	stuck.Wait()
	sick.Resume(t)
	freeAll(t, kept)
	free(t, granted(t, begin(context.Background(), client.Mutex(silent[0]))))
}

// TestClusterFailover loses a primary with its locks held and awaited.
func TestClusterFailover(t *testing.T) {
	t.Parallel()
	const lease = 30 * time.Second // the cluster takes three seconds or four, or a second vote
	c := redistest.StartCluster(t, 1)
	s := newScope(t)
	holder := s.open(t, openCluster(t, c), lock.WithLease(lease))
	waiter := newScope(t).open(t, openCluster(t, c), lock.WithLease(lease))
	const name = "{failing}:lock"
	slot := c.Slot(t, name)
	old := c.Owner(t, slot)
	awaitWaiter := func(opts ...lock.LockOption) (*lock.Lease, <-chan taken) {
		l := try(t, holder.Mutex(name, opts...))
		next := begin(context.Background(), waiter.Mutex(name))
		eventually(t, patience, func() bool { return len(lockChannels(t, c.Owner(t, slot))) == 1 })
		replicated(t, c.Owner(t, slot))
		return l, next
	}

	// Asked to step down, it hands everything on. Who listens to it hears what its successor publishes, once that knows it as its replica.
	l, next := awaitWaiter(lock.WithLease(far))
	brief := try(t, holder.Mutex(name+"brief", lock.WithLease(12*time.Second)))
	replicated(t, old)
	replica := replicaOf(t, c, old)
	c.Failover(t, slot, old, replica)
	renewedPast(t, brief, brief.Deadline())
	free(t, brief)
	elected := replica.Client(t)
	eventually(t, patience, func() bool {
		for line := range strings.Lines(elected.ClusterNodes(t.Context()).Val()) {
			if strings.Contains(line, fmt.Sprintf(":%d@", old.Port())) && strings.Contains(line, "slave") {
				return true
			}
		}
		return false
	})
	free(t, l)
	free(t, granted(t, next))
	awaitReplica(t, replica)
	l, next = awaitWaiter()

	// Killed, it leaves its locks behind on the replica.
	before := l.Deadline()
	replicated(t, replica)
	replica.Kill(t)
	began := time.Now()
	if now := c.AwaitFailover(t, slot, replica); now != old {
		t.Fatalf("slot %d is served by %d", slot, now.Port())
	}
	took := time.Since(began)
	eventually(t, 2*patience, func() bool {
		haveLook(t, old.Client(t), l.Owner()) // rather than when a third of the lease has passed
		return l.Deadline().After(before) || l.Err() != nil
	})
	if err := l.Err(); err != nil {
		t.Fatalf("the lease ended: %v", err)
	}
	renewed := time.Since(began)
	h, err := holder.Mutex(name).Inspect(t.Context())
	if err != nil || h.Owner != l.Owner() || h.Token != l.Token() {
		t.Errorf("%+v, %v; held by %q with token %d", h, err, l.Owner(), l.Token())
	}
	eventually(t, patience, func() bool { return len(lockChannels(t, old)) == 1 })
	free(t, l)
	got := granted(t, next)
	if got.Token() <= l.Token() {
		t.Errorf("token %d after %d", got.Token(), l.Token())
	}
	free(t, got)
	t.Logf("elected %v, renewed %v after the kill; errors: %v", took.Round(time.Millisecond), renewed.Round(time.Millisecond), errorsOf(t, s))
}

// replicated waits until a replica has all that the server wrote.
func replicated(t *testing.T, s *redistest.Server) {
	t.Helper()
	conn := s.Client(t).Conn()
	defer func() { _ = conn.Close() }()
	// WAIT counts the writes of its own connection, and a replica that has those has what was before.
	err := conn.Publish(t.Context(), "mark", "").Err()
	n, waitErr := conn.Wait(t.Context(), 1, stretched(patience)).Result()
	if err := errors.Join(err, waitErr); err != nil || n < 1 {
		t.Fatalf("%d replicas, %v", n, err)
	}
}

func replicaOf(t *testing.T, c *redistest.Cluster, primary *redistest.Server) *redistest.Server {
	t.Helper()
	var found *redistest.Server
	for _, s := range c.Nodes {
		info := s.Info(t, "replication")
		if info["role"] == "slave" && info["master_port"] == primary.Addr()[len("127.0.0.1:"):] {
			found = s
		}
	}
	if found == nil {
		t.Fatalf("%d has no replica", primary.Port())
	}
	return found
}

// awaitReplica waits until a primary has a replica in sync.
func awaitReplica(t *testing.T, s *redistest.Server) {
	t.Helper()
	eventually(t, patience, func() bool {
		info := s.Info(t, "replication")
		return info["role"] == "master" && info["slave0"] != "" && strings.Contains(info["slave0"], "state=online")
	})
}

// errorsOf is what a client's lockdog.errors says, by operation and type.
func errorsOf(t *testing.T, s *scope) map[string]float64 {
	t.Helper()
	return s.series(t, telemetry.MetricErrors)
}

// releasedOnTheWay releases a lock in each stage of its slot's move. A slot that moves accepts no new keys, so the lock
// isn't handed over, and the release wakes the waiter.
func releasedOnTheWay(t *testing.T, c *redistest.Cluster) {
	client := newScope(t).open(t, openCluster(t, c), lock.WithLease(far))
	const name = "{underway}:lock"
	slot := c.Slot(t, name)
	l := try(t, client.Mutex(name))
	m := c.Migrate(t, slot, otherNode(t, c, slot))
	for stage, move := range []func(){func() {}, func() { m.MoveKeys(t, name) }, func() { m.MoveKeys(t) }, func() { m.Finish(t) }} {
		move()
		next := begin(context.Background(), client.Mutex(name))
		waiting(t, client, 1)
		free(t, l)
		got := await(t, fmt.Sprint("stage ", stage), next)
		if l = got.Lease; got.err != nil {
			t.Fatalf("stage %d: %v", stage, got.err)
		}
	}
	free(t, l)
}

// asleepBeforeTheWay has a waiter subscribe before its slot begins to move. The release may then be published at
// another node.
func asleepBeforeTheWay(t *testing.T, c *redistest.Cluster) {
	for _, name := range []string{"{only its key}:lock", "{all its keys}:lock"} {
		t.Run(name, func(t *testing.T) {
			holder := newScope(t).open(t, openCluster(t, c), lock.WithLease(far))
			waiter := newScope(t).open(t, openCluster(t, c), lock.WithLease(far))
			slot := c.Slot(t, name)
			l := try(t, holder.Mutex(name))
			next := begin(context.Background(), waiter.Mutex(name))
			asleep(t, waiter, 1)
			m := c.Migrate(t, slot, otherNode(t, c, slot))
			if name == "{only its key}:lock" {
				m.MoveKeys(t, name)
			} else {
				m.MoveKeys(t)
			}
			free(t, l)
			l = granted(t, next)
			next = begin(context.Background(), holder.Mutex(name))
			waiting(t, holder, 1)
			m.Finish(t)
			free(t, l)
			free(t, granted(t, next))
		})
	}
}
