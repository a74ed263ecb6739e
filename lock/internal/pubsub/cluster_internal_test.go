package pubsub

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock/internal/backend"
	"github.com/lockdog/lockdog/telemetry"
)

// heard passes on the messages of a channel.
type heard chan string

func (heard) Up()                      {}
func (heard) Down()                    {}
func (h heard) Message(payload string) { h <- payload }

// The control channel of a cluster's client is listened to at any primary. When that leaves the cluster, another one is found the next time
// that the subscriber checks.
func TestControlChannelLeavesWithNoNode(t *testing.T) {
	t.Parallel()
	cl := redistest.StartCluster(t, 1)
	b, err := backend.NewRedis(redistest.Open(t, cl.Universal()), nil)
	if err != nil {
		t.Fatal(err)
	}
	rec, err := telemetry.NewRecorder(telemetry.Config{State: func() telemetry.State { return telemetry.State{} }})
	if err != nil {
		t.Fatal(err)
	}
	m := New(Config{
		Backend: b, Recorder: rec,
		Refused: func(string, error) {},
		Gone:    func(at backend.Endpoint) { t.Errorf("%v is gone", at) },
	})
	t.Cleanup(func() {
		m.Close()
		rec.Close()
		_ = b.Close()
	})
	at := b.Control("job")
	if at != (backend.Endpoint{Bus: true}) {
		t.Fatalf("the control channel is listened to at %+v", at)
	}
	got := make(heard, 10)
	m.Control(at, "control", got)

	listening := func() *redistest.Server {
		i := slices.IndexFunc(cl.Nodes, func(s *redistest.Server) bool {
			return len(s.Client(t).PubSubChannels(t.Context(), "control").Val()) == 1
		})
		if i < 0 {
			return nil
		}
		return cl.Nodes[i]
	}
	eventually := func(is func() bool) {
		t.Helper()
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for start := time.Now(); !is(); <-tick.C {
			if time.Since(start) > time.Minute {
				t.Fatal("not in a minute")
			}
		}
	}
	eventually(func() bool { return listening() != nil })
	old := listening()
	slot := 0
	for cl.Owner(t, slot) != old {
		slot += 1000
	}
	replica := slices.IndexFunc(cl.Nodes, func(s *redistest.Server) bool {
		info := s.Info(t, "replication")
		return info["role"] == "slave" && strings.HasSuffix(old.Addr(), ":"+info["master_port"])
	})
	cl.Failover(t, slot, old, cl.Nodes[replica])
	cl.Remove(t, old)

	eventually(func() bool { // it checks by itself every 30 s
		m.mu.Lock()
		conn := m.subscribers[at].conn
		m.mu.Unlock()
		if conn != nil {
			m.subscribers[at].check(conn, recheckInterval)
		}
		now := listening()
		return now != nil && now != old && settled(m, at)
	})
	for _, s := range cl.Nodes { // whichever node publishes
		if s == old {
			continue
		}
		if err := publish(t.Context(), s.Client(t), s.Addr()); err != nil {
			t.Fatal(err)
		}
		select {
		case payload := <-got:
			if payload != s.Addr() {
				t.Errorf("heard %q, want what %s has published", payload, s.Addr())
			}
		case <-time.After(time.Minute):
			t.Fatalf("what %s has published isn't heard", s.Addr())
		}
	}
}

func publish(ctx context.Context, rdb *redis.Client, payload string) error {
	return rdb.Publish(ctx, "control", payload).Err()
}

// settled reports whether the subscriber listens, and isn't about to leave its connection.
func settled(m *Mux, at backend.Endpoint) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	conn := m.subscribers[at].conn
	return conn != nil && conn.established && !conn.checking && !conn.checked.IsZero()
}
