package doctor

import (
	"context"
	"crypto/fips140"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/cmd/lockdog/internal/connect"
)

// askInfo reads sections of INFO.
func askInfo(ctx context.Context, rdb *redis.Client, section string) (info, error) {
	text, err := rdb.Info(ctx, section).Result()
	return parseInfo(text), err
}

// askConfig reads settings. What is refused is left out.
func askConfig(ctx context.Context, rdb *redis.Client, names ...string) info {
	config := make(info)
	for _, name := range names {
		values, err := rdb.ConfigGet(ctx, name).Result()
		if err != nil {
			break // many services refuse CONFIG
		}
		for k, v := range values {
			config[k] = v
		}
	}
	return config
}

// serverFindings are those that INFO tells.
func serverFindings(ctx context.Context, _ *target, n node) []Finding {
	var findings []Finding
	ask := func(id, section string, judge func(info) []Finding) {
		if i, err := askInfo(ctx, n.rdb, section); err != nil {
			findings = append(findings, unknown(id, "", err))
		} else {
			findings = append(findings, judge(i)...)
		}
	}
	ask("server", "server", func(i info) []Finding { return []Finding{evaluateServer(i)} })
	ask("role", "replication", func(i info) []Finding {
		role := evaluateRole(i)
		if role.Level != OK {
			return []Finding{role}
		}
		return []Finding{role, evaluateReplicas(i, askConfig(ctx, n.rdb, "min-*-to-write"))}
	})
	ask("eviction", "memory", func(i info) []Finding {
		stats, _ := askInfo(ctx, n.rdb, "stats")
		return evaluateMemory(i, stats)
	})
	ask("tracking", "stats", func(i info) []Finding {
		return []Finding{evaluateTracking(i, askConfig(ctx, n.rdb, "tracking-table-max-keys"))}
	})
	ask("connections", "clients", func(i info) []Finding {
		return []Finding{evaluateConnections(i, askConfig(ctx, n.rdb, "maxclients"))}
	})
	return findings
}

// persistenceFindings tell what a restart does.
func persistenceFindings(ctx context.Context, _ *target, n node) []Finding {
	i, err := askInfo(ctx, n.rdb, "persistence")
	if err != nil {
		return []Finding{unknown("persistence", "", err)}
	}
	return evaluatePersistence(i, askConfig(ctx, n.rdb, "save", "appendfsync", "stop-writes-on-bgsave-error"))
}

// writeFindings write a key, where the node serves its slot.
func writeFindings(ctx context.Context, t *target, n node) []Finding {
	key := t.key + ":write"
	t.probe(key)
	err := n.rdb.Set(ctx, key, 1, t.opts.Timeout).Err()
	switch {
	case err == nil, redis.HasErrorPrefix(err, "MOVED"), redis.HasErrorPrefix(err, "ASK"):
		if err != nil {
			return nil // the key is another node's, and what it says of the ACL is said below
		}
		return []Finding{{ID: "write", Level: OK, Found: "a key could be written"}}
	case refused(err):
		return nil // the rights are checked below
	}
	f := Finding{ID: "write", Level: Fail, Found: "a key can't be written: " + err.Error(), Means: "no lock can be taken", Fix: "look at what Redis says, and at its log"}
	if redis.HasErrorPrefix(err, "READONLY") {
		f.Fix = "let -u point at the primary, or at the Sentinels"
	}
	return []Finding{f}
}

// clockFindings compare clocks.
func clockFindings(ctx context.Context, t *target) []Finding {
	ctx, cancel := context.WithTimeout(ctx, t.opts.Timeout)
	defer cancel()
	var mu sync.Mutex
	var findings []Finding
	var all []reading
	read := func(ctx context.Context, name string, rdb *redis.Client) error {
		_ = rdb.Ping(ctx).Err() // the connection is there when the time is asked
		sent := time.Now()
		at, err := rdb.Time(ctx).Result()
		half := time.Since(sent) / 2
		mu.Lock()
		defer mu.Unlock()
		if err != nil {
			findings = append(findings, unknown("clock", name, err))
			return nil
		}
		all = append(all, reading{name, at.Sub(sent.Add(half)), half})
		return nil
	}
	for _, n := range t.nodes {
		_ = read(ctx, n.name, n.rdb)
	}
	if cluster, ok := t.server.UniversalClient.(*redis.ClusterClient); ok {
		_ = cluster.ForEachSlave(ctx, func(ctx context.Context, rdb *redis.Client) error { return read(ctx, rdb.Options().Addr, rdb) })
	}
	return append(findings, evaluateClocks(all)...)
}

const (
	pings    = 100
	pingFrom = 5 * time.Millisecond // one PING to the next
)

// latencyFindings send PINGs, for half a second or the time of a check.
func latencyFindings(ctx context.Context, _ *target, n node) []Finding {
	var trips []time.Duration
	tick := time.NewTicker(pingFrom)
	defer tick.Stop()
	conn := n.rdb.Conn()
	defer func() { _ = conn.Close() }()
	if err := conn.Ping(ctx).Err(); err != nil {
		return []Finding{unknown("latency", "", err)}
	}
	for len(trips) < pings && ctx.Err() == nil {
		select {
		case <-tick.C:
		case <-ctx.Done():
			continue
		}
		sent := time.Now()
		if err := conn.Ping(ctx).Err(); err != nil && ctx.Err() == nil {
			return []Finding{unknown("latency", "", err)}
		}
		trips = append(trips, time.Since(sent))
	}
	if len(trips) == 0 {
		return []Finding{unknown("latency", "", context.Cause(ctx))}
	}
	return []Finding{evaluateLatency(trips)}
}

