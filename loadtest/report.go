package main

import (
	_ "embed"
	"errors"
	"fmt"
	"html/template"
	"io"
	"math"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/lockdog/lockdog/loadtest/internal/figures"
	"github.com/lockdog/lockdog/loadtest/internal/sample"
)

// report is the result of a run: tables, and a page with a picture.
type report struct {
	b        *bench
	command  string
	load     string // average of the machine, at the start
	redis    string // version of Redis
	took     time.Duration
	complete bool   // not interrupted, and nothing failed
	rows     []*row // in the order in which they are first measured: by number of locks, then by mode
	notes    []string
	faults   []error // reasons why the figures are worthless
}

// row has the measurements of one mode with one number of locks.
type row struct {
	mode     string
	locks    int
	rounds   figures.Rounds
	timeline []float64 // calls in each 100 ms of the first round, from the first acquire
}

func (rep *report) find(mode string, locks int) *row {
	for _, r := range rep.rows {
		if r.mode == mode && r.locks == locks {
			return r
		}
	}
	return nil
}

// By how much the number of goroutines of a process may vary, for any number of locks: calls in flight have goroutines,
// and so do the pairs of churn.
const (
	soakGoroutines  = 32
	churnGoroutines = 400
)

// add adds a measurement. idle is the window of the run without renewal in the same round, if there is one.
func (rep *report) add(h *holders, idle *window) {
	b, f := rep.b, h.figures(idle)
	if b.rounds > 1 && h.window.foreground != nil {
		delete(f, figures.RedisShare)
		delete(f, figures.RedisPerRenewal)
	}
	r := rep.find(h.mode, h.locks)
	if r == nil {
		r = &row{mode: h.mode, locks: h.locks, timeline: sample.Series(h.points, h.began, h.window.to)}
		rep.rows = append(rep.rows, r)
	}
	r.rounds = append(r.rounds, f)
	rep.redis = h.start.Version
	rep.faults = append(rep.faults, h.faults()...)
	if b.soak == 0 {
		return
	}
	may := soakGoroutines
	if b.churn > 0 {
		may += churnGoroutines
	}
	rep.notes = append(rep.notes, fmt.Sprintf("%d locks were acquired in %s, and held for %.0f s by %d process(es), "+
		"with %d to %d goroutines (%d more are expected at most).", h.locks, h.took.Round(time.Millisecond),
		h.window.seconds(), b.clients, h.fewest, h.most, may*b.clients))
}

// blocks are tables with some of the columns each: a single table would be wider than a terminal. -h explains the
// heads.
var blocks = []struct {
	title string
	heads []string
	keys  []figures.Key
}{
	{
		"Calls to Redis, per second",
		[]string{"predicted", "calls", "own count", "peak/100ms", "renewals"},
		[]figures.Key{figures.Predicted, figures.Calls, figures.OwnCalls, figures.Peak, figures.Renewals},
	},
	{
		"What that costs",
		[]string{"Redis CPU %", "µs/renewal", "in scripts", "clients' µs/renewal", "others' p99 ms", "from", "to"},
		[]figures.Key{
			figures.RedisShare, figures.RedisPerRenewal, figures.ScriptsPerRenewal, figures.ClientPerRenewal,
			figures.ForegroundP99, figures.ForegroundLow, figures.ForegroundHigh,
		},
	},
	{
		"The clients",
		[]string{
			"call p50 ms", "p99", "lag p99 ms", "lease p99.9", "late", "lost",
			"goroutines/lock", "heap/lock", "stack/lock",
		},
		[]figures.Key{
			figures.CallP50, figures.CallP99, figures.LagP99, figures.Utilization, figures.Late, figures.Lost,
			figures.GoroutinesPerLock, figures.HeapPerLock, figures.StackPerLock,
		},
	},
}

