package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/lockdog/lockdog/cmd/lockdog/internal/text"
	"github.com/lockdog/lockdog/lock/fleet"
)

// dotOf is the graph in DOT: a box for each lock that is awaited, an ellipse for each wait, and a dashed one for each holder that doesn't wait. An edge leads from a wait to the lock,
// and from the lock to who holds it. Deadlocks are red and bold.
func dotOf(g *fleet.Graph, now time.Time) string {
	d := &dotWriter{g: g, now: now, ids: map[string]string{}, closed: map[[2]string]bool{}}
	d.out.WriteString("digraph lockdog {\n  rankdir=LR;\n  node [fontname=\"sans-serif\", fontsize=11];\n  edge [fontname=\"sans-serif\", fontsize=9];\n")
	for _, c := range g.Cycles {
		for i, step := range c {
			lock := d.lock(g.Waits[step.Wait].Name)
			d.closed[[2]string{d.wait(step.Wait), lock}] = true
			d.closed[[2]string{lock, d.wait(c[(i+1)%len(c)].Wait)}] = true
			d.closed[[2]string{lock, ""}] = true
		}
	}
	stuck := inCycle(g)
	for i, w := range g.Waits {
		d.node(d.wait(i), text.Owner(w.Waiter, w.ClientID, false), "shape=ellipse", stuck[i])
	}
	drawn := map[string]bool{}
	for i, w := range g.Waits {
		lock := d.lock(w.Name)
		if !drawn[lock] {
			drawn[lock] = true
			d.node(lock, text.Safe(w.Name)+"\n"+text.Safe(w.Kind), "shape=box", d.closed[[2]string{lock, ""}])
			if l := g.Awaited(i); l != nil {
				d.holders(l)
			}
		}
		d.edge(d.wait(i), lock, "waits "+text.Age(w.Since, now))
	}
	d.out.WriteString("}\n")
	return d.out.String()
}

// dotWriter writes nodes and edges.
type dotWriter struct {
	g      *fleet.Graph
	now    time.Time
	ids    map[string]string  // of nodes but waits, by what they are
	closed map[[2]string]bool // edges of deadlocks; with "", locks in them
	out    strings.Builder
}

func (*dotWriter) wait(i int) string { return fmt.Sprint("w", i) }

func (d *dotWriter) lock(name string) string { return d.id("l", name) }

// id is that of a node, which it gets when it is first asked for.
func (d *dotWriter) id(kind, name string) string {
	if d.ids[kind+name] == "" {
		d.ids[kind+name] = fmt.Sprint(kind, len(d.ids))
	}
	return d.ids[kind+name]
}

func (d *dotWriter) node(id, label, attributes string, bold bool) {
	if bold {
		attributes += ", color=red, penwidth=2"
	}
	fmt.Fprintf(&d.out, "  %s [label=%s, %s];\n", id, dotString(label), attributes)
}

func (d *dotWriter) edge(from, to, label string) {
	attributes := ""
	if d.closed[[2]string{from, to}] {
		attributes = ", color=red, fontcolor=red, penwidth=2"
	}
	fmt.Fprintf(&d.out, "  %s -> %s [label=%s%s];\n", from, to, dotString(label), attributes)
}

// holders draws who holds a lock.
func (d *dotWriter) holders(l *fleet.Lock) {
	for _, h := range l.Holders {
		label := "held by"
		if !h.Since.IsZero() {
			label = "held " + text.Age(h.Since, d.now)
		}
		carriers := d.g.Carriers(l.Name, h.Owner)
		for _, i := range carriers {
			d.edge(d.lock(l.Name), d.wait(i), label)
		}
		if len(carriers) == 0 {
			id := d.id("h", h.Owner)
			d.node(id, text.Owner(h.Owner, h.ClientID, h.Redisson), "shape=ellipse, style=dashed", false)
			d.edge(d.lock(l.Name), id, label)
		}
	}
	if left := l.Held - len(l.Holders); left > 0 { // of a semaphore all
		id := d.id("m", l.Name)
		label := fmt.Sprintf("%d more", left)
		if l.Kind == fleet.Semaphore {
			label = text.Holder(*l)
		}
		d.node(id, label, "shape=ellipse, style=dashed", false)
		d.edge(d.lock(l.Name), id, "held by")
	}
}

// dotString quotes a text for DOT. Labels have escapes, such as \N for the node's name: so each backslash is doubled.
func dotString(s string) string {
	lines := strings.Split(s, "\n")
	for i, line := range lines {
		line = strings.ReplaceAll(text.Safe(line), `\`, `\\`)
		lines[i] = strings.ReplaceAll(line, `"`, `\"`)
	}
	return `"` + strings.Join(lines, `\n`) + `"`
}
