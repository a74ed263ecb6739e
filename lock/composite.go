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

	mu           sync.Mutex
	expected     int // the number of members, including those that are still to be added
	members      []*member
	canceled     int            // members whose context has ended: those that are canceled, and all that have ended
	ended        int            // members that have ended
	lost         memberErrors   // the losses of members, each with its node
	lastLost     *LostError     // the last of these losses, without the node
	lastCanceled *CanceledError // the last cancellation of a member
	released     bool
	err          error           // how the composite ended; nil: it lives, or was released without a loss
	record       *record         // nil: it isn't acquired yet, or its members report for themselves
	warned       bool            // the warning of WithHoldWarning was logged
	absent       []failureStreak // of a Quorum, by node: why the node has no member
}

// member is a lease of a compositeLease.
type member struct {
	grantHandle
	ended bool // guarded by the mu of the composite
}

// newCompositeLease returns a composite for size members. Each is taken with ctx, by one of the locks.
func newCompositeLease(ctx context.Context, locks []lock, name string, need, size int) *compositeLease {
	cl := &compositeLease{
		id: compositeIDs.Add(1), began: time.Now(), locks: locks, name: name, need: need, expected: size,
		isQuorum: locks[0].kind.ofOneNode,
	}
	cl.handle.target, cl.handle.parent = cl, locks[0].parentOf(ctx)
	return cl
}

// add makes a handle of g a member. It reports false if the composite has been canceled or has ended.
func (cl *compositeLease) add(g *grant, l *Lease) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	cl.mu.Lock()
	if cl.handle.cause != nil {
		cl.mu.Unlock()
		return false
	}
	cl.members = append(cl.members, &member{grantHandle: grantHandle{l, g}})
	cl.expected = max(cl.expected, len(cl.members))
	cl.mu.Unlock()
	l.composite = cl
	if l.cause != nil { // its context ended before it was a member
		cl.memberCanceled(l, l.cause)
	}
	if err := g.endErr(); err != nil {
		cl.memberEnded(l, err)
	}
	return true
}

// join makes a new handle of a live grant a member. It reports false if the grant or the composite is no longer live.
func (cl *compositeLease) join(ctx context.Context, g *grant, lk *lock) bool {
	l := g.join(ctx, lk)
	if l == nil {
		return false
	}
	if !cl.add(g, l) {
		releaseUnused(ctx, l)
		return false
	}
	return true
}

// dropPending notes that one of the expected members won't be added.
func (cl *compositeLease) dropPending() {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	cl.expected--
	cl.evaluate() // others may have ended in the meantime
}

// memberOf returns the member whose Lease is l. mu must be held.
func (cl *compositeLease) memberOf(l *Lease) *member {
	return cl.members[slices.IndexFunc(cl.members, func(m *member) bool { return m.Lease == l })]
}

// memberCanceled notes that the context of a member has ended: Lease.endContext calls it, with the mutex of the
// member's grant held.
func (cl *compositeLease) memberCanceled(l *Lease, cause error) {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	if cl.released {
		return
	}
	cl.canceled++
	var canceled *CanceledError
	if errors.As(cause, &canceled) {
		cl.lastCanceled = canceled
	} else {
		cl.countEnded(cl.memberOf(l), cause)
	}
	cl.evaluate()
}

// memberEnded notes that the grant of a member has ended (grant.end), or was lost and is about to end (grant.lose).
// Both call it with the grant's mutex held.
func (cl *compositeLease) memberEnded(l *Lease, err error) {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	if cl.released {
		return
	}
	cl.countEnded(cl.memberOf(l), err)
	cl.evaluate()
}

// countEnded counts a member that has ended, once. mu must be held.
func (cl *compositeLease) countEnded(m *member, err error) {
	if m.ended {
		return
	}
	m.ended = true
	cl.ended++
	var lost *LostError
	if errors.As(err, &lost) {
		cl.lost, cl.lastLost = append(cl.lost, atNode(m.g.node(), lost)), lost
	}
}

// evaluate ends or cancels the composite if too few members are left. mu must be held.
func (cl *compositeLease) evaluate() {
	switch {
	case cl.err == nil && cl.expected-cl.ended < cl.need:
		if cl.lastLost != nil {
			cl.err = cl.lostError()
		} else {
			cl.err = wrapError(cl.name, "hold", ErrClosed)
		}
		canceled := cl.canceledError()
		cl.handle.endContext(cl.err)
		cl.handle.closeEnded()
		r, err := cl.record, cl.err
		cl.locks[0].c.report(func() {
			cl.cancelMembers(ReasonContext, err)
			if r != nil {
				r.ended(cl, err, canceled)
			}
		})
	case cl.handle.cause == nil && cl.expected-cl.canceled < cl.need:
		c := &CanceledError{cl.name, cl.lastCanceled.Reason, cl.lastCanceled.err}
		cl.handle.endContext(c)
		r := cl.record
		cl.locks[0].c.report(func() {
			if c.Reason != ReasonClosed { // a closing client keeps renewing while its holders wind down
				cl.cancelMembers(c.Reason, c.err)
			}
			if r != nil {
				r.canceled(cl, c)
			}
		})
	}
}

