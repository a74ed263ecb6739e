package doctor

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockdog/lockdog/cmd/lockdog/internal/connect"
	"github.com/lockdog/lockdog/internal/hashslot"
	"github.com/lockdog/lockdog/internal/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// told are fields of INFO and CONFIG GET.
func told(fields string) facts { return parseInfo(strings.ReplaceAll(fields, " ", "\n")).derive() }

func nodes(lines ...string) facts {
	f, _ := parseNodes(strings.Join(lines, "\n"))
	return f
}

func TestDoctorJudges(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	const primary = "a 127.0.0.1:1@2 myself,master - 0 0 1 connected 0-16383"
	for _, c := range []struct {
		about string
		facts facts
		want  string // id=level, the worst first; those that lack a fact are left out
	}{
		{"nodes", facts{"error": "EOF"}, "node_reachable=fail"},
		{"cluster", facts{"cluster_state": "ok", "cluster_slots_ok": "16384"}, "cluster=ok"},
		{"cluster", facts{"cluster_state": "fail", "cluster_slots_ok": "9"}, "cluster=fail"},
		{"cluster_node", nil, "node_state=fail"},
		{"cluster_nodes", nodes(primary), "cluster_replicas=warn"},
		{"cluster_nodes", nodes(primary, "b 127.0.0.1:3@4 slave a 0 0 1 connected"), "cluster_replicas=ok"},
		{"cluster_nodes", nodes(primary, "b 127.0.0.1:3@4 slave,fail a 0 0 1 disconnected"), "cluster_replicas=warn"},

		{"info", told("redis_version:7.0.15"), "server=ok"},
		{"info", told("redis_version:7.2.4 valkey_version:9.1.2"), "server=ok"},
		{"info", told("redis_version:6.2.1"), "server=warn"},
		{"info", told("redis_version:7.4.0 dragonfly_version:df-v1.30.0"), "server=warn"},
		{"info", told("redis_version:5.0.1"), "server=fail"},
		{"info", told("role:master"), "role=ok"},
		{"info", told("role:slave connected_slaves:1"), "role=fail"},
		{"info", told("role:master connected_slaves:0"), "role=ok replicas=ok"},
		{"info", told("role:master connected_slaves:0 min_slaves_good_slaves:0"), "replicas=fail role=ok"},
		{"info", told("role:master connected_slaves:1 slave0:ip=1,lag=0 min-replicas-to-write:0"), "replicas=warn role=ok"},
		{"info", told("role:master connected_slaves:1 slave0:ip=1,lag=0 min-replicas-to-write:1"), "role=ok replicas=ok"},
		{"info", told("role:master connected_slaves:1 slave0:ip=1,lag=11,type=replica min-replicas-to-write:1"), "replicas=warn role=ok"},
		{"info", told("maxmemory_policy:allkeys-lru maxmemory:0"), "eviction=fail"},
		{"info", told("maxmemory_policy:volatile-lru maxmemory:9"), "eviction=fail"},
		{"info", told("maxmemory_policy:volatile-lru maxmemory:0"), "eviction=ok"},
		{"info", told("maxmemory_policy:volatile-lru maxmemory:0 evicted_keys:1"), "eviction=fail"},
		{"info", told("maxmemory_policy:noeviction maxmemory:0 used_memory:91"), "eviction=ok"},
		{"info", told("maxmemory_policy:noeviction maxmemory:100 used_memory:91"), "memory=warn eviction=ok"},
		{"info", told("maxmemory_policy:noeviction maxmemory:100 used_memory:90"), "eviction=ok memory=ok"},
		{"info", told("aof_enabled:0 save:"), "persistence=warn"},
		{"info", told("aof_enabled:1 appendfsync:everysec"), "persistence=ok"},
		{"info", told("aof_enabled:1 appendfsync:no"), "persistence=warn"},
		{"info", told("aof_enabled:1 aof_last_write_status:err"), "aof_write=fail persistence=ok"},
		{"info", told("aof_enabled:1 rdb_last_bgsave_status:err"), "bgsave=fail persistence=ok"},
		{"info", told("aof_enabled:1 rdb_last_bgsave_status:err stop-writes-on-bgsave-error:no"), "bgsave=warn persistence=ok"},
		{"info", told("connected_clients:80 maxclients:100"), "connections=ok"},
		{"info", told("connected_clients:81 maxclients:100"), "connections=warn"},
		{"info", told("tracking_total_keys:90 tracking-table-max-keys:100"), "tracking=ok"},
		{"info", told("tracking_total_keys:91 tracking-table-max-keys:100"), "tracking=warn"},
		{"info", told("tracking_total_keys:91 tracking-table-max-keys:0"), "tracking=ok"},

		{"clock", reading{"", time.Second, 0}.facts(), "clock=ok"},
		{"clock", reading{"", -3 * time.Second, time.Second}.facts(), "clock=warn"},
		{"clock", reading{"", 3 * time.Second, 2 * time.Second}.facts(), "clock=ok"},
		{"clocks", compare([]reading{{"a", 302 * ms, 0}, {"b", 0, 0}}), "clock_nodes=ok"},
		{"clocks", compare([]reading{{"a", 303 * ms, 0}, {"b", 0, 0}}), "clock_nodes=warn"},
		{"clocks", compare([]reading{{"a", 0, 0}, {"b", 11 * time.Second, 0}}), "clock_nodes=fail"},
		{"latency", percentiles([]time.Duration{ms}), "latency=ok"},
		{"latency", percentiles([]time.Duration{101 * ms, ms}), "latency=warn"},
		{"scripts", facts{}, "scripts=ok"},
		{"scripts", facts{"error": "NOSCRIPT No matching script"}, "scripts=warn"},
		{"scripts", facts{"error": "EOF"}, "scripts=fail"},
		{"pubsub", facts{"id": "pubsub"}, "pubsub=ok"},
		{"pubsub", facts{"id": "pubsub", "error": "EOF"}, "pubsub=warn"},
		{"pubsub", facts{"id": "pubsub_sharded", "error": "MOVED 1 127.0.0.1:1"}, ""},
		{"proxy", facts{"ids": "1", "runs": "1"}, "proxy=ok"},
		{"proxy", facts{"ids": "1", "runs": "2"}, "proxy=warn"},

		{"rights", facts{"id": "acl_mutex", "kind": "Mutex"}, "acl_mutex=ok"},
		{"rights", facts{"id": "acl_multi", "kind": "Multi", "missing": "+get"}, "acl_multi=warn"},
		{"rights", facts{"id": "acl_multi", "kind": "Multi", "missing": "+get", "needed": "yes"}, "acl_multi=fail"},
		{"rights", facts{"id": "acl_on_cluster", "kind": "on a Cluster", "row": "on_cluster", "missing": "+spublish"}, "acl_on_cluster=fail"},
		{"locks", facts{"id": "lock_mutex", "kind": "Mutex"}, "lock_mutex=ok"},
		{"locks", facts{"id": "lock_multi", "kind": "Multi", "error": "NOPERM", "cause": "refused"}, "lock_multi=warn"},
		{"locks", facts{"id": "lock_multi", "kind": "Multi", "error": "NOPERM", "cause": "refused", "needed": "yes"}, "lock_multi=fail"},
		{"locks", facts{"id": "lock_renewal", "kind": "renewal", "error": "lost", "cause": "lost"}, "lock_renewal=fail"},
		{"locks", facts{"id": "lock_waiting", "kind": "two clients", "error": "late", "cause": "late"}, "lock_waiting=warn"},
		{"locks", facts{"id": "lock_latch", "kind": "Latch", "error": "EOF"}, "lock_latch=fail"},
	} {
		var got []string
		for _, f := range judge([]answer{{c.about, "", c.facts}}) {
			if (f.Level == OK) != (f.Means == "" && f.Fix == "") {
				t.Errorf("%v: the wrong words: %+v", c.facts, f)
			}
			if f.Level != Unknown {
				got = append(got, f.ID+"="+string(f.Level))
			}
		}
		if got := strings.Join(got, " "); got != c.want {
			t.Errorf("%s, %v: %s, want %s", c.about, c.facts, got, c.want)
		}
	}
	_, down := parseNodes(primary + "\nb 127.0.0.1:3@4 slave,fail a 0 0 1 -\nc 127.0.0.1:5@6 master,fail - 0 0 1 -\n")
	if !slices.Equal(down, []string{"127.0.0.1:3"}) {
		t.Errorf("down are %v, want the replica, and not a primary without slots", down)
	}
}

