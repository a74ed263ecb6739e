package main

import (
	"bytes"
	"fmt"
	"html"
	"strings"
	"time"
)

// The picture, in pixels.
const (
	width    = 1000
	line     = 21
	top      = 58
	names    = 160 // the column of names
	timeline = 520
	margin   = 14
	smallest = 3 // a bar that would be narrower isn't seen
)

var colours = map[string]string{"acquire": "#e0a030", "held": "#3274d9", "hold": "#3274d9", "renew": "#56a64b", "release": "#0c8599"}

const red, grey, plain = "#e02f44", "#b8bec7", "#6b7785"

func (s *span) colour() string {
	if s.failed() {
		return red
	}
	name, _, named := strings.Cut(s.OperationName, " ")
	if c := colours[name]; named && c != "" {
		return c
	}
	if len(s.References) > 0 {
		return grey // of redisotel
	}
	return plain
}

// note is the text to the right of a bar.
func (s *span) note() string {
	length := duration(s.Duration).String()
	switch {
	case s.is("acquire"):
		return fmt.Sprintf("%s, %v tries, woken %v, links to the holder", length, s.tag("lockdog.attempts"), s.tag("lockdog.wakeups"))
	case s.is("held"):
		return fmt.Sprintf("lease %vs, token %.0f", s.tag("lockdog.lease.duration"), s.tag("lockdog.token"))
	case s.is("renew"):
		used, _ := s.tag("lockdog.lease.utilization").(float64)
		text := fmt.Sprintf("%.0f %% of the lease used", 100*used)
		if s.failed() {
			text = fmt.Sprintf("%v: %s", s.tag("error.type"), text)
		}
		return length + ", " + text
	case s.is("hold"):
		return fmt.Sprintf("%s, %v", length, s.tag("lockdog.end"))
	}
	return length
}

// svg draws the trace.
func (t *trace) svg() []byte {
	rows := t.rows()
	begin, end := rows[0].StartTime, rows[0].StartTime
	for _, r := range rows {
		begin, end = min(begin, r.StartTime), max(end, r.StartTime+r.Duration)
	}
	at := func(us int64) float64 { return names + float64(us-begin)/float64(end-begin)*timeline }

	var b bytes.Buffer
	height := top + line*len(rows) + margin
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="system-ui, sans-serif" font-size="12">`+"\n", width, height)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" rx="6" fill="#fcfcfa" stroke="#d8dce2"/>`+"\n", width, height)
	fmt.Fprintf(&b, `<text x="%d" y="24" font-size="14" font-weight="600">%s</text>`+"\n", margin, html.EscapeString(rows[0].OperationName))
	fmt.Fprintf(&b, `<text x="%d" y="24" fill="#6b7785">trace %s, %v, %d spans</text>`+"\n", names, t.TraceID, duration(end-begin), len(rows))
	for i := range 5 {
		us := begin + (end-begin)*int64(i)/4
		fmt.Fprintf(&b, `<text x="%.1f" y="46" fill="#6b7785" text-anchor="middle">%v</text>`+"\n", at(us), duration(us-begin))
		fmt.Fprintf(&b, `<path d="M%.1f %dV%d" stroke="#e6e9ed"/>`+"\n", at(us), top-6, height-margin)
	}
	for i, r := range rows {
		y := top + line*i
		x := at(r.StartTime)
		w := max(at(r.StartTime+r.Duration)-x, smallest)
		fmt.Fprintf(&b, `<text x="%d" y="%d">%s</text>`, margin+13*r.depth, y+14, html.EscapeString(r.OperationName))
		fmt.Fprintf(&b, `<rect x="%.1f" y="%d" width="%.1f" height="%d" rx="1" fill="%s"/>`, x, y+3, w, line-7, r.colour())
		ink := "#4a5460"
		if r.failed() {
			ink = red
		}
		fmt.Fprintf(&b, `<text x="%d" y="%d" fill="%s">%s</text>`+"\n", names+timeline+margin, y+14, ink, html.EscapeString(r.note()))
	}
	b.WriteString("</svg>\n")
	return b.Bytes()
}

// duration rounds to three digits or so.
func duration(us int64) time.Duration {
	d := time.Duration(us) * time.Microsecond
	for unit := time.Second; unit >= time.Millisecond; unit /= 10 {
		if d >= 10*unit {
			return d.Round(unit / 10)
		}
	}
	return d
}
