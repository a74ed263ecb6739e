package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/loadtest/internal/cli"
	"github.com/lockdog/lockdog/loadtest/internal/figures"
	"github.com/lockdog/lockdog/loadtest/internal/fleet"
	"github.com/lockdog/lockdog/loadtest/internal/load"
)

// asProgram makes this test binary the program that it tests. It is also the child processes of the runs that tests make.
const asProgram = "LOCKDOG_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if fleet.IsChild() {
		os.Exit(load.Main(os.Stdin, os.Stdout))
	}
	if os.Getenv(asProgram) != "" {
		main()
	}
	redistest.Main(m)
}

const patience = 5 * time.Minute // for a real process, on a machine that hardly lets it run

// program is the program. It ends with the test at the latest.
func program(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, self, args...)
	cmd.Env = append(os.Environ(), asProgram+"=1", "GORACE=atexit_sleep_ms=0 "+os.Getenv("GORACE"))
	return cmd
}

// loaded is what a run in this process reports, with this binary as children.
func loaded(t *testing.T, args ...string) *report {
	t.Helper()
	f, err := parse(args)
	if err != nil {
		t.Fatal(err)
	}
	var progress bytes.Buffer
	rep, err := measure(t.Context(), f, &progress)
	if err == nil {
		err = errors.Join(rep.faults...)
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, &progress)
	}
	return rep
}

// figure is one that has to be known.
func figure(t *testing.T, rep *report, mode string, k figures.Key) float64 {
	t.Helper()
	r := rep.rows[0]
	for _, other := range rep.rows {
		if other.mode == mode {
			r = other
		}
	}
	x, ok := r.rounds.Get(k)
	if !ok || r.mode != mode {
		t.Errorf("%s: %s is not known", mode, k)
	}
	return x
}

func within(t *testing.T, what string, got, want, share float64) {
	t.Helper()
	if !(math.Abs(got-want) <= share*want) {
		t.Errorf("%s: %v, want %v within %v %%", what, got, want, 100*share)
	}
}

// TestAgentMode: the agent renews for many processes, in fewer calls than these would make. All is counted.
func TestAgentMode(t *testing.T) {
	t.Parallel()
	const clients = 10
	rep := loaded(t, "-locks", "40", "-clients", fmt.Sprint(clients), "-lease", "6s", "-duration", "6s", "-rounds", "1", "-foreground", "0", "-modes", "batched,agent")
	if calls, without := figure(t, rep, load.Agent, figures.Calls), figure(t, rep, load.Batched, figures.Calls); calls <= 0 || calls > .8*without {
		t.Errorf("%v calls/s, without the agent %v", calls, without)
	}
	within(t, "renewals", figure(t, rep, load.Agent, figures.Renewals), 40/2., .25)
	if lost, cpu := figure(t, rep, load.Agent, figures.Lost), figure(t, rep, load.Agent, figures.ClientPerRenewal); lost != 0 || cpu <= 0 {
		t.Errorf("%v lost, %v µs", lost, cpu)
	}
}

// TestFigures is a short run: what it measures has to be what was predicted.
func TestFigures(t *testing.T) {
	t.Parallel()
	rep := loaded(t, "-locks", "200", "-lease", "12s", "-duration", "12s", "-rounds", "1", "-foreground", "200")
	if !rep.complete || len(rep.rows) != 3 {
		t.Fatalf("%+v", rep)
	}
	if none := figure(t, rep, load.None, figures.Calls); none > 0.5 {
		t.Errorf("without renewal: %v", none)
	}
	const busy = .25 // of what is predicted, where the machine has other work
	const interval = 4.
	for mode, calls := range map[string]float64{load.PerLock: 200 / interval, load.Batched: 2 / interval} { // one for each client
		within(t, mode+" predicted", figure(t, rep, mode, figures.Predicted), calls, .001)
		within(t, mode+" calls", figure(t, rep, mode, figures.Calls), calls, busy)
		within(t, mode+" own calls", figure(t, rep, mode, figures.OwnCalls), calls, busy)
		within(t, mode+" renewals", figure(t, rep, mode, figures.Renewals), 200/interval, busy)
		for _, k := range []figures.Key{
			figures.RedisPerRenewal, figures.ScriptsPerRenewal, figures.ClientPerRenewal, figures.CallP50, figures.LagP99,
		} {
			if figure(t, rep, mode, k) <= 0 {
				t.Errorf("%s: no %s", mode, k)
			}
		}
	}
	for _, r := range rep.rows {
		low, high := figure(t, rep, r.mode, figures.ForegroundLow), figure(t, rep, r.mode, figures.ForegroundHigh)
		if p99 := figure(t, rep, r.mode, figures.ForegroundP99); low <= 0 || p99 < low || high < p99 || figure(t, rep, r.mode, figures.Lost) != 0 {
			t.Errorf("%s: p99 %v, from %v to %v", r.mode, p99, low, high)
		}
		if seconds := float64(len(r.timeline)) / 10; seconds < 11.9 || figure(t, rep, r.mode, figures.HeapPerLock) < 100 {
			t.Errorf("%s: %v s of timeline, %v", r.mode, seconds, r.rounds)
		}
	}
	used, batched := figure(t, rep, load.Batched, figures.Utilization), figure(t, rep, load.Batched, figures.GoroutinesPerLock)
	perLock := figure(t, rep, load.PerLock, figures.GoroutinesPerLock)
	if perLock < .99 || batched > .1 || used < .3 || used > .9 {
		t.Errorf("goroutines %v and %v, utilization %v", perLock, batched, used)
	}
}

