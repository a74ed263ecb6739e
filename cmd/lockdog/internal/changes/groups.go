package changes

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// Caused is the waiting time that the locks of a group have caused since the first look.
type Caused struct {
	Group   string
	Waited  time.Duration // sum over all waiters
	Waiting int           // number of waiters now
}

const (
	mostGroups = 1000 // groups that are remembered; the time of later ones counts for others

	// others is the group for all groups beyond mostGroups, as in metrics.
	others = "_other"
)

// waitTime sums waiting time. It knows the number of waiters at each look, and assumes that the number changed half-way
// between two looks.
type waitTime struct {
	groups map[string]*Caused
	since  time.Time // of the first look
	most   int       // not 0: used instead of mostGroups, for tests
}

// add adds the waiting time for a lock between two looks, and adds its waiters at the second look to Caused.Waiting.
// was and is are the numbers of waiters at the two looks.
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

// groupOf returns the group of a name, as in metrics unless the program sets another: the name up to its first colon,
// without the braces of a hash tag. It is "default" if there is no colon, or if that part is empty.
func groupOf(name string) string {
	group, _, found := strings.Cut(name, ":")
	group = strings.Trim(group, "{}")
	if !found || group == "" {
		return "default"
	}
	return group
}

// Groups returns the groups with the most waiting time since the first look, longest first, and the time of the first
// look.
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

// addWaits adds the waiting time since the previous look.
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
		case !known && t.complete.IsZero(): // no complete look before: unknown how long they have waited
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
