package main

import (
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/lockdog/lockdog/loadtest/internal/cli"
	"github.com/lockdog/lockdog/loadtest/internal/figures"
)

// heads has the titles of the columns.
var heads = map[figures.Key]string{
	figures.P50: "p50 µs", figures.P99: "p99 µs", figures.Longest: "longest ms", figures.Rate: "/s",
	figures.Handoffs: "handoffs/s", figures.HandoffP50: "handoff p50", figures.Commands: "cmds",
	figures.InLua:      "in Lua",
	figures.Goroutines: "fair", figures.Processes: "fair procs", figures.Stuck: "stuck",
	figures.Unserved: "unserved", figures.RoundTrip: "rtt µs",
	figures.Allocs: "allocs", figures.Bytes: "bytes",
	figures.ClientCPU: "client µs", figures.RedisCPU: "redis µs",
	figures.ToldDel: "DEL", figures.ToldFlush: "FLUSHALL", figures.ToldForce: "forced unlock",
	figures.ToldNever: "never",
}

// print prints the tables and the verdicts.
func (b *bench) print(out io.Writer) error {
	_, err := fmt.Fprintf(out, "n = %d rounds of %v each; commit %s; %s; %s\n",
		b.flags.rounds, b.window, revision(), b.began.UTC().Format(time.DateTime+" MST"), b.about)
	if err != nil {
		return err
	}
	var tables []figures.Table
	for _, w := range b.works {
		if len(b.rounds[w.name]) == 0 {
			continue
		}
		t := figures.Table{Title: w.title, Heads: []string{"(" + w.name + ")"}}
		if w.base != "" {
			t.Heads = append(t.Heads, "× "+w.base)
		}
		for _, k := range w.columns {
			t.Heads = append(t.Heads, heads[k])
		}
		for _, name := range w.peers {
			t.Rows = append(t.Rows, b.row(&w, name))
		}
		tables = append(tables, t)
	}
	if err := figures.Print(out, tables); err != nil {
		return err
	}
	for _, v := range b.verdicts() {
		if _, err := fmt.Fprintln(out, v); err != nil {
			return err
		}
	}
	return nil
}

// row returns a peer's line: its name; if the workload has a base, its key figure divided by that of the base; and all
// figures. The key figure also has its minimum and maximum of all rounds.
func (b *bench) row(w *workload, name string) []string {
	rounds := b.rounds[w.name][name]
	cells := []string{name}
	if w.base != "" {
		ratio := "–"
		mine, ok := rounds.Get(w.key)
		theirs, known := b.rounds[w.name][w.base].Get(w.key)
		if ok && known && theirs > 0 {
			ratio = figures.Number(mine / theirs)
		}
		cells = append(cells, ratio)
	}
	for _, k := range w.columns {
		cell := rounds.Text(k)
		if low, high, ok := rounds.Span(k); ok && k == w.key {
			cell += fmt.Sprintf(" (%s–%s)", figures.Number(low), figures.Number(high))
		}
		cells = append(cells, cell)
	}
	return cells
}

// verdicts returns the verdicts for the works that were chosen.
func (b *bench) verdicts() []string {
	var verdicts []string
	for _, t := range targets {
		for _, w := range b.works {
			if w.name == t.Work {
				verdicts = append(verdicts, t.Verdict(b.rounds[w.name][t.Peer], b.rounds[w.name][t.Base]))
			}
		}
	}
	return verdicts
}

// revision returns the commit from which this program was built, if the build recorded it.
func revision() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	commit, changed := "unknown", ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			commit = s.Value[:min(len(s.Value), 12)]
		case s.Key == "vcs.modified" && s.Value == "true":
			changed = " with changes"
		}
	}
	return commit + changed
}

// machine describes the machine.
func machine() string {
	return fmt.Sprintf("%s, %d CPUs, load average at the start %s", runtime.Version(), runtime.NumCPU(),
		cli.LoadAverage())
}
