package lock

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// compositeLease is one lease made of several: of all locks of a Multi, or of one lock at several nodes of a Quorum.
// Its members are ordinary leases of different grants, which are renewed separately. The composite ends when it is
// released, or when fewer of them live than it needs (need).
//
// Members report to the composite with the mu of their grant held. So mu is locked after a grant's mu, never before.
type compositeLease struct {
	id       uint64
	began    time.Time
	locks    []lock // each has at most one member
	name     string
	need     int
	isQuorum bool // the members are one lock at several nodes, not several locks
	handle   Lease

	mu            sync.Mutex
	expected      int // the number of members, also those about to be added; a Quorum's pending nodes don't count
	members       []*member
	contextsEnded int            // members whose context has ended: those that are canceled, and all that have ended
	ended         int            // members that have ended
	lost          memberErrors   // the losses of members, each with its node
	lastLost      *LostError     // the last of these losses, without the node
	lastCanceled  *CanceledError // the last cancellation of a member
	released      bool
	err           error           // how the composite ended; nil: it lives, or was released without a loss
	record        *record         // nil: it isn't acquired yet, or its members report for themselves
	warned        bool            // the warning of WithHoldWarning was logged
	absent        []failureStreak // of a Quorum, by node: why the node has no member
}

// member is a lease of a compositeLease.
type member struct {
	grantHandle
	ended bool // guarded by the mu of the composite
}

// newCompositeLease returns a composite for size members. Each is taken with ctx, by one of the locks.
func newCompositeLease(ctx context.Context, locks []lock, name string, need, size int) *compositeLease {
	comp := &compositeLease{
		id: compositeIDs.Add(1), began: time.Now(), locks: locks, name: name, need: need, expected: size,
		isQuorum: locks[0].kind.ofOneNode,
	}
	comp.handle.target, comp.handle.parent = comp, locks[0].parentOf(ctx)
	return comp
}

// add makes a handle of g a member. It reports false if the composite has been canceled or has ended.
func (comp *compositeLease) add(g *grant, l *Lease) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	comp.mu.Lock()
	if comp.handle.cause != nil {
		comp.mu.Unlock()
		return false
	}
	comp.members = append(comp.members, &member{grantHandle: grantHandle{l, g}})
	comp.expected = max(comp.expected, len(comp.members))
	comp.mu.Unlock()
	l.composite = comp
	if l.cause != nil { // its context ended before it was a member
		comp.memberContextEnded(l, l.cause)
	}
	if err := g.endErr(); err != nil {
		comp.memberEnded(l, err)
	}
	return true
}

// join makes a new handle of a live grant a member. It reports false if the grant or the composite is no longer live.
func (comp *compositeLease) join(ctx context.Context, g *grant, lk *lock) bool {
	l := g.join(ctx, lk)
	if l == nil {
		return false
	}
	if !comp.add(g, l) {
		releaseUnused(ctx, l)
		return false
	}
	return true
}

// dropPending notes that one of the expected members won't be added.
func (comp *compositeLease) dropPending() {
	comp.mu.Lock()
	defer comp.mu.Unlock()
	comp.expected--
	comp.evaluate() // others may have ended in the meantime
}

// memberOf returns the member whose Lease is l. mu must be held.
func (comp *compositeLease) memberOf(l *Lease) *member {
	return comp.members[slices.IndexFunc(comp.members, func(m *member) bool { return m.Lease == l })]
}

// memberContextEnded notes that the context of a member has ended. Lease.endContext and add call it, with the mutex of
// the member's grant held.
func (comp *compositeLease) memberContextEnded(l *Lease, cause error) {
	comp.mu.Lock()
	defer comp.mu.Unlock()
	if comp.released {
		return
	}
	comp.contextsEnded++
	var canceled *CanceledError
	if errors.As(cause, &canceled) {
		comp.lastCanceled = canceled
	} else {
		comp.countEnded(comp.memberOf(l), cause)
	}
	comp.evaluate()
}

// memberEnded notes that the grant of a member has ended (grant.end), or was lost and is about to end (grant.lose).
// Both call it with the grant's mutex held.
func (comp *compositeLease) memberEnded(l *Lease, err error) {
	comp.mu.Lock()
	defer comp.mu.Unlock()
	if comp.released {
		return
	}
	comp.countEnded(comp.memberOf(l), err)
	comp.evaluate()
}

// countEnded counts a member that has ended, once. mu must be held.
func (comp *compositeLease) countEnded(m *member, err error) {
	if m.ended {
		return
	}
	m.ended = true
	comp.ended++
	var lost *LostError
	if errors.As(err, &lost) {
		comp.lost, comp.lastLost = append(comp.lost, atNode(m.g.node(), lost)), lost
	}
}

// evaluate ends or cancels the composite if too few members are left. mu must be held.
func (comp *compositeLease) evaluate() {
	switch {
	case comp.err == nil && comp.expected-comp.ended < comp.need:
		if comp.lastLost != nil {
			comp.err = comp.lostError()
		} else {
			comp.err = wrapError(comp.name, "hold", ErrClosed)
		}
		canceled := comp.canceledError()
		comp.handle.endContext(comp.err)
		comp.handle.closeEnded()
		r, err := comp.record, comp.err
		comp.locks[0].c.report(func() {
			comp.cancelMembers(ReasonContext, err)
			if r != nil {
				r.ended(comp, err, canceled)
			}
		})
	case comp.handle.cause == nil && comp.expected-comp.contextsEnded < comp.need:
		c := &CanceledError{comp.name, comp.lastCanceled.Reason, comp.lastCanceled.err}
		comp.handle.endContext(c)
		r := comp.record
		comp.locks[0].c.report(func() {
			if c.Reason != ReasonClosed { // a closing client keeps renewing while its holders wind down
				comp.cancelMembers(c.Reason, c.err)
			}
			if r != nil {
				r.canceled(comp, c)
			}
		})
	}
}

