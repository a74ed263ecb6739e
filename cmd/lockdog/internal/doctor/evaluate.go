package doctor

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockdog/lockdog/cmd/lockdog/internal/probe"
)

// info are the fields of INFO.
type info map[string]string

func parseInfo(text string) info {
	fields := make(info)
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			fields[name] = value
		}
	}
	return fields
}

// number is a field's, and whether it is there.
func (i info) number(name string) (int64, bool) {
	n, err := strconv.ParseInt(i[name], 10, 64)
	return n, err == nil
}

// lacks is the finding where INFO doesn't have a field.
func lacks(id, field string) Finding {
	return unknown(id, "", fmt.Errorf("INFO has no %s", field))
}

// evaluateServer judges the name and the version of the server.
func evaluateServer(i info) Finding {
	product, version := "Redis", i["redis_version"]
	switch {
	case i["valkey_version"] != "":
		product, version = "Valkey", i["valkey_version"]
	case i["redict_version"] != "":
		product, version = "Redict", i["redict_version"]
	case i["dragonfly_version"] != "":
		product, version = "Dragonfly", i["dragonfly_version"]
	}
	if version == "" {
		return lacks("server", "redis_version")
	}
	f := Finding{ID: "server", Level: OK, Found: product + " " + version}
	first, _, _ := strings.Cut(version, ".")
	major, err := strconv.Atoi(first)
	tested := map[string][]int{"Redis": {7, 8}, "Valkey": {8, 9}, "Redict": {7}}
	switch {
	case product == "Redis" && err == nil && major < 6:
		f.Level, f.Means, f.Fix = Fail, "it is older than 6.0, which has no ACL and no HELLO; lockdog was never tried on it", "use Redis 7 or newer, or Valkey 8 or newer"
	case err != nil || !slices.Contains(tested[product], major):
		f.Level, f.Means, f.Fix = Warn, "lockdog isn't tested on this version", "use a version that docs/PRODUCTION.md lists, such as Redis 8 or Valkey 9"
	}
	return f
}

// evaluateRole judges whether the server takes writes.
func evaluateRole(i info) Finding {
	switch role := i["role"]; role {
	case "":
		return lacks("role", "role")
	case "master":
		return Finding{ID: "role", Level: OK, Found: "a primary"}
	default:
		return Finding{
			ID: "role", Level: Fail, Found: "a replica, of " + i["master_host"] + ":" + i["master_port"],
			Means: "it is read-only: no lock can be taken", Fix: "let -u point at the primary, or at the Sentinels",
		}
	}
}

// evaluateMemory judges whether Redis will remove locks, or refuse writes.
func evaluateMemory(memory, stats info) []Finding {
	policy := memory["maxmemory_policy"]
	limit, known := memory.number("maxmemory")
	if policy == "" {
		return []Finding{lacks("eviction", "maxmemory_policy")}
	}
	if !known {
		return []Finding{lacks("eviction", "maxmemory")}
	}
	const fix = "set maxmemory-policy to noeviction"
	evicted, _ := stats.number("evicted_keys")
	f := Finding{ID: "eviction", Level: OK, Found: fmt.Sprintf("maxmemory-policy is %s, maxmemory is %d bytes", policy, limit)}
	if limit == 0 {
		f.Found = "maxmemory-policy is " + policy + ", and memory isn't limited"
	}
	switch {
	case policy == "noeviction":
	case evicted > 0:
		f.Level, f.Found = Fail, fmt.Sprintf("maxmemory-policy is %s, and %d keys were evicted since the start", policy, evicted)
		f.Means, f.Fix = "Redis evicts keys, and locks may be among them; a holder learns of it at its next renewal, and two may work until then", fix
	case strings.HasPrefix(policy, "allkeys-"):
		f.Level, f.Means, f.Fix = Fail, "when memory is full Redis evicts any key, also locks; another process then takes the lock while its holder works", fix
	case limit > 0:
		f.Level, f.Means, f.Fix = Fail, "when memory is full Redis evicts keys that have a TTL, and all locks have one; another process then takes the lock while its holder works", fix
	}
	findings := []Finding{f}
	used, ok := memory.number("used_memory")
	switch {
	case limit == 0 || policy != "noeviction":
	case !ok:
		findings = append(findings, lacks("memory", "used_memory"))
	case used*10 > limit*9:
		findings = append(findings, Finding{
			ID: "memory", Level: Warn, Found: fmt.Sprintf("%d%% of maxmemory is used", used*100/limit),
			Means: "when memory is full Redis refuses writes, and no lock can be taken", Fix: "raise maxmemory, or store less",
		})
	default:
		findings = append(findings, Finding{ID: "memory", Level: OK, Found: fmt.Sprintf("%d%% of maxmemory is used", used*100/limit)})
	}
	return findings
}

