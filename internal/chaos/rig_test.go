//go:build chaos

package chaos_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/internal/redistest"
)

// The shapes of Redis.
const (
	single     = "single"
	replicated = "replicated" // a primary, and a replica that nobody promotes
	sentinel   = "sentinel"
	// The same servers, behind redis.NewFailoverClusterClient.
	failoverCluster = "failover cluster"
	cluster         = "cluster"
	quorum          = "quorum" // servers that know nothing of each other
)

var shapes = []string{single, replicated, sentinel, failoverCluster, cluster, quorum}

// failsOver are those in which a replica takes its primary's place.
var failsOver = []string{sentinel, failoverCluster, cluster}

// quorumNodes is how many servers a Quorum has.
const quorumNodes = 3

const (
	adminName     = "chaos" // may do everything, whatever a fault does to the user of the clients
	adminPassword = "chaos"

	// The user that Sentinels and replicas log in as. Who takes away its rights cuts a server off from them, and from nobody else.
	keeper         = "keeper"
	keeperPassword = "keeper"

	// healthLimit bounds how long a shape may take to be whole again. A Cluster that lost a primary takes five seconds.
	healthLimit = 40 * time.Second
	poll        = 25 * time.Millisecond
)

// rig is one set of servers. All runs of a shape use the same one, one after the other.
type rig struct {
	shape     string
	universal *redis.UniversalOptions
	servers   []*redistest.Server // those with data
	sentinel  *redistest.Sentinel
	sentinels []*redis.Client
	cluster   *redistest.Cluster
	admins    map[*redistest.Server]*redis.Client
	clock     *clock
	gates     [][]*gate // by client, the last being the agent, then by server; a port that was taken isn't given back, so that all runs have the same
	broken    bool      // a run is on, or was when it failed
}

// startRig starts the servers of a shape. They end with the test.
func startRig(t *testing.T, shape string) *rig {
	t.Helper()
	r := &rig{shape: shape, admins: make(map[*redistest.Server]*redis.Client), clock: newClock(t)}
	opts := []redistest.Option{
		redistest.WithUser(adminName, "on", ">"+adminPassword, "~*", "&*", "+@all"),
		redistest.WithUser(keeper, "on", ">"+keeperPassword, "~*", "&*", "+@all"),
		redistest.WithConfig("masteruser", keeper),
		redistest.WithConfig("masterauth", keeperPassword),
		redistest.WithConfig("enable-debug-command", "yes"),
		redistest.WithConfig("busy-reply-threshold", "100"),
		// What was answered is in the file: a killed server loses nothing of it.
		redistest.WithConfig("appendonly", "yes"),
		redistest.WithConfig("appendfsync", "no"),
		redistest.WithConfig("auto-aof-rewrite-percentage", "0"),
		redistest.WithEnv(r.clock.env()),
	}
	switch shape {
	case single:
		s := redistest.Start(t, opts...)
		r.servers, r.universal = []*redistest.Server{s}, s.Universal()
	case quorum:
		r.universal = &redis.UniversalOptions{}
		for range quorumNodes {
			s := redistest.Start(t, opts...)
			r.servers, r.universal.Addrs = append(r.servers, s), append(r.universal.Addrs, s.Addr())
		}
	case replicated:
		p := redistest.StartReplicated(t, 1, opts...)
		r.servers, r.universal = append([]*redistest.Server{p.Primary}, p.Replicas...), p.Universal()
	case sentinel, failoverCluster:
		r.sentinel = redistest.StartSentinel(t, 1, opts...)
		r.sentinel.Notice(t)
		r.servers, r.universal = r.sentinel.Servers, r.sentinel.Universal()
		r.universal.IsClusterMode = shape == failoverCluster
		for _, s := range r.sentinel.Sentinels {
			c := redis.NewClient(&redis.Options{Addr: s.Addr()})
			t.Cleanup(func() { _ = c.Close() })
			r.sentinels = append(r.sentinels, c)
		}
		// Else nobody would fail over for ten seconds after the last time.
		r.tellSentinels(t, "SENTINEL", "SET", redistest.SentinelName, "failover-timeout", "1500")
		r.tellSentinels(t, "SENTINEL", "SET", redistest.SentinelName, "auth-user", keeper, "auth-pass", keeperPassword)
		r.demoteAfter(t, demoteSoon)
	case cluster:
		r.cluster = redistest.StartCluster(t, 1, append(opts, redistest.WithConfig("cluster-allow-replica-migration", "no"))...)
		r.cluster.Notice(t)
		r.servers, r.universal = r.cluster.Nodes, r.cluster.Universal()
	}
	for _, s := range r.servers {
		r.admins[s] = s.Client(t, func(o *redis.Options) {
			o.Username, o.Password = adminName, adminPassword
			o.PoolSize, o.MaxRetries = 4, -1
			o.DialTimeout, o.ReadTimeout, o.ContextTimeoutEnabled = time.Second, 10*time.Second, true
		})
	}
	if r.sentinel != nil {
		r.each(t, "CLIENT", "KILL", "USER", "redistest") // the Sentinels come back as the keeper
		r.whole(t)
	}
	r.clock.find(t, r)
	for range clients + 1 { // also for the agent
		var gates []*gate
		for _, s := range r.servers {
			gates = append(gates, newGate(t, s))
		}
		r.gates = append(r.gates, gates)
	}
	return r
}

