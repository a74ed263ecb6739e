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

func (f filter) held(l *lock.LeaseInfo, now time.Time) bool {
	switch f.state {
	case "", string(l.State):
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
	return f.says(l.Group, l.Name, l.Owner, l.TraceID)
}

func (f filter) waiting(l *lock.LeaseInfo) bool {
	return (f.state == "" || f.state == stateWaiting) && f.says(l.Group, l.Name, l.Owner, l.TraceID, l.WaitsFor)
}

func (f filter) ended(e *lock.EndedLease) bool {
	return (f.state == "" || f.state == e.End) && f.says(e.Group, e.Name, e.Owner, e.TraceID)
}

// says whether the group fits, and the text is in one of the fields.
func (f filter) says(group string, fields ...string) bool {
	if f.group != "" && f.group != group {
		return false
	}
	has := func(field string) bool { return strings.Contains(strings.ToLower(field), f.text) }
	return f.text == "" || has(group) || slices.ContainsFunc(fields, has)
}

// shows says whether a list can have anything for the state asked for.
func (q query) shows(of ...string) bool { return q.State == "" || slices.Contains(of, q.State) }

// ShowsHeld, ShowsWaiting and ShowsEnded say which lists are worth a table.
func (q query) ShowsHeld() bool {
	return q.shows(stateHeld, stateFailing, stateExpiring, stateCanceled)
}
func (q query) ShowsWaiting() bool { return q.shows(stateWaiting) }
func (q query) ShowsEnded() bool   { return q.shows(stateLost, stateCanceled, stateClosed) }

// sortHeld puts the leases in order. Whatever the order, equals are in that of age, so that a page that loads itself
// again doesn't jump about.
func sortHeld(all []*lock.LeaseInfo, by string, now time.Time) {
	slices.SortFunc(all, func(a, b *lock.LeaseInfo) int {
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
	rankCanceled
	rankFine
)

func rank(l *lock.LeaseInfo, now time.Time) int {
	switch {
	case failing(l), expiring(l, now):
		return rankAtRisk
	case l.State == lock.StateCanceled:
		return rankCanceled
	}
	return rankFine
}

func sortWaiting(all []*lock.LeaseInfo, by string) {
	slices.SortFunc(all, func(a, b *lock.LeaseInfo) int {
		if by == sortName {
			return cmp.Or(cmp.Compare(a.Name, b.Name), byAge(a, b))
		}
		return byAge(a, b)
	})
}

func byAge(a, b *lock.LeaseInfo) int {
	return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Owner, b.Owner))
}

func sortEnded(all []*lock.EndedLease, by string) {
	slices.SortFunc(all, func(a, b *lock.EndedLease) int {
		order := 0
		if by == sortName {
			order = cmp.Compare(a.Name, b.Name)
		}
		return cmp.Or(order, b.Ended.Compare(a.Ended), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Owner, b.Owner))
	})
}
