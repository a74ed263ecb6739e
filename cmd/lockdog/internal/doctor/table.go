package doctor

import (
	"cmp"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lockdog/lockdog/internal/acl"
)

// check judges the facts about a subject. In its texts, $name stands for a fact.
type check struct {
	about string // the subject
	id    string // of the finding
	// needs has the names of facts. If one is missing, or after an error, the result is unknown. "": the cases judge
	// the error
	needs string
	found string // what is found if no case says something else; "": no finding
	cases []outcome
}

// outcome is the result of a check if its condition is the first that holds; a nil condition always holds. If none
// holds, the result is ok, or no finding if check.found is empty. An outcome without a level is no finding.
type outcome struct {
	when  cond
	level Level
	found string
	means string
	fix   string
}

const (
	setAOF     = "set appendonly to yes, and appendfsync to everysec or always"
	readLog    = "look at the disk and the log of the server"
	noEviction = "set maxmemory-policy to noeviction"
	differ     = "the nodes' clocks differ by $apart at least: $last is ahead of $first"
	leasesEnd  = "after a failover, or when a slot moves, to a node whose clock is ahead, leases end early by that: two processes may hold one lock"
	runNTP     = "run NTP on all servers; clocks have to agree within 1 % of the lease plus 2 ms, which is 302 ms by default"
	replicated = "$replicas, and min-replicas-to-write isn't 0; a failover can still lose a lock: WithReplicas makes it rarer"
	tracked    = "$tracking_total_keys keys are tracked, of ${tracking-table-max-keys} at most"
	noGraph    = "no deadlock across processes is found, or waits of a second aren't shown"
	giveRules  = "give the Redis user these rules; docs/ACL.md lists all$hint"
	proxy      = "there seems to be a proxy: "
	untested   = "lockdog isn't tested with proxies; messages and tracking need a connection of their own"
	direct     = "connect to the server itself"
	cannot     = "can't be checked: $error"
	maybe      = "it may be right or wrong"
)

// guarded holds if the primary refuses writes when too few replicas are connected. INFO has min_slaves_good_slaves only
// in that case. The condition uses that field too because CONFIG GET may be refused.
var guarded = either(has("min_slaves_good_slaves"), over("min-replicas-to-write", 0))

