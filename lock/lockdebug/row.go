package lockdebug

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/lockdog/lockdog/lock"
)

// row shows a lease, or a member of one. Its fields are left out where there is nothing to say.
type row struct {
	Name         string    `json:"name"`
	Kind         string    `json:"kind,omitempty"`
	Group        string    `json:"group,omitempty"`
	State        string    `json:"state"`
	Node         string    `json:"node,omitempty"`
	Owner        *string   `json:"owner,omitempty"` // of a member only if there is one
	Token        int64     `json:"token,omitzero"`
	Since        time.Time `json:"since,omitzero"`
	Age          *seconds  `json:"age_seconds,omitempty"`
	TraceID      string    `json:"trace_id,omitempty"`
	TraceURL     string    `json:"trace_url,omitempty"`
	Have         *int      `json:"have,omitempty"`
	Need         *int      `json:"need,omitempty"`
	Members      []row     `json:"members,omitempty"`
	Lease        *seconds  `json:"lease_seconds,omitempty"`
	Remaining    *seconds  `json:"remaining_seconds,omitempty"`
	Deadline     time.Time `json:"deadline,omitzero"`
	NextRenewal  time.Time `json:"next_renewal,omitzero"`
	LastError    string    `json:"last_error,omitempty"`
	LastErrorAt  time.Time `json:"last_error_at,omitzero"`
	FailingSince time.Time `json:"failing_since,omitzero"`
	FailingFor   seconds   `json:"failing_seconds,omitzero"`
	Failing      bool      `json:"failing,omitzero"`
	Expiring     bool      `json:"expiring,omitzero"`
	Degraded     bool      `json:"degraded,omitzero"`
	Reason       string    `json:"reason,omitempty"`
	Waiters      *int      `json:"waiters,omitempty"`
	WaitsFor     string    `json:"waits_for,omitempty"`
	Ended        time.Time `json:"ended,omitzero"`
	Why          string    `json:"why,omitempty"`
	Error        string    `json:"error,omitempty"`

	// Of the page:
	Query    query   `json:"-"`
	Label    string  `json:"-"` // the name; of a member of a Quorum, its node
	Class    string  `json:"-"`
	Member   bool    `json:"-"`
	Where    string  `json:"-"` // of a composite: "3 nodes"
	Detail   string  `json:"-"` // what Error says that the other columns don't
	RenewsIn seconds `json:"-"`
	EndedAgo seconds `json:"-"`
}

// rows makes rows of leases.
type rows struct {
	*redactor
	h       *handler
	query   query
	waiters map[string]int // by the owner they wait for
	now     time.Time
}

// list sorts leases and makes rows of the page that was asked for.
func (r *rows) list(all []*lease, sort string) list {
	slices.SortFunc(all, compareBy(sort))
	page, per := r.query.number("page"), r.query.number("per")
	first := min((page-1)*per, len(all))
	out := list{Total: len(all), Pages: max(1, (len(all)+per-1)/per), Items: []row{}, Number: page, First: first + 1, Query: r.query}
	for _, l := range all[first:min(first+per, len(all))] {
		out.Items = append(out.Items, r.row(l))
	}
	return out
}

