package main

import (
	"bytes"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockdog/lockdog/loadtest/internal/cli"
	"github.com/lockdog/lockdog/loadtest/internal/wire"
)

func TestFlagsThatCantBe(t *testing.T) {
	t.Parallel()
	tests := []struct{ args, says string }{
		{"-x", "-x"},
		{"now", `unexpected argument "now"`},
		{"-redis localhost", "host:port"},
		{"-redis http://localhost:1", "http"},
		{"-redis 127.0.0.1:1 -cluster", "-cluster"},
		{"-redis 127.0.0.1:1 -wave", "-wave"},
		{"-redis 127.0.0.1:1 -rtt 1ms", "a server of this program's own"},
		{"-cluster -rtt 1ms", "nodes of a cluster"},
		{"-rtt -1ms", "0 (none) to 1s"},
		{"-rtt 1001ms", "0 (none) to 1s"},
		{"-rtt 5", "-rtt"},
		{"-locks 10,x", "numbers from 1"},
		{"-locks 0", "numbers from 1"},
		{"-locks 11000000", "to 10000000"},
		{"-locks 3", "at least two for each"},
		{"-lease 10ms", "100ms"},
		{"-duration -1s", "-duration"},
		{"-duration 48h", "24h"},
		{"-rounds 0", "1 to 100"},
		{"-clients 65", "1 to 64"},
		{"-modes none,fast", `"fast" is not one of none, per-lock, batched, redisson`},
		{"-foreground -1", "0 (none) to"},
		{"-churn 5", "-soak"},
		{"-soak 1s", "30s, three renewals"},
		{"-soak 5m -wave", "one at a time"},
		{"-soak 5m -modes none", "-modes"},
		{"-soak 5m -churn -1", "-churn"},
		{"-json=", "-json is empty"},
	}
	for _, test := range tests {
		t.Run(test.args, func(t *testing.T) {
			t.Parallel()
			var out, errs bytes.Buffer
			code := run(t.Context(), strings.Fields(test.args), &out, &errs)
			if code != cli.Usage || !strings.Contains(errs.String(), test.says) || !strings.Contains(errs.String(), "loadtest -h") || out.Len() > 0 {
				t.Errorf("exit code %d, stdout %q, stderr %q", code, &out, &errs)
			}
		})
	}
}

func TestHelp(t *testing.T) {
	t.Parallel()
	var out, errs bytes.Buffer
	if code := run(t.Context(), []string{"-h"}, &out, &errs); code != 0 || errs.Len() > 0 {
		t.Errorf("exit code %d: %s", code, &errs)
	}
	// Every figure of the table is explained.
	for _, what := range []string{
		"predicted_calls_per_s", "calls_per_s", "received_per_s", "own_per_s", "lua_per_s", "peak_100ms", "renewals_per_s", "redis_cpu_percent",
		"redis_cpu_us_per_renewal", "redis_script_us_per_renewal", "net_in_bytes_per_s", "batch_p50_ms", "schedule_lag_p99_ms",
		"lease_utilization_p999", "late_renewals", "losses", "client_cpu_us_per_renewal", "goroutines_per_lock", "heap_bytes_per_lock", "foreground_p50_ms",
	} {
		if !strings.Contains(out.String(), what) {
			t.Errorf("-h doesn't explain %s", what)
		}
	}
}