// What couldn't be asked, or wasn't told, is unknown.
func TestDoctorDoesNotKnow(t *testing.T) {
	t.Parallel()
	const ofInfo = "server role replicas eviction memory persistence connections tracking"
	for _, c := range []struct {
		about      string
		facts      facts
		ids        string
		found, fix string
	}{
		{"info", facts{"error": "NOPERM no permissions"}, ofInfo, "NOPERM no permissions", "run doctor as a user who may"},
		{"info", facts{}, ofInfo, "neither INFO nor CONFIG GET tells ", "check it by hand"},
		{"clock", facts{"ahead": "0s", "error": "EOF"}, "clock", "EOF", "check it by hand"},
		{"proxy", facts{"ids": "0", "runs": "0", "error": "NOPERM no permissions"}, "proxy", "NOPERM no permissions", "run doctor as a user who may"},
		{"rights", facts{"id": "acl", "error": "EOF"}, "acl", "EOF", "check it by hand"},
		{"locks", facts{"id": "lock_others", "error": "EOF"}, "lock_others", "EOF", "check it by hand"},
	} {
		var ids []string
		for _, f := range judge([]answer{{c.about, "", c.facts}}) {
			ids = append(ids, f.ID)
			if f.Level != Unknown || !strings.HasPrefix(f.Found, "can't be checked: "+c.found) || !strings.HasPrefix(f.Fix, c.fix) {
				t.Errorf("%s, %v: %+v", c.about, c.facts, f)
			}
		}
		if got := strings.Join(ids, " "); got != c.ids {
			t.Errorf("%s, %v: %s, want %s", c.about, c.facts, got, c.ids)
		}
	}
}

