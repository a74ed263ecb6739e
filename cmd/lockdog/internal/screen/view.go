package screen

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/lockdog/lockdog/cmd/lockdog/internal/changes"
	"github.com/lockdog/lockdog/cmd/lockdog/internal/text"
)

// The minimum size of a screen that shows locks.
const (
	leastWidth  = 24
	leastHeight = 7
)

// The styles of lines. There are no colours, so NO_COLOR changes nothing.
const (
	bold    = "\x1b[1m"
	reverse = "\x1b[7m"
	reset   = "\x1b[m"
)

// layout is the number of lines of each part of the screen.
type layout struct {
	rows   int // of locks
	groups int // without their title; 0: no title either
	events int // without their title; 0: no title either
}

const (
	tall       = 18 // minimum height for the groups
	mostGroups = 3
)

// fixed is the number of lines beside the locks, groups and events: three of the header, the titles of the columns
// (which the help replaces), and the footer with the key bindings.
const fixed = 5

func (m Model) layout() layout {
	l := layout{rows: max(0, m.height-fixed)}
	if spare := m.height - 11; spare > 0 {
		l.events = 1 + spare/3
		l.rows -= l.events + 1
	}
	if groups := len(m.shown.last.Groups); m.height >= tall && groups > 0 {
		l.groups = min(groups, mostGroups)
		l.rows -= l.groups + 1
	}
	return l
}

// View implements tea.Model.
func (m Model) View() tea.View {
	v := tea.NewView(strings.Join(m.Lines(), "\n"))
	v.AltScreen = true
	v.WindowTitle = "lockdog watch"
	return v
}

// Lines returns the screen's lines. They are no more than its height, and none is wider than it.
func (m Model) Lines() []string {
	if m.width <= 0 || m.height <= 0 { // the size isn't known yet
		return nil
	}
	if m.width < leastWidth || m.height < leastHeight {
		return []string{cut("the terminal is too small", m.width)}
	}
	lines := m.header()
	if m.help {
		lines = append(lines, m.helpLines()...)
	} else {
		lines = append(lines, m.table()...)
		lines = append(lines, m.groupLines()...)
		lines = append(lines, m.eventLines()...)
	}
	return append(lines, m.footer())
}

// header returns three lines: where the locks are, how many there are, and how well they could be read.
func (m Model) header() []string {
	p := &m.shown
	pattern := m.config.Pattern
	if pattern == "" {
		pattern = "*"
	}
	title := "lockdog watch  " + text.Safe(m.config.Server) + "  " + text.Safe(pattern)
	state := p.now.Format(time.TimeOnly)
	if m.paused {
		state = "PAUSED at " + state
	}
	return []string{
		bold + pad(title, m.width-ansi.StringWidth(state)-1) + " " + cut(state, m.width-1) + reset,
		cut(m.counts(), m.width),
		m.health(),
	}
}

func (m Model) counts() string {
	p := &m.shown
	if !p.any {
		return ""
	}
	parts := []string{strconv.Itoa(p.sum.held) + " held", strconv.Itoa(p.sum.awaited) + " awaited"}
	if !p.sum.oldest.IsZero() {
		parts = append(parts, "oldest hold "+text.Age(p.sum.oldest, p.now))
	}
	if !p.sum.waited.IsZero() {
		parts = append(parts, "longest wait "+m.wait(p.sum.waited, p.sum.longer))
	}
	return strings.Join(parts, "   ")
}

// wait formats a waiting time; ">" means that it may be longer.
func (m Model) wait(since time.Time, longer bool) string {
	if longer {
		return ">" + text.Age(since, m.shown.now)
	}
	return text.Age(since, m.shown.now)
}

