package main

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/lockdog/lockdog/loadtest/internal/report"
	"github.com/lockdog/lockdog/loadtest/internal/sample"
	"github.com/lockdog/lockdog/loadtest/internal/wire"
	"github.com/lockdog/lockdog/lock"
)

// What lockdog promises, as far as a machine of two cores can show it.
const (
	heapLimit     = 760  // bytes a lock: 700, and 60 for the token counter of its slot while few locks share one
	goroutineMost = 0.05 // a lock: none, but for a few of the client's own that came later
	cpuShare      = 0.2  // of the per-lock mode's, per renewal
	clusterCalls  = 15   // per second, of 10,000 locks on three nodes
	utilizationP  = 0.5  // in a soak
)

// callLimits are calls per second, with the default lease on one server.
var callLimits = map[int]float64{1000: 0.5, 10_000: 4.5, 100_000: 45}

// agreement is what makes all other figures worth something.
func agreement(differ []string, rows []report.Row) []report.Target {
	lost := 0.0
	var causes []string
	for _, r := range rows {
		if r.Losses > 0 && counts(r.Mode) { // for what Redisson loses it has to answer itself; the table shows it
			lost += float64(r.Losses)
			causes = append(causes, fmt.Sprintf("%s, %d locks: %s", r.Mode, r.Locks, losses(r.LossCauses)))
		}
	}
	got := "they do"
	if len(differ) > 0 {
		got = strings.Join(differ, "; ")
	}
	return []report.Target{
		{
			What: "Redis and the clients count the same calls", Want: fmt.Sprintf("within %v%% of the renewals' calls, or %d calls", 100*agreeShare, agreeCalls),
			Got: got, Met: len(differ) == 0, Hard: true,
		},
		{
			What: "locks lost", Want: "0", Got: strings.Join(append([]string{fmt.Sprint(lost)}, causes...), "; "),
			Met: lost == 0, Hard: true,
		},
	}
}

// targets compares rows with what is promised of them.
func (b *bench) targets(rows []report.Row) []report.Target {
	var t []report.Target
	for _, r := range rows {
		if r.Mode != wire.Batched {
			continue
		}
		n := fmt.Sprintf("%d locks: ", r.Locks)
		limit, known := callLimits[r.Locks]
		if b.cluster {
			limit, known = clusterCalls, r.Locks == 10_000
		}
		if known && b.lease == lock.DefaultLease {
			t = append(t, atMost(n+"calls a second", r.Calls, limit, "%.2f"))
		}
		t = append(t, b.trickle(n, &r), atMost(n+"renewals late", r.Late, 0, "%.0f"))
		if c := find(rows, wire.PerLock, r.Locks); c != nil {
			limit := cpuShare * float64(c.RedisPerRenewal)
			t = append(t, atMost(n+"Redis µs per renewal, a fifth of per-lock's", r.RedisPerRenewal, limit, "%.1f"))
		}
		t = append(t, atMost(n+"goroutines per lock", r.GoroutinesPer, goroutineMost, "%.2f"),
			atMost(n+"bytes of heap per lock", r.HeapPer, heapLimit, "%.0f"))
		if idle := find(rows, wire.None, r.Locks); idle != nil && r.LatencyP99.Known() && r.Locks <= 10_000 {
			t = append(t, report.Target{
				What: n + "foreground p99 in ms, within the noise of the run without renewal",
				Want: span(idle), Got: span(&r), Met: r.LatencyLow <= idle.LatencyHigh,
			})
		}
	}
	return t
}

// trickle is the promise that renewals never come in a storm: from each client to each node, which know nothing of each other, at most
// the mean, rounded up, plus one. The mean is that of what the locks need, where chance made the calls of a short window fewer.
func (b *bench) trickle(prefix string, r *report.Row) report.Target {
	pairs := float64(b.clients * len(b.addrs))
	mean := max(float64(r.Calls), float64(r.Predicted)) * sample.Window.Seconds() / pairs
	what := prefix + "calls in the worst 100 ms (the mean, rounded up, plus one"
	if pairs > 1 {
		what += fmt.Sprintf(", from each client to each node: %.0f", pairs)
	}
	return atMost(what+")", r.Peak, pairs*(math.Ceil(mean)+1), "%.0f")
}

func atMost(what string, got report.Figure, limit float64, format string) report.Target {
	return report.Target{
		What: what, Want: "at most " + fmt.Sprintf(format, limit), Got: fmt.Sprintf(format, float64(got)),
		Met: got.Known() && float64(got) <= limit,
	}
}

// span is where a p99 lies.
func span(r *report.Row) string {
	return fmt.Sprintf("%.2f (%.2f to %.2f)", float64(r.LatencyP99), float64(r.LatencyLow), float64(r.LatencyHigh))
}

func find(rows []report.Row, mode string, locks int) *report.Row {
	for i := range rows {
		if rows[i].Mode == mode && rows[i].Locks == locks {
			return &rows[i]
		}
	}
	return nil
}

// losses lists causes: "stalled 3, missing 1".
func losses(causes map[string]int64) string {
	var list []string
	for _, cause := range slices.Sorted(maps.Keys(causes)) {
		list = append(list, fmt.Sprintf("%s %d", cause, causes[cause]))
	}
	return strings.Join(list, ", ")
}