// evaluatePersistence judges what a restart does. config has what CONFIG GET told, and nothing if it was refused.
func evaluatePersistence(i, config info) []Finding {
	aof, ok := i["aof_enabled"]
	if !ok {
		return []Finding{lacks("persistence", "aof_enabled")}
	}
	const fix = "set appendonly to yes, and appendfsync to everysec or always"
	f := Finding{ID: "persistence", Level: OK}
	save, saveKnown := config["save"]
	switch fsync := config["appendfsync"]; {
	case aof == "1" && fsync == "always":
		f.Found = "AOF, written at once: a restart loses no lock"
	case aof == "1" && fsync == "no":
		f.Level, f.Found, f.Means, f.Fix = Warn, "AOF, with appendfsync no", "a crash of the machine loses the locks of many seconds", "set appendfsync to everysec or always"
	case aof == "1" && fsync == "everysec":
		f.Found = "AOF, written every second: a crash of the machine loses the locks of up to 1 s"
	case aof == "1":
		f.Found = "AOF; CONFIG GET doesn't tell appendfsync"
	case saveKnown && save == "":
		f.Level, f.Found, f.Fix = Warn, "nothing is persisted", fix
		f.Means = "a restart frees all locks while their holders work, until their next renewal; tokens still rise"
	default:
		f.Level, f.Found, f.Fix = Warn, "no AOF; at most snapshots (RDB)", fix
		f.Means = "a restart frees all locks taken since the last snapshot while their holders work, until their next renewal; tokens still rise"
	}
	findings := []Finding{f}
	if s := i["aof_last_write_status"]; aof == "1" && s != "" && s != "ok" {
		findings = append(findings, Finding{
			ID: "aof_write", Level: Fail, Found: "the last write of the AOF: " + s, Means: "Redis refuses writes until one succeeds: no lock can be taken",
			Fix: "look at the disk and the log of the server",
		})
	}
	if s := i["rdb_last_bgsave_status"]; s != "" && s != "ok" {
		f := Finding{
			ID: "bgsave", Level: Fail, Found: "the last snapshot: " + s, Means: "Redis refuses writes until one succeeds, unless stop-writes-on-bgsave-error is no",
			Fix: "look at the disk and the log of the server",
		}
		if config["stop-writes-on-bgsave-error"] == "no" || saveKnown && save == "" {
			f.Level, f.Means = Warn, "Redis takes writes, but a restart may load an old snapshot"
		}
		findings = append(findings, f)
	}
	return findings
}

