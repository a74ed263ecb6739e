// Package screen is the screen of lockdog watch: a model for bubbletea that is told what was read and shows it. It reads nothing itself, and knows the time only
// from the messages it gets.
package screen

import (
	"cmp"
	"slices"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/lockdog/lockdog/cmd/lockdog/internal/changes"
	"github.com/lockdog/lockdog/cmd/lockdog/internal/text"
)

// Order is how the locks are sorted.
type Order string

// The orders, in which a key changes them.
const (
	ByAge     Order = "age"     // the longest hold first
	ByWaiting Order = "waiting" // the most waiters first
	ByName    Order = "name"
)

var orders = []Order{ByAge, ByWaiting, ByName}

// Reading is the message that the locks were read.
type Reading struct {
	Began, Ended time.Time
	Locks        []changes.Seen  // sorted by name; the model doesn't change it
	Events       []changes.Event // since the reading before
	Err          error           // why locks may be missing

	Groups []changes.Caused // whose locks were waited for the longest since then, the first first
	Since  time.Time
}

// Tick is the message that it is some time later.
type Tick time.Time

// Config is what the screen is about.
type Config struct {
	Server   string        // where it is, without credentials
	Pattern  string        // of names, "" for all
	Interval time.Duration // between two readings
	Now      time.Time     // when the screen begins
}

// mostEvents is how many events are remembered: more than a screen has lines.
const mostEvents = 200

// picture is what was read, and what the screen says of it at one time.
type picture struct {
	now     time.Time
	last    Reading         // the last one, complete or not
	any     bool            // there was one
	failing time.Time       // when the first of the readings began that are incomplete since; zero: the last is complete
	events  []changes.Event // the newest last; never changed in place, as a paused screen may still show it
	sum     summary
}

// summary counts the locks of a reading.
type summary struct {
	held, awaited int
	oldest        time.Time // since when the oldest hold lasts; zero: none that is known
	waited        time.Time // since when the longest wait lasts; zero: none that is known
	longer        bool      // it may have lasted longer
}

// Model is the state of the screen. Its zero value isn't usable: see New.
type Model struct {
	config        Config
	width, height int
	order         Order
	offset        int // of the first row that is shown
	help, paused  bool
	latest        picture // what was read
	shown         picture // what is on the screen: an earlier picture while it is paused
	rows          []int   // indices of the shown locks, in order
}

// New returns the model before the first reading.
func New(c Config) Model {
	p := picture{now: c.Now}
	return Model{config: c, order: ByAge, latest: p, shown: p}
}

// Init implements tea.Model.
func (m Model) Init() tea.Cmd { return nil }

// Update implements tea.Model.
func (m Model) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
	case Tick:
		m.latest.now = time.Time(msg)
		if !m.paused {
			m.shown.now = m.latest.now
		}
	case Reading:
		m.latest = m.latest.after(msg)
		if !m.paused {
			m = m.showLatest()
		}
	case tea.KeyPressMsg:
		return m.press(msg.String())
	}
	return m.inBounds(), nil
}

// press does what a key is for.
func (m Model) press(key string) (tea.Model, tea.Cmd) {
	page := max(1, m.layout().rows)
	switch key {
	case "q", "Q", "ctrl+c":
		return m, tea.Quit
	case "?", "h":
		m.help = !m.help
	case "esc":
		m.help = false
	case "s":
		m.order = orders[(slices.Index(orders, m.order)+1)%len(orders)]
		m.offset = 0
		m.rows = sorted(m.shown.last.Locks, m.order)
	case "p", "space":
		m.paused = !m.paused
		if !m.paused {
			m = m.showLatest()
		}
	case "up", "k":
		m.offset--
	case "down", "j":
		m.offset++
	case "pgup", "b":
		m.offset -= page
	case "pgdown", "f":
		m.offset += page
	case "home", "g":
		m.offset = 0
	case "end", "G":
		m.offset = len(m.rows)
	}
	return m.inBounds(), nil
}

// showLatest puts what was read last on the screen.
func (m Model) showLatest() Model {
	m.shown = m.latest
	m.rows = sorted(m.shown.last.Locks, m.order)
	return m
}

// inBounds is the model scrolled no further than there are locks.
func (m Model) inBounds() Model {
	m.offset = max(0, min(m.offset, len(m.rows)-m.layout().rows))
	return m
}

// after is the picture with a further reading.
func (p picture) after(r Reading) picture {
	switch {
	case r.Err == nil:
		p.failing = time.Time{}
	case p.failing.IsZero():
		p.failing = r.Began
	}
	fresh := make([]changes.Event, 0, min(len(r.Events), mostEvents))
	for _, e := range slices.Backward(r.Events) {
		if e.What == changes.Held { // the table says so
			continue
		}
		if len(fresh) == mostEvents {
			break
		}
		fresh = append(fresh, e)
	}
	if len(fresh) > 0 {
		slices.Reverse(fresh)
		old := p.events[max(0, len(p.events)-(mostEvents-len(fresh))):]
		p.events = slices.Concat(old, fresh)
	}
	r.Events = nil
	p.now, p.last, p.any = r.Ended, r, true
	p.sum = summarize(r.Locks)
	return p
}

func summarize(locks []changes.Seen) summary {
	var s summary
	for i := range locks {
		l := &locks[i]
		if l.Held > 0 {
			s.held++
		}
		if l.Waiting > 0 {
			s.awaited++
		}
		if t := text.Since(l.Lock); !t.IsZero() && (s.oldest.IsZero() || t.Before(s.oldest)) {
			s.oldest = t
		}
		if t := l.LongestWait; !t.IsZero() && (s.waited.IsZero() || t.Before(s.waited)) {
			s.waited, s.longer = t, l.WaitsLonger
		}
	}
	return s
}

// sorted returns the indices of locks, which are sorted by name, in another order.
func sorted(locks []changes.Seen, order Order) []int {
	rows := make([]int, len(locks))
	for i := range rows {
		rows[i] = i
	}
	switch order {
	case ByAge:
		slices.SortStableFunc(rows, func(a, b int) int { return text.Earlier(text.Since(locks[a].Lock), text.Since(locks[b].Lock)) })
	case ByWaiting:
		slices.SortStableFunc(rows, func(a, b int) int {
			return cmp.Or(cmp.Compare(locks[b].Waiting, locks[a].Waiting), text.Earlier(locks[a].LongestWait, locks[b].LongestWait))
		})
	}
	return rows
}