// canceledError returns the cancellation of the composite. It is nil if there was none: the context is live, or ended
// together with the lease. mu must be held.
func (comp *compositeLease) canceledError() *CanceledError {
	c, _ := comp.handle.cause.(*CanceledError) //nolint:errorlint // the cause itself, not what it wraps
	return c
}

// setRecord makes the composite report its cancellation and its end to r. What has already happened is reported now.
func (comp *compositeLease) setRecord(r *record) {
	comp.mu.Lock()
	comp.record = r
	canceled, err := comp.canceledError(), comp.err
	comp.mu.Unlock()
	if canceled != nil {
		r.canceled(comp, canceled)
	}
	if err != nil {
		r.ended(comp, err, canceled)
	}
}

// lostError returns the loss of the composite: it wraps the last loss of a Multi's member, or all losses of a Quorum's.
// mu must be held.
func (comp *compositeLease) lostError() *LostError {
	var why error = comp.lastLost
	if comp.isQuorum {
		why = comp.lost
	}
	return &LostError{Name: comp.name, Cause: comp.lastLost.Cause, err: why}
}

// cancelMembers cancels the members, and stops the renewal of grants that have no other handle. Otherwise the members
// would be renewed forever if the holder never releases the lease.
func (comp *compositeLease) cancelMembers(reason Reason, err error) {
	for _, m := range comp.all() {
		m.g.cancelHandle(m.Lease, &CanceledError{m.Name(), reason, err})
		if m.only() { // cancelHandle doesn't stop it if a closing client has canceled the grant before
			m.g.stopRenewal()
		}
	}
}

func (comp *compositeLease) all() []*member {
	comp.mu.Lock()
	defer comp.mu.Unlock()
	return comp.members[:len(comp.members):len(comp.members)]
}

func (comp *compositeLease) lockName() string { return comp.name }

func (comp *compositeLease) owner() string { return comp.all()[0].Owner() }

func (comp *compositeLease) token() (token int64) {
	for _, m := range comp.all() {
		token = max(token, m.Token())
	}
	return token
}

func (comp *compositeLease) tokens() map[string]int64 {
	tokens := make(map[string]int64)
	for _, m := range comp.all() {
		tokens[m.Name()] = max(tokens[m.Name()], m.Token())
	}
	return tokens
}

func (comp *compositeLease) heartbeat() {
	for _, m := range comp.all() {
		m.Heartbeat()
	}
}

// deadline returns the time until which at least need members are trusted; zero: the composite has fewer.
func (comp *compositeLease) deadline() time.Time { return comp.needed((*member).Deadline) }

// needed returns the latest time t for which at(m) is t or later for at least comp.need members m; zero: the composite
// has fewer members. Members that have ended count only if the others are fewer than need.
func (comp *compositeLease) needed(at func(*member) time.Time) time.Time {
	comp.mu.Lock()
	defer comp.mu.Unlock()
	var live, all []time.Time
	for _, m := range comp.members {
		d := at(m)
		all = append(all, d)
		if !m.ended {
			live = append(live, d)
		}
	}
	if len(live) < comp.need { // the composite has ended, or isn't acquired yet
		live = all
	}
	if len(live) < comp.need {
		return time.Time{}
	}
	slices.SortFunc(live, func(a, b time.Time) int { return b.Compare(a) })
	return live[comp.need-1]
}

func (comp *compositeLease) find(_ *Lease, c *Client, key string) grantHandle {
	for _, m := range comp.all() {
		if h := m.g.find(m.Lease, c, key); h.g != nil {
			return h
		}
	}
	return grantHandle{}
}

func (comp *compositeLease) grants(_ *Lease, f func(grantHandle)) {
	for _, m := range comp.all() {
		m.g.grants(m.Lease, f)
	}
}

func (comp *compositeLease) loseIfExpired() {
	for _, m := range comp.all() {
		m.g.loseIfExpired()
	}
}

func (comp *compositeLease) parentEnded(*Lease) {
	for _, m := range comp.all() {
		m.g.parentEnded(m.Lease)
	}
}

func (comp *compositeLease) handleMu() *sync.Mutex { return &comp.mu }

func (comp *compositeLease) handleErr(*Lease) error {
	if comp.err == nil && comp.released {
		return ErrReleased
	}
	return comp.err
}

func (comp *compositeLease) handleEnded(*Lease) bool { return comp.released || comp.err != nil }

// warn logs the warning of WithHoldWarning, once, when all live members have been held for that long. It reports false
// if the composite has no record. Then the member logs the warning itself: for example, a name that a Multi holds while
// it waits for other names.
func (comp *compositeLease) warn(held time.Duration) bool {
	comp.mu.Lock()
	r := comp.record
	due := r != nil && !comp.warned && !slices.ContainsFunc(comp.members, func(m *member) bool {
		return !m.ended && time.Since(m.g.hold.Since()) < m.g.lock.cfg.holdWarning
	})
	comp.warned = comp.warned || due
	comp.mu.Unlock()
	if due {
		r.hold.Warn(held)
	}
	return r != nil
}
