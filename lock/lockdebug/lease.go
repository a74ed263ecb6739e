package lockdebug

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/lockdog/lockdog/lock"
)

// The states of rows, and the values of ?state=. A lease that is failing, expiring or degraded is also held.
const (
	stateHeld     = string(lock.StateHeld)
	stateCanceled = string(lock.StateCanceled)
	stateWaiting  = string(lock.StateWaiting)
	stateLost     = string(lock.StateLost)
	stateFailing  = "failing"
	stateExpiring = "expiring"
	stateDegraded = "degraded"
	stateClosed   = "closed"
	stateReleased = "released" // not shown
)

// The kinds of composite locks.
const (
	kindMulti  = "multi"
	kindQuorum = "quorum"
)

// expiryShare defines expiring: less than a fifth of the lease is left. No renewal should be that late.
const expiryShare = 5

// lease is a lock that is held, waited for, or has ended; of a Multi or a Quorum the whole.
type lease struct {
	*lock.LeaseInfo           // if it has ended: State is how, LastError the error of the lease
	ended           time.Time // zero if it hasn't
	why             string    // it ended

	id         uint64 // of a composite; 0 for others
	members    []lease
	have, need int // members

	failing, expiring, degraded bool
	rank                        int
}

// Ranks of trouble, the worst first.
const (
	rankAtRisk = iota
	rankDegraded
	rankCanceled
	rankFine
)

func newLease(info *lock.LeaseInfo, now time.Time) lease {
	l := lease{LeaseInfo: info, rank: rankFine}
	if c := info.Composite; c != nil {
		l.LeaseInfo, l.id, l.have, l.need = &c.LeaseInfo, c.ID, c.Held(), c.Need
		for i := range c.Members {
			m := &c.Members[i]
			l.members = append(l.members, lease{LeaseInfo: m, failing: m.State == lock.StateHeld && m.LastError != nil})
			l.degraded = l.degraded || m.State != lock.StateHeld || m.LastError != nil
		}
	}
	held := l.State == lock.StateHeld
	l.failing = held && l.LastError != nil
	l.expiring = held && l.Deadline.Sub(now) < l.Lease/expiryShare
	l.degraded = held && l.degraded
	switch {
	case l.failing, l.expiring, l.State == lock.StateLost:
		l.rank = rankAtRisk
	case l.degraded:
		l.rank = rankDegraded
	case l.State == lock.StateCanceled:
		l.rank = rankCanceled
	}
	return l
}

func newEnded(e *lock.EndedLease) lease {
	return lease{ended: e.Ended, why: e.Why, rank: rankFine, LeaseInfo: &lock.LeaseInfo{
		Name: e.Name, Kind: e.Kind, Group: e.Group, State: lock.LeaseState(e.End), Node: e.Node, Owner: e.Owner, Token: e.Token,
		Since: e.Since, LastError: e.Err, TraceID: e.TraceID,
	}}
}

// newEndedComposite returns the end of a composite, of which these members have ended. It is degraded if it was held on without them.
func newEndedComposite(members []lock.EndedLease) lease {
	slices.SortFunc(members, func(a, b lock.EndedLease) int { return b.Ended.Compare(a.Ended) })
	last, state := &members[0], stateDegraded
	for _, end := range []string{stateClosed, stateCanceled, stateLost} { // the last that is found counts
		i := slices.IndexFunc(members, func(m lock.EndedLease) bool { return m.Composite.End == end && m.End == end })
		if i >= 0 {
			last, state = &members[i], end
		}
	}
	l := newEnded(last)
	l.Name, l.Node, l.State, l.id = last.Composite.Name, "", lock.LeaseState(state), last.Composite.ID
	for i := range members {
		m := newEnded(&members[i])
		l.members = append(l.members, m)
		if m.Since.Before(l.Since) {
			l.Since = m.Since
		}
	}
	return l
}

// over reports whether a lock must not be worked under any more, but isn't released.
func (l *lease) over() bool {
	return l.ended.IsZero() && (l.State == lock.StateCanceled || l.State == lock.StateLost)
}

// waiters returns how many wait for the lock, given how many wait for each owner.
func (l *lease) waiters(byOwner map[string]int) int {
	if l.members == nil {
		return byOwner[l.Owner]
	}
	n := 0
	for i := range l.members {
		if m := &l.members[i]; m.Owner != "" && m.State != lock.StateWaiting {
			n += byOwner[m.Owner]
		}
	}
	return n
}

// matches reports whether the query lists the lease. The text is in lower case.
func (l *lease) matches(group, state, text string) bool {
	return (group == "" || group == l.Group) && l.is(state) && (text == "" || l.contains(text))
}

func (l *lease) is(state string) bool {
	switch state {
	case "", string(l.State):
		return true
	case stateHeld:
		return l.State == lock.StateReleasing
	case stateCanceled:
		return l.over()
	case stateDegraded:
		return l.degraded
	case stateFailing:
		return l.failing
	case stateExpiring:
		return l.expiring
	}
	return false
}

func (l *lease) contains(text string) bool {
	for _, field := range [...]string{l.Name, l.Kind, l.Group, l.Node, l.Owner, l.TraceID, l.WaitsFor} {
		if strings.Contains(strings.ToLower(field), text) {
			return true
		}
	}
	return slices.ContainsFunc(l.members, func(m lease) bool { return m.contains(text) })
}

// compareBy returns the order of ?sort=. Equal leases are in the order of age, so that rows stay where they are when the page is
// loaded again; those that have ended, the last first.
func compareBy(sort string) func(a, b *lease) int {
	return func(a, b *lease) int {
		n := 0
		switch sort {
		case sortTrouble:
			n = cmp.Compare(a.rank, b.rank)
			if n == 0 && a.rank != rankFine {
				n = a.Deadline.Compare(b.Deadline)
			}
		case sortRemaining:
			n = a.Deadline.Compare(b.Deadline)
		case sortName:
			n = cmp.Compare(a.Name, b.Name)
		}
		if n == 0 {
			n = cmp.Or(b.ended.Compare(a.ended), a.Since.Compare(b.Since))
		}
		if n == 0 {
			n = cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Owner, b.Owner))
		}
		return n
	}
}
