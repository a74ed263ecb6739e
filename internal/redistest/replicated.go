package redistest

import (
	"slices"
	"strconv"
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
	r := &Replicated{Primary: Start(tb, opts...)}
	replica := r.Primary.cfg.with(WithConfig("replicaof", "127.0.0.1", strconv.Itoa(r.Primary.port)))
	r.Replicas = startServers(tb, slices.Repeat([]config{replica}, replicas)...)
	must(tb, awaitReply([]*Server{r.Primary}, map[string]int{"state=online": replicas}, "INFO", "replication"))
	must(tb, awaitLinks(r.Replicas))
	return r
}

// awaitLinks waits until replicas report that they have loaded their copy and follow their primary. Valkey 9 loads it a
// second after the primary has sent it.
func awaitLinks(replicas []*Server) error {
	return awaitReply(replicas, map[string]int{"master_link_status:up": 1}, "INFO", "replication")
}

// Universal returns the options of a client of the primary.
func (r *Replicated) Universal() *redis.UniversalOptions { return r.Primary.Universal() }