// evaluateReplicas judges what a failover does.
func evaluateReplicas(i, config info) Finding {
	n, ok := i.number("connected_slaves")
	if !ok {
		return lacks("replicas", "connected_slaves")
	}
	f := Finding{ID: "replicas", Level: OK, Found: fmt.Sprintf("%d replicas", n)}
	if n == 1 {
		f.Found = "1 replica"
	}
	least := cmp.Or(config["min-replicas-to-write"], config["min-slaves-to-write"])
	_, guarded := i["min_slaves_good_slaves"] // INFO has it only where the setting isn't 0
	var worst int64
	for k := range n {
		for field := range strings.SplitSeq(i["slave"+strconv.FormatInt(k, 10)], ",") {
			if text, ok := strings.CutPrefix(field, "lag="); ok {
				lag, _ := strconv.ParseInt(text, 10, 64)
				worst = max(worst, lag)
			}
		}
	}
	switch {
	case n == 0 && (least != "" && least != "0" || guarded):
		f.Level, f.Found, f.Means, f.Fix = Fail, "no replica, and min-replicas-to-write isn't 0", "Redis refuses writes: no lock can be taken", "start a replica"
	case n == 0:
		f.Found = "no replica: no failover can lose a lock, and no lock can be taken while this server is down"
	case worst > 10:
		f.Level, f.Found = Warn, fmt.Sprintf("%s, up to %d s behind", f.Found, worst)
		f.Means, f.Fix = "a failover loses the locks of that time", "look at the network and the replica; use WithReplicas, or NewQuorum, for locks that must not be lost"
	case !guarded && (least == "" || least == "0"):
		f.Level, f.Found = Warn, f.Found+", and min-replicas-to-write is 0"
		f.Means = "replication is asynchronous: a failover can lose a lock, and a primary that was cut off goes on granting"
		f.Fix = "set min-replicas-to-write to 1 and min-replicas-max-lag to a few seconds; use WithReplicas, or NewQuorum, for locks that must not be lost"
	default:
		f.Found += ", and min-replicas-to-write is " + cmp.Or(least, "set") + "; a failover can still lose a lock: WithReplicas makes it rarer"
	}
	return f
}

// evaluateConnections judges how many connections are left.
func evaluateConnections(clients, config info) Finding {
	now, ok := clients.number("connected_clients")
	most, known := clients.number("maxclients")
	if !known {
		most, known = config.number("maxclients")
	}
	switch {
	case !ok:
		return lacks("connections", "connected_clients")
	case !known || most == 0:
		return unknown("connections", "", fmt.Errorf("%d connections, and neither INFO nor CONFIG GET tells maxclients", now))
	}
	f := Finding{ID: "connections", Level: OK, Found: fmt.Sprintf("%d of %d connections are in use", now, most)}
	if now*10 > most*8 {
		f.Level, f.Means = Warn, "Redis refuses further connections; a client needs those of its pool, up to 8 for renewals and 1 for messages"
		f.Fix = "raise maxclients, or make the pools smaller"
	}
	return f
}

// evaluateTracking judges how many keys the server can track for WithLossNotifications.
func evaluateTracking(stats, config info) Finding {
	most, known := config.number("tracking-table-max-keys")
	if !known {
		return unknown("tracking", "", errors.New("CONFIG GET doesn't tell tracking-table-max-keys"))
	}
	now, ok := stats.number("tracking_total_keys")
	if !ok {
		return lacks("tracking", "tracking_total_keys")
	}
	f := Finding{ID: "tracking", Level: OK, Found: fmt.Sprintf("%d keys are tracked, of %d at most", now, most)}
	switch {
	case most == 0:
		f.Found = fmt.Sprintf("%d keys are tracked, and any number can be", now)
	case now*10 > most*9:
		f.Level, f.Means = Warn, "with WithLossNotifications holders are told of a loss at their next renewal, while more locks are held, and keys cached by others, than Redis tracks"
		f.Fix = "raise tracking-table-max-keys"
	}
	return f
}

