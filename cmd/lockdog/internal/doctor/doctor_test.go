package doctor

import (
	"strings"
	"testing"
	"time"

	"github.com/lockdog/lockdog/internal/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// levels are the findings in short: id=level.
func levels(findings ...Finding) string {
	var all []string
	for _, f := range findings {
		all = append(all, f.ID+"="+string(f.Level))
		if (f.Level == OK) != (f.Means == "" && f.Fix == "") {
			all = append(all, "with the wrong words")
		}
	}
	return strings.Join(all, " ")
}

func TestDoctorEvaluates(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ got, want string }{
		"tested":               {levels(evaluateServer(info{"redis_version": "7.0.15"})), "server=ok"},
		"valkey":               {levels(evaluateServer(info{"redis_version": "7.2.4", "valkey_version": "9.1.2"})), "server=ok"},
		"untested":             {levels(evaluateServer(info{"redis_version": "6.2.1"})), "server=warn"},
		"old":                  {levels(evaluateServer(info{"redis_version": "5.0.1"})), "server=fail"},
		"no version":           {levels(evaluateServer(info{})), "server=unknown"},
		"primary":              {levels(evaluateRole(info{"role": "master"})), "role=ok"},
		"replica":              {levels(evaluateRole(info{"role": "slave"})), "role=fail"},
		"allkeys":              {levels(evaluateMemory(info{"maxmemory_policy": "allkeys-lru", "maxmemory": "0"}, nil)...), "eviction=fail"},
		"volatile":             {levels(evaluateMemory(info{"maxmemory_policy": "volatile-lru", "maxmemory": "9"}, nil)...), "eviction=fail"},
		"volatile, unlimited":  {levels(evaluateMemory(info{"maxmemory_policy": "volatile-lru", "maxmemory": "0"}, nil)...), "eviction=ok"},
		"evicted":              {levels(evaluateMemory(info{"maxmemory_policy": "volatile-lru", "maxmemory": "9"}, info{"evicted_keys": "1"})...), "eviction=fail"},
		"full":                 {levels(evaluateMemory(info{"maxmemory_policy": "noeviction", "maxmemory": "100", "used_memory": "91"}, nil)...), "eviction=ok memory=warn"},
		"room":                 {levels(evaluateMemory(info{"maxmemory_policy": "noeviction", "maxmemory": "100", "used_memory": "90"}, nil)...), "eviction=ok memory=ok"},
		"no persistence":       {levels(evaluatePersistence(info{"aof_enabled": "0"}, info{"save": ""})...), "persistence=warn"},
		"aof":                  {levels(evaluatePersistence(info{"aof_enabled": "1"}, info{"appendfsync": "everysec"})...), "persistence=ok"},
		"aof fails":            {levels(evaluatePersistence(info{"aof_enabled": "1", "aof_last_write_status": "err"}, nil)...), "persistence=ok aof_write=fail"},
		"bgsave fails":         {levels(evaluatePersistence(info{"aof_enabled": "1", "rdb_last_bgsave_status": "err"}, nil)...), "persistence=ok bgsave=fail"},
		"bgsave may fail":      {levels(evaluatePersistence(info{"aof_enabled": "1", "rdb_last_bgsave_status": "err"}, info{"stop-writes-on-bgsave-error": "no"})...), "persistence=ok bgsave=warn"},
		"alone":                {levels(evaluateReplicas(info{"connected_slaves": "0"}, nil)), "replicas=ok"},
		"alone, min-replicas":  {levels(evaluateReplicas(info{"connected_slaves": "0", "min_slaves_good_slaves": "0"}, nil)), "replicas=fail"},
		"asynchronous":         {levels(evaluateReplicas(info{"connected_slaves": "1", "slave0": "ip=1,lag=0"}, info{"min-replicas-to-write": "0"})), "replicas=warn"},
		"min-replicas":         {levels(evaluateReplicas(info{"connected_slaves": "1", "slave0": "ip=1,lag=0"}, info{"min-replicas-to-write": "1"})), "replicas=ok"},
		"a replica that lags":  {levels(evaluateReplicas(info{"connected_slaves": "1", "slave0": "ip=1,lag=11"}, info{"min-replicas-to-write": "1"})), "replicas=warn"},
		"connections":          {levels(evaluateConnections(info{"connected_clients": "80", "maxclients": "100"}, nil)), "connections=ok"},
		"many connections":     {levels(evaluateConnections(info{"connected_clients": "81"}, info{"maxclients": "100"})), "connections=warn"},
		"tracking":             {levels(evaluateTracking(info{"tracking_total_keys": "90"}, info{"tracking-table-max-keys": "100"})), "tracking=ok"},
		"any tracking":         {levels(evaluateTracking(info{"tracking_total_keys": "90"}, info{"tracking-table-max-keys": "0"})), "tracking=ok"},
		"full tracking":        {levels(evaluateTracking(info{"tracking_total_keys": "91"}, info{"tracking-table-max-keys": "100"})), "tracking=warn"},
		"no tracking":          {levels(evaluateTracking(info{"tracking_total_keys": "91"}, info{})), "tracking=unknown"},
		"no maxclients":        {levels(evaluateConnections(info{"connected_clients": "81"}, nil)), "connections=unknown"},
		"clock":                {levels(evaluateClocks([]reading{{"", time.Second, 0}})...), "clock=ok"},
		"wrong clock":          {levels(evaluateClocks([]reading{{"", -3 * time.Second, time.Second}})...), "clock=warn"},
		"clock, far":           {levels(evaluateClocks([]reading{{"", 3 * time.Second, 2 * time.Second}})...), "clock=ok"},
		"clocks apart":         {levels(evaluateClocks([]reading{{"a", 0, 0}, {"b", 303 * time.Millisecond, 0}})...), "clock=ok clock=ok clock_nodes=warn"},
		"clocks far apart":     {levels(evaluateClocks([]reading{{"a", 0, 0}, {"b", 11 * time.Second, 0}})...), "clock=ok clock=warn clock_nodes=fail"},
		"fast":                 {levels(evaluateLatency([]time.Duration{time.Millisecond})), "latency=ok"},
		"slow":                 {levels(evaluateLatency([]time.Duration{time.Millisecond, 101 * time.Millisecond})), "latency=warn"},
		"cluster, slots left":  {levels(evaluateCluster(info{"cluster_state": "fail", "cluster_slots_ok": "9"}, "")...), "cluster=fail"},
		"cluster, no replicas": {levels(evaluateCluster(info{"cluster_state": "ok", "cluster_slots_ok": "16384"}, "id 127.0.0.1:1@2 myself,master - 0 0 1 connected 0-16383\n")...), "cluster=ok cluster_replicas=warn"},
		"cluster, node down": {levels(evaluateCluster(info{"cluster_state": "ok", "cluster_slots_ok": "16384"},
			"a 127.0.0.1:1@2 master - 0 0 1 connected 0-16383\nb 127.0.0.1:3@4 slave,fail a 0 0 1 disconnected\n")...), "cluster=ok node_state=fail cluster_replicas=warn"},
	} {
		if c.got != c.want {
			t.Errorf("%s: %s, want %s", name, c.got, c.want)
		}
	}
}

// Each command that a rule allows can be tried.
func TestDoctorTriesEachCommand(t *testing.T) {
	t.Parallel()
	for _, row := range rules {
		for _, rule := range row.Rules() {
			if command, ok := strings.CutPrefix(rule, "+"); ok && tries[command] == "" && !strings.Contains(command, "subscribe") {
				t.Errorf("nothing tries %s", rule)
			}
		}
	}
}
