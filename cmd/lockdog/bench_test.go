package main

import (
	"encoding/json"
	"strconv"
	"strings"
	"testing"

	"github.com/lockdog/lockdog/cmd/lockdog/internal/bench"
	"github.com/lockdog/lockdog/internal/redistest"
)

// Each phase measures something, within the rate, and leaves nothing but the token counter.
func TestBench(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb := server.Client(t)
	const qps, seconds = 100, 2
	r := lockdog(t, server.Addr(), nil, "bench", "--duration", strconv.Itoa(seconds)+"s", "--max-qps", strconv.Itoa(qps), "--name", "job", "--json")
	r.want(t, 0, "redis_cpu_percent", "")
	var got []string
	for line := range strings.Lines(r.stdout) {
		var p bench.Phase
		if err := json.Unmarshal([]byte(line), &p); err != nil {
			t.Fatal(err)
		}
		if p.Phase != "" {
			got = append(got, p.Phase)
			if p.N < 3 || p.P50 <= 0 || p.P50 > p.P99 || p.P99 > p.Max {
				t.Errorf("%+v", p)
			}
			if least := map[string]int{bench.Ping: 1, bench.Free: 2, bench.Held: 1, bench.HandOver: 4}[p.Phase]; p.Commands < least || p.Commands > least+2 {
				t.Errorf("%s: %d commands for each operation, want %d or a few more", p.Phase, p.Commands, least)
			}
		}
	}
	if want := []string{bench.Ping, bench.Free, bench.Held, bench.HandOver}; strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("%q, want %q", got, want)
	}
	commands, err := rdb.InfoMap(t.Context(), "commandstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	sent := 0
	for _, name := range []string{"evalsha", "eval", "ping", "subscribe", "unsubscribe"} { // without what scripts call
		text, _, _ := strings.Cut(strings.TrimPrefix(commands["Commandstats"]["cmdstat_"+name], "calls="), ",")
		n, _ := strconv.Atoi(text)
		sent += n
	}
	if most := qps*seconds + 30; sent > most || sent < 20 { // beside the rate: what loads scripts and connects
		t.Errorf("%d commands, want at most %d", sent, most)
	}
	for _, key := range rdb.Keys(t.Context(), "*").Val() {
		if !strings.HasPrefix(key, "lockdog:fence:") {
			t.Errorf("left behind: %s", key)
		}
	}
}

func TestBenchForPeople(t *testing.T) {
	t.Parallel()
	cluster := redistest.StartCluster(t, 0)
	address := cluster.Universal().Addrs[0]
	r := lockdog(t, address, nil, "bench", "--duration", "1s")
	r.want(t, 0, "A free lock and its release take", "")
	for _, text := range phaseTexts {
		if !strings.Contains(r.stdout, text) {
			t.Errorf("no %q in\n%s", text, r.stdout)
		}
	}
	lockdog(t, address, nil, "bench", "--duration", "0s").want(t, exitUsage, "", "--duration")
	lockdog(t, address, nil, "bench", "--max-qps", "1").want(t, exitUsage, "", "--max-qps")
}

// Ctrl-C ends it at once, with what it has, and nothing stays.
func TestBenchInterrupted(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	rdb := server.Client(t)
	s := start(t, server.Addr(), "bench", "--duration", "10m")
	until(t, "it measures", func() bool {
		return rdb.Info(t.Context(), "commandstats").Val() != "" && strings.Contains(rdb.Info(t.Context(), "commandstats").Val(), "cmdstat_ping")
	})
	send(t, s, 2)
	s.end(t).want(t, 130, "", "")
	for _, key := range rdb.Keys(t.Context(), "*").Val() {
		if !strings.HasPrefix(key, "lockdog:fence:") {
			t.Errorf("left behind: %s", key)
		}
	}
}