// canceledError returns the cancellation of the composite. It is nil if there was none: the context is live, or ended
// together with the lease. mu must be held.
func (cl *compositeLease) canceledError() *CanceledError {
	c, _ := cl.handle.cause.(*CanceledError) //nolint:errorlint // the cause itself, not what it wraps
	return c
}

// setRecord makes the composite report its cancellation and its end to r. What has already happened is reported now.
func (cl *compositeLease) setRecord(r *record) {
	cl.mu.Lock()
	cl.record = r
	canceled, err := cl.canceledError(), cl.err
	cl.mu.Unlock()
	if canceled != nil {
		r.canceled(cl, canceled)
	}
	if err != nil {
		r.ended(cl, err, canceled)
	}
}

// lostError returns the loss of the composite: it wraps the last loss of a Multi's member, or all losses of a Quorum's.
// mu must be held.
func (cl *compositeLease) lostError() *LostError {
	var why error = cl.lastLost
	if cl.isQuorum {
		why = cl.lost
	}
	return &LostError{Name: cl.name, Cause: cl.lastLost.Cause, err: why}
}

// cancelMembers cancels the members, and stops the renewal of grants that have no other handle. Otherwise the members
// would be renewed forever if the holder never releases the lease.
func (cl *compositeLease) cancelMembers(reason Reason, err error) {
	for _, m := range cl.all() {
		m.g.cancelHandle(m.Lease, &CanceledError{m.Name(), reason, err})
		if m.only() { // cancelHandle doesn't stop it if a closing client has canceled the grant before
			m.g.stopRenewal()
		}
	}
}

func (cl *compositeLease) all() []*member {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	return cl.members[:len(cl.members):len(cl.members)]
}

func (cl *compositeLease) lockName() string { return cl.name }

func (cl *compositeLease) owner() string { return cl.all()[0].Owner() }

func (cl *compositeLease) token() (token int64) {
	for _, m := range cl.all() {
		token = max(token, m.Token())
	}
	return token
}

func (cl *compositeLease) tokens() map[string]int64 {
	tokens := make(map[string]int64)
	for _, m := range cl.all() {
		tokens[m.Name()] = max(tokens[m.Name()], m.Token())
	}
	return tokens
}

func (cl *compositeLease) heartbeat() {
	for _, m := range cl.all() {
		m.Heartbeat()
	}
}

// deadline returns the time until which at least need members are trusted; zero: the composite has fewer.
func (cl *compositeLease) deadline() time.Time { return cl.needed((*member).Deadline) }

// needed returns the latest time t for which at(m) is t or later for at least cl.need members m; zero: the composite
// has fewer members. Members that have ended count only if the others are fewer than need.
func (cl *compositeLease) needed(at func(*member) time.Time) time.Time {
	cl.mu.Lock()
	defer cl.mu.Unlock()
	var live, all []time.Time
	for _, m := range cl.members {
		d := at(m)
		all = append(all, d)
		if !m.ended {
			live = append(live, d)
		}
	}
	if len(live) < cl.need { // the composite has ended, or isn't acquired yet
		live = all
	}
	if len(live) < cl.need {
		return time.Time{}
	}
	slices.SortFunc(live, func(a, b time.Time) int { return b.Compare(a) })
	return live[cl.need-1]
}

func (cl *compositeLease) find(_ *Lease, c *Client, key string) grantHandle {
	for _, m := range cl.all() {
		if h := m.g.find(m.Lease, c, key); h.g != nil {
			return h
		}
	}
	return grantHandle{}
}

func (cl *compositeLease) grants(_ *Lease, f func(grantHandle)) {
	for _, m := range cl.all() {
		m.g.grants(m.Lease, f)
	}
}

func (cl *compositeLease) loseIfExpired() {
	for _, m := range cl.all() {
		m.g.loseIfExpired()
	}
}

func (cl *compositeLease) parentEnded(*Lease) {
	for _, m := range cl.all() {
		m.g.parentEnded(m.Lease)
	}
}

func (cl *compositeLease) handleMu() *sync.Mutex { return &cl.mu }

func (cl *compositeLease) handleErr(*Lease) error {
	if cl.err == nil && cl.released {
		return ErrReleased
	}
	return cl.err
}

func (cl *compositeLease) handleEnded(*Lease) bool { return cl.released || cl.err != nil }

// warn logs the warning of WithHoldWarning, once, when all live members have been held for that long. It reports false
// if the composite has no record. Then the member logs the warning itself: for example, a name that a Multi holds while
// it waits for other names.
func (cl *compositeLease) warn(held time.Duration) bool {
	cl.mu.Lock()
	r := cl.record
	due := r != nil && !cl.warned && !slices.ContainsFunc(cl.members, func(m *member) bool {
		return !m.ended && time.Since(m.g.hold.Since()) < m.g.lock.cfg.holdWarning
	})
	cl.warned = cl.warned || due
	cl.mu.Unlock()
	if due {
		r.hold.Warn(held)
	}
	return r != nil
}
