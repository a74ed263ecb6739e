package lockdebug

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/lockdog/lockdog/lock/fleet"
)

// What fits on a page that somebody reads.
const (
	mostDrawn  = 60 // boxes; of a part of the graph that doesn't fit nothing is drawn, but for the first part
	drawnAlone = 3  // waits for one lock that have a box of their own, though nothing waits for them; the others share one
	labelRunes = 21
)

// The sizes of the drawing, in pixels.
const (
	boxWidth, boxHeight = 176, 42
	gapAcross, gapDown  = 44, 14
	margin              = 8
	returnHeight        = 22 // of an edge that leads back, above the boxes
)

// drawing is the graph as boxes and arrows, from those who wait on the left to those who are waited for on the right.
type drawing struct {
	Width, Height int
	Boxes         []*box
	Arrows        []arrow
	Waits         int // how many are drawn
	All           int // how many there are
}

// box is a lock, a wait, or a holder that doesn't wait.
type box struct {
	X, Y       int
	Label      string // one line, that fits
	Sub        string // what is below it
	Title      string // the whole label
	Class      string // lock, wait, holder
	Stuck      bool   // it is part of a deadlock
	next, prev []*box
	nextDone   bool
	waits      int // that it stands for

	column int
	y      float64
	open   bool // the search for ways back is below it
	seen   bool
}

// Width and Height are those of the box.
func (*box) Width() int { return boxWidth }

// Height is that of the box.
func (*box) Height() int { return boxHeight }

// Corner is how round its corners are.
func (b *box) Corner() int {
	if b.Class == "lock" {
		return 3
	}
	return boxHeight / 2
}

// Middle is where the texts are centered.
func (b *box) Middle() int { return b.X + boxWidth/2 }

// LabelY and SubY are where the texts stand.
func (b *box) LabelY() int { return b.Y + 18 }

// SubY is where the second text stands.
func (b *box) SubY() int { return b.Y + 34 }

type arrow struct {
	Path  string
	Stuck bool
}

// draw draws the graph of waits; nil if there are none.
func draw(g *fleet.Graph, waits []graphWait) *drawing {
	if len(waits) == 0 {
		return nil
	}
	d := &drawing{All: len(waits)}
	y := margin
	for n, part := range partsOf(boxesOf(g, waits)) {
		if n > 0 && len(d.Boxes)+len(part) > mostDrawn {
			continue
		}
		y = d.place(part[:min(len(part), mostDrawn)], y)
	}
	d.Height = y
	return d
}

// boxesOf are the boxes of the graph, linked from each wait to its lock and from the lock to its holders.
func boxesOf(g *fleet.Graph, waits []graphWait) []*box {
	var boxes []*box
	add := func(b *box) *box {
		b.Label = shorten(visible(b.Title))
		boxes = append(boxes, b)
		return b
	}
	link := func(from, to *box) {
		if !slices.Contains(from.next, to) {
			from.next, to.prev = append(from.next, to), append(to.prev, from)
		}
	}
	behind := map[string]bool{} // names of locks that somebody waits for
	for _, w := range g.Waits {
		behind[w.Name] = true
	}
	plain := func(i int) bool { // nothing is behind it
		return !waits[i].Deadlock && !slices.ContainsFunc(g.Waits[i].Holds, func(h fleet.Hold) bool { return behind[h.Name] })
	}
	locks, rest, alone := map[string]*box{}, map[string]*box{}, map[string]int{}
	ofWait := make([]*box, len(waits))
	for i, w := range waits {
		name := g.Waits[i].Name
		if locks[name] == nil {
			locks[name] = add(&box{Title: w.Name, Sub: w.Kind, Class: "lock"})
		}
		if plain(i) {
			if alone[name]++; alone[name] > drawnAlone {
				if rest[name] == nil {
					rest[name] = add(&box{Sub: "waits up to " + w.Age.String(), Class: "wait"})
					link(rest[name], locks[name])
				}
				one := rest[name]
				one.waits++
				one.Title = thousands(one.waits) + " more"
				one.Label = one.Title
				continue
			}
		}
		ofWait[i] = add(&box{Title: w.Who(), Sub: "waits " + w.Age.String(), Class: "wait", Stuck: w.Deadlock, waits: 1})
		if w.Deadlock {
			ofWait[i].Sub = "DEADLOCK, " + ofWait[i].Sub
		}
		link(ofWait[i], locks[name])
	}
	holders := map[string]*box{}
	for i, w := range waits {
		lock := locks[g.Waits[i].Name]
		if lock.nextDone {
			continue
		}
		lock.nextDone = true
		for _, h := range w.HeldBy {
			if h.Age != nil && w.Held == 1 {
				lock.Sub = w.Kind + ", held " + h.Age.String()
			}
			for _, carrier := range h.waits {
				if ofWait[carrier] != nil {
					link(lock, ofWait[carrier])
				}
			}
			if len(h.waits) == 0 {
				if holders[h.Owner] == nil {
					holders[h.Owner] = add(&box{Title: h.Who(), Sub: "doesn't wait", Class: "holder"})
					if h.Redisson {
						holders[h.Owner].Sub = "not known if it waits"
					}
				}
				link(lock, holders[h.Owner])
			}
		}
		if others := w.Others(); others > 0 {
			title, sub := thousands(others)+" more", "hold it"
			if len(w.HeldBy) == 0 {
				title, sub = thousands(others)+" held", "permits of a semaphore"
			}
			link(lock, add(&box{Title: title, Sub: sub, Class: "holder"}))
		}
	}
	for _, c := range g.Cycles {
		for _, step := range c {
			locks[g.Waits[step.Wait].Name].Stuck = true
		}
	}
	return boxes
}

