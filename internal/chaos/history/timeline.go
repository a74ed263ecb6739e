package history

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Grants returns how many calls were granted.
func (h *History) Grants() (n int) {
	for _, o := range h.Ops {
		if o.Granted {
			n++
		}
	}
	return n
}

// Timeline returns, as text, what the test did between two times, and what happened to one name, or to all names if
// name is "".
func (h *History) Timeline(from, to Time, name string) string {
	var b strings.Builder
	names := make(map[string]string)
	for _, o := range h.Ops {
		names[o.Call.ID] = o.Call.Name
	}
	start := Time(0)
	if len(h.Events) > 0 {
		start = h.Events[0].At
	}
	for _, e := range h.Events {
		about := e.Name
		if n, ok := names[e.ID]; ok && e.Proc > 0 {
			about = n
		}
		ours := slices.Contains([]string{FaultOn, FaultOff, Settle, Restart, Signal, Note, Switch, Idle, Complain},
			e.What)
		if e.At < from || e.At > to || name != "" && about != name && !ours {
			continue
		}
		fmt.Fprintf(&b, "%12.6f  %s\n", e.At.Sub(start).Seconds(), e.line(about, start))
	}
	return b.String()
}

// line returns the event as text.
func (e Event) line(name string, start Time) string {
	var b strings.Builder
	who := e.ID
	if who == "" {
		who = fmt.Sprintf("process %d", e.Proc)
	}
	fmt.Fprintf(&b, "%-10s %-9s %s", who, e.What, name)
	add := func(cond bool, format string, args ...any) {
		if cond {
			fmt.Fprintf(&b, " "+format, args...)
		}
	}
	add(e.How != "", "%s by %s, lease %v", e.Kind, e.How, e.Lease)
	add(e.Fixed, "fixed")
	add(e.Owner != "", "owner %s", e.Owner)
	add(e.Token != 0, "token %d", e.Token)
	add(e.Until != 0, "until %.6f", time.Duration(e.Until-start).Seconds())
	add(e.Delay != 0, "by %v", e.Delay)
	add(e.Last != 0, "after %d", e.Last)
	add(e.Loses, "(writes may be lost)")
	add(e.Server != "", "at %s", e.Server)
	add(e.Why != "", "%s", e.Why)
	add(len(e.Counts) > 0, "%v", e.Counts)
	add(len(e.Ended) > 0, "%d ended", len(e.Ended))
	return b.String()
}
