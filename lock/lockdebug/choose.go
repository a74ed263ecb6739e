package lockdebug

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/lockdog/lockdog/lock"
)

// The values of ?sort=.
const (
	sortTrouble   = "trouble"
	sortAge       = "age"
	sortRemaining = "remaining"
	sortName      = "name"
)

// filter says what the query wants to see.
type filter struct {
	text, group, state string
}

func newFilter(q query) filter { return filter{strings.ToLower(q.Text), q.Group, q.State} }

func (f filter) held(l *lease, now time.Time) bool {
	switch f.state {
	case "", string(l.State):
	case stateHeld:
		if l.State != lock.StateReleasing {
			return false
		}
	case stateCanceled:
		if !over(l) {
			return false
		}
	case stateDegraded:
		if !degraded(l) {
			return false
		}
	case stateFailing:
		if !failing(l) {
			return false
		}
	case stateExpiring:
		if !expiring(l, now) {
			return false
		}
	default:
		return false
	}
	return f.says(l.Group, l.fields)
}

func (f filter) waiting(l *lease) bool {
	return (f.state == "" || f.state == stateWaiting) && f.says(l.Group, l.fields)
}

func (f filter) ended(e *endedLease) bool {
	return (f.state == "" || f.state == e.state()) && f.says(e.Group, e.fields)
}

// says whether the group fits, and the text is in one of the fields.
func (f filter) says(group string, fields func() []string) bool {
	if f.group != "" && f.group != group {
		return false
	}
	has := func(field string) bool { return strings.Contains(strings.ToLower(field), f.text) }
	return f.text == "" || has(group) || slices.ContainsFunc(fields(), has)
}

// shows says whether a list can have anything for the state asked for.
func (q query) shows(of ...string) bool { return q.State == "" || slices.Contains(of, q.State) }

// ShowsHeld, ShowsWaiting and ShowsEnded say which lists are worth a table.
func (q query) ShowsHeld() bool {
	return q.shows(stateHeld, stateFailing, stateExpiring, stateDegraded, stateCanceled)
}
func (q query) ShowsWaiting() bool { return q.shows(stateWaiting) }
func (q query) ShowsEnded() bool {
	return q.shows(stateLost, stateDegraded, stateCanceled, stateClosed)
}

// sortHeld puts the leases in order. Whatever the order, equals are in that of age, so that a page that loads itself
// again doesn't jump about.
func sortHeld(all []*lease, by string, now time.Time) {
	slices.SortFunc(all, func(a, b *lease) int {
		order := 0
		switch by {
		case sortTrouble:
			ra, rb := rank(a, now), rank(b, now)
			order = cmp.Compare(ra, rb)
			if order == 0 && ra != rankFine {
				order = a.Deadline.Compare(b.Deadline)
			}
		case sortRemaining:
			order = a.Deadline.Compare(b.Deadline)
		case sortName:
			order = cmp.Compare(a.Name, b.Name)
		}
		return cmp.Or(order, byAge(a, b))
	})
}

// The ranks of trouble, the worst first.
const (
	rankAtRisk = iota
	rankDegraded
	rankCanceled
	rankFine
)

func rank(l *lease, now time.Time) int {
	switch {
	case failing(l), expiring(l, now), l.State == lock.StateLost:
		return rankAtRisk
	case degraded(l):
		return rankDegraded
	case l.State == lock.StateCanceled:
		return rankCanceled
	}
	return rankFine
}

func sortWaiting(all []*lease, by string) {
	slices.SortFunc(all, func(a, b *lease) int {
		if by == sortName {
			return cmp.Or(cmp.Compare(a.Name, b.Name), byAge(a, b))
		}
		return byAge(a, b)
	})
}

func byAge(a, b *lease) int {
	return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Owner, b.Owner))
}

func sortEnded(all []*endedLease, by string) {
	slices.SortFunc(all, func(a, b *endedLease) int {
		order := 0
		if by == sortName {
			order = cmp.Compare(a.Name, b.Name)
		}
		return cmp.Or(order, b.Ended.Compare(a.Ended), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Owner, b.Owner))
	})
}
