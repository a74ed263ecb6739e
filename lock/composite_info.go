package lock

import (
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/lockdog/lockdog/telemetry"
)

// CompositeInfo is the lock of a Multi or a Quorum, held or waited for. Its LeaseInfo is about the whole lock, which is
// held while at least Need of its members are. LastError is set in three cases: renewals, or attempts, fail for so many
// members that fewer than Need are left; the last attempt of a Multi that waits failed; or the lock ended without a
// release.
type CompositeInfo struct {
	LeaseInfo
	ID      uint64      // unique in this process: the members of a Quorum are leases of several clients
	Need    int         // how many members it needs to be held
	Members []LeaseInfo // one for each name of a Multi, or node of a Quorum; also if it is absent or lost
}

// Held returns the number of members that are held, including those that are canceled or being released.
func (c *CompositeInfo) Held() (n int) {
	for i := range c.Members {
		if c.Members[i].held() {
			n++
		}
	}
	return n
}

func (l *LeaseInfo) held() bool {
	return l.State == StateHeld || l.State == StateCanceled || l.State == StateReleasing
}

// EndedComposite is the lock of a Multi or a Quorum at the time when one of its members ended.
type EndedComposite struct {
	ID      uint64 // as CompositeInfo.ID
	Name    string // of the lock; a Multi's names are joined by commas
	Need    int    // how many members it needs to be held
	Members int    // how many names, or nodes, it has
	End     string // how it had ended: lost, canceled or closed; "" if it lived on, or ended only by its release
}

// compositeIDs is the last CompositeInfo.ID that was given.
var compositeIDs atomic.Uint64

// composites are the composites that one call of Leases has found, by ID.
type composites map[uint64]*CompositeInfo

// ofGrant returns the info of g.composite(), nil if that is nil.
func (all composites) ofGrant(g *grant) *CompositeInfo {
	return all.of(g.composite())
}

func (all composites) of(comp *compositeLease) *CompositeInfo {
	if comp == nil {
		return nil
	}
	if all[comp.id] == nil {
		all[comp.id] = comp.info()
	}
	return all[comp.id]
}

// addWaiter sets info.Composite to the composite that a waiter waits for, if any. The info of a Multi's waiter also
// goes into the composite. The info of a Quorum's waiter is replaced by what the composite knows of the waiter's node.
func (all composites) addWaiter(w *waiter, info *LeaseInfo) {
	if w.quorum != nil {
		c := all[w.quorum.id]
		if c == nil {
			c = w.quorum.info()
			all[c.ID] = c
		}
		*info = c.Members[w.nodeIndex]
		info.Composite = c
		return
	}
	c := all.of(w.params.composite)
	if c == nil {
		return
	}
	for i := range c.Members {
		if m := &c.Members[i]; m.Name == info.Name {
			*m = *info
		}
	}
	c.State, c.WaitsFor, c.TraceID = StateWaiting, info.WaitsFor, info.TraceID
	c.LastError, c.ErrorAt, c.FailingSince = info.LastError, info.ErrorAt, info.FailingSince
	info.Composite = c
}

// composite returns the composite of the oldest unreleased handle, or of the first handle if all were released; nil:
// there is none.
func (g *grant) composite() *compositeLease {
	g.mu.Lock()
	defer g.mu.Unlock()
	for l := range g.handles() {
		return l.composite
	}
	return g.first.composite
}

// info describes the composite and its members. The caller must not hold the mu of a grant.
func (comp *compositeLease) info() *CompositeInfo {
	type key struct {
		c   *Client
		key string
	}
	deadline := comp.deadline()
	comp.mu.Lock()
	grants, absent, lost := make(map[key]*grant, len(comp.members)), slices.Clone(comp.absent), comp.err
	for _, m := range comp.members {
		grants[key{m.g.client(), m.g.lock.key}] = m.g
	}
	c := &CompositeInfo{
		LeaseInfo: comp.locks[0].info(), ID: comp.id, Need: comp.need,
		Members: make([]LeaseInfo, len(comp.locks)),
	}
	c.Name, c.Node, c.Since, c.Deadline = comp.name, "", comp.began, deadline
	if len(comp.members) > 0 {
		c.Owner, c.TraceID = comp.members[0].Owner(), comp.members[0].g.traceID()
	}
	if canceled := (*CanceledError)(nil); errors.As(comp.handle.cause, &canceled) {
		c.Reason = canceled.Reason
	}
	c.State = comp.state()
	comp.mu.Unlock()

	var since []time.Time
	for i := range comp.locks {
		lk, info := &comp.locks[i], &c.Members[i]
		g := grants[key{lk.c, lk.key}]
		if g == nil {
			*info = lk.info()
			info.State = StateAbsent
			if absent != nil {
				absent[i].describe(info)
				info.FailingSince = time.Time{} // it isn't retried
			}
			continue
		}
		*info, _ = g.info()
		if err := g.whyEnded(); err != nil {
			info.State, info.LastError, info.FailingSince, info.NextRenewal = StateAbsent, err, time.Time{}, time.Time{}
			if errors.Is(err, ErrLost) {
				info.State = StateLost
			}
		}
		since = append(since, info.Since)
		c.Token = max(c.Token, info.Token)
		if next := info.NextRenewal; !next.IsZero() && (c.NextRenewal.IsZero() || next.Before(c.NextRenewal)) {
			c.NextRenewal = next
		}
	}
	if len(since) >= comp.need {
		slices.SortFunc(since, time.Time.Compare)
		c.Since = since[comp.need-1]
	}
	c.addFailures(comp.isQuorum)
	if lost != nil {
		c.LastError = lost
	}
	return c
}

