//go:build chaos

package chaos_test

import (
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/lockdog/lockdog/internal/chaos/history"
	"github.com/lockdog/lockdog/internal/redistest"
)

var (
	onlyFault = flag.String("chaos.fault", "", "make up runs with this `fault` only")
	onlyKind  = flag.String("chaos.kind", "", "make up runs with locks of this `family` of kinds only")
	onlyShape = flag.String("chaos.shape", "", "make up runs on this `shape` of Redis only")
	keepAll   = flag.Bool("chaos.keep", false, "keep the history of every run in bin/chaos")
)

func TestMain(m *testing.M) {
	if os.Getenv(clientEnv) != "" {
		childMain(runClient)
	}
	if os.Getenv(agentEnv) != "" {
		childMain(runAgent)
	}
	redistest.Main(m)
}

// seeds are those of the runs asked for, by shape: CHAOS_RUNS of them from CHAOS_SEED on; without a seed those from 1 on, the
// last one fresh.
func seeds(t *testing.T) map[string][]uint64 {
	t.Helper()
	if _, ok := faultNamed(*onlyFault); !ok && *onlyFault != "" {
		t.Fatalf("-chaos.fault=%q: there is no such fault", *onlyFault)
	}
	if _, ok := familyNamed(*onlyKind); !ok && *onlyKind != "" {
		t.Fatalf("-chaos.kind=%q: there is no such family of kinds", *onlyKind)
	}
	if !slices.Contains(shapes, *onlyShape) && *onlyShape != "" {
		t.Fatalf("-chaos.shape=%q: it is none of %q", *onlyShape, shapes)
	}
	runs, first, fresh := len(shapes)+1, uint64(1), true
	if s := os.Getenv("CHAOS_RUNS"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 {
			t.Fatalf("CHAOS_RUNS=%q: a number of runs is wanted", s)
		}
		runs = n
	}
	if s := os.Getenv("CHAOS_SEED"); s != "" {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatalf("CHAOS_SEED=%q: a seed is wanted: %v", s, err)
		}
		first, fresh = n, false
	}
	byShape := make(map[string][]uint64)
	for i := range uint64(runs) {
		seed := first + i
		if fresh && i == uint64(runs)-1 {
			seed = rand.Uint64N(1 << 48)
		}
		shape := shapeOf(seed, asked())
		byShape[shape] = append(byShape[shape], seed)
	}
	return byShape
}

// asked is what the flags want of the runs. What they name has to exist.
func asked() wish { return wish{shape: *onlyShape, family: *onlyKind, fault: *onlyFault} }

// TestChaos plays what the seeds say, the shapes of Redis side by side.
func TestChaos(t *testing.T) {
	began := time.Now()
	var all tally
	byShape := seeds(t)
	kept := keptSchedules(t)
	t.Run("shapes", func(t *testing.T) {
		for _, shape := range shapes {
			schedules := kept[shape]
			for _, seed := range byShape[shape] {
				schedules = append(schedules, newSchedule(seed, asked()))
			}
			if len(schedules) == 0 {
				continue
			}
			t.Run(shape, func(t *testing.T) {
				t.Parallel()
				rig := startRig(t, shape)
				for _, s := range schedules {
					t.Run(strconv.FormatUint(s.Seed, 10), func(t *testing.T) { all.add(playAndCheck(t, rig, s)) })
				}
			})
		}
	})
	for _, found := range all.found { // again, at the end: whoever reads a long log begins there
		fmt.Println("chaos: " + found)
	}
	if all.agents > 2 && all.byAgents == 0 {
		t.Error("no agent has renewed anything")
	}
	fmt.Printf("chaos: %v in %v\n", &all, time.Since(began).Round(time.Second))
}

// keptSchedules are those of runs that once showed a bug, also one that was put in on purpose. They come first, unless a run was asked for
// by its seed, or by what it is about.
func keptSchedules(t *testing.T) map[string][]schedule {
	t.Helper()
	kept := make(map[string][]schedule)
	if os.Getenv("CHAOS_SEED") != "" || asked() != (wish{}) {
		return kept
	}
	files, err := filepath.Glob(filepath.Join("testdata", "schedules", "*.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		s, err := readSchedule(text)
		if err != nil {
			t.Fatalf("%s: %v", f, err)
		}
		kept[s.Shape] = append(kept[s.Shape], s)
	}
	return kept
}

// result is what one run came to.
type result struct {
	schedule   schedule
	history    *history.History
	violations []history.Violation
	excused    int // pairs of holders at one time, where Redis had lost a write
	stale      int // writes that the store refused
	undecided  int // names whose history was too long to be linearized
	took       time.Duration
}

// tally adds results up.
type tally struct {
	mu                                                sync.Mutex
	runs, violated, grants, excused, stale, undecided int
	deadlocks                                         int // waits that were in one
	agents                                            int // runs with an agent
	byAgents                                          float64
	found                                             []string
}

func (a *tally) add(r result) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.runs++
	if len(r.violations) > 0 {
		a.violated++
	}
	for _, v := range r.violations {
		a.found = append(a.found, fmt.Sprintf("seed %d on %s: %v", r.schedule.Seed, r.schedule.Shape, v))
	}
	a.grants += r.history.Grants()
	a.excused += r.excused
	a.stale += r.stale
	a.undecided += r.undecided
	if r.schedule.Agent {
		a.agents++
		a.byAgents += renewedByAgents(r.history)
	}
	for _, summary := range r.history.Summaries {
		a.deadlocks += int(summary.Counts[history.CountDeadlocks])
	}
}

