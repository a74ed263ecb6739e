package lockdebug

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/lockdog/lockdog/lock"
)

// The states of rows, and the values of state in a query. A lease that is failing, expiring or degraded is also held.
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

// expiryShare defines expiring: less than 1/expiryShare of the lease is left. A healthy renewal is never that late. A
// lease that a message granted is trusted for a shorter time at first, so a lock held for less than half a lease isn't
// expiring.
const expiryShare = 5

// Ranks for sorting by trouble, the worst first.
const (
	rankAtRisk = iota
	rankDegraded
	rankCanceled
	rankFine
)

// row is a lock that is held, awaited or has ended, or a member of a Multi or a Quorum.
type row struct {
	Name         string    `json:"name"`
	Kind         string    `json:"kind,omitempty"`
	Group        string    `json:"group,omitempty"`
	State        string    `json:"state"`
	Node         string    `json:"node,omitempty"`
	Owner        string    `json:"owner,omitempty"`
	Token        int64     `json:"token,omitzero"`
	Since        time.Time `json:"since,omitzero"`
	Age          *float64  `json:"age_seconds,omitempty"`
	TraceID      string    `json:"trace_id,omitempty"`
	TraceURL     string    `json:"trace_url,omitempty"`
	Have         *int      `json:"have,omitempty"`
	Need         *int      `json:"need,omitempty"`
	Members      []*row    `json:"members,omitempty"`
	Lease        *float64  `json:"lease_seconds,omitempty"`
	Remaining    *float64  `json:"remaining_seconds,omitempty"`
	Deadline     time.Time `json:"deadline,omitzero"`
	NextRenewal  time.Time `json:"next_renewal,omitzero"`
	LastError    string    `json:"last_error,omitempty"`
	LastErrorAt  time.Time `json:"last_error_at,omitzero"`
	FailingSince time.Time `json:"failing_since,omitzero"`
	FailingFor   *float64  `json:"failing_seconds,omitempty"`
	Failing      bool      `json:"failing,omitzero"`
	Expiring     bool      `json:"expiring,omitzero"`
	Degraded     bool      `json:"degraded,omitzero"`
	Reason       string    `json:"reason,omitempty"`
	Waiters      *int      `json:"waiters,omitempty"`
	WaitsFor     string    `json:"waits_for,omitempty"`
	Ended        time.Time `json:"ended,omitzero"`
	Why          string    `json:"why,omitempty"`
	Error        string    `json:"error,omitempty"`

	err  error // tell makes it text when all rows exist: only then the names and owners to redact in it are known
	rank int
}

// row returns the row of a lock, with its age at the time at.
func (v *view) row(l *lock.LeaseInfo, at time.Time) *row {
	r := &row{
		Name: v.names.replace(l.Name), Kind: l.Kind, Group: l.Group, State: string(l.State), Node: l.Node,
		Owner: v.owners.replace(l.Owner), Token: l.Token, Since: utc(l.Since), Age: since(l.Since, at),
		TraceID: l.TraceID, TraceURL: v.traceLink(l.TraceID), WaitsFor: v.owners.replace(l.WaitsFor),
		LastErrorAt: utc(l.ErrorAt), FailingSince: utc(l.FailingSince), FailingFor: since(l.FailingSince, v.now),
		Failing: l.State == lock.StateHeld && l.LastError != nil, err: l.LastError, rank: rankFine,
	}
	r.WaitsFor = r.WaitsFor[:min(len(r.WaitsFor), maxTextBytes)] // so that the page's link with q=<waits_for> is valid
	if l.State != lock.StateWaiting && !l.Deadline.IsZero() {
		r.Lease, r.Remaining = new(seconds(l.Lease)), new(seconds(l.Deadline.Sub(v.now)))
		r.Deadline, r.NextRenewal = utc(l.Deadline), utc(l.NextRenewal)
	}
	return r
}

// member returns the row without the fields that only a whole lock has.
func (r *row) member() *row {
	r.Kind, r.Group, r.Since, r.Age, r.TraceID, r.TraceURL = "", "", time.Time{}, nil, "", ""
	return r
}

// lease returns the row of a lock that hasn't ended.
func (v *view) lease(l *lock.LeaseInfo) *row {
	r := v.row(l, v.now)
	r.Reason = string(l.Reason)
	r.Expiring = l.State == lock.StateHeld &&
		l.Deadline.Sub(v.now) < l.Lease/expiryShare && v.now.Sub(l.Since) > l.Lease/2
	switch {
	case r.Failing, r.Expiring, r.State == stateLost:
		r.rank = rankAtRisk
	case r.State == stateCanceled:
		r.rank = rankCanceled
	}
	return r
}

