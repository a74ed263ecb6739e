package lockdebug

import (
	"errors"
	"time"

	"github.com/lockdog/lockdog/lock"
)

// The states of rows, and what ?state= can ask for. A lease that is failing, expiring or degraded is also held.
const (
	stateHeld     = string(lock.StateHeld)
	stateCanceled = string(lock.StateCanceled)
	stateWaiting  = string(lock.StateWaiting)
	stateFailing  = "failing"
	stateExpiring = "expiring"
	stateDegraded = "degraded"
	stateLost     = string(lock.StateLost)
	stateClosed   = "closed"
	stateReleased = "released" // not shown
)

// entry is what all rows have.
type entry struct {
	Name     string    `json:"name"`
	Kind     string    `json:"kind"`
	Group    string    `json:"group"`
	State    string    `json:"state"`
	Node     string    `json:"node,omitempty"`
	Owner    string    `json:"owner"`
	Token    int64     `json:"token,omitzero"`
	Since    time.Time `json:"since"`
	Age      seconds   `json:"age_seconds"`
	TraceID  string    `json:"trace_id,omitempty"`
	TraceURL string    `json:"trace_url,omitempty"`
}

// parts are how many names, or nodes, of a Multi or a Quorum are held.
type parts struct {
	Have    int      `json:"have"`
	Need    int      `json:"need"`
	Members []member `json:"members"`
	Of      int      `json:"-"`
	Nodes   bool     `json:"-"`
}

// trouble is what there is to say of renewals, or of tries to take a lock, that fail.
type trouble struct {
	LastError    string    `json:"last_error,omitempty"`
	LastErrorAt  time.Time `json:"last_error_at,omitzero"`
	FailingSince time.Time `json:"failing_since,omitzero"`
	FailingFor   seconds   `json:"failing_seconds,omitzero"`
}

// timing is what there is to say of a lease.
type timing struct {
	Lease       seconds   `json:"lease_seconds"`
	Remaining   seconds   `json:"remaining_seconds"`
	Deadline    time.Time `json:"deadline"`
	NextRenewal time.Time `json:"next_renewal,omitzero"`

	RenewalIn seconds `json:"-"`
}

// held is a lock that is held.
type held struct {
	entry
	*parts
	timing
	trouble
	Failing  bool   `json:"failing,omitzero"`
	Expiring bool   `json:"expiring,omitzero"`
	Degraded bool   `json:"degraded,omitzero"`
	Reason   string `json:"reason,omitempty"`
	Waiters  int    `json:"waiters"`
}

// waiting is a call of Lock that waits.
type waiting struct {
	entry
	*parts
	trouble
	WaitsFor string `json:"waits_for,omitempty"`
}

// member is a name of a Multi, or a node of a Quorum.
type member struct {
	Name  string `json:"name"`
	Node  string `json:"node,omitempty"`
	State string `json:"state"`
	Owner string `json:"owner,omitempty"`
	Token int64  `json:"token,omitzero"`
	*timing
	trouble
	Failing  bool   `json:"failing,omitzero"`
	WaitsFor string `json:"waits_for,omitempty"`
}

// ended is a lease that was lost or canceled.
type ended struct {
	entry
	Ended   time.Time     `json:"ended"`
	Why     string        `json:"why"`
	Error   string        `json:"error,omitempty"`
	Members []endedMember `json:"members,omitempty"`

	Detail string `json:"-"` // what Error says and the other columns don't
}

// endedMember is a name of a Multi, or a node of a Quorum, whose lease has ended.
type endedMember struct {
	Name  string    `json:"name"`
	Node  string    `json:"node,omitempty"`
	State string    `json:"state"`
	Owner string    `json:"owner"`
	Token int64     `json:"token,omitzero"`
	Ended time.Time `json:"ended"`
	Why   string    `json:"why"`
	Error string    `json:"error,omitempty"`

	Detail string `json:"-"`
}

func failing(l *lease) bool { return l.State == lock.StateHeld && l.LastError != nil }

func expiring(l *lease, now time.Time) bool {
	return l.State == lock.StateHeld && l.Deadline.Sub(now) < l.Lease/expiryShare
}

// over reports whether a lock has lost the permission to work, while it is to be released yet.
func over(l *lease) bool { return l.State == lock.StateCanceled || l.State == lock.StateLost }

// degraded reports whether a lock is held, but not by all of its members, or not all can be renewed.
func degraded(l *lease) bool {
	if l.State != lock.StateHeld {
		return false
	}
	for _, m := range l.members() {
		if m.State != lock.StateHeld || m.LastError != nil {
			return true
		}
	}
	return false
}