// tellSentinels runs a command on all Sentinels.
func (r *rig) tellSentinels(t *testing.T, command ...any) {
	t.Helper()
	for _, c := range r.sentinels {
		if err := c.Do(t.Context(), command...).Err(); err != nil {
			t.Fatalf("%v on Sentinel %s: %v", command, c.Options().Addr, err)
		}
	}
}

// demoteAfter is how long, at least, the Sentinels let a server believe that it still is the primary, once they can talk to it.
func (r *rig) demoteAfter(t *testing.T, d time.Duration) {
	t.Helper()
	r.tellSentinels(t, "SENTINEL", "DEBUG", "PUBLISH-PERIOD", (d / 4).Milliseconds()) // that is how Sentinel counts it
}

const (
	demoteSoon = 800 * time.Millisecond // what an idle machine needs
	demoteLate = 8 * time.Second        // Sentinel's default, to which up to ten seconds come
)

// admin is a connection of our own to a server, which no proxy is in front of.
func (r *rig) admin(s *redistest.Server) *redis.Client { return r.admins[s] }

// each runs a command on all servers that hold data.
func (r *rig) each(t *testing.T, command ...any) {
	t.Helper()
	for _, s := range r.servers {
		if err := r.admin(s).Do(t.Context(), command...).Err(); err != nil {
			t.Fatalf("%v on %s: %v", command, s.Addr(), err)
		}
	}
}

// reset has the servers forget what earlier runs did.
func (r *rig) reset(t *testing.T) {
	t.Helper()
	if r.broken { // the run before ended in the middle
		for _, s := range r.servers {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			if err := r.admin(s).Ping(ctx).Err(); err != nil {
				s.Restart(t, redistest.LoseData)
			}
			cancel()
		}
		r.each(t, "CONFIG", "SET", "maxmemory", "0", "maxmemory-policy", "noeviction")
		r.each(t, "ACL", "SETUSER", "default", "+@all", "&*")
		r.each(t, "ACL", "SETUSER", keeper, "+@all")
		r.demoteAfter(t, demoteSoon)
	}
	r.broken = true
	r.whole(t)
	for _, s := range r.primaries(t) {
		if err := r.admin(s).FlushAll(t.Context()).Err(); err != nil {
			t.Fatalf("FLUSHALL on %s: %v", s.Addr(), err)
		}
	}
	r.each(t, "SCRIPT", "FLUSH")
	r.each(t, "CONFIG", "RESETSTAT")
}

// whole waits until the shape is as it should be: everybody runs, follows whom it should, and is in sync.
func (r *rig) whole(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), healthLimit)
	defer cancel()
	for {
		err := r.unwell(ctx)
		if err == nil {
			return
		}
		select {
		case <-time.After(poll):
		case <-ctx.Done():
			t.Fatalf("%s is not whole after %v: %v", r.shape, healthLimit, err)
		}
	}
}

// unwell says what is wrong.
func (r *rig) unwell(ctx context.Context) error {
	primaries, replicas := 0, 0
	for _, s := range r.servers {
		info, err := r.info(ctx, s)
		if err != nil {
			return fmt.Errorf("%s: %w", s.Addr(), err)
		}
		switch {
		case info["loading"] == "1" || info["aof_rewrite_in_progress"] == "1":
			return fmt.Errorf("%s is busy with its files", s.Addr())
		case info["role"] == "master":
			primaries++
			for name, field := range info {
				if strings.HasPrefix(name, "slave") && strings.Contains(field, "state=online") {
					replicas++
				}
			}
		case info["master_link_status"] != "up":
			return fmt.Errorf("%s is not in sync with its primary", s.Addr())
		}
	}
	want := map[string]int{single: 1, replicated: 1, sentinel: 1, failoverCluster: 1, cluster: 3, quorum: quorumNodes}[r.shape]
	if primaries != want || replicas != len(r.servers)-want {
		return fmt.Errorf("%d primaries with %d replicas", primaries, replicas)
	}
	switch {
	case r.sentinel != nil:
		return r.sentinelsDisagree(ctx)
	case r.cluster != nil:
		return r.clusterDisagrees(ctx)
	}
	return nil
}

