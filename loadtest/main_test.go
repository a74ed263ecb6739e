package main

import (
	"bytes"
	"context"
	"encoding/json"
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
	"github.com/lockdog/lockdog/loadtest/internal/child"
	"github.com/lockdog/lockdog/loadtest/internal/cli"
	"github.com/lockdog/lockdog/loadtest/internal/fleet"
	"github.com/lockdog/lockdog/loadtest/internal/report"
	"github.com/lockdog/lockdog/loadtest/internal/wire"
)

// asProgram makes this test binary the program that it tests. It is also the child processes of the runs that tests make.
const asProgram = "LOCKDOG_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if fleet.IsChild() {
		os.Exit(child.Main(os.Stdin, os.Stdout))
	}
	if os.Getenv(asProgram) != "" {
		main()
	}
	redistest.Main(m)
}

const patience = time.Minute // for a real process, on a busy machine

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

// readReport reads what -json wrote.
func readReport(t *testing.T, name string) report.Report {
	t.Helper()
	var rep report.Report
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &rep); err != nil {
		t.Fatal(err)
	}
	return rep
}

func within(t *testing.T, what string, got, want report.Figure, share float64) {
	t.Helper()
	if !(math.Abs(float64(got-want)) <= share*float64(want)) {
		t.Errorf("%s: %v, want %v within %v %%", what, got, want, 100*share)
	}
}

// TestFigures is a short run of the real program: what it measures has to be what was predicted.
func TestFigures(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	jsonFile, htmlFile := filepath.Join(dir, "r.json"), filepath.Join(dir, "r.html")
	cmd := program(t, "-locks", "200", "-lease", "1500ms", "-duration", "3s", "-rounds", "1", "-foreground", "200", "-seed", "7",
		"-json", jsonFile, "-html", htmlFile)
	var out, progress bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &progress
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s\n%s", err, &progress, &out)
	}
	rep := readReport(t, jsonFile)
	if !rep.Complete || rep.Kind != "compare" || rep.Settings.Seed != 7 || len(rep.Rows) != 3 {
		t.Fatalf("%+v", rep)
	}
	none, perLock, batched := rep.Rows[0], rep.Rows[1], rep.Rows[2]
	if none.Mode != wire.None || none.Calls > 0.5 || none.Renewals != 0 || none.Predicted != 0 {
		t.Errorf("without renewal: %+v", none)
	}
	const busy = .25 // of what is predicted, where the machine has other work
	interval := rep.Settings.Interval
	within(t, "per-lock predicted", perLock.Predicted, report.Figure(200/interval), .001)
	within(t, "per-lock calls", perLock.Calls, perLock.Predicted, busy)
	within(t, "per-lock renewals", perLock.Renewals, perLock.Predicted, busy)
	within(t, "batched predicted", batched.Predicted, report.Figure(2/interval), .001) // one for each client
	within(t, "batched calls", batched.Calls, batched.Predicted, busy)
	within(t, "batched renewals", batched.Renewals, perLock.Predicted, busy)
	within(t, "batched, in Lua", batched.InLua, 2*perLock.Predicted, busy) // HEXISTS and PEXPIRE each, and TIME
	for _, r := range rep.Rows {
		if r.Losses != 0 || len(r.LossCauses) != 0 || r.LatencyErrors != 0 || r.Locks != 200 || r.Clients != 2 {
			t.Errorf("%s: lost %v %v, %v foreground errors", r.Mode, r.Losses, r.LossCauses, r.LatencyErrors)
		}
		if !r.LatencyP50.Known() || r.LatencyP50 <= 0 || r.LatencyP99 < r.LatencyP50 || r.LatencyP999 < r.LatencyP99 {
			t.Errorf("%s: latencies %v, %v, %v", r.Mode, r.LatencyP50, r.LatencyP99, r.LatencyP999)
		}
		if seconds := float64(len(r.Timeline)) / 10; seconds < float64(r.Window) || r.HeapPer < 100 {
			t.Errorf("%s: %v s of timeline, %v bytes a lock", r.Mode, seconds, r.HeapPer)
		}
	}
	if perLock.GoroutinesPer < .99 || batched.GoroutinesPer > .1 || batched.Utilization < .3 || batched.Utilization > .9 {
		t.Errorf("goroutines %v and %v, utilization %v", perLock.GoroutinesPer, batched.GoroutinesPer, batched.Utilization)
	}
	if perLock.RedisPerRenewal <= 0 || batched.ScriptPerRenewal <= 0 || batched.NetIn <= 0 || perLock.ClientPerRenewal <= 0 {
		t.Errorf("costs: %+v, %+v", perLock, batched)
	}
	for _, want := range []string{"Calls to Redis", "predicted", "per-lock", "met     Redis and the clients count the same calls", "(seed 7"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("the table lacks %q:\n%s", want, &out)
		}
	}
	if !strings.Contains(progress.String(), "round 1 of 1: 200 locks, batched") || strings.Contains(progress.String(), "\r") {
		t.Errorf("no plain lines: %q", &progress)
	}
	if page, err := os.ReadFile(htmlFile); err != nil || !bytes.Contains(page, []byte("What renewing locks costs Redis")) {
		t.Errorf("no page: %v", err)
	}
}

