package changes

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// Caused is how long was waited for the locks of a group since the first look.
type Caused struct {
	Group   string
	Waited  time.Duration // summed over those who waited
	Waiting int           // how many wait now
}

const (
	mostGroups = 1000 // groups that are remembered; the time of further ones is that of others

	// others is the group of those that came when there were already so many, as in metrics.
	others = "_other"
)

// waitTime adds up how long is waited for locks. It knows how many waited at each look, and takes it that the number changed half-way between two looks.
type waitTime struct {
	groups map[string]*Caused
	since  time.Time // of the first look
	most   int       // instead of mostGroups, for tests
}

// add adds what was waited for a lock between two looks at it. At the second nobody may wait any more.
func (w *waitTime) add(name string, was, is int, between time.Duration) {
	if was == 0 && is == 0 {
		return
	}
	if w.groups == nil {
		w.groups = map[string]*Caused{}
	}
	group := groupOf(name)
	if w.groups[group] == nil {
		if len(w.groups) >= cmp.Or(w.most, mostGroups) {
			group = others
		}
		if w.groups[group] == nil {
			w.groups[group] = &Caused{Group: group}
		}
	}
	g := w.groups[group]
	g.Waiting += is
	g.Waited += time.Duration(was+is) * max(between, 0) / 2
}

// groupOf is the group of a name, as in metrics unless the program chose another: the name up to its first colon, without the brace that may open a hash tag.
func groupOf(name string) string {
	group, _, found := strings.Cut(name, ":")
	group = strings.Trim(group, "{}")
	if !found || group == "" {
		return "default"
	}
	return group
}

// Groups are the groups whose locks were waited for the longest since the first look, the first first; and when that was. See Tracker.Add.
func (t *Tracker) Groups(most int) ([]Caused, time.Time) {
	all := make([]Caused, 0, len(t.waits.groups))
	for _, g := range t.waits.groups {
		all = append(all, *g)
	}
	slices.SortFunc(all, func(a, b Caused) int {
		return cmp.Or(cmp.Compare(b.Waited, a.Waited), cmp.Compare(b.Waiting, a.Waiting), cmp.Compare(a.Group, b.Group))
	})
	return all[:min(len(all), most)], t.waits.since
}

// addWaits adds what was waited since the look before.
func (t *Tracker) addWaits(look Look, now map[string]Seen) {
	if t.waits.since.IsZero() {
		t.waits.since = look.Began
	}
	for _, g := range t.waits.groups {
		g.Waiting = 0
	}
	for key, is := range now {
		was, known := t.known[key]
		switch {
		case is.Unseen: // counted when it is seen again
		case !known && t.complete.IsZero(): // the first look: those who wait have waited for nothing that we saw
			t.waits.add(is.Name, 0, is.Waiting, 0)
		case !known:
			t.waits.add(is.Name, 0, is.Waiting, is.At.Sub(t.complete))
		default:
			t.waits.add(is.Name, was.Waiting, is.Waiting, is.At.Sub(was.At))
		}
	}
	for key, was := range t.known {
		if _, there := now[key]; !there {
			t.waits.add(was.Name, was.Waiting, 0, look.Ended.Sub(was.At))
		}
	}
}