func (a *tally) String() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return fmt.Sprintf("%d runs, %d violated; %d grants, %d of them beside another where Redis had lost one, %d stale writes refused, %d names undecided, %d waits in deadlocks, %v requests to agents in %d runs",
		a.runs, a.violated, a.grants, a.excused, a.stale, a.undecided, a.deadlocks, a.byAgents, a.agents)
}

// playAndCheck plays a schedule and checks what came of it.
func playAndCheck(t *testing.T, rig *rig, s schedule) result {
	began := time.Now()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("it was %v", s)
		}
	})
	dir := t.TempDir()
	r := play(t, rig, s, dir)
	h, err := r.history()
	if err != nil {
		t.Fatalf("%v: %v", s, err)
	}
	res := check(h)
	res.schedule, res.took = s, time.Since(began)
	for _, v := range res.violations {
		t.Errorf("%v", v)
	}
	fmt.Printf("chaos: %v: %d grants, %d stale writes refused, %d beside another, %d violations, %v\n",
		s, h.Grants(), res.stale, res.excused, len(res.violations), res.took.Round(100*time.Millisecond))
	if t.Failed() || *keepAll {
		where := keep(t, s, h, r)
		t.Logf("again: CHAOS_SEED=%d CHAOS_RUNS=1 make chaos; the whole history is in %s; around the first violation:\n%s", s.Seed, where, timeline(h, res.violations))
	}
	return res
}

const linearLimit = 10 * time.Second

// check has a history pass all checks.
func check(h *history.History) (res result) {
	res.history = h
	found, excused := history.Exclusion(h)
	res.excused = len(excused)
	res.violations = append(found, history.Tokens(h)...)
	found, res.stale = history.Store(h)
	res.violations = append(res.violations, found...)
	res.violations = append(res.violations, history.Deadlines(h)...)
	res.violations = append(res.violations, history.Endings(h)...)
	res.violations = append(res.violations, history.Losses(h)...)
	res.violations = append(res.violations, history.Telemetry(h)...)
	res.violations = append(res.violations, history.Recovery(h)...)
	found, undecided := history.Linearizable(h, linearLimit)
	res.violations = append(res.violations, found...)
	res.undecided = len(undecided)
	res.violations = append(res.violations, history.Conserved(h)...)
	res.violations = append(res.violations, history.Latches(h)...)
	res.violations = append(res.violations, history.Ghosts(h)...)
	return res
}

// keep puts a run's schedule and history into bin/chaos, and what the client processes printed.
func keep(t *testing.T, s schedule, h *history.History, r *run) string {
	t.Helper()
	dir := filepath.Join("..", "..", "bin", "chaos", strconv.FormatUint(s.Seed, 10))
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	text, err := json.MarshalIndent(s, "", "  ")
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "schedule.json"), append(text, '\n'), 0o644)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "history.txt"), []byte(h.Timeline(0, h.End, "")), 0o644)
	}
	for number := 1; err == nil && number <= r.lastProc; number++ {
		if text, err = os.ReadFile(r.outputOf(number)); err == nil {
			err = os.WriteFile(filepath.Join(dir, filepath.Base(r.outputOf(number))), text, 0o644)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join("bin", "chaos", filepath.Base(dir))
}

// timeline is the part of the history that the first violation is about.
func timeline(h *history.History, found []history.Violation) string {
	if len(found) == 0 {
		return "(none)"
	}
	const around, most = 500 * time.Millisecond, 16_000
	v := found[0]
	text := h.Timeline(v.From.Add(-around), v.To.Add(around), v.Name)
	if len(text) > most {
		text = text[:most/2] + "\n... (cut; see the file) ...\n" + text[len(text)-most/2:]
	}
	return text
}
