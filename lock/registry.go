package lock

import (
	"slices"
	"sync"
	"time"

	"github.com/lockdog/lockdog/telemetry"
	"github.com/lockdog/lockdog/watchdog"
)

// recentLeases is how many ended leases a client remembers: so many whose EndedLease.End is released, and so many
// others.
const recentLeases = 1000

// registry has the client's live grants, and its last leases that have ended.
type registry struct {
	mu     sync.Mutex
	root   grant // head of the ring of live grants; it isn't a grant itself
	count  int
	sealed bool          // no grant can be added any more
	empty  chan struct{} // closed when no grant is left; nil: nobody waits for that

	released endedRing
	troubled endedRing // all others: ordinary releases come by the thousand, and must not push them out
}

// endedRing is a ring buffer of leases that have ended.
type endedRing struct {
	leases []EndedLease
	next   int
}

func (e *endedRing) add(l EndedLease) {
	if len(e.leases) < recentLeases {
		e.leases = append(e.leases, l)
		return
	}
	e.leases[e.next] = l
	e.next = (e.next + 1) % recentLeases
}

// all appends the leases to out, the oldest first.
func (e *endedRing) all(out []EndedLease) []EndedLease {
	return append(append(out, e.leases[e.next:]...), e.leases[:e.next]...)
}

func newRegistry() *registry {
	r := &registry{}
	r.root.prev, r.root.next = &r.root, &r.root
	return r
}

// add adds a grant. It reports false if the registry is sealed.
func (r *registry) add(g *grant) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.sealed {
		return false
	}
	g.prev, g.next = r.root.prev, &r.root
	g.prev.next, g.next.prev = g, g
	r.count++
	return true
}

func (r *registry) seal() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sealed = true
}

// retire removes a grant that has ended, and adds its lease to Recent.
func (r *registry) retire(g *grant, end ending) {
	ended := EndedLease{
		Name: g.lock.name, Kind: g.lock.kind.name, Group: g.lock.tel.Group(), Owner: g.claim.owner,
		Token: g.hold.Token(), Since: g.hold.Since(), Ended: time.Now(), End: end.hold.String(), Why: end.why,
		Err: end.err, TraceID: g.traceID(),
	}
	if end.hold != telemetry.EndReleased {
		ended.Node, ended.Composite = g.node(), g.endedComposite(end)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	g.prev.next, g.next.prev = g.next, g.prev
	g.prev, g.next = nil, nil
	r.count--
	if r.count == 0 && r.empty != nil {
		close(r.empty)
		r.empty = nil
	}
	if end.hold == telemetry.EndReleased {
		r.released.add(ended)
	} else {
		r.troubled.add(ended)
	}
}

// Count implements renewal.Leases.
func (r *registry) Count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.count
}

// drained returns a channel that is closed when no grant is left.
func (r *registry) drained() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.count == 0 {
		done := make(chan struct{})
		close(done)
		return done
	}
	if r.empty == nil {
		r.empty = make(chan struct{})
	}
	return r.empty
}

// All implements renewal.Leases.
func (r *registry) All() []*watchdog.Lease {
	var all []*watchdog.Lease
	r.each(func(g *grant) { all = append(all, &g.wd) })
	return all
}

// each calls f for every current grant, without mu held.
func (r *registry) each(f func(*grant)) {
	r.mu.Lock()
	all := make([]*grant, 0, r.count)
	for g := r.root.next; g != &r.root; g = g.next {
		all = append(all, g)
	}
	r.mu.Unlock()
	for _, g := range all {
		f(g)
	}
}

// Leases returns what the client holds and waits for now, in no particular order.
func (c *Client) Leases() []LeaseInfo {
	if !c.initialized() {
		return nil
	}
	out := make([]LeaseInfo, 0, c.grants.Count()+c.waits.size())
	all := composites{}
	c.grants.each(func(g *grant) {
		if info, live := g.info(); live {
			info.Composite = all.ofGrant(g)
			out = append(out, info)
		}
	})
	var members []*waiter
	held := len(out)
	c.waits.each(func(w *waiter, seen HeldError) {
		out, members = append(out, w.info(seen)), append(members, w)
	})
	for i, w := range members {
		all.addWaiter(w, &out[held+i])
	}
	return out
}

// info describes the grant, and reports whether it lives.
func (g *grant) info() (LeaseInfo, bool) {
	next, deadline := g.wd.NextRenewal(), g.wd.Deadline()
	info := g.lock.info()
	g.mu.Lock()
	defer g.mu.Unlock()
	extra := g.extraCopy()
	switch {
	case g.state == grantReleasing:
		info.State = StateReleasing
	case extra.reason() != "":
		info.State = StateCanceled
	default:
		info.State = StateHeld
	}
	info.Owner, info.Token, info.Since, info.TraceID = g.claim.owner, g.hold.Token(), g.hold.Since(), g.traceID()
	info.Deadline, info.NextRenewal, info.Reason = deadline, next, extra.reason()
	extra.failures.describe(&info)
	return info, g.endErr() == nil && !deadline.IsZero() // no deadline: the watchdog doesn't have it yet
}

// info describes the waiter. waitQueues.mu must be held, unless it is a waiter of a Quorum, which doesn't change.
func (w *waiter) info(seen HeldError) LeaseInfo {
	info := w.lock.info()
	info.State, info.Owner, info.Since, info.WaitsFor = StateWaiting, w.claim.owner, w.since, seen.Owner
	info.TraceID = traceID(w.claim.traceparent)
	failures := w.ownFailures
	if w.q != nil {
		failures = w.q.failures // the head asks for all, as a rule
	}
	failures.describe(&info)
	return info
}

func (lk *lock) info() LeaseInfo {
	return LeaseInfo{Name: lk.name, Kind: lk.kind.name, Group: lk.tel.Group(), Node: lk.node(), Lease: lk.cfg.lease}
}

// failureStreak is a series of failed tries, of renewals or of taking a lock. Zero: the last one didn't fail.
type failureStreak struct {
	err   error     // of the last try; nil: it didn't fail
	at    time.Time // when the last one failed
	since time.Time // when the first one failed
}

func (t *failureStreak) note(err error) {
	switch {
	case err == nil:
		*t = failureStreak{}
	case t.err == nil:
		now := time.Now()
		*t = failureStreak{err, now, now}
	default:
		t.err, t.at = err, time.Now()
	}
}

func (t *failureStreak) describe(info *LeaseInfo) {
	info.LastError, info.ErrorAt, info.FailingSince = t.err, t.at, t.since
}

// Recent returns the last 1,000 leases whose End is released, and the last 1,000 others, the oldest first. A lease may
// still be missing when its Ended is closed.
func (c *Client) Recent() []EndedLease {
	if !c.initialized() {
		return nil
	}
	r := c.grants
	r.mu.Lock()
	defer r.mu.Unlock()
	out := make([]EndedLease, 0, len(r.released.leases)+len(r.troubled.leases))
	out = r.troubled.all(r.released.all(out))
	slices.SortStableFunc(out, func(a, b EndedLease) int { return a.Ended.Compare(b.Ended) })
	return out
}

// traceID returns the trace in which the lock was taken, "" if it isn't sampled.
func (g *grant) traceID() string {
	if sc := g.hold.SpanContext(); sc.IsValid() {
		return sc.TraceID().String()
	}
	return ""
}

// traceID returns the trace of a traceparent, "" if that is invalid.
func traceID(traceparent string) string {
	if sc, ok := telemetry.ParseTraceparent(traceparent); ok {
		return sc.TraceID().String()
	}
	return ""
}
