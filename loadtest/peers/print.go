package main

import (
	"errors"
	"fmt"
	"io"
	"runtime"
	"runtime/debug"
	"slices"
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
	err = errors.Join(err, figures.Print(out, tables))
	for _, t := range targets {
		if slices.ContainsFunc(b.works, func(w workload) bool { return w.name == t.Work }) {
			_, failed := fmt.Fprintln(out, t.Verdict(b.rounds[t.Work][t.Peer], b.rounds[t.Work][t.Base]))
			err = errors.Join(err, failed)
		}
	}
	return err
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
