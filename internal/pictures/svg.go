package main

import (
	"bytes"
	"fmt"
	"html"
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

var colours = []struct{ span, colour string }{
	{"acquire", "#e0a030"}, {"held", "#3274d9"}, {"hold", "#3274d9"}, {"renew", "#56a64b"}, {"release", "#0c8599"},
}

const red, grey, plain = "#e02f44", "#b8bec7", "#6b7785"

func (s *span) colour() string {
	if s.failed() {
		return red
	}
	for _, c := range colours {
		if s.is(c.span) {
			return c.colour
		}
	}
	if len(s.References) > 0 {
		return grey // of redisotel
	}
	return plain
}

// note is what the span's attributes say of it, as far as there is room.
func (s *span) note() string {
	switch {
	case s.is("acquire"):
		return fmt.Sprintf("%v tries, woken %v, links to the holder", s.tag("lockdog.attempts"), s.tag("lockdog.wakeups"))
	case s.is("held"):
		return fmt.Sprintf("lease %vs, token %.0f", s.tag("lockdog.lease.duration"), s.tag("lockdog.token"))
	case s.is("renew"):
		used, _ := s.tag("lockdog.lease.utilization").(float64)
		text := fmt.Sprintf("%.0f %% of the lease used", 100*used)
		if s.failed() {
			return fmt.Sprintf("%v: %s", s.tag("error.type"), text)
		}
		return text
	case s.is("hold"):
		return fmt.Sprint(s.tag("lockdog.end"))
	}
	return ""
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
		fmt.Fprintf(&b, `<text x="%d" y="%d" fill="%s">%s</text>`, names+timeline+margin, y+14, noteColour(r.span), html.EscapeString(label(r.span)))
		b.WriteByte('\n')
	}
	b.WriteString("</svg>\n")
	return b.Bytes()
}

// label is what stands to the right of a bar.
func label(s *span) string {
	if s.is("held") {
		return s.note() // it has no length to speak of
	}
	text := duration(s.Duration).String()
	if note := s.note(); note != "" {
		text += ", " + note
	}
	return text
}

func noteColour(s *span) string {
	if s.failed() {
		return red
	}
	return "#4a5460"
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
