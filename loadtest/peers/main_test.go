package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/loadtest/internal/cli"
	"github.com/lockdog/lockdog/loadtest/internal/figures"
	"github.com/lockdog/lockdog/loadtest/internal/fleet"
	"github.com/lockdog/lockdog/loadtest/internal/sample"
	"github.com/lockdog/lockdog/loadtest/peers/internal/peer"
	"github.com/lockdog/lockdog/loadtest/peers/internal/witness"
	"github.com/lockdog/lockdog/loadtest/peers/internal/work"
)

// This binary is also the child processes of the runs that tests make.
func TestMain(m *testing.M) {
	if fleet.IsChild() {
		os.Exit(work.Main(os.Stdin, os.Stdout))
	}
	redistest.Main(m)
}

func TestFlags(t *testing.T) {
	t.Parallel()
	f, err := parse(nil)
	if err != nil || f.rounds != 5 || f.window != 2*time.Second || len(f.works) != len(workloads) || f.json != "" {
		t.Errorf("%+v, %v", f, err)
	}
	f, err = parse([]string{"-rounds", "2", "-seconds", "0.25", "-works", "held, single", "-peers", "lockdog,raw-evalsha"})
	if err != nil || f.rounds != 2 || f.window != 250*time.Millisecond || len(f.works) != 2 {
		t.Fatalf("%+v, %v", f, err)
	}
	// In the order of the table, each with those of its peers that were asked for.
	if w := f.works; w[0].name != "single" || strings.Join(w[0].peers, " ") != "lockdog" || strings.Join(w[1].peers, " ") != "raw-evalsha lockdog" {
		t.Errorf("%+v", w)
	}
	if _, err := parse([]string{"-h"}); !errors.Is(err, flag.ErrHelp) {
		t.Error(err)
	}
	for _, args := range []string{
		"-rounds 0", "-rounds 1001", "-seconds 0", "-seconds NaN", "-seconds 3601", "-works all", "-peers nobody", "more",
		"-works loss -peers floor", "-works single,",
	} {
		if _, err := parse(strings.Fields(args)); err == nil || errors.Is(err, flag.ErrHelp) {
			t.Errorf("%s: %v", args, err)
		}
	}
}

// Every target is about something that is measured.
func TestTargetsAreMeasured(t *testing.T) {
	t.Parallel()
	for _, target := range targets {
		base := cmp.Or(target.BaseKey, target.Key)
		found := false
		for _, w := range workloads {
			if w.name != target.Work {
				continue
			}
			peers := " " + strings.Join(w.peers, " ") + " "
			found = strings.Contains(peers, " "+target.Peer+" ") && (target.Base == "" || strings.Contains(peers, " "+target.Base+" "))
			for _, k := range []figures.Key{target.Key, base} {
				if !slices.Contains(w.columns, k) {
					t.Errorf("%s: %s isn't in the table of %s", target.What, k, w.name)
				}
			}
			for _, k := range w.columns {
				if heads[k] == "" {
					t.Errorf("no head for %s", k)
				}
			}
		}
		if !found {
			t.Errorf("%s: not measured", target.What)
		}
	}
}

// Workloads have names of their own, and are possible: a proxy stands before one server.
func TestWorkloads(t *testing.T) {
	t.Parallel()
	seen := make(map[string]bool)
	for _, w := range workloads {
		if seen[w.name] || w.rtt > 0 && (w.cluster || w.oneCPU) || w.rtt > 0 != strings.HasSuffix(w.name, "ms") {
			t.Errorf("%+v", w)
		}
		seen[w.name] = true
		for _, p := range w.peers {
			pooled := slices.Contains(w.peers, p+peer.Pooled) || strings.HasSuffix(p, peer.Pooled)
			if want := w.kind == work.Distinct && w.goroutines > 1 && p != peer.Rueidislock; pooled != want {
				t.Errorf("%s, %s: with both pools: %v, want %v", w.name, p, pooled, want)
			}
		}
	}
	for _, name := range []string{"crowd", "single-2ms", "queue-2ms", "processes-2ms", "paced-2ms", "few-2ms", "many-2ms", "crowd-2ms", "few-10ms", "many-10ms", "crowd-10ms"} {
		if !seen[name] {
			t.Errorf("no %s", name)
		}
	}
}

// result is what a process would report.
func result(counts ...int64) work.Result {
	r := work.Result{Seconds: 2, Counts: counts, CPU: 300 * time.Microsecond, Mallocs: 1200, Bytes: 60000}
	for _, c := range counts {
		r.Total.Operations += c
	}
	r.Window.Operations = r.Total.Operations
	for i := range 100 {
		r.Times.Add(time.Duration(i+1) * time.Millisecond)
	}
	return r
}

