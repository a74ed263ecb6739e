package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
)

// colour is an ANSI escape.
type colour string

const (
	plain  colour = ""
	bold   colour = "\x1b[1m"
	faint  colour = "\x1b[2m"
	red    colour = "\x1b[91m"
	green  colour = "\x1b[92m"
	yellow colour = "\x1b[93m"
	blue   colour = "\x1b[94m"
	pink   colour = "\x1b[95m"
	reset         = "\x1b[0m"
)

// printer writes whole lines, from any goroutine.
type printer struct {
	colour bool
	start  time.Time

	mu  sync.Mutex
	out io.Writer
}

// newPrinter returns one that colours what goes to a terminal.
func newPrinter(out io.Writer) *printer {
	p := &printer{out: out, start: time.Now()}
	if f, ok := out.(*os.File); ok && os.Getenv("NO_COLOR") == "" {
		info, err := f.Stat()
		p.colour = err == nil && info.Mode()&os.ModeCharDevice != 0
	}
	return p
}

// Write implements io.Writer: log lines go between the others.
func (p *printer) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.out.Write(b)
}

func (p *printer) line(format string, args ...any) {
	_, _ = fmt.Fprintf(p, format+"\n", args...) // where a terminal is gone, nobody reads
}

func (p *printer) paint(c colour, s string) string {
	if !p.colour || c == plain {
		return s
	}
	return string(c) + s + reset
}

// chapter introduces what comes next, in one line.
func (p *printer) chapter(n int, text string) {
	p.line("\n%s", p.paint(bold, fmt.Sprintf("%d. %s", n, text)))
}

// teams tells the services apart.
var teams = map[string]colour{"orders": blue, "billing": pink}

// event is one line about a service.
func (p *printer) event(who, what string, c colour, text string) {
	team := teams[who]
	p.line("%s %s %s %s",
		p.paint(faint, fmt.Sprintf("%6.2fs", time.Since(p.start).Seconds())),
		p.paint(team, fmt.Sprintf("%-8s", who)),
		p.paint(c, fmt.Sprintf("%-8s", what)), text)
}

// note is a line about something that is no span.
func (p *printer) note(who, what, text string) { p.event(who, what, plain, text) }

// counters prints the table of the end.
func (p *printer) counters(rows []counter) {
	p.line("\n%s", p.paint(bold, "What Prometheus would read at /metrics now (counters that moved):"))
	wide := 0
	for _, r := range rows {
		wide = max(wide, len(r.name))
	}
	for _, r := range rows {
		p.line("  %s  %s", p.paint(blue, r.name+strings.Repeat(" ", wide-len(r.name))), strings.Join(r.values, "  "))
	}
}
