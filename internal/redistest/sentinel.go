package redistest

import (
	"fmt"
	"strconv"
	"testing"

	"github.com/redis/go-redis/v9"
)

// SentinelName is the name of the watched primary at the Sentinels.
const SentinelName = "lockdog"

const sentinels = 3

// Sentinel is a primary, its replicas and three Sentinels that fail over when two of them agree.
type Sentinel struct {
	Servers   []*Server // the data servers; the first is the primary at the start
	Sentinels []*Server // may be paused, killed and restarted too; their commands aren't counted
}

// StartSentinel starts the servers and the Sentinels, and waits until every Sentinel knows all others and every
// replica. They end with the test. The options apply to the data servers. A primary that is only slow doesn't count as
// down: see [Sentinel.Notice].
func StartSentinel(tb testing.TB, replicas int, opts ...Option) *Sentinel {
	tb.Helper()
	r := StartReplicated(tb, replicas, opts...)
	password := r.Primary.cfg.adminPassword
	watch := config{sentinel: true, adminPassword: password}.with(
		WithConfig("sentinel", "monitor", SentinelName, "127.0.0.1", strconv.Itoa(r.Primary.port), "2"),
		WithConfig("sentinel", "auth-user", SentinelName, adminUser),
		WithConfig("sentinel", "auth-pass", SentinelName, password),
		WithConfig("sentinel", "down-after-milliseconds", SentinelName, calm),
		WithConfig("sentinel", "failover-timeout", SentinelName, "5000"),
	)
	s := &Sentinel{
		Servers:   append([]*Server{r.Primary}, r.Replicas...),
		Sentinels: startServers(tb, watch, watch, watch),
	}
	s.pace(tb, "200", "500", "200")
	complete := fmt.Sprintf("name=%s,status=ok,address=%s,slaves=%d,sentinels=%d\r\n",
		SentinelName, r.Primary.Addr(), replicas, sentinels)
	must(tb, awaitReply(s.Sentinels, map[string]int{complete: 1}, "INFO", "sentinel"))
	s.pace(tb, "1000", "1000", "2000")
	return s
}

// pace sets how often the Sentinels check and publish, in ms. By default they find each other and the replicas only
// after two to ten seconds. With short periods failovers fail: a Sentinel demotes a promoted replica again if it
// doesn't hear of the promotion within four publish periods, and promotes no replica that it hasn't seen for three
// check periods.
func (s *Sentinel) pace(tb testing.TB, info, ping, publish string) {
	tb.Helper()
	must(tb, awaitDo(s.Sentinels, "SENTINEL", "DEBUG",
		"INFO-PERIOD", info, "PING-PERIOD", ping, "PUBLISH-PERIOD", publish))
}

// Universal returns the options of a client that asks the Sentinels for the primary.
func (s *Sentinel) Universal() *redis.UniversalOptions {
	password := s.Servers[0].cfg.password
	return &redis.UniversalOptions{MasterName: SentinelName, Password: password, Addrs: addrsOf(s.Sentinels)}
}

// Primary waits until each running Sentinel names a primary that has the role, and returns the one that the last
// Sentinel names.
func (s *Sentinel) Primary(tb testing.TB) *Server {
	tb.Helper()
	return s.awaitPrimary(tb, nil, justWait)
}

// AwaitFailover waits until each running Sentinel names a primary other than old that has taken the role, and returns
// the one that the last Sentinel names. It doesn't start the failover: for that, kill or pause old, or call
// [Sentinel.Failover]. It calls Notice.
func (s *Sentinel) AwaitFailover(tb testing.TB, old *Server) *Server {
	tb.Helper()
	s.Notice(tb)
	return s.awaitPrimary(tb, old, justWait)
}

// Failover orders a failover while the primary is healthy, waits for it, and returns the new primary. The old one
// becomes a replica. On a busy machine Sentinels may give up a failover; then it is ordered again.
func (s *Sentinel) Failover(tb testing.TB) *Server {
	tb.Helper()
	return s.awaitPrimary(tb, s.Primary(tb), ordering(func() error {
		return s.Sentinels[0].do("SENTINEL", "FAILOVER", SentinelName).Err() // refused while a failover is running
	}))
}

// Notice makes the running Sentinels, from now on, take the primary for down when it is silent for two seconds. On a
// busy machine a healthy one may be silent for as long, so kill or pause it before calling Notice. Call Notice before a
// Sentinel is paused.
func (s *Sentinel) Notice(tb testing.TB) {
	tb.Helper()
	must(tb, awaitDo(s.Sentinels, "SENTINEL", "SET", SentinelName, "down-after-milliseconds", alert))
}

// CutOff prevents the Sentinels from demoting a server, as a partition between them would: they can monitor it, but not
// make it a replica.
func (s *Sentinel) CutOff(tb testing.TB, server *Server) {
	tb.Helper()
	must(tb, server.do("ACL", "SETUSER", adminUser, "-replicaof", "-slaveof").Err())
}

// awaitPrimary waits until each running Sentinel names a primary other than old that has taken the role, and returns
// the one that the last Sentinel names. Each time a Sentinel names old, the function still is called.
func (s *Sentinel) awaitPrimary(tb testing.TB, old *Server, still func() error) *Server {
	tb.Helper()
	return awaitPrimary(tb, s.Sentinels, old, func(sen *Server) (*Server, error) {
		info, err := sen.do("INFO", "sentinel").Text()
		if err != nil {
			return nil, err
		}
		primary, err := byAddr(s.Servers, valueOf("address", info))
		if err != nil || primary == old { // which may be dead
			return primary, err
		}
		return primary, primary.expect(map[string]int{"role:master": 1}, "INFO", "replication")
	}, still)
}
