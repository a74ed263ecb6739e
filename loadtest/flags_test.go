package main

import (
	"bytes"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockdog/lockdog/loadtest/internal/cli"
	"github.com/lockdog/lockdog/loadtest/internal/load"
)

func TestFlagsThatCantBe(t *testing.T) {
	t.Parallel()
	tests := []struct{ args, says string }{
		{"-x", "-x"},
		{"now", `unexpected argument "now"`},
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
		{"-clients 1001", "1 to 1000"},
		{"-modes none,fast", `"fast" is not one of none, per-lock, batched, agent, redisson`},
		{"-foreground -1", "0 (none) to"},
		{"-churn 5", "-soak"},
		{"-soak 1s", "30s, three renewals"},
		{"-soak 5m -modes none", "-modes"},
		{"-soak 5m -churn -1", "-churn"},
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
	for _, b := range blocks { // every figure of the table is explained
		for i, k := range b.keys {
			if !strings.Contains(out.String(), string(k)) || !strings.Contains(out.String(), b.heads[i]) {
				t.Errorf("-h doesn't explain %s, %s", b.heads[i], k)
			}
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
		{"-redisson -locks 300,20,300", []int{20, 300}, []string{"none", "per-lock", "batched", "redisson"}, 2, 10 * time.Second},
		{"-modes batched,none -lease 3s -duration 2500ms", []int{1000, 10_000}, []string{"none", "batched"}, 2, 3 * time.Second},
		{"-soak 5m", []int{1_000_000}, []string{"batched"}, 1, 10 * time.Second},
		{"-soak 5m -clients 3 -locks 50", []int{50}, []string{"batched"}, 3, 10 * time.Second},
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
	}
}

func TestPredict(t *testing.T) {
	t.Parallel()
	tests := []struct {
		mode                  string
		locks, clients, nodes int
		want                  float64 // calls in an interval
	}{
		{load.None, 1000, 2, 1, 0},
		{load.PerLock, 1000, 2, 1, 1000},
		{load.PerLock, 1001, 3, 3, 1001},
		{load.Batched, 1000, 1, 1, 4},
		{load.Batched, 1000, 2, 1, 4},
		{load.Batched, 1000, 3, 1, 6},
		{load.Batched, 10_000, 2, 1, 40},
		{load.Batched, 100_000, 2, 1, 392},
		{load.Batched, 10_000, 2, 3, 42},
		{load.Batched, 256, 1, 1, 1},
		{load.Batched, 257, 1, 1, 2},
		{load.Agent, 10_000, 500, 1, 40 + 500/12.},
		{load.Agent, 100_000, 500, 1, 391 + 500/12.},
		{load.Redisson, 1000, 2, 1, 10},
		{load.Redisson, 10_000, 1, 3, 16384 * (1 - math.Pow(1-1.0/16384, 10_000))},
	}
	for _, test := range tests {
		got := predict(test.mode, test.locks, test.clients, test.nodes, 10*time.Second)
		if math.Abs(got-test.want/10) > 1e-9 {
			t.Errorf("%+v: %v", test, got)
		}
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