// shorten cuts a label that is too long for a box.
func shorten(s string) string {
	if utf8.RuneCountInString(s) <= labelRunes {
		return s
	}
	runes := []rune(s)
	return string(runes[:labelRunes-1]) + "…"
}

// partsOf are the boxes that are connected, those with a deadlock first, otherwise in the order of boxes.
func partsOf(boxes []*box) [][]*box {
	var parts [][]*box
	part := map[*box]int{}
	for _, b := range boxes {
		if _, ok := part[b]; ok {
			continue
		}
		part[b] = len(parts)
		members := []*box{b}
		for i := 0; i < len(members); i++ {
			for _, other := range slices.Concat(members[i].next, members[i].prev) {
				if _, ok := part[other]; !ok {
					part[other] = len(parts)
					members = append(members, other)
				}
			}
		}
		parts = append(parts, members)
	}
	stuck := func(part []*box) int {
		if slices.ContainsFunc(part, func(b *box) bool { return b.Stuck }) {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(parts, func(a, b []*box) int { return cmp.Compare(stuck(a), stuck(b)) })
	return parts
}

// place gives the boxes of a part their places, below y, and draws their arrows. It returns where the next part begins.
func (d *drawing) place(part []*box, y int) int {
	for _, b := range part {
		d.Waits += b.waits
		b.next = slices.DeleteFunc(b.next, func(to *box) bool { return !slices.Contains(part, to) })
	}
	back := map[[2]*box]bool{} // arrows that lead back to where a cycle begins
	var visit func(b *box)
	visit = func(b *box) { // recursion is as deep as the longest way: at most mostDrawn
		b.seen, b.open = true, true
		for _, to := range b.next {
			if to.open {
				back[[2]*box{b, to}] = true
				continue
			}
			if !to.seen {
				visit(to)
			}
			b.column = max(b.column, to.column+1)
		}
		b.open = false
	}
	for _, b := range part {
		if !b.seen && b.Class == "wait" {
			visit(b)
		}
	}
	for _, b := range part {
		if !b.seen {
			visit(b)
		}
	}
	last := 0
	for _, b := range part {
		last = max(last, b.column)
	}
	columns := make([][]*box, last+1) // the first is the rightmost
	for _, b := range part {
		columns[b.column] = append(columns[b.column], b)
	}
	top := float64(y + returnHeight*len(back))
	for _, column := range columns {
		settle(column, top, func(b *box) []*box { return b.next })
	}
	for _, column := range slices.Backward(columns) {
		settle(column, top, func(b *box) []*box { return b.prev })
	}
	bottom := y
	for _, b := range part {
		b.X, b.Y = margin+(last-b.column)*(boxWidth+gapAcross), int(b.y)
		bottom = max(bottom, b.Y+boxHeight)
		d.Width = max(d.Width, b.X+boxWidth+margin)
	}
	d.Boxes = append(d.Boxes, part...)
	returns := 0
	for _, b := range part {
		for _, to := range b.next {
			a := arrow{Stuck: b.Stuck && to.Stuck}
			if back[[2]*box{b, to}] {
				over := y + returnHeight*returns + returnHeight/2
				returns++
				a.Path = fmt.Sprintf("M%d %dV%dH%dV%d", b.Middle(), b.Y, over, to.Middle(), to.Y)
			} else {
				x1, y1, x2, y2 := b.X+boxWidth, b.Y+boxHeight/2, to.X, to.Y+boxHeight/2
				bend := gapAcross / 2
				a.Path = fmt.Sprintf("M%d %dC%d %d %d %d %d %d", x1, y1, x1+bend, y1, x2-bend, y2, x2, y2)
			}
			d.Arrows = append(d.Arrows, a)
		}
	}
	return bottom + 2*gapDown
}

// settle places the boxes of a column, each near those it is linked with, and none over another.
func settle(column []*box, top float64, linked func(*box) []*box) {
	for _, b := range column {
		sum, n := 0.0, 0
		for _, other := range linked(b) {
			if other.y > 0 { // it has a place
				sum += other.y
				n++
			}
		}
		switch {
		case n > 0:
			b.y = sum / float64(n)
		case b.y == 0:
			b.y = top
		}
	}
	slices.SortStableFunc(column, func(a, b *box) int { return cmp.Compare(a.y, b.y) })
	for i, b := range column {
		b.y = max(b.y, top)
		if i > 0 {
			b.y = max(b.y, column[i-1].y+boxHeight+gapDown)
		}
	}
}

// Description says in words what is drawn, for those who don't see it. The lists beside it have it all.
func (d *drawing) Description() string {
	var stuck []string
	for _, b := range d.Boxes {
		if b.Stuck && b.Class == "lock" {
			stuck = append(stuck, b.Label)
		}
	}
	text := fmt.Sprintf("%s of %s waits: arrows lead from who waits to the lock, and from the lock to its holder.", thousands(d.Waits), thousands(d.All))
	if len(stuck) > 0 {
		text += " There is a deadlock over " + strings.Join(stuck, ", ") + "."
	}
	return text
}