// state returns the state of the composite. mu must be held.
func (comp *compositeLease) state() LeaseState {
	switch {
	case comp.released:
		return StateReleasing
	case errors.Is(comp.err, ErrLost):
		return StateLost
	case comp.handle.cause != nil:
		return StateCanceled
	case len(comp.members) < comp.need:
		return StateWaiting
	}
	return StateHeld
}

// addFailures sets LastError, ErrorAt and FailingSince if members fail, and those that don't fail are fewer than the
// composite needs. For a Multi that waits, addWaiter sets them.
func (c *CompositeInfo) addFailures(nodes bool) {
	var failing []*LeaseInfo
	left := 0
	for i := range c.Members {
		switch m := &c.Members[i]; {
		case m.State != StateWaiting && !m.held():
		case m.LastError != nil:
			failing = append(failing, m)
		default:
			left++
		}
	}
	if c.State == StateWaiting && !nodes || left >= c.Need || len(failing) == 0 {
		return
	}
	slices.SortFunc(failing, func(a, b *LeaseInfo) int { return a.FailingSince.Compare(b.FailingSince) })
	c.FailingSince = failing[min(max(left+len(failing)-c.Need, 0), len(failing)-1)].FailingSince
	var errs memberErrors
	for _, m := range failing {
		err := m.LastError
		if nodes {
			err = atNode(m.Node, err)
		}
		errs = append(errs, err)
		if m.ErrorAt.After(c.ErrorAt) {
			c.ErrorAt = m.ErrorAt
		}
	}
	c.LastError = errs
}

// info describes the wait for the lock of a Quorum, as a whole and at each node.
func (w *quorumWaiter) info() *CompositeInfo {
	q := w.queue.q
	q.mu.Lock()
	failures := make([]failureStreak, len(w.queue.nodes))
	for i, e := range w.queue.nodes {
		failures[i] = e.failures
	}
	seen := w.queue.seen
	q.mu.Unlock()
	c := &CompositeInfo{LeaseInfo: w.tracked[0].info(seen), ID: w.id, Need: q.need}
	c.Name, c.Node = w.name, ""
	for i, g := range w.tracked {
		m := g.info(seen)
		failures[i].describe(&m)
		c.Members = append(c.Members, m)
	}
	c.addFailures(true)
	return c
}

// noteAbsent notes why a node has no member.
func (comp *compositeLease) noteAbsent(v vote) {
	if v.Granted {
		return
	}
	err := v.err
	if err == nil {
		held := v.holder()
		held.Name = comp.name
		err = &held
	}
	comp.mu.Lock()
	defer comp.mu.Unlock()
	if comp.absent == nil {
		comp.absent = make([]failureStreak, len(comp.locks))
	}
	comp.absent[v.nodeIndex].note(err)
}

// endedComposite describes the composite that the grant was a member of, nil if none. end is how the grant ended.
func (g *grant) endedComposite(end ending) *EndedComposite {
	comp := g.composite()
	if comp == nil {
		return nil
	}
	c := &EndedComposite{ID: comp.id, Name: comp.name, Need: comp.need, Members: len(comp.locks)}
	comp.mu.Lock()
	defer comp.mu.Unlock()
	if comp.released && end.hold == telemetry.EndLost { // memberEnded doesn't count it after a release
		for _, m := range comp.members {
			if m.g == g {
				comp.countEnded(m, end.err)
			}
		}
	}
	var canceled *CanceledError
	switch {
	case errors.Is(comp.err, ErrLost), comp.err == nil && comp.expected-comp.ended < comp.need: // lost by then
		c.End = telemetry.EndLost.String()
	case errors.As(comp.handle.cause, &canceled) && canceled.Reason != ReasonClosed:
		c.End = telemetry.EndCanceled.String()
	case canceled != nil, comp.err != nil:
		c.End = telemetry.EndClosed.String()
	}
	return c
}
