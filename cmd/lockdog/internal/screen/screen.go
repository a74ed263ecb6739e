// Package screen is the screen of lockdog watch: a model for bubbletea that shows the readings it gets. It reads
// nothing itself, and gets the time from messages.
package screen

import (
	"cmp"
	"slices"
	"time"

	tea "charm.land/bubbletea/v2"

	"github.com/lockdog/lockdog/cmd/lockdog/internal/changes"
	"github.com/lockdog/lockdog/cmd/lockdog/internal/text"
)

// Order is the order of the locks.
type Order string

// The orders, in the sequence in which the key "s" goes through them.
const (
	ByAge     Order = "age"     // the longest hold first
	ByWaiting Order = "waiting" // the most waiters first
	ByName    Order = "name"
)

var orders = []Order{ByAge, ByWaiting, ByName}

// Reading is the message with the result of a reading.
type Reading struct {
	Began, Ended time.Time
	Locks        []changes.Seen  // sorted by name; the model doesn't change it
	Events       []changes.Event // since the previous reading
	Err          error           // why locks may be missing

	Groups []changes.Caused // the groups with the most waiting time after Since, longest first
	Since  time.Time
}

// Tick is the message with the current time.
type Tick time.Time

// Config says what the screen shows.
type Config struct {
	Server   string        // its address, without credentials
	Pattern  string        // of names, "" for all
	Interval time.Duration // between two readings
	Now      time.Time     // when the screen starts
}

// mostEvents is how many events are remembered. It is more than a screen has lines.
const mostEvents = 200

// picture is the content of the screen at one time.
type picture struct {
	now  time.Time
	last Reading // complete or not
	any  bool    // there has been a reading
	// failing is the start of the first incomplete reading after the last complete one. Zero: the last is complete.
	failing time.Time
	events  []changes.Event // newest last; never changed in place, because a paused screen may show it
	sum     summary
}

// summary counts the locks of a reading.
type summary struct {
	held, awaited int
	oldest        time.Time // start of the oldest hold; zero: unknown
	waited        time.Time // start of the longest wait; zero: unknown
	longer        bool      // that wait may have begun earlier
}

// Model is the state of the screen. Use New: the zero value isn't usable.
type Model struct {
	config        Config
	width, height int
	order         Order
	offset        int // of the first row shown
	help, paused  bool
	latest        picture // from the last messages
	shown         picture // on the screen: an earlier picture while paused
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

// press handles a key.
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

// showLatest puts the latest picture on the screen.
func (m Model) showLatest() Model {
	m.shown = m.latest
	m.rows = sorted(m.shown.last.Locks, m.order)
	return m
}

// inBounds limits scrolling to the existing rows.
func (m Model) inBounds() Model {
	m.offset = max(0, min(m.offset, len(m.rows)-m.layout().rows))
	return m
}

// after returns the picture after another reading.
func (p picture) after(r Reading) picture {
	switch {
	case r.Err == nil:
		p.failing = time.Time{}
	case p.failing.IsZero():
		p.failing = r.Began
	}
	events := slices.DeleteFunc(slices.Concat(p.events, r.Events), func(e changes.Event) bool {
		return e.What == changes.Held // the table shows it already
	})
	p.events = slices.Clone(events[max(0, len(events)-mostEvents):])
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

// sorted returns the indices of the locks in an order. The locks must be sorted by name.
func sorted(locks []changes.Seen, order Order) []int {
	rows := make([]int, len(locks))
	for i := range rows {
		rows[i] = i
	}
	switch order {
	case ByAge:
		slices.SortStableFunc(rows, func(a, b int) int {
			return text.Earlier(text.Since(locks[a].Lock), text.Since(locks[b].Lock))
		})
	case ByWaiting:
		slices.SortStableFunc(rows, func(a, b int) int {
			return cmp.Or(cmp.Compare(locks[b].Waiting, locks[a].Waiting),
				text.Earlier(locks[a].LongestWait, locks[b].LongestWait))
		})
	}
	return rows
}
