//go:build chaos

package chaos_test

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lockdog/lockdog/internal/chaos/history"
)

// came is a run with one fault and what it came to.
func came(fault, family string, f history.Facts) outcome {
	return outcome{Schedule: schedule{Shape: sentinel, Family: family, Steps: []step{{Fault: fault}}}, Facts: f}
}

func TestRender(t *testing.T) {
	t.Parallel()
	lost := history.Facts{
		Grants: 600, Live: 10, Refused: map[string]int{"held": 5, "error": 5}, BackIn: 400 * time.Millisecond,
		After:  map[string][]time.Duration{"lost:unreachable": {time.Second, 2 * time.Second}, "lost:expired": {time.Second}, "canceled:context": {time.Second}},
		Counts: map[string]float64{history.Labeled(history.CountLosses, "unreachable"): 2, history.Labeled(history.CountErrors, "network"): 9},
	}
	forced := history.Facts{Grants: 600, Forced: 1, Live: 5, After: map[string][]time.Duration{"lost:missing": {time.Second}}, Counts: map[string]float64{history.Labeled(history.CountLosses, "missing"): 1}}
	both := came("SCRIPT FLUSH", "mutex", history.Facts{})
	both.Schedule.Steps = append(both.Schedule.Steps, step{Fault: "server stopped"})
	both.Violations = []string{"one"}
	text := render([]outcome{
		came("calm", "mutex", history.Facts{BackIn: 50 * time.Millisecond, Counts: map[string]float64{history.Labeled(history.CountErrors, "network"): 1}}),
		came("server stopped", "mutex", lost), came("server stopped", "fair", forced), both, came("SCRIPT FLUSH", "rw", history.Facts{}),
		came("failover, replica behind", "mutex", history.Facts{Excused: 3, Beside: 4, Stale: 9}), came("failover, replica behind", "mutex", history.Facts{Stale: 7}),
		came("failover, replica behind", "replicas", history.Facts{}),
	})
	for _, line := range []string{
		"8 runs (single 0, replicated 0, sentinel 8, failover cluster 0, cluster 0, quorum 0), 1,200 grants; 1 of the runs violated a check.",
		"| calm | 1 | - | in 0.1 s after it (0.1 s) | - |",
		"| server stopped | 3 | 20 % lose it: unreachable at 2.0 s | 20 % fail; in 0.4 s after it (0.4 s) | `losses` unreachable (`lost`, LockLost) |",
		"| SCRIPT FLUSH | 2 | - | - | - |",
		"| replica behind | Mutex | 2 | 1 | 3 | 4 |",
		"| replica behind | Mutex, WithReplicas(1) | 1 | 0 | 0 | 0 |",
	} {
		if !strings.Contains(text, line+"\n") {
			t.Errorf("no line %q in\n%s", line, text)
		}
	}
}

// What a seed makes up must exist, on its shape, and be readable again.
func TestSchedules(t *testing.T) {
	t.Parallel()
	seen := make(map[string]bool)
	shortest, longest := time.Hour, time.Duration(0)
	for seed := range uint64(2000) {
		s := newSchedule(seed, wish{})
		f, ok := familyNamed(s.Family)
		if !ok || !f.on(s.Shape) || s.Shape != shapeOf(seed, wish{}) || len(s.Steps) == 0 || len(s.Targets) == 0 {
			t.Fatalf("%v", s)
		}
		seen[s.Shape], seen[s.Family] = true, true
		if s.Stale {
			shortest, longest = min(shortest, s.Lease), max(longest, s.Lease)
		}
		for _, st := range s.Steps {
			fault, ok := faultNamed(st.Fault)
			if !ok || !fault.on(s.Shape) || !f.survives(s.Shape, st) || st.Client >= s.Clients || st.Target >= len(s.Targets) {
				t.Fatalf("%v", s)
			}
			seen[st.Fault] = true
		}
	}
	if shortest != 2*time.Second || longest != 30*time.Second {
		t.Errorf("leases beside a primary that was replaced are of %v to %v", shortest, longest)
	}
	for _, f := range faults {
		if !seen[f.name] {
			t.Errorf("no run of 2000 has the fault %s", f.name)
		}
	}
	for _, f := range families {
		if !seen[f.name] {
			t.Errorf("no run of 2000 is about %s", f.name)
		}
		if s := newSchedule(7, wish{family: f.name}); s.Family != f.name {
			t.Errorf("asked for %s: %v", f.name, s)
		}
	}
	for _, name := range shapes {
		if s := newSchedule(7, wish{shape: name}); s.Shape != name || !seen[name] {
			t.Errorf("asked for %s: %v", name, s)
		}
	}
	if kept, err := filepath.Glob(filepath.Join("testdata", "schedules", "*.json")); err != nil || len(kept) == 0 {
		t.Errorf("%d schedules are kept: %v", len(kept), err)
	}
}