func (m Model) health() string {
	p := &m.shown
	switch {
	case !p.any:
		return cut("reading for the first time", m.width)
	case p.last.Err != nil:
		line := fmt.Sprintf("CANNOT READ ALL since %s, for %s: %s",
			p.failing.Format(time.TimeOnly), text.Age(p.failing, p.now), text.OneLine(p.last.Err.Error()))
		return reverse + cut(line, m.width) + reset
	}
	line := fmt.Sprintf("read in %s, every %v", took(p.last.Ended.Sub(p.last.Began)), m.config.Interval)
	if late := p.now.Sub(p.last.Ended); late > m.config.Interval+2*time.Second {
		line = fmt.Sprintf("last read %s ago; reading", text.Span(late))
	}
	if groups := p.last.Groups; m.layout().groups == 0 && len(groups) > 0 {
		line += "   most waited for: " + text.Safe(groups[0].Group) + " " + text.Span(groups[0].Waited)
	}
	return cut(line, m.width)
}

// took formats a duration that is usually less than a second.
func took(d time.Duration) string {
	switch {
	case d < 10*time.Millisecond:
		return fmt.Sprintf("%.1f ms", float64(d.Microseconds())/1000)
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	}
	return text.Span(d)
}

// column is a column of the table.
type column struct {
	title string
	width int // minimum
	grows int // its share of the remaining width; 0: none
	cell  func(m *Model, l *changes.Seen) string
}

// columns has the table's columns from left to right.
var columns = []column{
	{"NAME", 14, 2, func(_ *Model, l *changes.Seen) string {
		if l.Unseen {
			return "? " + text.Safe(l.Name)
		}
		return text.Safe(l.Name)
	}},
	{"KIND", 13, 0, func(_ *Model, l *changes.Seen) string { return text.Kind(l.Lock) }},
	{"HOLDER", 14, 1, func(_ *Model, l *changes.Seen) string { return text.Holder(l.Lock) }},
	{"FOR", 6, 0, func(m *Model, l *changes.Seen) string { return text.Age(text.Since(l.Lock), m.shown.now) }},
	{"LEFT", 6, 0, func(m *Model, l *changes.Seen) string { return m.left(l) }},
	{"WAITING", 7, 0, func(_ *Model, l *changes.Seen) string { return strconv.Itoa(l.Waiting) }},
	{"LONGEST", 7, 0, func(m *Model, l *changes.Seen) string {
		if l.LongestWait.IsZero() {
			return "-"
		}
		return m.wait(l.LongestWait, l.WaitsLonger)
	}},
}

// drops has the columns that a narrow screen omits, in this order.
var drops = []string{"KIND", "LEFT", "LONGEST", "HOLDER", "WAITING"}

// left formats the remaining time of the lease now, if it wasn't renewed after the reading.
func (m *Model) left(l *changes.Seen) string {
	switch {
	case l.Held == 0:
		return "-"
	case l.Remaining < 0:
		return text.Span(l.Remaining)
	}
	return text.Span(max(0, l.Remaining-max(0, m.shown.now.Sub(l.At))))
}

// fit returns the columns that fit into a width, with their widths.
func fit(width int) []column {
	fitting := slices.Clone(columns)
	need := func() int {
		n := 2 * (len(fitting) - 1)
		for _, c := range fitting {
			n += c.width
		}
		return n
	}
	for _, title := range drops {
		if need() <= width {
			break
		}
		fitting = slices.DeleteFunc(fitting, func(c column) bool { return c.title == title })
	}
	spare, shares := width-need(), 0
	for _, c := range fitting {
		shares += c.grows
	}
	for i := range fitting {
		fitting[i].width += max(0, spare) * fitting[i].grows / shares
	}
	return fitting
}

// table returns the titles of the columns, and as many locks as fit.
func (m Model) table() []string {
	fitting := fit(m.width)
	line := func(cell func(column) string) string {
		var b strings.Builder
		for i, c := range fitting {
			if i > 0 {
				b.WriteString("  ")
			}
			b.WriteString(pad(cell(c), c.width))
		}
		return cut(b.String(), m.width)
	}
	lines := make([]string, 1+m.layout().rows)
	lines[0] = reverse + pad(line(func(c column) string { return c.title }), m.width) + reset
	if len(m.rows) == 0 && m.shown.any && m.shown.last.Err == nil {
		lines[1] = cut("no lock is held", m.width)
	}
	for i := range min(len(lines)-1, len(m.rows)-m.offset) {
		l := &m.shown.last.Locks[m.rows[m.offset+i]]
		lines[1+i] = line(func(c column) string { return c.cell(&m, l) })
	}
	return lines
}