// rows makes rows of leases.
type rows struct {
	*redactor
	h       *handler
	waiters map[string]int // by whom they wait for
	now     time.Time
}

func (r *rows) entry(l *lease) entry {
	return entry{
		Name: l.Name, Kind: l.Kind, Group: l.Group, State: string(l.State), Node: l.Node, Owner: l.Owner, Token: l.Token,
		Since: utc(l.Since), Age: since(l.Since, r.now), TraceID: l.TraceID, TraceURL: r.h.traceLink(l.TraceID),
	}
}

func (r *rows) timing(l *lock.LeaseInfo) timing {
	t := timing{Lease: seconds(l.Lease), Remaining: seconds(l.Deadline.Sub(r.now)), Deadline: utc(l.Deadline)}
	if !l.NextRenewal.IsZero() {
		t.NextRenewal, t.RenewalIn = utc(l.NextRenewal), seconds(l.NextRenewal.Sub(r.now))
	}
	return t
}

func (r *rows) trouble(l *lock.LeaseInfo) trouble {
	t := trouble{LastError: r.text(l.LastError)}
	var lost *lock.LostError
	if l.State == lock.StateLost && errors.As(l.LastError, &lost) { // which lock is said already
		t.LastError = string(lost.Cause)
		if detail := r.text(lost.Unwrap()); detail != "" {
			t.LastError += ": " + detail
		}
	}
	if !l.ErrorAt.IsZero() {
		t.LastErrorAt = utc(l.ErrorAt)
	}
	if !l.FailingSince.IsZero() {
		t.FailingSince, t.FailingFor = utc(l.FailingSince), since(l.FailingSince, r.now)
	}
	return t
}

func (r *rows) parts(l *lease) *parts {
	if l.composite == nil {
		return nil
	}
	p := &parts{Have: l.composite.Held(), Need: l.composite.Need, Of: len(l.composite.Members), Nodes: l.Kind == kindQuorum}
	for i := range l.composite.Members {
		of := &l.composite.Members[i]
		m := member{
			Name: of.Name, Node: of.Node, State: string(of.State), Owner: of.Owner, Token: of.Token, trouble: r.trouble(of),
			Failing: of.State == lock.StateHeld && of.LastError != nil, WaitsFor: link(of.WaitsFor),
		}
		if !of.Deadline.IsZero() {
			t := r.timing(of)
			m.timing = &t
		}
		p.Members = append(p.Members, m)
	}
	return p
}

func (r *rows) held(l *lease) held {
	row := held{
		entry: r.entry(l), parts: r.parts(l), timing: r.timing(&l.LeaseInfo), trouble: r.trouble(&l.LeaseInfo),
		Failing: failing(l), Expiring: expiring(l, r.now), Degraded: degraded(l), Reason: string(l.Reason),
	}
	for _, owner := range l.holders() {
		row.Waiters += r.waiters[owner]
	}
	return row
}

func (r *rows) waiting(l *lease) waiting {
	return waiting{entry: r.entry(l), parts: r.parts(l), trouble: r.trouble(&l.LeaseInfo), WaitsFor: link(l.WaitsFor)}
}

// link cuts an owner to what a link can have.
func link(owner string) string { return owner[:min(len(owner), maxTextBytes)] }

func (r *rows) ended(e *endedLease) ended {
	row := ended{
		entry: entry{
			Name: e.Name, Kind: e.Kind, Group: e.Group, State: e.state(), Node: e.Node, Owner: e.Owner, Token: e.Token,
			Since: utc(e.Since), Age: since(e.Since, e.Ended), TraceID: e.TraceID, TraceURL: r.h.traceLink(e.TraceID),
		},
		Ended: utc(e.Ended), Why: e.Why, Error: r.text(e.Err), Detail: r.detail(e.Err),
	}
	for i := range e.members {
		m := &e.members[i]
		row.Members = append(row.Members, endedMember{
			Name: m.Name, Node: m.Node, State: m.End, Owner: m.Owner, Token: m.Token,
			Ended: utc(m.Ended), Why: m.Why, Error: r.text(m.Err), Detail: r.detail(m.Err),
		})
	}
	return row
}

// detail is what the error of a loss says besides its cause.
func (r *rows) detail(err error) string {
	var lost *lock.LostError
	if !errors.As(err, &lost) {
		return ""
	}
	return r.text(lost.Unwrap())
}