func TestDefaults(t *testing.T) {
	t.Parallel()
	tests := []struct {
		args     string
		locks    []int
		modes    []string
		clients  int
		duration time.Duration
	}{
		{"", []int{1000, 10_000}, []string{"none", "per-lock", "batched"}, 2, 10 * time.Second},
		{"-redisson -locks 300,20,300", []int{20, 300}, allModes, 2, 10 * time.Second},
		{"-modes batched,none -lease 3s -duration 2500ms", []int{1000, 10_000}, []string{"none", "batched"}, 2, 3 * time.Second},
		{"-soak 5m", []int{1_000_000}, []string{"batched"}, 1, 10 * time.Second},
		{"-soak 5m -clients 3 -locks 50", []int{50}, []string{"batched"}, 3, 10 * time.Second},
		{"-wave", []int{10_000}, []string{"per-lock", "batched"}, 2, 10 * time.Second},
	}
	for _, test := range tests {
		f, err := parse(strings.Fields(test.args))
		if err != nil {
			t.Errorf("%s: %v", test.args, err)
			continue
		}
		if !slices.Equal(f.locks, test.locks) || !slices.Equal(f.modes, test.modes) || f.clients != test.clients || f.duration != test.duration {
			t.Errorf("%s: %v, %v, %d clients, %v", test.args, f.locks, f.modes, f.clients, f.duration)
		}
		if f.seed == 0 {
			t.Errorf("%s: no seed", test.args)
		}
	}
}

func TestPredict(t *testing.T) {
	t.Parallel()
	tests := []struct {
		mode                  string
		locks, clients, nodes int
		want                  float64 // calls in an interval
	}{
		{wire.None, 1000, 2, 1, 0},
		{wire.PerLock, 1000, 2, 1, 1000},
		{wire.PerLock, 1001, 3, 3, 1001},
		{wire.Batched, 1000, 1, 1, 4},
		{wire.Batched, 1000, 2, 1, 4},
		{wire.Batched, 1000, 3, 1, 6},
		{wire.Batched, 10_000, 2, 1, 40},
		{wire.Batched, 100_000, 2, 1, 392},
		{wire.Batched, 10_000, 2, 3, 42},
		{wire.Batched, 256, 1, 1, 1},
		{wire.Batched, 257, 1, 1, 2},
		{wire.Redisson, 1000, 2, 1, 10},
		{wire.Redisson, 10_000, 1, 3, 16384 * (1 - math.Pow(1-1.0/16384, 10_000))},
	}
	for _, test := range tests {
		got := predict(test.mode, test.locks, test.clients, test.nodes, 10*time.Second)
		if math.Abs(float64(got)-test.want/10) > 1e-9 {
			t.Errorf("%+v: %v", test, got)
		}
	}
}

// The names of the Java client are the same: what was measured first is the same locks again.
func TestNames(t *testing.T) {
	t.Parallel()
	if name := wire.Name(1, 0); name != "loadtest:910a2dec89025cc1" {
		t.Error(name)
	}
	seen := make(map[string]bool)
	for i := range 100_000 {
		name := wire.Name(42, i)
		if seen[name] {
			t.Fatalf("%s twice", name)
		}
		seen[name] = true
	}
}

func TestRedissonNeedsJava(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	var out, errs bytes.Buffer
	code := run(t.Context(), []string{"-redisson"}, &out, &errs)
	if code != cli.Failed || !strings.Contains(errs.String(), "apt-get install default-jdk-headless maven") {
		t.Errorf("exit code %d: %s", code, &errs)
	}
	errs.Reset()
	if code := run(t.Context(), nil, &out, &errs); code != cli.Failed || !strings.Contains(errs.String(), "apt-get install -y redis-server") {
		t.Errorf("exit code %d: %s", code, &errs)
	}
}

func TestCommandHasNoPassword(t *testing.T) {
	t.Parallel()
	const addr = "redis://me:secret@localhost:6379/1"
	if got := command([]string{"-redis=" + addr, "-locks", "20"}, addr); got != "go run -C loadtest . -redis=redis://me:xxxxx@localhost:6379/1 -locks 20" {
		t.Error(got)
	}
	if got := command([]string{"-redis", "localhost:1"}, "localhost:1"); got != "go run -C loadtest . -redis localhost:1" {
		t.Error(got)
	}
}

func TestNoRedisThere(t *testing.T) {
	t.Parallel()
	var out, errs bytes.Buffer
	if code := run(t.Context(), []string{"-redis", "127.0.0.1:1"}, &out, &errs); code != cli.Failed || !strings.Contains(errs.String(), "127.0.0.1:1") {
		t.Errorf("exit code %d: %s", code, &errs)
	}
}
