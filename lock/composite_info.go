package lock

import (
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/lockdog/lockdog/telemetry"
)

// CompositeInfo is the lock of a Multi or a Quorum, held or waited for. Its members are leases of their own: of a Multi one for each
// name, of a Quorum one for each node. What it says as a LeaseInfo is said of the whole: it is held while at least Need of its members are, and
// failing, with a LastError, when so many renewals, or tries, fail that the rest are fewer than Need.
type CompositeInfo struct {
	LeaseInfo
	ID      uint64      // which it is, in this process: the members of a Quorum's are leases of several clients
	Need    int         // how many members it can't be without
	Members []LeaseInfo // of a Multi by name, of a Quorum by node; those that are absent or lost, too
}

// Held is how many of its members are held, also by a lease that is canceled or on its way to be released.
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

// EndedComposite is the lock of a Multi or a Quorum, when one of its members ended.
type EndedComposite struct {
	ID      uint64 // as CompositeInfo.ID
	Name    string // of the lock; a Multi's names are joined by commas
	Need    int    // how many members it can't be without
	Members int    // how many names, or nodes, it is of
	End     string // how it had ended by then: lost, canceled or closed; "" when it lived on without that member
}

// compositeIDs numbers them.
var compositeIDs atomic.Uint64

// composites are those of the leases that one call of Leases has seen, by ID.
type composites map[uint64]*CompositeInfo

// ofGrant is the one of which a grant is a member, nil for others.
func (all composites) ofGrant(g *grant) *CompositeInfo {
	g.mu.Lock()
	b := g.bundle()
	g.mu.Unlock()
	return all.of(b)
}

func (all composites) of(b *bundle) *CompositeInfo {
	if b == nil {
		return nil
	}
	if all[b.id] == nil {
		all[b.id] = b.info()
	}
	return all[b.id]
}

// addWaiter adds a waiter, of which info is said, to the one that it waits for.
func (all composites) addWaiter(w *waiter, info *LeaseInfo) {
	if w.quorum != nil {
		c := all[w.quorum.id]
		if c == nil {
			c = w.quorum.info()
			all[c.ID] = c
		}
		*info = c.Members[w.node]
		info.Composite = c
		return
	}
	c := all.of(w.terms.whole)
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

// bundle is the one of which the grant's first handle, of those that there are yet, is a member; nil if it is none. It is called with mu held.
func (g *grant) bundle() *bundle {
	for l := range g.leases() {
		return l.bundle
	}
	return g.first.bundle
}

// info is what there is to say of the bundle and its members. It is called without the mu of any grant.
func (b *bundle) info() *CompositeInfo {
	type key struct {
		c   *Client
		key string
	}
	deadline := b.deadline()
	b.mu.Lock()
	grants, absent, lost := make(map[key]*grant, len(b.members)), slices.Clone(b.absent), b.err
	for _, m := range b.members {
		grants[key{m.g.lock.c, m.g.lock.key}] = m.g
	}
	c := &CompositeInfo{LeaseInfo: b.locks[0].info(), ID: b.id, Need: b.need, Members: make([]LeaseInfo, len(b.locks))}
	c.Name, c.Node, c.Since, c.Deadline = b.name, "", b.began, deadline
	if len(b.members) > 0 {
		c.Owner, c.TraceID = b.members[0].Owner(), b.members[0].g.traceID()
	}
	var canceled *CanceledError
	switch {
	case b.whole.released:
		c.State = StateReleasing
	case errors.Is(b.err, ErrLost):
		c.State = StateLost
	case b.whole.cause != nil:
		c.State = StateCanceled
		if errors.As(b.whole.cause, &canceled) {
			c.Reason = canceled.Reason
		}
	case len(b.members) < b.need:
		c.State = StateWaiting
	default:
		c.State = StateHeld
	}
	b.mu.Unlock()

	var since []time.Time
	for i := range b.locks {
		lk, info := &b.locks[i], &c.Members[i]
		g := grants[key{lk.c, lk.key}]
		if g == nil {
			*info = lk.info()
			info.State = StateAbsent
			if absent != nil {
				absent[i].tell(info)
				info.FailingSince = time.Time{} // it isn't tried again
			}
			continue
		}
		*info, _ = g.info()
		if err := g.ended(); err != nil {
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
	if len(since) >= b.need {
		slices.SortFunc(since, time.Time.Compare)
		c.Since = since[b.need-1]
	}
	c.sum(b.nodes)
	if lost != nil {
		c.LastError = lost
	}
	return c
}

// sum has the whole fail when the members that don't fail are fewer than it needs.
func (c *CompositeInfo) sum(nodes bool) {
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
	var errs nodeErrors
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

// info is what there is to say of a waiter and its nodes.
func (w *quorumWaiter) info() *CompositeInfo {
	q := w.queue.q
	q.mu.Lock()
	failing := make([]trouble, len(w.queue.nodes))
	for i, e := range w.queue.nodes {
		failing[i] = e.failing
	}
	seen := w.queue.seen
	q.mu.Unlock()
	c := &CompositeInfo{LeaseInfo: w.tracked[0].info(seen), ID: w.id, Need: q.need}
	c.Name, c.Node = w.name, ""
	for i, g := range w.tracked {
		m := g.info(seen)
		failing[i].tell(&m)
		c.Members = append(c.Members, m)
	}
	c.sum(true)
	return c
}

// missed notes why there is no member at a node.
func (b *bundle) missed(v vote) {
	if v.Granted {
		return
	}
	err := v.err
	if err == nil {
		err = v.held(b.name)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.absent == nil {
		b.absent = make([]trouble, len(b.locks))
	}
	b.absent[v.node].note(err)
}

// endedComposite says how it is with the composite of which the grant was a member, nil if it was none.
func (g *grant) endedComposite(end telemetry.HoldEnd) *EndedComposite {
	g.mu.Lock()
	b := g.bundle()
	g.mu.Unlock()
	if b == nil {
		return nil
	}
	c := &EndedComposite{ID: b.id, Name: b.name, Need: b.need, Members: len(b.locks)}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.whole.released && b.err == nil && end == telemetry.EndLost { // the bundle isn't told any more
		b.spilled++
	}
	var canceled *CanceledError
	switch {
	case errors.Is(b.err, ErrLost), b.size-b.gone-b.spilled < b.need && b.spilled > 0:
		c.End = telemetry.EndLost.String()
	case errors.As(b.whole.cause, &canceled) && canceled.Reason != ReasonClosed:
		c.End = telemetry.EndCanceled.String()
	case canceled != nil, b.err != nil:
		c.End = telemetry.EndClosed.String()
	}
	return c
}