// groupLines returns the groups with the most waiting time.
func (m Model) groupLines() []string {
	n := m.layout().groups
	if n == 0 {
		return nil
	}
	last := &m.shown.last
	all := time.Duration(0)
	for _, g := range last.Groups {
		all += g.Waited
	}
	title := "WAITING TIME CAUSED, by group, in " + text.Age(last.Since, last.Ended)
	lines := []string{bold + pad(title, m.width) + reset}
	for _, g := range last.Groups[:n] {
		share := "  0%"
		if all > 0 {
			share = fmt.Sprintf("%3d%%", (g.Waited*100+all/2)/all)
		}
		numbers := fmt.Sprintf("%6s  %s", text.Span(g.Waited), share)
		if m.width >= 50 {
			numbers += fmt.Sprintf("  %d wait now", g.Waiting)
		}
		name := min(30, max(0, m.width-ansi.StringWidth(numbers)-2))
		lines = append(lines, cut(pad(text.Safe(g.Group), name)+"  "+numbers, m.width))
	}
	return lines
}

// eventLines returns the last events, newest first.
func (m Model) eventLines() []string {
	n := m.layout().events
	if n == 0 {
		return nil
	}
	lines := make([]string, 1+n)
	lines[0] = bold + pad("LAST CHANGES", m.width) + reset
	events := m.shown.events
	for i := range min(n, len(events)) {
		e := &events[len(events)-1-i]
		lines[1+i] = cut(
			fmt.Sprintf("%s  %s: %s", e.At.Format(time.TimeOnly), text.Safe(e.Lock().Name), e.Sentence()), m.width)
	}
	return lines
}

// footer returns the keys, as many as fit, and which locks are shown.
func (m Model) footer() string {
	where := ""
	if rows := m.layout().rows; !m.help && len(m.rows) > rows {
		where = fmt.Sprintf("%d-%d of %d", m.offset+1, min(len(m.rows), m.offset+rows), len(m.rows))
	}
	pause := "p pause"
	if m.paused {
		pause = "p go on"
	}
	room := m.width - ansi.StringWidth(where) - 1
	keys := ""
	for _, key := range []string{"q quit", "? help", "s sort: " + string(m.order), pause, "↑↓ scroll"} {
		next := key
		if keys != "" {
			next = keys + "  " + key
		}
		if ansi.StringWidth(next) > room {
			break
		}
		keys = next
	}
	return reverse + pad(keys, m.width-ansi.StringWidth(where)) + cut(where, m.width) + reset
}

// helpLines returns the help, which replaces the table.
func (m Model) helpLines() []string {
	room := max(0, m.height-fixed+1)
	all := []string{
		"",
		"q, Ctrl-C     quit",
		"s             sort by age, waiting, name",
		"p, Space      stop the picture, go on; readings go on meanwhile",
		"↑ ↓ PgUp PgDn scroll; Home, End",
		"?             this help, and back",
		"",
		"FOR           for how long the lock is held",
		"LEFT          what is left of its lease unless it is renewed",
		"WAITING       how many wait that Redis knows of",
		"LONGEST       for how long the first of them waits; > for at least so long",
		"WAITING TIME  of all who waited for a lock of the group since watch began; a",
		"              name's group is what is before its first colon",
		"? before a name: the last reading was incomplete and didn't find the lock",
		"",
		"What begins and ends between two readings isn't seen.",
	}
	lines := make([]string, room)
	for i := range min(room, len(all)) {
		lines[i] = cut(all[i], m.width)
	}
	return lines
}

// cut truncates a text to width columns; "…" replaces the rest.
func cut(s string, width int) string {
	if width <= 0 {
		return ""
	}
	return ansi.Truncate(s, width, "…")
}

// pad makes a text exactly width columns wide.
func pad(s string, width int) string {
	s = cut(s, width)
	return s + strings.Repeat(" ", max(0, width-ansi.StringWidth(s)))
}
