package screen

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"github.com/lockdog/lockdog/cmd/lockdog/internal/changes"
	"github.com/lockdog/lockdog/lock/fleet"
)

var noon = time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) time.Time { return noon.Add(-d) }

// held is a lock that is held since some time.
func held(name string, since time.Duration, waiting int) changes.Seen {
	l := changes.Seen{At: noon, Lock: fleet.Lock{
		Name: name, Key: name, Kind: fleet.Mutex, Held: 1, Remaining: 20 * time.Second, Waiting: waiting,
		Holders: []fleet.Holder{{Owner: "app-1:x", ClientID: "app-1", Since: ago(since), Remaining: 20 * time.Second}},
	}}
	if waiting > 0 {
		l.LongestWait = ago(4 * time.Second)
	}
	return l
}

func reading(locks ...changes.Seen) Reading {
	return Reading{Began: ago(12 * time.Millisecond), Ended: noon, Locks: locks}
}

// after is a model that got messages.
func after(m tea.Model, msgs ...tea.Msg) Model {
	for _, msg := range msgs {
		m, _ = m.Update(msg)
	}
	return m.(Model)
}

func size(width, height int) tea.WindowSizeMsg {
	return tea.WindowSizeMsg{Width: width, Height: height}
}

func screen(width, height int, msgs ...tea.Msg) Model {
	m := New(Config{Server: "127.0.0.1:6379", Pattern: "orders:*", Interval: time.Second, Now: noon})
	return after(after(m, size(width, height)), msgs...)
}

// key is a key that is pressed.
func key(name string) tea.Msg {
	named := map[string]rune{"up": tea.KeyUp, "down": tea.KeyDown, "pgup": tea.KeyPgUp, "pgdown": tea.KeyPgDown, "home": tea.KeyHome, "end": tea.KeyEnd, "esc": tea.KeyEscape}
	if code, ok := named[name]; ok {
		return tea.KeyPressMsg{Code: code}
	}
	switch name {
	case "ctrl+c":
		return tea.KeyPressMsg{Code: 'c', Mod: tea.ModCtrl}
	case "space":
		return tea.KeyPressMsg{Code: tea.KeySpace, Text: " "}
	}
	return tea.KeyPressMsg{Code: rune(name[0]), Text: name}
}

// plain is the screen without what makes lines stand out and without spaces at the ends of lines.
func plain(m Model) []string {
	var lines []string
	for _, line := range m.Lines() {
		lines = append(lines, strings.TrimRight(ansi.Strip(line), " "))
	}
	return lines
}

func shows(m Model) string { return strings.Join(plain(m), "\n") }

// names are those in the table, from the top.
func names(m Model) string {
	var names []string
	for _, line := range m.table()[1:] {
		if fields := strings.Fields(ansi.Strip(line)); len(fields) > 0 {
			names = append(names, fields[0])
		}
	}
	return strings.Join(names, " ")
}