// scriptFindings run a script as lockdog does.
func scriptFindings(ctx context.Context, _ *target, n node) []Finding {
	const text = "return 1 -- lockdog doctor"
	var script *redis.Script
	fips140.WithoutEnforcement(func() { script = redis.NewScript(text) }) // by SHA-1, which is only a name here
	err := n.rdb.Eval(ctx, text, nil).Err()
	if err == nil {
		sent := time.Now()
		if err = n.rdb.EvalSha(ctx, script.Hash(), nil).Err(); err == nil {
			return []Finding{{ID: "scripts", Level: OK, Found: fmt.Sprintf("scripts run; one took %v", time.Since(sent).Round(10*time.Microsecond))}}
		}
		if redis.HasErrorPrefix(err, "NOSCRIPT") {
			return []Finding{{
				ID: "scripts", Level: Warn, Found: "a script is forgotten at once", Means: "each call sends its script again, which costs time; there may be several servers behind this address",
				Fix: "connect to the server itself",
			}}
		}
	}
	return []Finding{{ID: "scripts", Level: Fail, Found: "a script can't run: " + err.Error(), Means: "no lock can be taken", Fix: "allow EVAL and EVALSHA (docs/ACL.md), or look at what Redis says"}}
}

// pubsubFindings send a message to themselves.
func pubsubFindings(ctx context.Context, t *target, n node) []Finding {
	const means = "waiters of other processes aren't woken by a release: they try when the holder's lease should have ended"
	channel := prefixed("redisson_lock__channel", t.key)
	findings := []Finding{message(ctx, "pubsub", n.rdb.Subscribe(ctx, channel), func() error { return n.rdb.Publish(ctx, channel, "0").Err() }, means)}
	if t.server.Mode == connect.Cluster {
		f := message(ctx, "pubsub_sharded", n.rdb.SSubscribe(ctx, channel), func() error { return n.rdb.SPublish(ctx, channel, "0").Err() }, means)
		if !strings.Contains(f.Found, "MOVED") { // the channel is another node's
			findings = append(findings, f)
		}
	}
	return findings
}

// message is what comes of a round trip of a message.
func message(ctx context.Context, id string, sub *redis.PubSub, publish func() error, means string) Finding {
	defer func() { _ = sub.Close() }()
	err := func() error {
		if _, err := sub.Receive(ctx); err != nil {
			return err
		}
		if err := publish(); err != nil {
			return err
		}
		_, err := sub.ReceiveMessage(ctx)
		return err
	}()
	if err != nil {
		return Finding{ID: id, Level: Warn, Found: "a message doesn't come back: " + err.Error(), Means: means, Fix: "allow SUBSCRIBE, PUBLISH and the channels (docs/ACL.md); connect without a proxy"}
	}
	return Finding{ID: id, Level: OK, Found: "a message came back"}
}

// proxyFindings look for something between us and the server.
func proxyFindings(ctx context.Context, t *target, n node) []Finding {
	var signs []string
	conn := n.rdb.Conn()
	defer func() { _ = conn.Close() }()
	ids, runs := make(map[int64]bool), make(map[string]bool)
	var errs []error
	for range 5 {
		if id, err := conn.ClientID(ctx).Result(); err == nil {
			ids[id] = true
		} else {
			errs = append(errs, err)
		}
		if text, err := n.rdb.Info(ctx, "server").Result(); err == nil {
			runs[parseInfo(text)["run_id"]] = true
		} else {
			errs = append(errs, err)
		}
	}
	if len(ids) > 1 {
		signs = append(signs, "CLIENT ID differs on one connection")
	}
	if len(runs) > 1 {
		signs = append(signs, "run_id differs from call to call")
	}
	for _, err := range append(errs, conn.Do(ctx, "hello").Err()) {
		if err != nil && strings.Contains(strings.ToLower(err.Error()), "unknown command") {
			signs = append(signs, "a command is unknown: "+err.Error())
			break
		}
	}
	if t.server.Mode != connect.Cluster {
		two := []string{t.key, t.sibling("b") + "x"}
		if err := n.rdb.Eval(ctx, "return 1", two).Err(); err != nil && strings.Contains(strings.ToUpper(err.Error()), "SLOT") {
			signs = append(signs, "a script may not have keys of two slots: "+err.Error())
		}
	}
	switch {
	case len(signs) > 0:
		return []Finding{{
			ID: "proxy", Level: Warn, Found: "there seems to be a proxy: " + strings.Join(signs, "; "), Means: "lockdog isn't tested with proxies; messages and tracking need a connection of their own",
			Fix: "connect to the server itself",
		}}
	case len(ids) == 0 && len(runs) == 0:
		return []Finding{unknown("proxy", "", errs[0])}
	}
	return []Finding{{ID: "proxy", Level: OK, Found: "no sign of a proxy"}}
}

// clusterFindings tell of a Cluster as a whole.
func clusterFindings(ctx context.Context, t *target) []Finding {
	if t.server.Mode != connect.Cluster {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, t.opts.Timeout)
	defer cancel()
	if len(t.nodes) == 0 {
		return []Finding{unknown("cluster", "", errors.New("no primary answers"))}
	}
	var text, nodes string
	var err error
	for _, n := range t.nodes {
		if text, err = n.rdb.ClusterInfo(ctx).Result(); err == nil {
			nodes, err = n.rdb.ClusterNodes(ctx).Result()
			break
		}
	}
	if text == "" {
		return []Finding{unknown("cluster", "", err)}
	}
	findings := evaluateCluster(parseInfo(text), nodes)
	if err != nil {
		findings = append(findings, unknown("cluster_replicas", "", err))
	}
	return findings
}

// prefixed is how keys and channels beside a lock are named.
func prefixed(prefix, key string) string {
	if strings.Contains(key, "{") {
		return prefix + ":" + key
	}
	return prefix + ":{" + key + "}"
}