var checks = []check{ // about, id, needs, found
	{"nodes", "node_reachable", "", "", []outcome{
		fail(nil, "no answer: $error", "locks in its slots can't be taken, renewed or released",
			"start the node, or let a replica take over"),
	}},

	{"cluster", "cluster", "cluster_state", "all slots are served", []outcome{
		fail(not(all(is("cluster_state", "ok"), is("cluster_slots_ok", "16384"))),
			"cluster_state is $cluster_state, and $cluster_slots_ok of 16384 slots are well",
			"locks of the other slots, or all locks, can't be taken",
			"start the nodes that are down, or run redis-cli --cluster fix"),
	}},
	{"cluster_node", "node_state", "", "", []outcome{
		fail(nil, "the Cluster takes this node for down", "its locks can't be taken, or no replica can take over",
			"start it, or forget it"),
	}},
	{"cluster_nodes", "cluster_replicas", "primaries", "each primary has a replica", []outcome{
		warn(has("bare"), "no replica that is up: $bare",
			"when such a primary is down, locks of its slots can't be taken",
			"give each primary a replica"),
	}},

	{"info", "server", "redis_version", "$server", []outcome{
		ok(is("release", "Redis 7", "Redis 8", "Valkey 8", "Valkey 9", "Redict 7"), ""),
		fail(is("release", "Redis 2", "Redis 3", "Redis 4", "Redis 5"), "",
			"it is older than 6.0, which has no ACL and no HELLO; lockdog was never tried on it",
			"use Redis 7 or newer, or Valkey 8 or newer"),
		warn(nil, "", "lockdog isn't tested on this version",
			"use a version that docs/PRODUCTION.md lists, such as Redis 8 or Valkey 9"),
	}},
	{"info", "role", "role", "a primary", []outcome{
		fail(not(is("role", "master")), "a replica, of $master_host:$master_port",
			"it is read-only: no lock can be taken",
			"let -u point at the primary, or at the Sentinels"),
	}},
	{"info", "replicas", "connected_slaves", replicated, []outcome{
		none(not(is("role", "master"))),
		fail(all(is("connected_slaves", "0"), guarded), "no replica, and min-replicas-to-write isn't 0",
			"Redis refuses writes: no lock can be taken",
			"start a replica"),
		ok(is("connected_slaves", "0"),
			"no replica: no failover can lose a lock, and no lock can be taken while this server is down"),
		warn(over("lag", 10), "$replicas, up to $lag s behind", "a failover loses the locks of that time",
			"look at the network and the replica; use WithReplicas, or NewQuorum, for locks that must not be lost"),
		warn(not(guarded), "$replicas, and min-replicas-to-write is 0",
			"replication is asynchronous: a failover can lose a lock, and a primary that was cut off goes on granting",
			"set min-replicas-to-write to 1 and min-replicas-max-lag to a few seconds; use WithReplicas, or NewQuorum, for locks that must not be lost"),
	}},
	{
		"info", "eviction", "maxmemory_policy maxmemory",
		"maxmemory-policy is $maxmemory_policy, and memory isn't limited",
		[]outcome{
			ok(all(is("maxmemory_policy", "noeviction"), over("maxmemory", 0)),
				"maxmemory-policy is noeviction, maxmemory is $maxmemory bytes"),
			ok(is("maxmemory_policy", "noeviction"), ""),
			fail(over("evicted_keys", 0),
				"maxmemory-policy is $maxmemory_policy, and $evicted_keys keys were evicted since the start",
				"Redis evicts keys, and locks may be among them; a holder learns of it at its next renewal, and two may work until then", noEviction),
			fail(says("maxmemory_policy", "allkeys-"), "maxmemory-policy is $maxmemory_policy",
				"when memory is full Redis evicts any key, also locks; another process then takes the lock while its holder works", noEviction),
			fail(over("maxmemory", 0), "maxmemory-policy is $maxmemory_policy, maxmemory is $maxmemory bytes",
				"when memory is full Redis evicts keys that have a TTL, and all locks have one; another process then takes the lock while its holder works",
				noEviction),
		},
	},
	{"info", "memory", "used_memory", "$used_memory_human of maxmemory, $maxmemory_human, are used", []outcome{
		none(not(all(is("maxmemory_policy", "noeviction"), over("maxmemory", 0)))),
		warn(share("used_memory", 90, "maxmemory"), "",
			"when memory is full Redis refuses writes, and no lock can be taken",
			"raise maxmemory, or store less"),
	}},
	{"info", "persistence", "aof_enabled", "AOF; CONFIG GET doesn't tell appendfsync", []outcome{
		warn(all(not(is("aof_enabled", "1")), is("save", "")), "nothing is persisted",
			"a restart frees all locks while their holders work, until their next renewal; tokens still rise", setAOF),
		warn(not(is("aof_enabled", "1")), "no AOF; at most snapshots (RDB)",
			"a restart frees all locks taken since the last snapshot while their holders work, until their next renewal; tokens still rise", setAOF),
		ok(is("appendfsync", "always"), "AOF, written at once: a restart loses no lock"),
		ok(is("appendfsync", "everysec"),
			"AOF, written every second: a crash of the machine loses the locks of up to 1 s"),
		warn(is("appendfsync", "no"), "AOF, with appendfsync no",
			"a crash of the machine loses the locks of many seconds",
			"set appendfsync to everysec or always"),
	}},
	{"info", "aof_write", "", "", []outcome{
		fail(all(is("aof_enabled", "1"), has("aof_last_write_status"), not(is("aof_last_write_status", "ok"))),
			"the last write of the AOF: $aof_last_write_status",
			"Redis refuses writes until one succeeds: no lock can be taken", readLog),
	}},
	{"info", "bgsave", "", "the last snapshot: $rdb_last_bgsave_status", []outcome{
		none(not(all(has("rdb_last_bgsave_status"), not(is("rdb_last_bgsave_status", "ok"))))),
		warn(either(is("stop-writes-on-bgsave-error", "no"), is("save", "")), "",
			"Redis takes writes, but a restart may load an old snapshot", readLog),
		fail(nil, "", "Redis refuses writes until one succeeds, unless stop-writes-on-bgsave-error is no", readLog),
	}},
	{
		"info", "connections", "connected_clients maxclients",
		"$connected_clients of $maxclients connections are in use",
		[]outcome{
			warn(share("connected_clients", 80, "maxclients"), "",
				"Redis refuses further connections; a client needs those of its pool, up to 8 for renewals and 1 for messages",
				"raise maxclients, or make the pools smaller"),
		},
	},
	{"info", "tracking", "tracking-table-max-keys tracking_total_keys", tracked, []outcome{
		ok(is("tracking-table-max-keys", "0"), "$tracking_total_keys keys are tracked, and any number can be"),
		warn(share("tracking_total_keys", 90, "tracking-table-max-keys"), "",
			"with WithLossNotifications holders are told of a loss at their next renewal, while more locks are held, and keys cached by others, "+
				"than Redis tracks",
			"raise tracking-table-max-keys"),
	}},

	{"clock", "clock", "ahead", "$ahead from this machine's, ±$unsure", []outcome{
		warn(longer("off", time.Second), "",
			"locks stay safe, as lockdog compares no client's clock with Redis's; ages that lockdog shows, and times in logs, are wrong by that",
			"run NTP on both machines, slewed and not stepped: a step of the server's clock ends leases early"),
	}},
	{"clocks", "clock_nodes", "apart", "the nodes' clocks differ by $apart at least", []outcome{
		fail(longer("apart", 10*time.Second), differ, leasesEnd, runNTP),
		warn(longer("apart", 302*time.Millisecond), differ, leasesEnd, runNTP),
	}},
	{"latency", "latency", "p50", "p50 $p50, p99 $p99, max $max ($pings PINGs)", []outcome{
		warn(either(longer("p99", 100*time.Millisecond), longer("max", time.Second)), "",
			"each lock takes a round trip to take and one to release; a short lease may end before its renewal is answered",
			"look for slow commands (SLOWLOG GET), swapping and the network; use leases of many times that"),
	}},
	{"scripts", "scripts", "", "scripts run; one took $took", []outcome{
		warn(says("error", "NOSCRIPT"), "a script is forgotten at once",
			"each call sends its script again, which costs time; there may be several servers behind this address",
			direct),
		fail(has("error"), "a script can't run: $error", "no lock can be taken",
			"allow EVAL and EVALSHA (docs/ACL.md), or look at what Redis says"),
	}},
	{"pubsub", "$id", "", "a message came back", []outcome{
		none(says("error", "MOVED")), // another node has the channel
		warn(has("error"), "a message doesn't come back: $error",
			"waiters of other processes aren't woken by a release: they try when the holder's lease should have ended",
			"allow SUBSCRIBE, PUBLISH and the channels (docs/ACL.md); connect without a proxy"),
	}},
	{"proxy", "proxy", "ids", "no sign of a proxy", []outcome{
		warn(over("ids", 1), proxy+"CLIENT ID differs on one connection", untested, direct),
		warn(over("runs", 1), proxy+"run_id differs from call to call", untested, direct),
		warn(has("unknown"), proxy+"a command is unknown: $unknown", untested, direct),
		warn(has("slots"), proxy+"a script may not have keys of two slots: $slots", untested, direct),
	}},

	{"rights", "$id", "kind", "$kind: missing $missing ($says)", []outcome{
		ok(not(has("missing")), "$kind: no right is missing"),
		warn(is("row", acl.OneOfSeveral), "",
			"a release wakes a waiter in each process, and not one of all: all but one find the lock taken again",
			giveRules),
		fail(all(is("row", acl.WaitGraph), has("needed")), "", noGraph, giveRules+"; WithWaitGraph(0) does without"),
		warn(is("row", acl.WaitGraph), "", noGraph, giveRules+"; WithWaitGraph(0) does without"),
		fail(is("row", acl.OnCluster), "", "clients can't find the nodes, or waiters aren't woken", giveRules),
		fail(has("needed"), "", "calls of this kind fail", giveRules),
		warn(is("row", acl.Mutex.ID), "",
			"locks work, but waiters of other processes may try only when the holder's lease should have ended, and many locks at once take longer",
			giveRules),
		warn(nil, "", "this kind fails for this user, or is slow; that is right if the service doesn't use it (--kind says which it uses)", giveRules),
	}},
	{"locks", "$id", "", "$kind: $error", []outcome{
		{not(has("kind")), Unknown, cannot, maybe, "check it by hand"},
		ok(all(not(has("error")), is("id", "lock_renewal")), "locks were held until they had been renewed"),
		ok(all(not(has("error")), is("id", "lock_waiting")), "two clients took a lock in turn"),
		ok(not(has("error")), "$kind: taken and released"),
		fail(is("cause", "lost"), "", "the service loses its locks while it holds them",
			"look at what Redis says, and don't put a proxy between that refuses scripts"),
		warn(is("cause", "late"), "", "waiters get a lock late", "see the findings about pub/sub and the ACL"),
		warn(all(is("cause", "refused"), not(has("needed"))), "", "this kind can't be used by this user",
			"see the findings about the ACL"),
		fail(is("cause", "refused"), "", "locks can't be used by this user", "see the findings about the ACL"),
		fail(nil, "", "the service's locks will fail in the same way", "look at what Redis says"),
	}},
}