// composite returns the row of a Multi or a Quorum that hasn't ended.
func (v *view) composite(c *lock.CompositeInfo) *row {
	info := c.LeaseInfo
	info.Name = "" // of a Multi it is several names, which v.lease would redact as a single name
	r := v.lease(&info)
	r.Name, r.Have, r.Need = v.nameOfComposite(c.Name, c.Kind), new(c.Held()), &c.Need
	for i := range c.Members {
		m := v.row(&c.Members[i], v.now).member()
		r.Members = append(r.Members, m)
		r.Degraded = r.Degraded || r.State == stateHeld && (m.State != stateHeld || m.err != nil)
	}
	if r.Degraded {
		r.rank = min(r.rank, rankDegraded)
	}
	return r
}

func (v *view) nameOfComposite(name, kind string) string {
	if kind == "multi" {
		return v.multi(name)
	}
	return v.names.replace(name)
}

// end returns the row of a lease that has ended.
func (v *view) end(e *lock.EndedLease) *row {
	r := v.row(&lock.LeaseInfo{
		Name: e.Name, Kind: e.Kind, Group: e.Group, State: lock.LeaseState(e.End), Node: e.Node, Owner: e.Owner,
		Token: e.Token, Since: e.Since, LastError: e.Err, TraceID: e.TraceID,
	}, e.Ended)
	r.Ended, r.Why = utc(e.Ended), e.Why
	return r
}

// endOfComposite returns the row of a Multi or a Quorum with the members that have ended. It is degraded if it was
// still held, or was released, without them.
func (v *view) endOfComposite(members []*lock.EndedLease) *row {
	slices.SortFunc(members, func(a, b *lock.EndedLease) int { return b.Ended.Compare(a.Ended) })
	last, state := *members[0], stateDegraded
	for _, end := range []string{stateClosed, stateCanceled, stateLost} { // a later one takes precedence
		i := slices.IndexFunc(members, func(m *lock.EndedLease) bool { return m.Composite.End == end && m.End == end })
		if i >= 0 {
			last, state = *members[i], end
		}
	}
	var parts []*row
	for _, m := range members {
		parts = append(parts, v.end(m).member())
		if m.Since.Before(last.Since) {
			last.Since = m.Since
		}
	}
	r := v.end(&last)
	r.Name, r.Node, r.State, r.Members = v.nameOfComposite(last.Composite.Name, last.Kind), "", state, parts
	return r
}

// tell sets the texts of errors.
func (v *view) tell(r *row) {
	into := &r.LastError
	if !r.Ended.IsZero() {
		into = &r.Error
	}
	*into = v.textOf(r.err)
	for _, m := range r.Members {
		v.tell(m)
	}
}

// over reports whether a lock's Context has ended, but the lock isn't released.
func (r *row) over() bool {
	return r.Ended.IsZero() && (r.State == stateCanceled || r.State == stateLost)
}

// countWaiters returns the number of waiters for the lock, given the number for each owner.
func (r *row) countWaiters(byOwner map[string]int) int {
	if r.Members == nil {
		return byOwner[r.Owner]
	}
	n := 0
	for _, m := range r.Members {
		if m.Owner != "" && m.State != stateWaiting {
			n += byOwner[m.Owner]
		}
	}
	return n
}

// matches reports whether the row matches the query.
func (v *view) matches(r *row) bool {
	return (v.query["group"] == "" || v.query["group"] == r.Group) && r.is(v.query["state"]) && r.contains(v.text)
}

func (r *row) is(state string) bool {
	switch state {
	case "", r.State:
		return true
	case stateHeld:
		return r.State == string(lock.StateReleasing)
	case stateCanceled:
		return r.over()
	case stateDegraded:
		return r.Degraded
	case stateFailing:
		return r.Failing
	case stateExpiring:
		return r.Expiring
	}
	return false
}

// contains reports whether the row contains a text, which must be in lower case.
func (r *row) contains(text string) bool {
	return anyContains(text, r.Name, r.Kind, r.Group, r.Node, r.Owner, r.TraceID, r.WaitsFor) ||
		slices.ContainsFunc(r.Members, func(m *row) bool { return m.contains(text) })
}

func anyContains(text string, fields ...string) bool {
	return slices.ContainsFunc(fields, func(field string) bool {
		return strings.Contains(strings.ToLower(field), text)
	})
}

// compareBy returns the order for a value of sort. Equal rows are sorted by age, ended rows by end with the latest
// first: so rows keep their places when the page is loaded again.
func compareBy(sort string) func(a, b *row) int {
	return func(a, b *row) int {
		n := 0
		switch {
		case sort == sortName:
			n = cmp.Compare(a.Name, b.Name)
		case sort == sortTrouble && a.rank != b.rank:
			return cmp.Compare(a.rank, b.rank)
		case sort == sortRemaining, sort == sortTrouble && a.rank != rankFine:
			n = a.Deadline.Compare(b.Deadline)
		}
		return cmp.Or(n, b.Ended.Compare(a.Ended), a.Since.Compare(b.Since),
			cmp.Compare(a.Name, b.Name), cmp.Compare(a.Owner, b.Owner))
	}
}