// TestWave loses nothing, as nothing need be.
func TestWave(t *testing.T) {
	t.Parallel()
	rep := inProcess(t, "-wave", "-locks", "400", "-lease", "3s", "-foreground", "0", "-modes", "batched")
	if len(rep.Rows) != 3 || len(rep.Rows[0].Events) != 4 {
		t.Fatalf("%+v", rep.Rows)
	}
	for _, r := range rep.Rows {
		if r.Losses != 0 || r.Calls <= 0 || r.Mode != wire.Batched {
			t.Errorf("%s: lost %v %v, %v calls/s", r.Stage, r.Losses, r.LossCauses, r.Calls)
		}
	}
	if used := rep.Rows[2].Utilization; used < .5 || used >= 1 {
		t.Errorf("half a lease of silence took %v of a lease", used)
	}
	if cut := rep.Rows[1]; cut.Commands["client|kill"] == 0 || cut.Commands["hello"] == 0 {
		t.Errorf("no connection was cut, or none made again: %v", cut.Commands)
	}
}

// TestLossesAreReported: what was lost is told with its causes, and fails the run.
func TestLossesAreReported(t *testing.T) {
	t.Parallel()
	rows := []report.Row{{Mode: wire.Batched, Locks: 9, Losses: 2, LossCauses: map[string]int64{"stalled": 1, "missing": 1}}}
	got := agreement([]string{"batched, 9 locks: Redis 3, clients 9"}, rows)
	if got[0].Met || !got[0].Hard || got[1].Met || !got[1].Hard || got[1].Got != "2; batched, 9 locks: missing 1, stalled 1" {
		t.Errorf("%+v", got)
	}
}

// TestDistance: calls take the round trip, which only the holders have, and nothing is late for it.
func TestDistance(t *testing.T) {
	t.Parallel()
	const rtt = 50 * time.Millisecond
	rep := inProcess(t, "-rtt", rtt.String(), "-locks", "40", "-lease", "3s", "-modes", "per-lock,batched", "-rounds", "1", "-foreground", "100")
	if len(rep.Rows) != 2 || rep.Settings.RTT != rtt.Seconds() {
		t.Fatalf("%+v", rep)
	}
	for _, r := range rep.Rows {
		// Times are in buckets of a few percent.
		if ms := report.Figure(rtt.Milliseconds()); r.BatchP50 < ms*.95 || r.LatencyP50 > ms {
			t.Errorf("%s: a call took %v ms, an ordinary command %v ms", r.Mode, r.BatchP50, r.LatencyP50)
		}
		if r.Losses != 0 || r.Late != 0 || r.Renewals <= 0 {
			t.Errorf("%s: lost %v, late %v, %v renewals/s", r.Mode, r.Losses, r.Late, r.Renewals)
		}
	}
}

// TestSoak holds locks in a cluster while others come and go.
func TestSoak(t *testing.T) {
	t.Parallel()
	rep := inProcess(t, "-soak", "3s", "-locks", "600", "-lease", "3s", "-churn", "50", "-cluster", "-foreground", "50")
	if len(rep.Rows) != 1 || rep.Settings.Nodes != 3 || rep.Settings.Clients != 1 {
		t.Fatalf("%+v", rep)
	}
	r := rep.Rows[0]
	// Three nodes with a batch each, and two scripts for each pair.
	if r.Losses != 0 || r.Calls < 3+2*50*.6 || r.Calls > 3+2*50*1.4 {
		t.Errorf("lost %v %v, %v calls/s", r.Losses, r.LossCauses, r.Calls)
	}
	within(t, "renewals", r.Renewals, 600, .3) // a batch more or less, of nine
}

// inProcess runs the program here, with this binary as children, and reads its report.
func inProcess(t *testing.T, args ...string) report.Report {
	t.Helper()
	name := filepath.Join(t.TempDir(), "r.json")
	var out, errs bytes.Buffer
	if code := run(t.Context(), append(args, "-json", name), &out, &errs); code != 0 {
		t.Fatalf("exit code %d: %s\n%s", code, &errs, &out)
	}
	return readReport(t, name)
}

// TestRedisAndInterrupt uses a Redis that runs, and warns that it isn't alone there. Then it is interrupted, and prints what there is.
func TestRedisAndInterrupt(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	cmd := program(t, "-redis", srv.Addr(), "-locks", "20", "-lease", "900ms", "-rounds", "9", "-modes", "batched", "-foreground", "0")
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
	for _, want := range []string{"warning: the figures of Redis include", srv.Addr(), "loadtest: interrupted"} {
		if !strings.Contains(said.String(), want) {
			t.Errorf("stderr lacks %q:\n%s", want, &said)
		}
	}
	if !regexp.MustCompile(`(?m)^ +20 +batched +[4-7]\.`).MatchString(out.String()) || !strings.Contains(out.String(), "The run is not complete") {
		t.Errorf("what there was is not printed:\n%s", &out)
	}
	rdb := srv.Client(t)
	left, err := rdb.Keys(t.Context(), "*").Result()
	for _, key := range left {
		if !strings.HasPrefix(key, "lockdog:fence:") {
			t.Errorf("left behind: %s", key)
		}
	}
	if err != nil || len(left) == 0 {
		t.Errorf("%v, %d keys", err, len(left))
	}
}