func look(name string) *workload {
	for i := range workloads {
		if workloads[i].name == name {
			return &workloads[i]
		}
	}
	return nil
}

func near(t *testing.T, f figures.Figures, want figures.Figures) {
	t.Helper()
	for k, x := range want {
		if got, ok := f[k]; !ok || got < x*.997 || got > x*1.003 {
			t.Errorf("%s: %v, want %v", k, got, x)
		}
	}
}

func TestFiguresOfOperations(t *testing.T) {
	t.Parallel()
	e := sample.Info{CPU: 900 * time.Microsecond, Commands: map[string]sample.Stat{
		"set": {Calls: 30}, "evalsha": {Calls: 30}, "get": {Calls: 30}, "del": {Calls: 30}, "info": {Calls: 1},
	}}
	r := result(10, 20)
	near(t, figuresOf(look("many"), peer.Floor, []work.Result{r}, e), figures.Figures{
		figures.P50: 50_000, figures.P99: 99_000, figures.Longest: 100, figures.Rate: 15, figures.Allocs: 40, figures.Bytes: 2000,
		figures.ClientCPU: 10, figures.RedisCPU: 30, figures.Commands: 2, figures.InLua: 2, figures.Overlaps: 0,
	})
	// Of a peer that takes locks with scripts, SET is called by those.
	near(t, figuresOf(look("many"), peer.Redislock, []work.Result{r}, e), figures.Figures{figures.Commands: 1, figures.InLua: 3})
	f := figuresOf(look("many"), peer.Floor, []work.Result{{Seconds: 1, Counts: []int64{0}}}, sample.Info{})
	if _, ok := f[figures.Commands]; ok || f[figures.Rate] != 0 {
		t.Errorf("of no operation: %v", f)
	}
}

func TestFiguresOfHandoffs(t *testing.T) {
	t.Parallel()
	e := sample.Info{Commands: map[string]sample.Stat{"evalsha": {Calls: 50}, "subscribe": {Calls: 10}, "hset": {Calls: 100}}}
	a, b := result(10, 20), result(30, 15)
	a.Total.Add(witness.Tally{Handed: 22, Between: 8})
	a.Window.Add(witness.Tally{Handed: 20, Between: 7})
	b.Total.Add(witness.Tally{Handed: 40, Between: 12})
	b.Window.Add(witness.Tally{Handed: 38, Between: 9})
	b.Overlaps, b.Stuck = 3, 1
	a.Unserved, b.Unserved = 2, 1
	a.Handoffs.Add(100 * time.Microsecond)
	b.Handoffs.Add(300 * time.Microsecond)
	b.Handoffs.Add(200 * time.Microsecond)
	near(t, figuresOf(look("processes"), peer.Lockdog, []work.Result{a, b}, e), figures.Figures{
		figures.Handoffs: 8, figures.Commands: 3, figures.InLua: 5, figures.Goroutines: 3, figures.Processes: 1.5,
		figures.HandoffP50: 200, figures.Overlaps: 3, figures.Stuck: 1, figures.Unserved: 3,
	})
	one := figuresOf(look("queue"), peer.Lockdog, []work.Result{a}, e)
	near(t, one, figures.Figures{figures.Handoffs: 10, figures.Commands: 60. / 22, figures.Goroutines: 2})
	if _, ok := one[figures.Processes]; ok {
		t.Errorf("of one process: %v", one)
	}
}

// Of several rounds the figure that is compared has its least and its most, and all begins with what was measured when.
func TestPrint(t *testing.T) {
	t.Parallel()
	w := *look("many")
	w.peers = []string{peer.Lockdog}
	b := newBench(flags{works: []workload{w}, rounds: 2, window: time.Second}, nil)
	b.rounds["many"] = map[string]figures.Rounds{peer.Lockdog: {{figures.Rate: 300, figures.P50: 5}, {figures.Rate: 100, figures.P50: 5}}}
	var out bytes.Buffer
	if err := b.print(&out); err != nil {
		t.Fatal(err)
	}
	head, _, _ := strings.Cut(out.String(), "\n")
	if !strings.HasPrefix(head, "n = 2 rounds of 1s each; commit ") || !strings.Contains(head, b.began.UTC().Format(time.DateOnly)) {
		t.Error(head)
	}
	if text := out.String(); !strings.Contains(text, "  200 (100–300)  ") || !strings.Contains(text, "  5.00  ") {
		t.Errorf("%s", &out)
	}
}