// evaluateCluster judges CLUSTER INFO and CLUSTER NODES.
func evaluateCluster(i info, nodes string) []Finding {
	f := Finding{ID: "cluster", Level: OK, Found: "all slots are served"}
	if i["cluster_state"] == "" {
		return []Finding{lacks("cluster", "cluster_state")}
	}
	if i["cluster_state"] != "ok" || i["cluster_slots_ok"] != strconv.Itoa(probe.Slots) {
		f = Finding{
			ID: "cluster", Level: Fail, Found: fmt.Sprintf("cluster_state is %s, and %s of %d slots are well", i["cluster_state"], i["cluster_slots_ok"], probe.Slots),
			Means: "locks of the other slots, or all locks, can't be taken", Fix: "start the nodes that are down, or run redis-cli --cluster fix",
		}
	}
	findings := []Finding{f}
	replicas := make(map[string]int)
	primaries := make(map[string]string)
	for line := range strings.Lines(nodes) {
		w := strings.Fields(line)
		if len(w) < 8 {
			continue
		}
		addr, _, _ := strings.Cut(w[1], "@")
		flags := strings.Split(w[2], ",")
		down := slices.Contains(flags, "fail") || slices.Contains(flags, "fail?")
		switch {
		case down && (len(w) > 8 || !slices.Contains(flags, "master")):
			findings = append(findings, Finding{
				ID: "node_state", Level: Fail, Node: addr, Found: "the Cluster takes this node for down",
				Means: "its locks can't be taken, or no replica can take over", Fix: "start it, or forget it",
			})
		case slices.Contains(flags, "slave"):
			replicas[w[3]]++
		}
		if slices.Contains(flags, "master") && len(w) > 8 {
			primaries[w[0]] = addr
		}
	}
	var bare []string
	for id, addr := range primaries {
		if replicas[id] == 0 {
			bare = append(bare, addr)
		}
	}
	if len(bare) > 0 {
		slices.Sort(bare)
		findings = append(findings, Finding{
			ID: "cluster_replicas", Level: Warn, Found: "no replica that is up: " + strings.Join(bare, ", "),
			Means: "when such a primary is down, locks of its slots can't be taken", Fix: "give each primary a replica",
		})
	} else if len(primaries) > 0 {
		findings = append(findings, Finding{ID: "cluster_replicas", Level: OK, Found: "each primary has a replica"})
	}
	return findings
}

// reading is the clock of a server: how far it is ahead of ours, and how wrong that may be.
type reading struct {
	node          string
	ahead, unsure time.Duration
}

const (
	ownClock    = time.Second                               // more than that is seen in logs
	betweenMost = 300*time.Millisecond + 2*time.Millisecond // the margin of the default lease
	betweenFail = 10 * time.Second
)

// evaluateClocks compares clocks with ours and with each other's.
func evaluateClocks(all []reading) (findings []Finding) {
	for _, r := range all {
		f := Finding{ID: "clock", Level: OK, Node: r.node, Found: fmt.Sprintf("%v from this machine's, ±%v", r.ahead.Round(time.Millisecond), r.unsure.Round(time.Millisecond))}
		if r.ahead.Abs()-r.unsure > ownClock {
			f.Level = Warn
			f.Means = "locks stay safe, as lockdog compares no client's clock with Redis's; ages that lockdog shows, and times in logs, are wrong by that"
			f.Fix = "run NTP on both machines, slewed and not stepped: a step of the server's clock ends leases early"
		}
		findings = append(findings, f)
	}
	if len(all) < 2 {
		return findings
	}
	by := func(a, b reading) int { return cmp.Compare(a.ahead, b.ahead) }
	first, last := slices.MinFunc(all, by), slices.MaxFunc(all, by)
	apart := max(0, last.ahead-first.ahead-first.unsure-last.unsure)
	f := Finding{ID: "clock_nodes", Level: OK, Found: fmt.Sprintf("the nodes' clocks differ by %v at least", apart.Round(time.Millisecond))}
	if apart > betweenMost {
		f.Level = Warn
		if apart > betweenFail {
			f.Level = Fail
		}
		f.Found += fmt.Sprintf(": %s is ahead of %s", last.node, first.node)
		f.Means = "after a failover, or when a slot moves, to a node whose clock is ahead, leases end early by that: two processes may hold one lock"
		f.Fix = "run NTP on all servers; clocks have to agree within 1 % of the lease plus 2 ms, which is 302 ms by default"
	}
	return append(findings, f)
}

// evaluateLatency judges round trips.
func evaluateLatency(trips []time.Duration) Finding {
	slices.Sort(trips)
	n := len(trips)
	p50, p99, most := trips[n/2], trips[n*99/100], trips[n-1]
	round := func(d time.Duration) time.Duration { return d.Round(10 * time.Microsecond) }
	f := Finding{ID: "latency", Level: OK, Found: fmt.Sprintf("p50 %v, p99 %v, max %v (%d PINGs)", round(p50), round(p99), round(most), n)}
	if p99 > 100*time.Millisecond || most > time.Second {
		f.Level, f.Means = Warn, "each lock takes a round trip to take and one to release; a short lease may end before its renewal is answered"
		f.Fix = "look for slow commands (SLOWLOG GET), swapping and the network; use leases of many times that"
	}
	return f
}
