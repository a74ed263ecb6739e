package lock

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// bundle makes one lease of several: of all locks of a Multi, or of one lock at most nodes of a Quorum. Its members are
// leases as others are, each with a grant and renewals of its own; the bundle adds up what becomes of them, and its record tells
// telemetry. It lives as long as need of them do.
//
// Members tell it of their ends with the mu of their grants held. So its own mu is taken after those, and never before.
type bundle struct {
	id    uint64
	began time.Time
	locks []lock // at most one member is of each
	name  string
	need  int
	nodes bool // the members are one lock at several nodes, not several locks
	whole Lease

	mu       sync.Mutex
	size     int // members, those yet to come included
	members  []*member
	off      int            // of the members: how many have lost the permission to work
	gone     int            // ... and how many have ended
	lost     []*LostError   // how they did
	at       []string       // ... and where
	canceled *CanceledError // how the last that lives yet lost its permission
	err      error          // how the bundle ended, nil while it lives or when it was released
	record   *record        // nil until it is acquired
	warned   bool           // that it is held for long
	absent   []trouble      // of a Quorum, by node: why it has no member there
	spilled  int            // how many were found lost when the bundle was released
}

// member is a lease of a bundle. What it has besides is guarded by the bundle's mu.
type member struct {
	*Lease
	off, gone bool
}

// newBundle returns a bundle for size members, taken with ctx by these locks, or some of them.
func newBundle(ctx context.Context, locks []lock, name string, need, size int) *bundle {
	b := &bundle{id: compositeIDs.Add(1), began: time.Now(), locks: locks, name: name, need: need, size: size}
	b.whole.bundle, b.whole.ctx = b, locks[0].follows(ctx)
	return b
}

// add makes a lease a member. It reports false when that comes too late, for the bundle has ended, or lost its permission.
func (b *bundle) add(l *Lease) bool {
	l.g.mu.Lock()
	defer l.g.mu.Unlock()
	b.mu.Lock()
	if b.whole.cause != nil {
		b.mu.Unlock()
		return false
	}
	b.members = append(b.members, &member{Lease: l})
	b.size = max(b.size, len(b.members))
	b.mu.Unlock()
	l.bundle = b
	if l.cause != nil { // already
		b.stopped(l, l.cause)
	}
	if err := l.fate(); err != nil {
		b.ended(l, err)
	}
	return true
}

// without says that a member that was to come won't.
func (b *bundle) without() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.size--
}

// find returns a member. It is called with mu held.
func (b *bundle) find(l *Lease) *member {
	return b.members[slices.IndexFunc(b.members, func(m *member) bool { return m.Lease == l })]
}

// stopped is told when a member has lost the permission to work.
func (b *bundle) stopped(l *Lease, cause error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.whole.released {
		return
	}
	m := b.find(l)
	m.off = true
	b.off++
	var canceled *CanceledError
	if errors.As(cause, &canceled) {
		b.canceled = canceled
	} else {
		b.note(m, cause)
	}
	b.look()
}

// ended is told when a member has ended.
func (b *bundle) ended(l *Lease, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.whole.released {
		return
	}
	if m := b.find(l); !m.gone {
		b.note(m, err)
		b.look()
	}
}

// note counts a member that has ended. It is called with mu held.
func (b *bundle) note(m *member, err error) {
	m.gone = true
	b.gone++
	var lost *LostError
	if errors.As(err, &lost) {
		b.lost, b.at = append(b.lost, lost), append(b.at, m.g.node())
	}
}

// look ends the bundle, or its permission to work, when too few members are left. It is called with mu held.
func (b *bundle) look() {
	switch {
	case b.err == nil && b.size-b.gone < b.need:
		b.err = wrapError(b.name, "hold", ErrClosed) // unless it was lost
		if len(b.lost) > 0 {
			b.err = b.loss()
		}
		canceled := b.canceledBy()
		b.whole.stop(b.err)
		b.whole.end()
		go func(r *record, err error) {
			b.cut(ReasonContext, err)
			if r != nil {
				r.ended(err, canceled)
			}
		}(b.record, b.err)
	case b.whole.cause == nil && b.size-b.off < b.need:
		c := &CanceledError{b.name, b.canceled.Reason, b.canceled.err}
		b.whole.stop(c)
		go func(r *record) {
			if c.Reason != ReasonClosed { // a closing client keeps renewing while its holders wind down
				b.cut(c.Reason, c.err)
			}
			if r != nil {
				r.canceled(b, c)
			}
		}(b.record)
	}
}

