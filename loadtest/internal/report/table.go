package report

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strings"
	"text/tabwriter"
)

// column is one figure of the table. The texts below are in -h, too.
type column struct {
	head   string
	figure func(*Row) string
}

// block is some columns under a title: one table of all would be wider than any terminal.
type block struct {
	title   string
	columns []column
}

func number(f func(*Row) Figure, format string) func(*Row) string {
	return func(r *Row) string { return Text(f(r), format) }
}

// Text writes a figure; what is not known is a dash.
func Text(f Figure, format string) string {
	if !f.Known() {
		return "–"
	}
	if math.Abs(float64(f)) < 1e-9 {
		f = 0 // not -0
	}
	return fmt.Sprintf(format, float64(f))
}

// Bytes writes an amount, or a rate, of bytes.
func Bytes(f Figure) string {
	switch {
	case !f.Known():
		return "–"
	case math.Abs(float64(f)) < 1000:
		return fmt.Sprintf("%.0f", float64(f))
	case math.Abs(float64(f)) < 1e6:
		return fmt.Sprintf("%.1fk", float64(f)/1e3)
	default:
		return fmt.Sprintf("%.1fM", float64(f)/1e6)
	}
}

var blocks = []block{
	{"Calls to Redis, per second", []column{
		{"predicted", number(func(r *Row) Figure { return r.Predicted }, "%.2f")},
		{"calls", number(func(r *Row) Figure { return r.Calls }, "%.2f")},
		{"received", number(func(r *Row) Figure { return r.Received }, "%.2f")},
		{"own count", number(func(r *Row) Figure { return r.Own }, "%.2f")},
		{"in Lua", number(func(r *Row) Figure { return r.InLua }, "%.1f")},
		{"peak/100ms", number(func(r *Row) Figure { return r.Peak }, "%.0f")},
		{"renewals", number(func(r *Row) Figure { return r.Renewals }, "%.0f")},
	}},
	{"What that costs Redis", []column{
		{"CPU %", number(func(r *Row) Figure { return r.RedisCPU }, "%.2f")},
		{"µs/renewal", number(func(r *Row) Figure { return r.RedisPerRenewal }, "%.1f")},
		{"in scripts", number(func(r *Row) Figure { return r.ScriptPerRenewal }, "%.1f")},
		{"in B/s", func(r *Row) string { return Bytes(r.NetIn) }},
		{"out B/s", func(r *Row) string { return Bytes(r.NetOut) }},
	}},
	{"The clients", []column{
		{"call p50 ms", number(func(r *Row) Figure { return r.BatchP50 }, "%.2f")},
		{"p99", number(func(r *Row) Figure { return r.BatchP99 }, "%.2f")},
		{"lag p99 ms", number(func(r *Row) Figure { return r.LagP99 }, "%.1f")},
		{"lease p99.9", number(func(r *Row) Figure { return r.Utilization }, "%.3f")},
		{"late", number(func(r *Row) Figure { return r.Late }, "%.0f")},
		{"lost", number(func(r *Row) Figure { return r.Losses }, "%.0f")},
		{"µs/renewal", number(func(r *Row) Figure { return r.ClientPerRenewal }, "%.1f")},
		{"goroutines/lock", number(func(r *Row) Figure { return r.GoroutinesPer }, "%.2f")},
		{"heap/lock", number(func(r *Row) Figure { return r.HeapPer }, "%.0f")},
		{"stack/lock", number(func(r *Row) Figure { return r.StackPer }, "%.0f")},
	}},
	{"Everybody else: latency of ordinary commands, ms", []column{
		{"p50", number(func(r *Row) Figure { return r.LatencyP50 }, "%.2f")},
		{"p99", number(func(r *Row) Figure { return r.LatencyP99 }, "%.2f")},
		{"p99.9", number(func(r *Row) Figure { return r.LatencyP999 }, "%.2f")},
		{"p99 from", number(func(r *Row) Figure { return r.LatencyLow }, "%.2f")},
		{"to", number(func(r *Row) Figure { return r.LatencyHigh }, "%.2f")},
	}},
}

// Table prints it for a terminal.
func (rep *Report) Table(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	printf := func(format string, args ...any) { _, _ = fmt.Fprintf(w, format, args...) } // Flush tells
	for _, b := range rep.blocks() {
		printf("\n%s\n", b.title)
		heads := []string{"locks", "mode"}
		for _, c := range b.columns {
			heads = append(heads, c.head)
		}
		printf("%s\t\n", strings.Join(heads, "\t"))
		for i := range rep.Rows {
			r := &rep.Rows[i]
			cells := []string{fmt.Sprint(r.Locks), r.label()}
			for _, c := range b.columns {
				cells = append(cells, c.figure(r))
			}
			printf("%s\t\n", strings.Join(cells, "\t"))
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	return rep.conclusions(out)
}

// blocks leaves out what was not measured.
func (rep *Report) blocks() []block {
	if rep.Settings.Foreground == 0 {
		return blocks[:len(blocks)-1]
	}
	return blocks
}

func (r *Row) label() string {
	if r.Stage != "" {
		return r.Mode + ", " + r.Stage
	}
	return r.Mode
}

// conclusions are the lines below the table.
func (rep *Report) conclusions(out io.Writer) error {
	var b strings.Builder
	b.WriteString("\n")
	for _, t := range rep.Targets {
		fmt.Fprintf(&b, "%-7s %s: %s (%s)\n", t.Verdict(), t.What, t.Got, t.Want)
	}
	for _, n := range rep.Notes {
		b.WriteString(n + "\n")
	}
	if !rep.Complete {
		b.WriteString("The run is not complete: it was interrupted, or failed on the way.\n")
	}
	for _, line := range rep.About() {
		b.WriteString(line + "\n")
	}
	_, err := io.WriteString(out, b.String())
	return err
}

// Verdict is a target's result in a word.
func (t Target) Verdict() string {
	switch {
	case t.Met:
		return "met"
	case t.Hard:
		return "FAILED"
	default:
		return "missed"
	}
}

// About is what was measured where.
func (rep *Report) About() []string {
	s, m := rep.Settings, rep.Machine
	cpu := ""
	if m.CPU != "" {
		cpu = " of " + m.CPU
	}
	distance := ""
	if s.RTT > 0 {
		distance = fmt.Sprintf(", %g ms of round trip away", 1000*s.RTT)
	}
	return []string{
		fmt.Sprintf("Lease %gs, renewed every %gs; %d client process(es), %d Redis node(s)%s; holders' ctx is %s (a cancelable one costs lockdog about 460 bytes of heap more per lock).",
			s.Lease, s.Interval, s.Clients, s.Nodes, distance, s.Context),
		fmt.Sprintf("%s, %d CPUs%s, %s, Redis %s; load average at the start %s.", m.OS, m.CPUs, cpu, m.Go, m.Redis, m.Load),
		fmt.Sprintf("%s   (seed %d, %s, %.0f s)", rep.Command, s.Seed, rep.Started, rep.Took),
	}
}

// JSON writes it for machines.
func (rep *Report) JSON(out io.Writer) error {
	e := json.NewEncoder(out)
	e.SetIndent("", "  ")
	return e.Encode(rep)
}