func wantLines(t *testing.T, m Model, want ...string) {
	t.Helper()
	got := plain(m)
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// wantFits checks that no line is wider than the screen, and that there are no more of them, and no control characters but those of bold and reverse.
func wantFits(t *testing.T, m Model) {
	t.Helper()
	lines := m.Lines()
	if len(lines) > m.height {
		t.Errorf("%dx%d: %d lines", m.width, m.height, len(lines))
	}
	for i, line := range lines {
		if w := ansi.StringWidth(line); w > m.width {
			t.Errorf("%dx%d: line %d is %d wide: %q", m.width, m.height, i, w, line)
		}
		for _, style := range []string{bold, reverse, reset} {
			line = strings.ReplaceAll(line, style, "")
		}
		if strings.ContainsFunc(line, func(r rune) bool { return r < ' ' || r >= 0x7f && r < 0xa0 }) {
			t.Errorf("%dx%d: line %d has a control character: %q", m.width, m.height, i, line)
		}
	}
}

func TestModel_Screen(t *testing.T) {
	m := screen(80, 14, Reading{
		Began: ago(12 * time.Millisecond), Ended: noon,
		Locks: []changes.Seen{held("orders:1", 5*time.Second, 0), held("orders:2", 190*time.Second, 3)},
		Events: []changes.Event{
			{What: changes.Held, At: noon, Is: held("orders:2", 0, 0)},
			{What: changes.HandOver, At: noon, Was: held("orders:2", 0, 0), Is: held("orders:2", 0, 0)},
			{What: changes.Gone, At: noon, Was: held("orders:3", time.Second, 0)},
		},
	})
	wantLines(t, m,
		"lockdog watch  127.0.0.1:6379  orders:*                                 12:00:00",
		"2 held   1 awaited   oldest hold 3m10s   longest wait 4.0s",
		"read in 12 ms, every 1s",
		"NAME            KIND           HOLDER          FOR     LEFT    WAITING  LONGEST",
		"orders:2        mutex          app-1           3m10s   20s     3        4.0s",
		"orders:1        mutex          app-1           5.0s    20s     0        -",
		"", "", "", "",
		"LAST CHANGES",
		"12:00:00  orders:3: free; app-1 held it for 1.0s",
		"12:00:00  orders:2: acquired again by app-1",
		"q quit  ? help  s sort: age  p pause  ↑↓ scroll",
	)
	m = after(m, Tick(noon.Add(time.Second)))
	if got := shows(m); !strings.Contains(got, "oldest hold 3m11s") || !strings.Contains(got, "5.0s") || !strings.Contains(got, "19s") {
		t.Errorf("a second later:\n%s", got)
	}
}

func TestModel_BeforeTheFirstReading(t *testing.T) {
	if got := shows(screen(80, 24)); !strings.Contains(got, "reading for the first time") {
		t.Errorf("got\n%s", got)
	}
	if got := shows(screen(80, 24, reading())); !strings.Contains(got, "no lock is held") || !strings.Contains(got, "0 held   0 awaited") {
		t.Errorf("got\n%s", got)
	}
}

// Whatever the size: no panic, and nothing outside.
func TestModel_Sizes(t *testing.T) {
	locks := []changes.Seen{
		held("a", time.Second, 0), held(strings.Repeat("long", 100), time.Hour, 7), held("日本語のロック日本語のロック", 0, 0), held("🙂🙂🙂🙂🙂🙂🙂🙂🙂🙂", 0, 0),
		held("e\u0301e\u0301", 0, 0), held("\x1b[2Jevil\r\n\x00\u202e", 30*time.Hour, 100000),
		{Lock: fleet.Lock{Name: "s", Key: "s", Kind: fleet.Semaphore, Held: 3, Remaining: -1}},
	}
	busy := reading(locks...)
	busy.Err = errors.New("fleet: \x1b[31mno\nroute")
	for _, l := range locks {
		busy.Events = append(busy.Events, changes.Event{What: changes.Gone, At: noon, Was: l})
	}
	m := screen(1, 1, busy)
	for width := 1; width <= 300; width += 1 + width/6 {
		for height := 1; height <= 100; height += 1 + height/4 {
			for _, msg := range []tea.Msg{size(width, height), key("end"), key("?"), key("s"), key("?"), key("p"), Tick(noon), key("p")} {
				m = after(m, msg)
				wantFits(t, m)
			}
		}
	}
	for _, s := range []tea.WindowSizeMsg{size(1, 1), size(300, 1), size(1, 100), size(leastWidth-1, 50), size(80, leastHeight-1)} {
		if got := after(m, s).Lines(); len(got) != 1 || s.Width >= leastWidth && got[0] != "the terminal is too small" {
			t.Errorf("%dx%d: %q", s.Width, s.Height, got)
		}
	}
	for _, s := range []tea.WindowSizeMsg{{}, size(-1, 5), size(5, -1)} {
		if got := after(m, s).Lines(); got != nil {
			t.Errorf("%+v: %q", s, got)
		}
	}
}

func TestModel_NarrowDropsColumns(t *testing.T) {
	for width, want := range map[int]string{
		200: "NAME KIND HOLDER FOR LEFT WAITING LONGEST",
		79:  "NAME KIND HOLDER FOR LEFT WAITING LONGEST",
		78:  "NAME HOLDER FOR LEFT WAITING LONGEST",
		60:  "NAME HOLDER FOR WAITING LONGEST",
		50:  "NAME HOLDER FOR WAITING",
		40:  "NAME FOR WAITING",
		24:  "NAME FOR",
	} {
		m := screen(width, 20, reading(held("orders:1", 0, 0)))
		if got := strings.Join(strings.Fields(ansi.Strip(m.table()[0])), " "); got != want {
			t.Errorf("%d wide: %q, want %q", width, got, want)
		}
	}
}

func TestModel_CutsNamesByDisplayWidth(t *testing.T) {
	m := screen(80, 20, reading(held("日本語のロック日本語のロック", 0, 0)))
	if got, want := m.table()[1], "日本語のロッ…   mutex          app-1"; !strings.HasPrefix(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	title, row := ansi.Strip(m.table()[0]), m.table()[1]
	if a, b := strings.Index(title, "KIND"), ansi.StringWidth(row[:strings.Index(row, "mutex")]); a != b {
		t.Errorf("KIND is at %d, the kind at %d", a, b)
	}
}

func TestModel_Sort(t *testing.T) {
	unknown := held("c", 0, 1)
	unknown.Holders[0].Since = time.Time{}
	m := screen(80, 20, reading(held("a", time.Second, 0), held("b", time.Minute, 2), unknown, held("d", time.Second, 9)))
	for i, want := range []string{"b a d c", "d b c a", "a b c d", "b a d c"} {
		if got := names(m); got != want {
			t.Errorf("after %d times s: %s, want %s", i, got, want)
		}
		m = after(m, key("s"))
	}
}

func TestModel_Scroll(t *testing.T) {
	var locks []changes.Seen
	for i := range 20 {
		locks = append(locks, held(fmt.Sprintf("n%02d", i), 0, 0))
	}
	m := screen(60, 9, reading(locks...)) // four rows
	for _, step := range []struct{ key, want string }{
		{"up", "n00 n01 n02 n03"},
		{"down", "n01 n02 n03 n04"},
		{"pgdown", "n05 n06 n07 n08"},
		{"pgup", "n01 n02 n03 n04"},
		{"end", "n16 n17 n18 n19"},
		{"down", "n16 n17 n18 n19"},
		{"pgdown", "n16 n17 n18 n19"},
		{"home", "n00 n01 n02 n03"},
		{"pgup", "n00 n01 n02 n03"},
	} {
		if m = after(m, key(step.key)); names(m) != step.want {
			t.Errorf("after %s: %s, want %s", step.key, names(m), step.want)
		}
	}
	if got := shows(m); !strings.Contains(got, "1-4 of 20") {
		t.Errorf("the rows that are shown:\n%s", got)
	}
	if got := names(after(m, key("end"), size(60, 10))); got != "n15 n16 n17 n18 n19" {
		t.Errorf("a line more, at the end: %s", got)
	}
	if got := names(after(m, key("end"), reading(locks[:2]...))); got != "n00 n01" {
		t.Errorf("fewer locks, at the end: %s", got)
	}
}

func TestModel_Pause(t *testing.T) {
	gone := changes.Event{What: changes.Gone, At: noon, Was: held("gone", 0, 0)}
	for _, k := range []string{"p", "space"} {
		m := screen(80, 20, reading(held("a", 0, 0)), key(k))
		before := shows(m)
		later := reading(held("b", 0, 0))
		later.Ended, later.Events = noon.Add(time.Minute), []changes.Event{gone}
		m = after(m, later, Tick(noon.Add(61*time.Second)), key("s"), key("s"), key("s"))
		if got := shows(m); got != before || !strings.Contains(got, "PAUSED at 12:00:00") {
			t.Errorf("it goes on while it is paused, or doesn't say so:\n%s", got)
		}
		m = after(m, key(k))
		if got := shows(m); names(m) != "b" || !strings.Contains(got, "gone: free") || !strings.Contains(got, "12:01:01") {
			t.Errorf("afterwards:\n%s", got)
		}
	}
}

func TestModel_Help(t *testing.T) {
	m := screen(80, 24, reading(held("a", 0, 0)), key("?"))
	if got := shows(m); !strings.Contains(got, "isn't seen") || strings.Contains(got, "app-1") {
		t.Errorf("got\n%s", got)
	}
	for _, k := range []string{"?", "esc"} {
		if got := shows(after(m, key(k))); !strings.Contains(got, "app-1") {
			t.Errorf("after %s:\n%s", k, got)
		}
	}
}

// While Redis can't be read, the last state stays, with why and since when.
func TestModel_Failing(t *testing.T) {
	good := held("a", time.Minute, 0)
	lost := good
	lost.Unseen = true
	bad := func(s int) Reading {
		return Reading{
			Began: noon.Add(time.Duration(s) * time.Second), Ended: noon.Add(time.Duration(s) * time.Second), Locks: []changes.Seen{lost},
			Err: errors.Join(errors.New("fleet: dial: refused"), errors.New("fleet: dial: refused")),
		}
	}
	m := screen(100, 24, reading(good), bad(1), bad(5))
	if got, want := plain(m)[2], "CANNOT READ ALL since 12:00:01, for 4.0s: dial: refused"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := names(m); got != "?" || !strings.Contains(shows(m), "? a ") {
		t.Errorf("the lock isn't marked:\n%s", shows(m))
	}
	m = after(m, reading(good))
	if got := shows(m); strings.Contains(got, "CANNOT") || names(m) != "a" {
		t.Errorf("after it came back:\n%s", got)
	}
	if got := shows(after(m, Tick(noon.Add(time.Minute)))); !strings.Contains(got, "last read 1m00s ago") {
		t.Errorf("a reading that takes long:\n%s", got)
	}
}

func TestModel_RemembersSomeEvents(t *testing.T) {
	m := screen(80, 24)
	for i := range 50 {
		r := reading()
		for n := range 50 {
			r.Events = append(r.Events, changes.Event{What: changes.Gone, At: noon, Was: held(fmt.Sprintf("n%d-%d", i, n), 0, 0)})
		}
		m = after(m, r)
	}
	events := m.shown.events
	if len(events) != mostEvents || events[mostEvents-1].Was.Name != "n49-49" || events[0].Was.Name != "n46-0" {
		t.Errorf("%d events, from %s to %s", len(events), events[0].Was.Name, events[len(events)-1].Was.Name)
	}
	big := reading()
	for n := range 3 * mostEvents {
		big.Events = append(big.Events, changes.Event{What: changes.Gone, At: noon, Was: held(fmt.Sprint(n), 0, 0)})
	}
	if events := after(m, big).shown.events; len(events) != mostEvents || events[mostEvents-1].Was.Name != fmt.Sprint(3*mostEvents-1) {
		t.Errorf("%d events", len(events))
	}
}

// A screen of 100,000 locks costs no more than one of a few: only what is visible is drawn.
func TestModel_ManyLocks(t *testing.T) {
	locks := make([]changes.Seen, 100_000)
	for i := range locks {
		locks[i] = held(fmt.Sprintf("n%06d", i), time.Duration(i)*time.Second, 0)
	}
	few, many := screen(200, 50, reading(locks[:100]...)), screen(200, 50, reading(locks...))
	wantFits(t, many)
	if got := shows(many); !strings.Contains(got, "100000 held") || !strings.Contains(got, "of 100000") || !strings.Contains(names(many), "n099999 n099998") {
		t.Errorf("got\n%s", got)
	}
	if got := names(after(many, key("end"))); !strings.HasSuffix(got, "n000001 n000000") {
		t.Errorf("at the end: %s", got)
	}
	allocs := func(m Model) float64 { return testing.AllocsPerRun(5, func() { m.Lines() }) }
	if a, b := allocs(few), allocs(many); b > 1.1*a {
		t.Errorf("%v allocations to draw 100,000 locks, %v to draw 100", b, a)
	}
}

func TestModel_Groups(t *testing.T) {
	r := reading(held("orders:1", 5*time.Second, 2))
	r.Since = ago(70 * time.Second)
	for i, name := range []string{"orders", "evil\x1b[2J", strings.Repeat("long", 20), "more"} {
		r.Groups = append(r.Groups, changes.Caused{Group: name, Waited: time.Duration(40-10*i) * time.Second, Waiting: 3 - i})
	}
	wantLines(t, screen(80, 19, r),
		"lockdog watch  127.0.0.1:6379  orders:*                                 12:00:00",
		"1 held   1 awaited   oldest hold 5.0s   longest wait 4.0s",
		"read in 12 ms, every 1s",
		"NAME            KIND           HOLDER          FOR     LEFT    WAITING  LONGEST",
		"orders:1        mutex          app-1           5.0s    20s     2        4.0s",
		"", "", "", "", "",
		"WAITING TIME CAUSED, by group, in 1m10s",
		"orders                             40s   40%  3 wait now",
		`evil\x1b[2J                        30s   30%  2 wait now`,
		"longlonglonglonglonglonglongl…     20s   20%  1 wait now",
		"LAST CHANGES",
		"", "", "",
		"q quit  ? help  s sort: age  p pause  ↑↓ scroll",
	)
	if got := shows(screen(80, 14, r)); strings.Contains(got, "CAUSED") || !strings.Contains(got, "read in 12 ms, every 1s   most waited for: orders 40s") {
		t.Errorf("a low screen:\n%s", got)
	}
	if got := shows(screen(24, 30, r)); !strings.Contains(got, "\norders         40s   40%\n") {
		t.Errorf("a narrow screen:\n%s", got)
	}
	if got := shows(screen(80, 24, reading(held("a", 0, 0)))); strings.Contains(got, "CAUSED") {
		t.Errorf("nobody has waited:\n%s", got)
	}
	m := screen(1, 1, r)
	for width := 1; width <= 300; width += 1 + width/6 {
		for height := 1; height <= 100; height += 1 + height/4 {
			m = after(m, size(width, height))
			wantFits(t, m)
		}
	}
}