func (rep *report) tables() (tables []figures.Table) {
	for _, b := range blocks {
		t := figures.Table{Title: b.title, Heads: append([]string{"locks", "mode"}, b.heads...)}
		for _, r := range rep.rows {
			cells := []string{fmt.Sprint(r.locks), r.mode}
			for _, k := range b.keys {
				cells = append(cells, r.rounds.Text(k))
			}
			t.Rows = append(t.Rows, cells)
		}
		tables = append(tables, t)
	}
	return tables
}

// print prints the tables and the lines below them.
func (rep *report) print(out io.Writer) error {
	err := figures.Print(out, rep.tables())
	_, failed := io.WriteString(out, strings.Join(rep.lines(), "\n")+"\n")
	return errors.Join(err, failed)
}

var modelName = regexp.MustCompile(`model name\s*:\s*(.*)`)

// lines returns the lines below the tables.
func (rep *report) lines() []string {
	lines := rep.verdicts()
	for _, err := range rep.faults {
		lines = append(lines, "FAILED  "+err.Error())
	}
	lines = append(lines, rep.notes...)
	if !rep.complete {
		lines = append(lines, "The run is not complete: it was interrupted, or failed on the way.")
	}
	b, cpu, distance := rep.b, "", ""
	text, _ := os.ReadFile("/proc/cpuinfo") // only Linux has it
	if found := modelName.FindSubmatch(text); found != nil {
		cpu = " of " + string(found[1])
	}
	if b.rtt > 0 {
		distance = fmt.Sprintf(", %v of round trip away", b.rtt)
	}
	return append(lines,
		fmt.Sprintf("Lease %v, renewed every %v; %d client process(es), %d Redis node(s)%s; holders' ctx is context.Background()"+
			" (a cancelable one costs lockdog about 460 bytes of heap more per lock).",
			b.lease, b.interval(), b.clients, len(b.addrs), distance),
		fmt.Sprintf("%s/%s, %d CPUs%s, %s, Redis %s; load average at the start %s.",
			runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), cpu, runtime.Version(), rep.redis, rep.load),
		fmt.Sprintf("%s   (%s, %.0f s)", rep.command, b.began.Format(time.RFC3339), rep.took.Seconds()))
}

//go:embed page.html
var pageText string

var page = template.Must(template.New("page").Parse(pageText))

// panel is the picture of one row: the calls in each 100 ms on a logarithmic scale.
type panel struct {
	Mode, Title   string
	Width, Height float64
	Bars          []bar
}

type bar struct{ X, Y, Height float64 }

const (
	panelHeight = 100
	barStep     = 4
	floor       = 0.6 // lowest value of the scale: less than 1, so that one call is visible
)

// panels returns the pictures of all rows, with the same scale.
func (rep *report) panels() (panels []panel) {
	top, longest := 10.0, 0
	for _, r := range rep.rows {
		top, longest = max(top, slices.Max(append(r.timeline, 0))), max(longest, len(r.timeline))
	}
	for _, r := range rep.rows {
		p := panel{
			Mode: r.mode, Width: float64(barStep * longest), Height: panelHeight,
			Title: fmt.Sprintf("%s, %d locks: %s calls/s while measured, %s in the worst 100 ms",
				r.mode, r.locks, r.rounds.Text(figures.Calls), r.rounds.Text(figures.Peak)),
		}
		for i, calls := range r.timeline {
			if calls > floor {
				height := panelHeight * math.Log(calls/floor) / math.Log(top/floor)
				p.Bars = append(p.Bars, bar{float64(barStep * i), panelHeight - height, height})
			}
		}
		panels = append(panels, p)
	}
	return panels
}

// html writes the report as a single page without other files.
func (rep *report) html(out io.Writer) error {
	return page.Execute(out, map[string]any{"Panels": rep.panels(), "Tables": rep.tables(), "Lines": rep.lines()})
}

// save writes the page to a file, unless name is "".
func (rep *report) save(name string) error {
	if name == "" {
		return nil
	}
	file, err := os.Create(name)
	if err != nil {
		return err
	}
	return errors.Join(rep.html(file), file.Close())
}
