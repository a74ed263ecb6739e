package doctor

import (
	"cmp"
	"context"
	"crypto/fips140"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/cmd/lockdog/internal/connect"
)

// refusals are parts of Redis's errors when the ACL forbids something to a caller or to a script.
var refusals = []string{"NOPERM", "ACL failure", "user executing the script can't"}

// refused reports whether an error says that the ACL forbids something: a command, a key or a channel.
func refused(err error) bool { return mentions(err, refusals...) }

// mentions reports whether an error contains one of the texts, ignoring case.
func mentions(err error, texts ...string) bool {
	return err != nil && slices.ContainsFunc(texts, func(s string) bool {
		return strings.Contains(strings.ToLower(err.Error()), strings.ToLower(s))
	})
}

// parseInfo parses the reply of INFO or CLUSTER INFO.
func parseInfo(text string) facts {
	f := make(facts)
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			f[name] = value
		}
	}
	return f
}

var settings = []string{
	"save", "appendfsync", "stop-writes-on-bgsave-error", "min-replicas-to-write", "maxclients",
	"tracking-table-max-keys",
}

// askInfo asks for the fields of INFO, and for settings. It omits those that the user may not read.
func askInfo(ctx context.Context, t *target, n node) {
	text, err := n.rdb.Info(ctx).Result()
	f := parseInfo(text)
	for _, name := range settings {
		setting, err := n.rdb.ConfigGet(ctx, name).Result()
		if err != nil {
			break // many services refuse CONFIG
		}
		maps.Copy(f, setting)
	}
	t.tell("info", n.name, f.derive(), err)
}

// derive adds facts that the table needs and INFO has only indirectly.
func (f facts) derive() facts {
	// The other products come first: they also report the version of Redis that they are compatible with.
	for _, product := range []string{"Valkey", "Redict", "Dragonfly", "Redis"} {
		if version := f[strings.ToLower(product)+"_version"]; version != "" {
			major, _, _ := strings.Cut(version, ".")
			f["server"], f["release"] = product+" "+version, product+" "+major
			break
		}
	}
	f["replicas"] = f["connected_slaves"] + " replicas"
	if f["connected_slaves"] == "1" {
		f["replicas"] = "1 replica"
	}
	var lag int
	for _, value := range f { // such as slave0:ip=127.0.0.1,port=6380,state=online,offset=14,lag=1
		_, rest, _ := strings.Cut(value, ",lag=")
		seconds, _, _ := strings.Cut(rest, ",")
		n, _ := strconv.Atoi(seconds)
		lag = max(lag, n)
	}
	f["lag"] = strconv.Itoa(lag)
	return f
}

// askCluster asks a node for the state of the Cluster.
func askCluster(ctx context.Context, t *target) {
	if t.server.Mode != connect.Cluster || len(t.nodes) == 0 { // without nodes, askNodes has reported that
		return
	}
	text, err := t.nodes[0].rdb.ClusterInfo(ctx).Result()
	t.tell("cluster", "", parseInfo(text), err)
	text, err = t.nodes[0].rdb.ClusterNodes(ctx).Result()
	f, down := parseNodes(text)
	t.tell("cluster_nodes", "", f, err)
	for _, addr := range down {
		t.tell("cluster_node", addr, facts{}, nil)
	}
}

// parseNodes parses the reply of CLUSTER NODES. down has the addresses of the nodes that are down. f has the number of
// primaries, and the addresses of those without a replica that is up. A primary without slots is ignored.
func parseNodes(text string) (f facts, down []string) {
	primaries, replicas := make(map[string]string), make(map[string]bool) // id -> address, ids that have a replica
	for line := range strings.Lines(text) {
		w := strings.Fields(line)
		if len(w) < 8 {
			continue
		}
		addr, _, _ := strings.Cut(w[1], "@")
		flags := strings.Split(w[2], ",")
		primary, serves := slices.Contains(flags, "master"), len(w) > 8
		if primary && serves {
			primaries[w[0]] = addr
		}
		switch fails := slices.Contains(flags, "fail") || slices.Contains(flags, "fail?"); {
		case fails && (serves || !primary):
			down = append(down, addr)
		case !primary:
			replicas[w[3]] = true
		}
	}
	f = facts{"primaries": strconv.Itoa(len(primaries))}
	maps.DeleteFunc(primaries, func(id, _ string) bool { return replicas[id] })
	f["bare"] = strings.Join(slices.Sorted(maps.Values(primaries)), ", ")
	return f, down
}

// reading is the reading of a server's clock: how far it is ahead of ours, and the maximum error.
type reading struct {
	node          string
	ahead, unsure time.Duration
}

// askClocks asks the primaries, and the replicas of a Cluster, for their time.
func askClocks(ctx context.Context, t *target) {
	var mu sync.Mutex
	var all []reading
	read := func(ctx context.Context, rdb *redis.Client, name string) error {
		_ = rdb.Ping(ctx).Err() // connects, so that TIME takes only a round trip
		sent := time.Now()
		at, err := rdb.Time(ctx).Result()
		half := time.Since(sent) / 2
		r := reading{name, at.Sub(sent.Add(half)), half}
		t.tell("clock", name, r.facts(), err)
		if err == nil {
			mu.Lock()
			defer mu.Unlock()
			all = append(all, r)
		}
		return nil
	}
	for _, n := range t.nodes {
		_ = read(ctx, n.rdb, n.name)
	}
	if cluster, ok := t.server.UniversalClient.(*redis.ClusterClient); ok {
		_ = cluster.ForEachSlave(ctx, func(ctx context.Context, rdb *redis.Client) error {
			return read(ctx, rdb, rdb.Options().Addr)
		})
	}
	if len(all) > 1 {
		t.tell("clocks", "", compare(all), nil)
	}
}

