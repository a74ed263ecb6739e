package report_test

import (
	"bytes"
	"encoding/json"
	"math"
	"regexp"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/lockdog/lockdog/loadtest/internal/report"
	"github.com/lockdog/lockdog/loadtest/internal/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// sampleReport has what a run can have.
func sampleReport() *report.Report {
	none := report.Row{Mode: wire.None, Locks: 10_000, RedisPerRenewal: report.None(), Own: 0, LatencyP99: 1.2, LatencyHigh: 1.3}
	classic := report.Row{Mode: wire.PerLock, Locks: 10_000, Calls: 1000, Peak: 1051, HeapPer: 1300, StackPer: 2100, Timeline: []report.Figure{0, 1051, 0}}
	ours := report.Row{
		Mode: wire.Batched, Locks: 10_000, Calls: 4, Predicted: 4, Peak: 2, HeapPer: 655.123456789, StackPer: -3, LatencyP99: 1.25,
		Commands: map[string]int64{"evalsha": 40}, LossCauses: map[string]int64{}, Timeline: []report.Figure{0, 1, 0},
		Events: []report.Event{{At: 1, What: "</script><b>measured"}},
	}
	return &report.Report{
		Kind: "compare", Command: "go run -C loadtest . <flags>", Complete: true, Rows: []report.Row{none, classic, ours},
		Settings: report.Settings{Foreground: 300, Context: "context.Background()"},
		Targets: []report.Target{
			{What: "locks lost", Got: "0", Want: "0", Met: true, Hard: true},
			{What: "calls", Got: "9", Want: "at most 2"},
			{What: "counts", Got: "1", Want: "2", Hard: true},
		},
		Predictions: []report.Curve{{Mode: wire.Batched, Locks: []int{5000, 10_000}, Calls: []report.Figure{2, 4}}},
	}
}

// TestSchema pins what machines read.
func TestSchema(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	if err := sampleReport().JSON(&out); err != nil {
		t.Fatal(err)
	}
	var got struct {
		Rows []map[string]any `json:"rows"`
	}
	if err := json.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{
		"mode", "locks", "clients", "rounds", "window_s", "interval_s", "predicted_calls_per_s", "calls_per_s", "received_per_s", "own_per_s",
		"lua_per_s", "peak_100ms", "redis_cpu_percent", "redis_cpu_us_per_renewal", "redis_script_us_per_renewal", "net_in_bytes_per_s",
		"net_out_bytes_per_s", "renewals_per_s", "late_renewals", "losses", "failed_renewals", "batch_p50_ms", "batch_p99_ms", "schedule_lag_p99_ms",
		"lease_utilization_p999", "client_cpu_us_per_renewal", "goroutines_per_lock", "goroutines", "heap_bytes_per_lock",
		"stack_bytes_per_lock", "foreground_p50_ms", "foreground_p99_ms", "foreground_p999_ms", "foreground_errors",
	} {
		for _, row := range got.Rows {
			if _, ok := row[key]; !ok {
				t.Errorf("no %s in the row of %v", key, row["mode"])
			}
		}
	}
	if got.Rows[0]["redis_cpu_us_per_renewal"] != nil || got.Rows[2]["heap_bytes_per_lock"] != 655.123 {
		t.Errorf("%v, %v", got.Rows[0]["redis_cpu_us_per_renewal"], got.Rows[2]["heap_bytes_per_lock"])
	}
	var back report.Report
	if err := json.Unmarshal(out.Bytes(), &back); err != nil || back.Rows[0].RedisPerRenewal.Known() || back.Rows[1].Calls != 1000 {
		t.Errorf("read back: %v, %+v", err, back.Rows)
	}
}

func TestMedian(t *testing.T) {
	t.Parallel()
	row := func(calls, peak, losses, high report.Figure, causes map[string]int64) report.Row {
		return report.Row{Mode: wire.Batched, Calls: calls, Peak: peak, Losses: losses, LatencyLow: high - 1, LatencyHigh: high, LossCauses: causes, Own: report.None()}
	}
	got := report.Median([]report.Row{
		row(4, 2, 0, 1.5, nil), row(9, 1, 2, 1.1, map[string]int64{"stalled": 2}), row(5, 3, 1, 1.9, map[string]int64{"stalled": 1}),
	})
	if got.Rounds != 3 || got.Calls != 5 || got.Peak != 3 || got.Losses != 3 || got.LatencyLow > .11 || got.LatencyHigh != 1.9 || got.LossCauses["stalled"] != 3 {
		t.Errorf("%+v", got)
	}
	if got.Own.Known() {
		t.Errorf("nobody counted, yet %v", got.Own)
	}
	if two := report.Median([]report.Row{row(4, 0, 0, 0, nil), row(5, 0, 0, 0, nil)}); two.Calls != 4.5 {
		t.Errorf("of two: %v", two.Calls)
	}
}

func TestTable(t *testing.T) {
	t.Parallel()
	rep := sampleReport()
	var out bytes.Buffer
	if err := rep.Table(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`(?m)^ +10000 +batched +4\.00 +4\.00 .* 2 `, `(?m)^ +10000 +none .*–`, `met +locks lost: 0 \(0\)`, `missed +calls: 9 \(at most 2\)`,
		`FAILED +counts`, `ctx is context\.Background\(\) .*460`, `Everybody else`,
	} {
		if !regexp.MustCompile(want).MatchString(out.String()) {
			t.Errorf("no %s in\n%s", want, &out)
		}
	}
	rep.Settings.Foreground, rep.Complete = 0, false
	out.Reset()
	if err := rep.Table(&out); err != nil || strings.Contains(out.String(), "Everybody else") || !strings.Contains(out.String(), "not complete") {
		t.Errorf("%v\n%s", err, &out)
	}
}

func TestText(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ got, want string }{
		{report.Text(report.None(), "%.1f"), "–"},
		{report.Text(report.Figure(math.Copysign(0, -1)), "%.1f"), "0.0"},
		{report.Bytes(999), "999"},
		{report.Bytes(12_345), "12.3k"},
		{report.Bytes(-2_000_000), "-2.0M"},
		{report.Bytes(report.None()), "–"},
		{report.Thousands(1), "1"},
		{report.Thousands(999_999), "999,999"},
		{report.Thousands(1_000_000), "1,000,000"},
	} {
		if test.got != test.want {
			t.Errorf("%q, want %q", test.got, test.want)
		}
	}
}

// TestPage: one file that needs no other, and that what is in a report can't break out of.
func TestPage(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	if err := sampleReport().HTML(&out); err != nil {
		t.Fatal(err)
	}
	page := out.String()
	if found := regexp.MustCompile(`(?i)(src|href)\s*=\s*["']|@import|url\(\s*["']?http|fetch\(`).FindString(page); found != "" {
		t.Errorf("the page loads something: %s", found)
	}
	if n := strings.Count(page, "</script>"); n != 3 {
		t.Errorf("%d ends of scripts, want 3", n)
	}
	for _, want := range []string{
		"uPlot=function", "The MIT License", `"timeline_100ms":[0,1,0]`, "<td>batched</td>", "for 10,000 locks; 1,000 with a watchdog per lock",
		"go run -C loadtest . &lt;flags&gt;", `class="missed"`, "655 B",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("no %s", want)
		}
	}
}