func (r *rig) info(ctx context.Context, s *redistest.Server) (map[string]string, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	text, err := r.admin(s).Info(ctx, "replication", "persistence").Result()
	fields := make(map[string]string)
	for line := range strings.Lines(text) {
		if k, v, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			fields[k] = v
		}
	}
	return fields, err
}

func (r *rig) sentinelsDisagree(ctx context.Context) error {
	for _, s := range r.sentinel.Sentinels {
		c := redis.NewSentinelClient(&redis.Options{Addr: s.Addr(), ReadTimeout: time.Second})
		primary, err := c.Master(ctx, redistest.SentinelName).Result()
		if err == nil {
			var replicas []map[string]string
			if replicas, err = c.Replicas(ctx, redistest.SentinelName).Result(); err == nil {
				for _, r := range replicas {
					if r["flags"] != "slave" || r["master-link-status"] != "ok" {
						err = fmt.Errorf("it sees a replica with flags %s, link %s", r["flags"], r["master-link-status"])
					}
				}
			}
		}
		_ = c.Close()
		if err != nil {
			return fmt.Errorf("Sentinel %s: %w", s.Addr(), err)
		}
		server, err := r.at(primary["port"])
		if err != nil || primary["flags"] != "master" || primary["num-slaves"] != strconv.Itoa(len(r.servers)-1) {
			return fmt.Errorf("Sentinel %s sees flags %s, %s replicas: %w", s.Addr(), primary["flags"], primary["num-slaves"], err)
		}
		info, err := r.info(ctx, server)
		if err != nil || info["role"] != "master" {
			return fmt.Errorf("Sentinel %s sees a primary whose role is %s: %w", s.Addr(), info["role"], err)
		}
	}
	return nil
}

func (r *rig) clusterDisagrees(ctx context.Context) error {
	owners := ""
	for _, s := range r.servers {
		shards, err := r.admin(s).ClusterShards(ctx).Result()
		if err != nil {
			return err
		}
		var seen []string
		for _, shard := range shards {
			if len(shard.Slots) == 0 {
				return fmt.Errorf("%s knows a shard without slots", s.Addr())
			}
			for _, n := range shard.Nodes {
				if n.Health != "online" {
					return fmt.Errorf("%s knows that %d is %s", s.Addr(), n.Port, n.Health)
				}
				if n.Role == "master" {
					seen = append(seen, fmt.Sprintf("%d:%v", n.Port, shard.Slots))
				}
			}
		}
		slices.Sort(seen)
		if all := strings.Join(seen, " "); owners == "" {
			owners = all
		} else if all != owners {
			return fmt.Errorf("%s sees %s, another %s", s.Addr(), all, owners)
		}
		text, err := r.admin(s).ClusterInfo(ctx).Result()
		if err != nil || !strings.Contains(text, "cluster_state:ok") || !strings.Contains(text, "cluster_slots_ok:16384") {
			return fmt.Errorf("%s: %w: %s", s.Addr(), err, text)
		}
	}
	return nil
}

// at is the server that listens at a port.
func (r *rig) at(port string) (*redistest.Server, error) {
	for _, s := range r.servers {
		if strconv.Itoa(s.Port()) == port {
			return s, nil
		}
	}
	return nil, fmt.Errorf("no server of ours listens at %s", port)
}

// primaries are those now.
func (r *rig) primaries(t *testing.T) (all []*redistest.Server) {
	t.Helper()
	for _, s := range r.servers {
		if info, err := r.info(t.Context(), s); err == nil && info["role"] == "master" {
			all = append(all, s)
		}
	}
	if len(all) == 0 {
		t.Fatal("no primary")
	}
	return all
}

// victim is the primary that a name lives on, or one of those that it does.
func (r *rig) victim(t *testing.T, name string) *redistest.Server {
	t.Helper()
	switch r.shape {
	case quorum:
		return r.servers[int(name[len(name)-1])%len(r.servers)]
	case sentinel, failoverCluster:
		return r.sentinel.Primary(t)
	case cluster:
		return r.cluster.Owner(t, r.cluster.Slot(t, name))
	default:
		return r.servers[0]
	}
}

// replicaOf is a replica of a primary, in sync with it. After a failover it may have to come back.
func (r *rig) replicaOf(t *testing.T, primary *redistest.Server) *redistest.Server {
	t.Helper()
	for over := time.Now().Add(healthLimit); time.Now().Before(over); time.Sleep(poll) {
		for _, s := range r.servers {
			info, err := r.info(t.Context(), s)
			if err == nil && info["role"] == "slave" && info["master_port"] == strconv.Itoa(primary.Port()) && info["master_link_status"] == "up" {
				return s
			}
		}
	}
	t.Fatal(errors.New("it has no replica"))
	return nil
}
