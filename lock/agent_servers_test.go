package lock_test

import (
	"context"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/lock/agent"
	"github.com/lockdog/lockdog/telemetry"
)

// serveAgent makes an agent serve until the test ends.
func serveAgent(t testing.TB, a *agent.Agent, l net.Listener) {
	t.Helper()
	served := make(chan error, 1)
	go func() { served <- a.Serve(l) }()
	t.Cleanup(func() {
		must(t, "closing the agent", a.Close(context.Background()))
		must(t, "serving", <-served)
	})
}

// openWithAgent returns a client whose renewals an agent makes, with a client of Redis for each. It waits for the first renewal of a lease.
func openWithAgent(t *testing.T, open func() redis.UniversalClient, name string, opts ...lock.Option) (held *lock.Lease, byAgent func() float64) {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "s")
	tel := newScope(t)
	a, err := agent.New(open(), agent.Config{TracerProvider: tel.tracer, MeterProvider: tel.meter, Logger: tel.log})
	must(t, "agent.New", err)
	l, err := agent.Listen(socket, 0o600)
	must(t, "agent.Listen", err)
	serveAgent(t, a, l)
	s := newScope(t)
	held = try(t, s.open(t, open(), append(opts, lock.WithAgent(socket))...).Mutex(name))
	byAgent = func() float64 { return s.sum(t, telemetry.MetricAgentRequests, "lockdog.outcome=ok") }
	eventually(t, patience, func() bool { return byAgent() > 0 })
	return held, byAgent
}

// TestAgentAtAStalePrimary is TestStalePrimary for leases that an agent renews.
func TestAgentAtAStalePrimary(t *testing.T) {
	t.Parallel()
	const lease = 15 * time.Second
	servers := redistest.StartSentinel(t, 1)
	old := servers.Primary(t)
	awaitReplica(t, old)
	open := func() redis.UniversalClient { return redistest.Open(t, servers.Universal()) }
	l, _ := openWithAgent(t, open, "job", lock.WithLease(lease))
	replicated(t, old)
	servers.CutOff(t, old)
	old.Pause(t)
	now := servers.AwaitFailover(t, old)
	old.Resume(t)
	switched := time.Now()
	renewedPast(t, l, switched.Add(lease))
	must(t, "the lease", l.Err())
	end, elected := l.Deadline(), now.Client(t)
	if has, err := elected.HExists(t.Context(), "job", l.Owner()).Result(); err != nil || !has {
		t.Errorf("the new primary doesn't have the owner %q: %v", l.Owner(), err)
	}
	if left := elected.PTTL(t.Context(), "job").Val(); time.Now().Add(left).Before(end) {
		t.Errorf("the new primary has the lock for another %v, its holder for %v", left, time.Until(end))
	}
	free(t, l)
}

// TestAgentInACluster: an agent renews in a Cluster, also after another node has taken over.
func TestAgentInACluster(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 1)
	const name = "{failing}:lock"
	slot := c.Slot(t, name)
	old := c.Owner(t, slot)
	l, byAgent := openWithAgent(t, func() redis.UniversalClient { return openCluster(t, c) }, name, lock.WithLease(6*time.Second))
	awaitReplica(t, old)
	replica := replicaOf(t, c, old)
	c.Failover(t, slot, old, replica)
	renewedPast(t, l, l.Deadline())
	before := byAgent()
	eventually(t, 4*patience, func() bool { return l.Err() != nil || byAgent() > before })
	must(t, "the lease", l.Err())
	if has := replica.Client(t).HExists(t.Context(), name, l.Owner()).Val(); !has {
		t.Errorf("the new node doesn't have the owner %q", l.Owner())
	}
	free(t, l)
}