// TestReport: a table and a page say what was measured, and what is in them can't break out of the page.
func TestReport(t *testing.T) {
	t.Parallel()
	rep := &report{
		b: &bench{flags: flags{clients: 2, lease: 30 * time.Second}, addrs: []string{"one"}}, command: "loadtest <flags>",
		rows: []*row{
			{mode: load.None, locks: 9, rounds: figures.Rounds{{figures.ForegroundHigh: 2}}},
			{
				mode: load.Batched, locks: 9, timeline: []float64{0, 10, 1},
				rounds: figures.Rounds{{figures.Calls: 1.5, figures.Peak: 2, figures.ForegroundLow: 1}},
			},
		},
		faults: []error{errors.New("batched, 9 locks: lost")},
	}
	var table, page bytes.Buffer
	if err := errors.Join(rep.print(&table), rep.html(&page)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`(?m)^ +locks +mode +predicted +calls `, `(?m)^ +9 +batched +– +1\.50 +– +2\.00 `, `FAILED +batched, 9 locks: lost`, `not complete`,
		`met .*9 locks: calls in the worst 100 ms.*: 2\.00`, `\? +9 locks: late renewals: not measured`,
		`least p99 .* 0\.50 × none's`, `context\.Background\(\) .*460`,
	} {
		if !regexp.MustCompile(want).MatchString(table.String()) {
			t.Errorf("no %s in\n%s", want, &table)
		}
	}
	for want, n := range map[string]int{
		"<rect ": 2, "<figure>": 2, "<table>": len(blocks), "<td>batched</td>": len(blocks), "loadtest &lt;flags&gt;": 1, "<flags>": 0,
	} {
		if got := strings.Count(page.String(), want); got != n {
			t.Errorf("%d of %s, want %d", got, want, n)
		}
	}
}

// TestLossesAreReported: what was lost is told with its causes, and fails the run, and so does a wrong count.
func TestLossesAreReported(t *testing.T) {
	t.Parallel()
	counts := map[string]int64{load.Losses + "/stalled": 2, load.Calls + "/acquire": 9}
	h := &holders{b: &bench{servers: []string{"one"}}, mode: load.Batched, locks: 9, lost: 2, counts: load.Reading{Counts: counts}}
	text := errors.Join(h.faults()...).Error()
	if !strings.Contains(text, "Redis counts 0 scripts, the clients 9") || !strings.Contains(text, "2 were lost") || !strings.Contains(text, "stalled:2") {
		t.Error(text)
	}
}

// TestDistance: calls take the round trip, which only the holders have, and nothing is late for it.
func TestDistance(t *testing.T) {
	t.Parallel()
	const rtt = 50 * time.Millisecond
	rep := loaded(t, "-rtt", rtt.String(), "-locks", "40", "-lease", "12s", "-modes", "per-lock,batched", "-rounds", "1", "-foreground", "100")
	for _, r := range rep.rows {
		// Times are in buckets of a few percent.
		call, other := figure(t, rep, r.mode, figures.CallP50), figure(t, rep, r.mode, figures.ForegroundLow)
		if ms := float64(rtt.Milliseconds()); call < ms*.95 || other <= 0 {
			t.Errorf("%s: a call took %v ms, an ordinary command %v ms", r.mode, call, other)
		}
		if late, renewals := figure(t, rep, r.mode, figures.Late), figure(t, rep, r.mode, figures.Renewals); late != 0 || renewals <= 0 {
			t.Errorf("%s: late %v, %v renewals/s", r.mode, late, renewals)
		}
	}
}

// TestSoak holds locks in a cluster while others come and go.
func TestSoak(t *testing.T) {
	t.Parallel()
	rep := loaded(t, "-soak", "12s", "-locks", "600", "-lease", "12s", "-churn", "50", "-cluster", "-foreground", "50")
	// Three nodes with a batch each in 4 s, and two scripts for each pair.
	if calls := figure(t, rep, load.Batched, figures.Calls); calls < .75+2*50*.6 || calls > .75+2*50*1.4 || len(rep.notes) != 1 {
		t.Errorf("%v calls/s, %v", calls, rep.notes)
	}
	within(t, "renewals", figure(t, rep, load.Batched, figures.Renewals), 600/4., .3) // a batch more or less, of nine
}

// TestInterrupt: a run that is interrupted prints what there is, and its page.
func TestInterrupt(t *testing.T) {
	t.Parallel()
	name := filepath.Join(t.TempDir(), "r.html")
	cmd := program(t, "-locks", "20", "-lease", "12s", "-rounds", "9", "-modes", "batched", "-foreground", "0", "-html", name)
	var out bytes.Buffer
	cmd.Stdout = &out
	errs, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	for buf := make([]byte, 4096); !strings.Contains(said.String(), "round 2 of 9"); {
		n, err := errs.Read(buf)
		said.Write(buf[:n])
		if err != nil {
			t.Fatalf("it ended early: %v\n%s", err, &said)
		}
	}
	if err := cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	rest, _ := io.ReadAll(errs) // until it ends
	said.Write(rest)
	if err := cmd.Wait(); err == nil || cmd.ProcessState.ExitCode() != cli.Interrupted {
		t.Errorf("%v, want exit code %d\n%s", err, cli.Interrupted, &said)
	}
	if !strings.Contains(said.String(), "loadtest: interrupted") {
		t.Errorf("%s", &said)
	}
	if !regexp.MustCompile(`(?m)^ +20 +batched +0\.5`).MatchString(out.String()) || !strings.Contains(out.String(), "The run is not complete") {
		t.Errorf("what there was is not printed:\n%s", &out)
	}
	if page, err := os.ReadFile(name); err != nil || !bytes.Contains(page, []byte("<rect ")) {
		t.Errorf("no page: %v", err)
	}
}
