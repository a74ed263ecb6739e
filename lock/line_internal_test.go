package lock

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock/internal/backend"
)

// The control channel of a cluster's client is listened to at any primary. When that leaves the cluster, another one is found the next time
// that the line looks.
func TestControlChannelLeavesWithNoNode(t *testing.T) {
	t.Parallel()
	cl := redistest.StartCluster(t, 1)
	j := &jam{t: t}
	c := openFor(t, redistest.Open(t, cl.Universal()).(*redis.ClusterClient))
	l, err := c.Mutex("job", WithWatchdog(10*time.Minute)).TryLock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ear := func() *redistest.Server {
		i := slices.IndexFunc(cl.Nodes, func(s *redistest.Server) bool {
			return len(s.Client(t).PubSubChannels(t.Context(), controlPrefix+"*").Val()) == 1
		})
		if i < 0 {
			return nil
		}
		return cl.Nodes[i]
	}
	j.eventually(func() bool { return ear() != nil })
	old := ear()
	slot := 0
	for cl.Owner(t, slot) != old {
		slot += 1000
	}
	heir := slices.IndexFunc(cl.Nodes, func(s *redistest.Server) bool {
		info := s.Info(t, "replication")
		return info["role"] == "slave" && strings.HasSuffix(old.Addr(), ":"+info["master_port"])
	})
	cl.Failover(t, slot, old, cl.Nodes[heir])
	cl.Remove(t, old)

	c.hub.mu.Lock()
	ln := c.hub.lines[backend.Station{Bus: true}]
	c.hub.mu.Unlock()
	j.eventually(func() bool { // it looks by itself every 30 s
		ln.doubt()
		now := ear()
		return now != nil && now != old && ln.settled()
	})
	other := openFor(t, redistest.Open(t, cl.Universal()).(*redis.ClusterClient))
	if ok, err := other.Mutex("job").ForceUnlock(t.Context()); !ok || err != nil {
		t.Fatalf("ForceUnlock: %v, %v", ok, err)
	}
	select {
	case <-l.Done():
	case <-time.After(15 * time.Second):
		t.Error("the holder hasn't heard that its lock was taken away")
	}
}

// settled reports whether the line listens, and isn't about to leave its connection.
func (ln *line) settled() bool {
	ln.mu.Lock()
	defer ln.mu.Unlock()
	return ln.alive && !ln.checking && !ln.checked.IsZero()
}