// canceledBy is how its permission to work was taken away, nil if it has it or lost it with the lease. It is called with mu held.
func (b *bundle) canceledBy() *CanceledError {
	c, _ := b.whole.cause.(*CanceledError) //nolint:errorlint // what it was stopped with, not what that wraps
	return c
}

// recordBy has r told of what becomes of the bundle, and has become of it.
func (b *bundle) recordBy(r *record) {
	b.mu.Lock()
	b.record = r
	canceled, err := b.canceledBy(), b.err
	b.mu.Unlock()
	if canceled != nil {
		r.canceled(b, canceled)
	}
	if err != nil {
		r.ended(err, canceled)
	}
}

// loss is what the loss of the bundle is said to be. It is called with mu held.
func (b *bundle) loss() *LostError {
	last := b.lost[len(b.lost)-1]
	if !b.nodes {
		return &LostError{Name: b.name, Cause: last.Cause, err: last}
	}
	all := make(nodeErrors, len(b.lost))
	for i, lost := range b.lost {
		all[i] = atNode(b.at[i], lost)
	}
	return &LostError{Name: b.name, Cause: last.Cause, err: all}
}

// cut takes the permission to work from the members that have it yet: what there is left of their leases is time to wind
// down. Else one whose holder doesn't release it, having lost another, would be renewed for ever.
func (b *bundle) cut(reason Reason, err error) {
	for _, m := range b.all() {
		m.cut(reason, &CanceledError{m.Name(), reason, err})
		if m.g.only(m.Lease) { // even where its client closes and renews until the holder releases, who won't
			m.g.lock.c.engine.StopRenewal(&m.g.wd)
		}
	}
}

// all are the members there are by now.
func (b *bundle) all() []*member {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.members[:len(b.members):len(b.members)]
}

func (b *bundle) owner() string { return b.all()[0].Owner() }

func (b *bundle) token() (token int64) {
	for _, m := range b.all() {
		token = max(token, m.Token())
	}
	return token
}

func (b *bundle) tokens() map[string]int64 {
	tokens := make(map[string]int64)
	for _, m := range b.all() {
		tokens[m.Name()] = max(tokens[m.Name()], m.Token())
	}
	return tokens
}

func (b *bundle) heartbeat() {
	for _, m := range b.all() {
		m.Heartbeat()
	}
}

// warn says that the lock is held for long, once and when all members are. It reports false while the bundle isn't acquired: then it is a name
// that a Multi holds while it waits for others.
func (b *bundle) warn(held time.Duration) bool {
	b.mu.Lock()
	r := b.record
	due := r != nil && !b.warned && !slices.ContainsFunc(b.members, func(m *member) bool {
		return !m.gone && time.Since(m.g.hold.Since()) < m.g.lock.cfg.holdWarning
	})
	b.warned = b.warned || due
	b.mu.Unlock()
	if due {
		r.hold.Warn(held)
	}
	return r != nil
}

// check looks at the clock for every member.
func (b *bundle) check() {
	for _, m := range b.all() {
		m.check()
	}
}

// ctxEnded is called when the ctx that the leases follow has ended.
func (b *bundle) ctxEnded() {
	for _, m := range b.all() {
		m.ctxEnded()
	}
}

// of is the member for one lock, nil if there is none.
func (b *bundle) of(c *Client, key string) *Lease {
	for _, m := range b.all() {
		if l := m.of(c, key); l != nil {
			return l
		}
	}
	return nil
}

// deadline is until when need members are trusted.
func (b *bundle) deadline() time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	var live, all []time.Time
	for _, m := range b.members {
		d := m.Deadline()
		all = append(all, d)
		if !m.gone {
			live = append(live, d)
		}
	}
	if len(live) < b.need { // it has ended
		live = all
	}
	if len(live) < b.need {
		return time.Time{}
	}
	slices.SortFunc(live, func(a, b time.Time) int { return b.Compare(a) })
	return live[b.need-1]
}

// errPending stands for an answer that wasn't waited for.
var errPending = errors.New("lockdog: not waited for")