func (r *rows) row(l *lease) row {
	out := r.common(l)
	age := since(l.Since, cmp.Or(l.ended, r.now))
	out.Kind, out.Group, out.Owner, out.Since, out.Age = l.Kind, l.Group, &l.Owner, utc(l.Since), &age
	out.TraceID, out.TraceURL = l.TraceID, r.h.traceLink(l.TraceID)
	switch {
	case !l.ended.IsZero():
		out.Class = "warn"
		if out.State == stateLost {
			out.Class = "bad"
		}
	case l.State == lock.StateWaiting:
		if out.LastError != "" {
			out.Class = "warn"
		}
	default:
		waiters := l.waiters(r.waiters)
		out.Waiters, out.Expiring, out.Degraded, out.Reason = &waiters, l.expiring, l.degraded, string(l.Reason)
		out.timing(l, r.now)
		switch {
		case l.rank == rankAtRisk:
			out.Class = "bad"
		case l.degraded, out.Reason != "":
			out.Class = "warn"
		}
	}
	if l.id == 0 {
		return out
	}
	nodes := l.Kind == kindQuorum
	if l.ended.IsZero() {
		out.Have, out.Need = &l.have, &l.need
		out.Where = thousands(len(l.members)) + " names"
		if nodes {
			out.Where = thousands(len(l.members)) + " nodes"
		}
	}
	for i := range l.members {
		out.Members = append(out.Members, r.member(&l.members[i], nodes, out.Class))
	}
	return out
}

// member makes the row of a member. What is wrong with it is as bad as it is for the whole.
func (r *rows) member(m *lease, nodes bool, whole string) row {
	out := r.common(m)
	out.Member = true
	if m.Owner != "" {
		out.Owner = &m.Owner
	}
	if nodes {
		out.Label = out.Node
	}
	if m.ended.IsZero() {
		if !m.Deadline.IsZero() {
			out.timing(m, r.now)
		}
		if out.LastError != "" || m.State == lock.StateLost || nodes && m.State == lock.StateAbsent {
			out.Class = cmp.Or(whole, "warn")
		}
	}
	return out
}

// common makes what all rows have.
func (r *rows) common(l *lease) row {
	out := row{
		Name: l.Name, State: string(l.State), Node: l.Node, Token: l.Token, Failing: l.failing,
		WaitsFor: l.WaitsFor[:min(len(l.WaitsFor), maxTextBytes)], // a link has to have room for it
		Label:    l.Name, Query: r.query,
	}
	var lost *lock.LostError
	if errors.As(l.LastError, &lost) {
		out.Detail = r.text(lost.Unwrap())
	}
	if !l.ended.IsZero() {
		out.Ended, out.EndedAgo, out.Why, out.Error = utc(l.ended), since(l.ended, r.now), l.why, r.text(l.LastError)
		return out
	}
	out.LastError = r.text(l.LastError)
	if lost != nil && l.State == lock.StateLost { // without the name of the lock
		out.LastError = string(lost.Cause)
		if out.Detail != "" {
			out.LastError += ": " + out.Detail
		}
	}
	if !l.ErrorAt.IsZero() {
		out.LastErrorAt = utc(l.ErrorAt)
	}
	if !l.FailingSince.IsZero() {
		out.FailingSince, out.FailingFor = utc(l.FailingSince), since(l.FailingSince, r.now)
	}
	return out
}

func (r *row) timing(l *lease, now time.Time) {
	lease, remaining := seconds(l.Lease), seconds(l.Deadline.Sub(now))
	r.Lease, r.Remaining, r.Deadline = &lease, &remaining, utc(l.Deadline)
	if !l.NextRenewal.IsZero() {
		r.NextRenewal, r.RenewsIn = utc(l.NextRenewal), seconds(l.NextRenewal.Sub(now))
	}
}

// Shown is the state that matters most.
func (r row) Shown() string {
	switch {
	case r.Failing:
		return stateFailing
	case r.Expiring:
		return stateExpiring
	case r.Degraded:
		return stateDegraded
	}
	return r.State
}

// Parts tells how many members of a composite are held; "" for other locks.
func (r row) Parts() string {
	if r.Have == nil {
		return ""
	}
	return fmt.Sprintf("%s of %s, needs %s", thousands(*r.Have), r.Where, thousands(*r.Need))
}

// LowMark and HighMark are where the bar of a lease changes its colour: below the lower the lease is expiring; below the upper a
// renewal is late, as it was due with two thirds left.
func (r row) LowMark() float64  { return (*r.Lease / expiryShare).Float() }
func (r row) HighMark() float64 { return (*r.Lease / 2).Float() }