func (r reading) facts() facts {
	return facts{"ahead": inMS(r.ahead), "unsure": inMS(r.unsure), "off": inMS(r.ahead.Abs() - r.unsure)}
}

// compare returns the least difference that the clocks can have, given how exactly they were read, and between which
// nodes it is.
func compare(all []reading) facts {
	by := func(a, b reading) int { return cmp.Compare(a.ahead, b.ahead) }
	first, last := slices.MinFunc(all, by), slices.MaxFunc(all, by)
	apart := max(0, last.ahead-first.ahead-first.unsure-last.unsure)
	return facts{"apart": inMS(apart), "first": first.node, "last": last.node}
}

func inMS(d time.Duration) string { return d.Round(time.Millisecond).String() }

const (
	pings    = 100
	pingFrom = 5 * time.Millisecond // from a reply to the next PING
)

// askLatency sends pings PINGs, or as many as fit into the timeout.
func askLatency(ctx context.Context, t *target, n node) {
	conn := n.rdb.Conn()
	defer func() { _ = conn.Close() }()
	err := conn.Ping(ctx).Err() // connects
	var trips []time.Duration
	for err == nil && len(trips) < pings {
		time.Sleep(pingFrom)
		sent := time.Now()
		err = conn.Ping(ctx).Err()
		trips = append(trips, time.Since(sent))
	}
	if ctx.Err() != nil && len(trips) > 0 {
		err = nil // the PING without a reply counts too
	}
	t.tell("latency", n.name, percentiles(trips), err)
}

// percentiles returns how long round trips took.
func percentiles(trips []time.Duration) facts {
	if len(trips) == 0 {
		return facts{}
	}
	slices.Sort(trips)
	n := len(trips)
	at := func(i int) string { return trips[i].Round(10 * time.Microsecond).String() }
	return facts{"p50": at(n / 2), "p99": at(n * 99 / 100), "max": at(n - 1), "pings": strconv.Itoa(n)}
}

// askScripts runs a script with EVAL, and then with EVALSHA.
func askScripts(ctx context.Context, t *target, n node) {
	var script *redis.Script
	// SHA-1 is only a name here.
	fips140.WithoutEnforcement(func() { script = redis.NewScript("return 1 -- lockdog doctor") })
	err := script.Eval(ctx, n.rdb, nil).Err()
	sent := time.Now()
	if err == nil {
		err = script.EvalSha(ctx, n.rdb, nil).Err()
	}
	t.tell("scripts", n.name, facts{"took": time.Since(sent).Round(10 * time.Microsecond).String()}, err)
}

// askPubSub subscribes to a channel and publishes a message there.
func askPubSub(ctx context.Context, t *target, n node) {
	channel := "redisson_lock__channel:" + tagged(t.key)
	ask := func(
		id string, sub *redis.PubSub,
		publish func(ctx context.Context, channel string, message any) *redis.IntCmd,
	) {
		defer func() { _ = sub.Close() }()
		_, err := sub.Receive(ctx)
		if err == nil {
			err = publish(ctx, channel, "0").Err()
		}
		if err == nil {
			_, err = sub.ReceiveMessage(ctx)
		}
		t.tell("pubsub", n.name, facts{"id": id}, err)
	}
	ask("pubsub", n.rdb.Subscribe(ctx, channel), n.rdb.Publish)
	if t.server.Mode == connect.Cluster {
		ask("pubsub_sharded", n.rdb.SSubscribe(ctx, channel), n.rdb.SPublish)
	}
}

// askProxy looks for signs of a proxy between us and the server.
func askProxy(ctx context.Context, t *target, n node) {
	conn := n.rdb.Conn()
	defer func() { _ = conn.Close() }()
	ids, runs := make(map[int64]bool), make(map[string]bool)
	errs := []error{conn.Do(ctx, "hello").Err()}
	for range 5 {
		id, err1 := conn.ClientID(ctx).Result()
		text, err2 := n.rdb.Info(ctx, "server").Result()
		ids[id], runs[parseInfo(text)["run_id"]] = true, true
		errs = append(errs, err1, err2)
	}
	delete(ids, 0) // 0 and "" mean that there was no reply
	delete(runs, "")
	f := facts{"ids": strconv.Itoa(len(ids)), "runs": strconv.Itoa(len(runs))}
	if i := slices.IndexFunc(errs, func(err error) bool { return mentions(err, "unknown command") }); i >= 0 {
		f["unknown"] = errs[i].Error()
	}
	err := n.rdb.Eval(ctx, "return 1", []string{t.key, t.key + "x"}).Err()
	if t.server.Mode != connect.Cluster && mentions(err, "slot") {
		f["slots"] = err.Error()
	}
	if len(ids)+len(runs) > 0 || f["unknown"]+f["slots"] != "" {
		errs = nil
	}
	t.tell("proxy", n.name, f, cmp.Or(errs...))
}
