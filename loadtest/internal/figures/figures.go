// Package figures computes what is printed for several rounds: medians, ratios of medians, tables of them, and whether
// targets are met.
package figures

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
)

// Key names a figure.
type Key string

// The figures of the load test. Its usage explains them.
const (
	Predicted         Key = "predicted_calls_per_s"
	Calls             Key = "calls_per_s"
	OwnCalls          Key = "own_per_s"
	Peak              Key = "peak_100ms"
	Renewals          Key = "renewals_per_s"
	RedisShare        Key = "redis_cpu_percent"
	RedisPerRenewal   Key = "redis_cpu_us_per_renewal"
	ScriptsPerRenewal Key = "redis_script_us_per_renewal"
	CallP50           Key = "call_p50_ms"
	CallP99           Key = "call_p99_ms"
	LagP99            Key = "schedule_lag_p99_ms"
	Utilization       Key = "lease_utilization_p999"
	Late              Key = "late_renewals"
	Lost              Key = "losses"
	ClientPerRenewal  Key = "client_cpu_us_per_renewal"
	GoroutinesPerLock Key = "goroutines_per_lock"
	HeapPerLock       Key = "heap_bytes_per_lock"
	StackPerLock      Key = "stack_bytes_per_lock"
	ForegroundP99     Key = "foreground_p99_ms"
	ForegroundLow     Key = "foreground_p99_low_ms" // with 95 % confidence the p99 is between Low and High
	ForegroundHigh    Key = "foreground_p99_high_ms"
)

// Figures has the figures of one measurement. It omits what wasn't measured.
type Figures map[Key]float64

// Rounds has repeated measurements, the first round first.
type Rounds []Figures

// worst has the figures for which the maximum of all rounds counts. For ForegroundLow it is the minimum, for all others
// the median.
var worst = []Key{Peak, Late, Lost, ForegroundHigh}

// values returns the values of a figure in all rounds.
func (r Rounds) values(k Key) []float64 {
	var v []float64
	for _, f := range r {
		if x, ok := f[k]; ok {
			v = append(v, x)
		}
	}
	return v
}

// Get returns the figure for all rounds together, false if it wasn't measured.
func (r Rounds) Get(k Key) (float64, bool) {
	v := r.values(k)
	switch {
	case len(v) == 0:
		return 0, false
	case slices.Contains(worst, k):
		return slices.Max(v), true
	case k == ForegroundLow:
		return slices.Min(v), true
	}
	slices.Sort(v)
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2, true
}

// Text returns Get formatted.
func (r Rounds) Text(k Key) string {
	x, ok := r.Get(k)
	if !ok {
		return "–"
	}
	return number(x)
}

// number formats a figure with three digits, or without a fraction from 100 on.
func number(x float64) string {
	switch a := math.Abs(x); {
	case a >= 99.95:
		return fmt.Sprintf("%.0f", x)
	case a >= 9.995:
		return fmt.Sprintf("%.1f", x)
	default:
		return fmt.Sprintf("%.2f", x)
	}
}

// Table has rows of figures under a title.
type Table struct {
	Title string
	Heads []string
	Rows  [][]string
}

// Print prints tables for a terminal. The columns of each table are aligned.
func Print(out io.Writer, tables []Table) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	printf := func(format string, args ...any) { _, _ = fmt.Fprintf(w, format, args...) } // Flush returns the error
	for _, t := range tables {
		printf("\n%s\n", t.Title)
		for _, row := range append([][]string{t.Heads}, t.Rows...) {
			printf("%s\t\n", strings.Join(row, "\t"))
		}
	}
	printf("\n")
	return w.Flush()
}
