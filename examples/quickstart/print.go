package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lockdog/lockdog/telemetry"
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

// teams are the colours of the services.
var teams = map[string]colour{"orders": blue, "billing": pink}

// event prints a line about a service.
func (p *printer) event(who, what string, c colour, text string) {
	p.line("%s %s %s %s",
		p.paint(faint, fmt.Sprintf("%6.2fs", time.Since(p.start).Seconds())),
		p.paint(teams[who], fmt.Sprintf("%-8s", who)),
		p.paint(c, fmt.Sprintf("%-8s", what)), text)
}

// note prints a line about something that is no span.
func (p *printer) note(who, what, text string) { p.event(who, what, plain, text) }

// counters prints lockdog's counters that are not zero, in the order in which package telemetry lists them.
func (p *printer) counters(registry *prometheus.Registry) error {
	families, err := registry.Gather()
	if err != nil {
		return fmt.Errorf("reading the metrics: %w", err)
	}
	values := map[string]string{}
	wide := 0
	for _, family := range families {
		for _, m := range family.GetMetric() {
			if m.GetCounter().GetValue() == 0 || !strings.HasPrefix(family.GetName(), "lockdog_") {
				continue
			}
			var labels []string
			for _, l := range m.GetLabel() {
				if l.GetName() != "lockdog_group" { // there is only one
					labels = append(labels, l.GetValue())
				}
			}
			values[family.GetName()] += "  " + strings.TrimSpace(fmt.Sprintf("%s %.0f", strings.Join(labels, "/"), m.GetCounter().GetValue()))
			wide = max(wide, len(family.GetName()))
		}
	}
	p.line("\n%s", p.paint(bold, "What Prometheus would read at /metrics now (counters that moved):"))
	for _, m := range telemetry.Metrics {
		if values[m.Prometheus] != "" {
			p.line("  %s%s", p.paint(blue, fmt.Sprintf("%-*s", wide, m.Prometheus)), values[m.Prometheus])
		}
	}
	return nil
}