// unknown has the cases for each check with needs, if a needed fact is missing or there was an error.
var unknown = []outcome{
	{says("error", refusals...), Unknown, cannot, maybe, "run doctor as a user who may, or check it by hand"},
	{nil, Unknown, cannot, maybe, "check it by hand"},
}

// judge returns the findings for the answers. The worst come first.
func judge(answers []answer) (findings []Finding) {
	slices.SortStableFunc(answers, func(a, b answer) int { return cmp.Compare(a.node, b.node) })
	for _, c := range checks {
		for _, a := range answers {
			if a.about != c.about {
				continue
			}
			if f := c.judge(a); f.Level != "" {
				findings = append(findings, f)
			}
		}
	}
	slices.SortStableFunc(findings, func(a, b Finding) int { return cmp.Compare(a.Level.rank(), b.Level.rank()) })
	return findings
}

// judge returns the finding for an answer. A finding without a level is none.
func (c check) judge(a answer) Finding {
	known, cases, why := a.facts, c.cases, a.facts["error"]
	for need := range strings.FieldsSeq(c.needs) {
		if _, ok := known[need]; !ok {
			why = cmp.Or(why, "neither INFO nor CONFIG GET tells "+need)
		}
	}
	if c.needs != "" && why != "" {
		known, cases = facts{"id": known["id"], "error": why}, unknown
	}
	o := outcome{level: OK}
	if i := slices.IndexFunc(cases, func(o outcome) bool { return o.when == nil || o.when(known) }); i >= 0 {
		o = cases[i]
	} else if c.found == "" {
		o.level = ""
	}
	text := func(s string) string { return os.Expand(s, func(name string) string { return known[name] }) }
	return Finding{text(c.id), o.level, a.node, text(cmp.Or(o.found, c.found)), text(o.means), text(o.fix)}
}