// Two holders of one lock spoil everything, and fail the run.
func TestSound(t *testing.T) {
	t.Parallel()
	b := newBench(flags{works: workloads}, nil)
	b.rounds["queue"] = map[string]figures.Rounds{peer.Redsync: {{figures.Overlaps: 0}, {figures.Overlaps: 2}, {figures.Overlaps: 0}}}
	if err := b.sound(); err == nil || !strings.Contains(err.Error(), "queue, redsync: two held one lock") {
		t.Error(err)
	}
	b.rounds["queue"][peer.Redsync][1][figures.Overlaps] = 0
	if err := b.sound(); err != nil {
		t.Error(err)
	}
}

// read reads what -json wrote.
func read(t *testing.T, name string) map[string]map[string]figures.Rounds {
	t.Helper()
	var rounds map[string]map[string]figures.Rounds
	text, err := os.ReadFile(name)
	if err == nil {
		err = json.Unmarshal(text, &rounds)
	}
	if err != nil {
		t.Fatal(err)
	}
	return rounds
}

// At a distance a lock and its release take two round trips, and INFO, which is asked for at none, counts two commands.
func TestFar(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "r.json")
	var out, progress bytes.Buffer
	args := []string{"-rounds", "1", "-seconds", "0.2", "-json", name, "-works", "single-2ms", "-peers", "floor,lockdog"}
	if code := run(t.Context(), args, &out, &progress); code != 0 {
		t.Fatalf("exit code %d\n%s\n%s", code, &progress, &out)
	}
	for p, rounds := range read(t, name)["single-2ms"] {
		f, least := rounds[0], micros(2*time.Millisecond)
		if f[figures.RoundTrip] < least || f[figures.P50] < 2*least || f[figures.Commands] < 2 || f[figures.Commands] > 2.4 {
			t.Errorf("%s: %v", p, f)
		}
	}
}

// A short run of most of it, in real processes.
func TestRun(t *testing.T) { // not parallel: a part of it pins this process to one CPU
	name := filepath.Join(t.TempDir(), "r.json")
	var out, progress bytes.Buffer
	// A window is longer than a busy machine lets a process wait for a CPU: an operation ends in each.
	args := []string{"-rounds", "1", "-seconds", "0.5", "-json", name, "-works", "single,single-1cpu,processes,loss"}
	if code := run(t.Context(), args, &out, &progress); code != 0 {
		t.Fatalf("exit code %d\n%s\n%s", code, &progress, &out)
	}
	f, err := parse(args)
	if err != nil {
		t.Fatal(err)
	}
	rounds := read(t, name)
	judged := 0
	for _, w := range f.works {
		for _, target := range targets {
			if target.Work == w.name {
				judged++
			}
		}
		for _, p := range w.peers {
			got := rounds[w.name][p]
			if len(got) != 1 || got[0][figures.Overlaps] != 0 || w.kind != work.Loss && got[0][figures.Rate] <= 0 {
				t.Errorf("%s, %s: %v", w.name, p, got)
			}
		}
		if !strings.Contains(out.String(), "\n"+w.title+"\n") {
			t.Errorf("the table lacks %q", w.title)
		}
	}
	for p, want := range map[string]float64{peer.Floor: 2, peer.Redislock: 2, peer.Rueidislock: 2, peer.Redsync: 2, peer.Lockdog: 2} {
		if got := rounds["single"][p][0][figures.Commands]; got < want || got > want*1.2 {
			t.Errorf("%s: %v commands for a lock and its release", p, got)
		}
	}
	verdicts := 0
	for line := range strings.Lines(out.String()) {
		for _, word := range []string{"met ", "MISSED ", "? "} {
			if strings.HasPrefix(line, word) {
				verdicts++
			}
		}
	}
	if verdicts != judged {
		t.Errorf("%d verdicts on %d targets:\n%s", verdicts, judged, &out)
	}
}

func TestInterrupt(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	var out, progress bytes.Buffer
	cancel()
	if code := run(ctx, []string{"-seconds", "0.05"}, &out, &progress); code != cli.Interrupted {
		t.Errorf("exit code %d", code)
	}
	if code := run(t.Context(), []string{"-x"}, &out, &progress); code != cli.Usage {
		t.Errorf("exit code %d", code)
	}
	if code := run(t.Context(), []string{"-h"}, &out, &progress); code != 0 || !strings.Contains(out.String(), "single-1cpu") {
		t.Errorf("exit code %d", code)
	}
}
