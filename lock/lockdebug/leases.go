package lockdebug

import (
	"slices"

	"github.com/lockdog/lockdog/lock"
)

// The kinds whose locks have members.
const (
	kindMulti  = "multi"
	kindQuorum = "quorum"
)

// lease is what has one row: a lock that is held or waited for; of a Multi or a Quorum the whole.
type lease struct {
	lock.LeaseInfo
	composite *lock.CompositeInfo // nil for most
}

// leases are those of all clients. A composite is taken once, as the client has it that is asked first.
func (h *handler) leases(r *redactor) []*lease {
	var out []*lease
	seen := map[uint64]bool{}
	for _, c := range h.clients {
		for _, info := range c.Leases() {
			of := info.Composite
			if of != nil && seen[of.ID] {
				continue
			}
			l := &lease{info, of}
			if of != nil {
				seen[of.ID] = true
				for i := range of.Members {
					r.lease(&of.Members[i], "")
				}
				l.LeaseInfo = of.LeaseInfo
			}
			r.lease(&l.LeaseInfo, l.Kind)
			out = append(out, l)
		}
	}
	return out
}

// members are those of a composite.
func (l *lease) members() []lock.LeaseInfo {
	if l.composite == nil {
		return nil
	}
	return l.composite.Members
}

// fields are what ?q= looks at, besides the group.
func (l *lease) fields() []string {
	out := []string{l.Name, l.Kind, l.Node, l.Owner, l.TraceID, l.WaitsFor}
	for _, m := range l.members() {
		out = append(out, m.Name, m.Node, m.Owner, m.TraceID)
	}
	return out
}

// holders are the owners by which others may know it.
func (l *lease) holders() []string {
	if l.composite == nil {
		return []string{l.Owner}
	}
	var out []string
	for _, m := range l.members() {
		if m.Owner != "" && m.State != lock.StateWaiting {
			out = append(out, m.Owner)
		}
	}
	return out
}

// endedLease is what has one row among those that ended: a lease, or those members of one Multi or Quorum that did.
type endedLease struct {
	lock.EndedLease
	members  []lock.EndedLease // the last first
	degraded bool              // the lock was held on without them
}

// whole is the end of a composite, as its members tell of it.
func whole(members []lock.EndedLease) *endedLease {
	slices.SortFunc(members, func(a, b lock.EndedLease) int { return b.Ended.Compare(a.Ended) })
	e := &endedLease{EndedLease: members[0], members: members, degraded: true}
	for _, end := range []string{stateLost, stateCanceled, stateClosed} {
		of := slices.IndexFunc(members, func(m lock.EndedLease) bool { return m.Composite.End == end && m.End == end })
		if of >= 0 {
			e.EndedLease, e.degraded = members[of], false
			break
		}
	}
	for _, m := range members {
		if m.Since.Before(e.Since) {
			e.Since = m.Since
		}
	}
	e.Name, e.Node = e.Composite.Name, ""
	return e
}

func (e *endedLease) state() string {
	if e.degraded {
		return stateDegraded
	}
	return e.End
}

func (e *endedLease) fields() []string {
	out := []string{e.Name, e.Kind, e.Node, e.Owner, e.TraceID}
	for i := range e.members {
		out = append(out, e.members[i].Name, e.members[i].Node, e.members[i].Owner)
	}
	return out
}
