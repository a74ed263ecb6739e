package lockdebug

import (
	"errors"
	"time"

	"github.com/lockdog/lockdog/lock"
)

// The states of rows, and what ?state= can ask for. A lease that is failing or expiring is also held.
const (
	stateHeld     = string(lock.StateHeld)
	stateCanceled = string(lock.StateCanceled)
	stateWaiting  = string(lock.StateWaiting)
	stateFailing  = "failing"
	stateExpiring = "expiring"
	stateLost     = "lost"
	stateClosed   = "closed"
	stateReleased = "released" // not shown
)

// entry is what all rows have.
type entry struct {
	Name     string    `json:"name"`
	Kind     string    `json:"kind"`
	Group    string    `json:"group"`
	State    string    `json:"state"`
	Owner    string    `json:"owner"`
	Token    int64     `json:"token,omitzero"`
	Since    time.Time `json:"since"`
	Age      seconds   `json:"age_seconds"`
	TraceID  string    `json:"trace_id,omitempty"`
	TraceURL string    `json:"trace_url,omitempty"`
}

// held is a lock that is held.
type held struct {
	entry
	Failing     bool      `json:"failing,omitzero"`
	Expiring    bool      `json:"expiring,omitzero"`
	Lease       seconds   `json:"lease_seconds"`
	Remaining   seconds   `json:"remaining_seconds"`
	Deadline    time.Time `json:"deadline"`
	NextRenewal time.Time `json:"next_renewal,omitzero"`
	LastError   string    `json:"last_error,omitempty"`
	Reason      string    `json:"reason,omitempty"`
	Waiters     int       `json:"waiters"`

	RenewalIn seconds `json:"-"`
}

// waiting is a call of Lock that waits.
type waiting struct {
	entry
	WaitsFor  string `json:"waits_for,omitempty"`
	LastError string `json:"last_error,omitempty"`
}

// ended is a lease that was lost or canceled.
type ended struct {
	entry
	Ended time.Time `json:"ended"`
	Why   string    `json:"why"`
	Error string    `json:"error,omitempty"`

	Detail string `json:"-"` // what Error says and the other columns don't
}

func failing(l *lock.LeaseInfo) bool { return l.State == lock.StateHeld && l.LastError != nil }

func expiring(l *lock.LeaseInfo, now time.Time) bool {
	return l.State == lock.StateHeld && l.Deadline.Sub(now) < l.Lease/expiryShare
}

func (h *handler) entry(l *lock.LeaseInfo, now time.Time) entry {
	return entry{
		Name: l.Name, Kind: l.Kind, Group: l.Group, State: string(l.State), Owner: l.Owner, Token: l.Token,
		Since: utc(l.Since), Age: since(l.Since, now), TraceID: l.TraceID, TraceURL: h.traceLink(l.TraceID),
	}
}

func (h *handler) held(l *lock.LeaseInfo, waiters int, now time.Time) held {
	row := held{
		entry: h.entry(l, now), Failing: failing(l), Expiring: expiring(l, now),
		Lease: seconds(l.Lease), Remaining: seconds(l.Deadline.Sub(now)), Deadline: utc(l.Deadline),
		LastError: text(l.LastError), Reason: string(l.Reason), Waiters: waiters,
	}
	if !l.NextRenewal.IsZero() {
		row.NextRenewal, row.RenewalIn = utc(l.NextRenewal), seconds(l.NextRenewal.Sub(now))
	}
	return row
}

func (h *handler) waiting(l *lock.LeaseInfo, now time.Time) waiting {
	return waiting{
		entry:     h.entry(l, now),
		WaitsFor:  l.WaitsFor[:min(len(l.WaitsFor), maxTextBytes)], // so long can a link be
		LastError: text(l.LastError),
	}
}

func (h *handler) endedRow(e *lock.EndedLease) ended {
	row := ended{
		entry: entry{
			Name: e.Name, Kind: e.Kind, Group: e.Group, State: e.End, Owner: e.Owner, Token: e.Token,
			Since: utc(e.Since), Age: since(e.Since, e.Ended), TraceID: e.TraceID, TraceURL: h.traceLink(e.TraceID),
		},
		Ended: utc(e.Ended), Why: e.Why, Error: text(e.Err),
	}
	var lost *lock.LostError
	if errors.As(e.Err, &lost) {
		row.Detail = text(lost.Unwrap())
	}
	return row
}

// text is what an error says, "" without one.
func text(err error) string {
	if err == nil {
		return ""
	}
	return short(err.Error())
}
