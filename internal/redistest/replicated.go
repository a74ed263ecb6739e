package redistest

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

// Replicated is a primary with replicas, without failover.
type Replicated struct {
	Primary  *Server
	Replicas []*Server
}

// StartReplicated starts a primary and replicas, and waits until all replicas are in sync, so that WAIT counts them.
// They end with the test. The options apply to all servers.
func StartReplicated(tb testing.TB, replicas int, opts ...Option) *Replicated {
	tb.Helper()
	cfg := newConfig(opts)
	primary := startServers(tb, cfg)[0]
	return &Replicated{Primary: primary, Replicas: startReplicas(tb, primary, replicas)}
}

func startReplicas(tb testing.TB, primary *Server, n int) []*Server {
	tb.Helper()
	configs := make([]config, n)
	for i := range configs {
		configs[i] = primary.cfg.with(WithConfig("replicaof", "127.0.0.1", fmt.Sprint(primary.port)))
	}
	replicas := startServers(tb, configs...)
	awaitOnline(tb, primary, n)
	awaitLoaded(tb, replicas)
	return replicas
}

// awaitLoaded waits until the replicas report that they have loaded their copy. Valkey 9 loads it a second after the
// primary has sent it.
func awaitLoaded(tb testing.TB, replicas []*Server) {
	tb.Helper()
	await(tb, "copies of the primary", replicas, func(ctx context.Context, s *Server) error {
		info, err := s.info(ctx, "replication")
		if err != nil {
			return err
		}
		return linkUp(info)
	})
}

// linkUp returns nil if INFO replication of a replica says that it has its copy and follows its primary.
func linkUp(info map[string]string) error {
	if status := info["master_link_status"]; status != "up" {
		return fmt.Errorf("it is not in sync with its primary: its link is %s", status)
	}
	return nil
}

// awaitOnline waits until the primary has n replicas that have their copy and
// follow its stream.
func awaitOnline(tb testing.TB, primary *Server, n int) {
	tb.Helper()
	await(tb, "replicas in sync", []*Server{primary}, func(ctx context.Context, s *Server) error {
		info, err := s.info(ctx, "replication")
		if err != nil {
			return err
		}
		online := 0
		for name, field := range info {
			if strings.HasPrefix(name, "slave") && strings.Contains(field, "state=online") {
				online++
			}
		}
		if online < n {
			return fmt.Errorf("%d of %d replicas are in sync", online, n)
		}
		return nil
	})
}

// Universal returns the options of a client of the primary.
func (r *Replicated) Universal() *redis.UniversalOptions { return r.Primary.Universal() }