// Each command that a rule allows can be tried.
func TestDoctorTriesEachCommand(t *testing.T) {
	t.Parallel()
	for _, row := range rules {
		for _, rule := range row.Rules() {
			if len(callsFor(rule)) == 0 && !strings.HasSuffix(rule, "subscribe") {
				t.Errorf("nothing tries %s", rule)
			}
		}
	}
}

// Rules are spelled, and tried, as docs/ACL.md has it for prefixes and names with braces.
func TestDoctorSpellsRules(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ prefix, rule, spelled, place string }{
		{"", "~job*", "~job*", "job-1{job-1}"},
		{"app:", "~lockdog:fence:*", "~app:lockdog:fence:*", "app:lockdog:fence:{app:job-1}"},
		{"app:", "~lockdog_wait:{job*", "~lockdog_wait:{app:job*", "lockdog_wait:{app:job-1{app:job-1}"},
		{"app:", "~{job*}:*", "~{app:job*}:*", "{app:job-1{app:job-1}}:{app:job-1}"},
		{"app:", "&redisson_lock__channel:*", "&redisson_lock__channel:*", "redisson_lock__channel:{app:job-1}"},
		{"{app}:", "~lockdog_wait:{job*", "~lockdog_wait:{app}:job*", "lockdog_wait:{app}:job-1{app}:job-1"},
	} {
		target := &target{server: &connect.Server{Prefix: c.prefix}, key: c.prefix + "job-1"}
		if spelled, place := target.spell(c.rule, c.prefix+"job"), target.place(c.rule); spelled != c.spelled || place != c.place {
			t.Errorf("%q, %s: %s and %s, want %s and %s", c.prefix, c.rule, spelled, place, c.spelled, c.place)
		}
	}
}

// Names of tries stay in one slot, so that runs leave one token counter.
func TestDoctorNames(t *testing.T) {
	t.Parallel()
	if got := hashslot.Of("123456789"); got != 12739 {
		t.Errorf("slot %d, want 12739, as the Cluster specification has it", got)
	}
	if hashslot.Of("a{b}c") != hashslot.Of("b") || hashslot.Of("a{}c") == hashslot.Of("") {
		t.Error("hash tags")
	}
	one := &target{server: &connect.Server{Prefix: "p:"}, opts: Options{Name: "job"}}
	a, b := one.fresh(), one.fresh()
	if a == b || hashslot.Of("p:"+a) != hashslot.Of("p:"+b) || !strings.HasPrefix(a, "job:lockdog-doctor-") {
		t.Errorf("%q and %q", a, b)
	}
}