func fail(when cond, found, means, fix string) outcome { return outcome{when, Fail, found, means, fix} }

func warn(when cond, found, means, fix string) outcome { return outcome{when, Warn, found, means, fix} }

func ok(when cond, found string) outcome { return outcome{when: when, level: OK, found: found} }

func none(when cond) outcome { return outcome{when: when} }

// cond is a condition on facts.
type cond func(facts) bool

// has holds if the fact exists and isn't "".
func has(name string) cond { return func(f facts) bool { return f[name] != "" } }

// is holds if the fact has one of the values.
func is(name string, values ...string) cond {
	return func(f facts) bool {
		value, ok := f[name]
		return ok && slices.Contains(values, value)
	}
}

// says holds if the fact contains one of the parts.
func says(name string, parts ...string) cond {
	return func(f facts) bool {
		return slices.ContainsFunc(parts, func(part string) bool { return strings.Contains(f[name], part) })
	}
}

// over holds if the number is larger than limit.
func over(name string, limit int64) cond { return func(f facts) bool { return f.number(name) > limit } }

// longer holds if the duration is longer than limit.
func longer(name string, limit time.Duration) cond {
	return func(f facts) bool {
		d, _ := time.ParseDuration(f[name])
		return d > limit
	}
}

// share holds if the number is larger than percent % of another.
func share(name string, percent int64, of string) cond {
	return func(f facts) bool { return f.number(name)*100 > f.number(of)*percent }
}

// not, all and either combine conditions.
func not(c cond) cond { return func(f facts) bool { return !c(f) } }

func all(conds ...cond) cond {
	return func(f facts) bool { return !slices.ContainsFunc(conds, func(c cond) bool { return !c(f) }) }
}

func either(a, b cond) cond { return func(f facts) bool { return a(f) || b(f) } }

// number returns a fact as a number, 0 if it is none.
func (f facts) number(name string) int64 {
	n, _ := strconv.ParseInt(f[name], 10, 64)
	return n
}
