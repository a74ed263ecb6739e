package redistest

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// SentinelName is the name of the watched primary at the Sentinels.
const SentinelName = "lockdog"

const sentinels = 3

// Sentinel is a primary, its replicas and three Sentinels that fail over when
// two of them agree.
type Sentinel struct {
	Servers   []*Server // the data servers; the first is the primary at the start
	Sentinels []*Server // may be paused, killed and restarted too; their commands aren't counted
}

// StartSentinel starts the servers and the Sentinels, and waits until every Sentinel knows all others and every
// replica. They end with the test. The options apply to the data servers. A primary that is only slow doesn't count as
// down: see [Sentinel.Notice].
func StartSentinel(tb testing.TB, replicas int, opts ...Option) *Sentinel {
	tb.Helper()
	cfg := newConfig(opts)
	primary := startServers(tb, cfg)[0]
	s := &Sentinel{Servers: append([]*Server{primary}, startReplicas(tb, primary, replicas)...)}

	watch := config{sentinel: true, adminPassword: cfg.adminPassword}.with(
		WithConfig("sentinel", "monitor", SentinelName, "127.0.0.1", strconv.Itoa(primary.port), "2"),
		WithConfig("sentinel", "auth-user", SentinelName, adminUser),
		WithConfig("sentinel", "auth-pass", SentinelName, cfg.adminPassword),
		WithConfig("sentinel", "down-after-milliseconds", SentinelName, calm),
		WithConfig("sentinel", "failover-timeout", SentinelName, "5000"),
	)
	s.Sentinels = startServers(tb, watch, watch, watch)
	s.pace(tb, "200", "500", "200")
	await(tb, "Sentinels know each other and the replicas", s.Sentinels, func(ctx context.Context, sen *Server) error {
		state, err := sen.sentinel().Master(ctx, SentinelName).Result()
		if err != nil {
			return err
		}
		if state["flags"] != "master" || state["num-slaves"] != strconv.Itoa(replicas) ||
			state["num-other-sentinels"] != strconv.Itoa(sentinels-1) {
			return fmt.Errorf("it sees flags %s, %s replicas, %s other Sentinels",
				state["flags"], state["num-slaves"], state["num-other-sentinels"])
		}
		return nil
	})
	s.pace(tb, "1000", "1000", "2000")
	return s
}

// pace sets how often the Sentinels check and publish, in ms. By default they find each other and the replicas only
// after two to ten seconds. With short periods failovers fail: a Sentinel demotes a promoted replica again if it
// doesn't hear of the promotion within four publish periods, and promotes no replica that it hasn't seen for three
// check periods.
func (s *Sentinel) pace(tb testing.TB, info, ping, publish string) {
	tb.Helper()
	await(tb, "SENTINEL DEBUG", s.Sentinels, func(ctx context.Context, sen *Server) error {
		return sen.admin.Do(ctx, "SENTINEL", "DEBUG",
			"INFO-PERIOD", info, "PING-PERIOD", ping, "PUBLISH-PERIOD", publish).Err()
	})
}

// sentinel returns typed Sentinel commands over the admin connection.
func (s *Server) sentinel() sentinelCommands { return sentinelCommands{s.admin} }

type sentinelCommands struct{ c *redis.Client }

// Master asks a Sentinel for its view of the watched primary.
func (s sentinelCommands) Master(ctx context.Context, name string) *redis.MapStringStringCmd {
	cmd := redis.NewMapStringStringCmd(ctx, "SENTINEL", "MASTER", name)
	_ = s.c.Process(ctx, cmd) // the error is in cmd
	return cmd
}

// Universal returns the options of a client that asks the Sentinels for the
// primary.
func (s *Sentinel) Universal() *redis.UniversalOptions {
	o := &redis.UniversalOptions{MasterName: SentinelName, Password: s.Servers[0].cfg.password}
	for _, sen := range s.Sentinels {
		o.Addrs = append(o.Addrs, sen.Addr())
	}
	return o
}

// Primary returns the server that all running Sentinels consider the primary. It waits while they disagree.
func (s *Sentinel) Primary(tb testing.TB) *Server {
	tb.Helper()
	return s.awaitPrimary(tb, "Sentinels agree on a primary", func(*Server) error { return nil })
}

// AwaitFailover waits until all running Sentinels agree on a primary other than old, and that server has taken the
// role. It doesn't start the failover: for that, kill or pause old, or call [Sentinel.Failover]. It calls Notice.
func (s *Sentinel) AwaitFailover(tb testing.TB, old *Server) *Server {
	tb.Helper()
	s.Notice(tb)
	return s.awaitPrimary(tb, "failover", func(p *Server) error {
		if p == old {
			return fmt.Errorf("the primary is still %d", old.port)
		}
		return nil
	})
}

// Failover orders a failover while the primary is healthy, waits for it, and returns the new primary. The old one
// becomes a replica. On a busy machine Sentinels may give up a failover; then it is ordered again.
func (s *Sentinel) Failover(tb testing.TB) *Server {
	tb.Helper()
	old := s.Primary(tb)
	order := func(ctx context.Context, sen *Server) error {
		return sen.admin.Do(ctx, "SENTINEL", "FAILOVER", SentinelName).Err()
	}
	await(tb, "SENTINEL FAILOVER", s.Sentinels[:1], order)
	ordered := time.Now()
	return s.awaitPrimary(tb, "failover", func(p *Server) error {
		if p != old {
			return nil
		}
		if time.Since(ordered) > orderAgain {
			ordered = time.Now()
			_ = order(context.Background(), s.Sentinels[0]) // it is refused while a failover is running
		}
		return fmt.Errorf("the primary is still %d", old.port)
	})
}

// Notice makes the running Sentinels, from now on, take the primary for down when it is silent for two seconds. On a
// busy machine a healthy one may be silent for as long, so end it first. Call Notice before a Sentinel is paused.
func (s *Sentinel) Notice(tb testing.TB) {
	tb.Helper()
	await(tb, "SENTINEL SET", s.Sentinels, func(ctx context.Context, sen *Server) error {
		return sen.admin.Do(ctx, "SENTINEL", "SET", SentinelName, "down-after-milliseconds", alert).Err()
	})
}

// orderAgain is the time after which a failover that didn't happen is ordered again.
const orderAgain = 10 * time.Second

// CutOff prevents the Sentinels from demoting a server, as a partition between them would: they can monitor it, but not
// make it a replica.
func (s *Sentinel) CutOff(tb testing.TB, server *Server) {
	tb.Helper()
	await(tb, "ACL SETUSER", []*Server{server}, func(ctx context.Context, server *Server) error {
		return server.admin.Do(ctx, "ACL", "SETUSER", adminUser, "-replicaof", "-slaveof").Err()
	})
}

func (s *Sentinel) awaitPrimary(tb testing.TB, what string, check func(*Server) error) *Server {
	tb.Helper()
	var primary *Server
	await(tb, what, s.Sentinels, func(ctx context.Context, sen *Server) error {
		state, err := sen.sentinel().Master(ctx, SentinelName).Result()
		if err != nil {
			return err
		}
		port, err := strconv.Atoi(state["port"])
		if err != nil {
			return final(err)
		}
		if primary, err = byPort(s.Servers, port); err != nil {
			return final(err)
		}
		if err := check(primary); err != nil {
			return err
		}
		return isRole(ctx, primary, "master")
	})
	if primary == nil {
		tb.Fatalf("redistest: %s: no Sentinel runs", what)
	}
	return primary
}
