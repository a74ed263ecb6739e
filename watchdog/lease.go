package watchdog

import (
	"sync/atomic"
	"time"
)

// Spec says how a lease is to be kept alive.
type Spec struct {
	// TTL is the whole lease, as the server counts it.
	TTL time.Duration
	// Interval is the time between renewals. 0: never renewed, only the deadline is watched. One that leaves no
	// room for a renewal (TTL-Margin or more) is taken as half of TTL-Margin, one under a millisecond as a millisecond.
	Interval time.Duration
	// Margin is how long before the TTL runs out this process stops trusting the lease.
	Margin time.Duration
	// Node is where the lease lives: the name of a server. It is opaque here: calls never mix nodes.
	Node string
	// Sent is the time, with its monotonic reading, BEFORE the request that was granted was sent. The first deadline
	// is Sent+TTL-Margin, the first renewal at Sent+Interval or earlier. The future counts as now.
	Sent time.Time
	// Until, if it is set, is the first deadline of a lease that was granted for less than TTL. Its first renewal makes it a whole one: an eighth
	// of that time from now, or earlier, also if StopRenewal is called before.
	Until time.Time
	// Alarm is when Holder.Alarm is called for the first time; zero: not at all.
	Alarm time.Time
	// Holder is told what becomes of the lease. Required.
	Holder Holder
}

// Holder is told what becomes of a lease. The engine calls it without holding any lock, so it may call the engine
// (all but Close). Calls for one lease never overlap. It should return quickly: one that blocks holds up the calls to
// all other holders of the engine, though neither the renewals nor the deadlines (see Engine.Check).
//
// A call that began before Engine.Remove may still be running when that returns; Lost is never called after Remove
// returned true, and nothing is called after Lost.
type Holder interface {
	// Renewal is called once for each attempt, whatever its outcome; Missing and Taken are followed by Lost. An
	// attempt that returns after the lease ended, or after StopRenewal, is not told.
	Renewal(Renewal)
	// Lost is called at most once. The lease is out of the engine already.
	Lost(Loss)
	// Alarm is called when the time given in Spec, or by the last Alarm, is reached. It returns
	// when to call again, zero for no more.
	Alarm(now time.Time) (next time.Time)
}

// Lease is what the engine watches. It is embedded by value in the caller's own lease, so that watching allocates
// nothing; it must not be copied once watched. The zero value is ready for Engine.Watch, once: what has been removed
// or lost is watched again only as a new Lease.
type Lease struct {
	engine   atomic.Pointer[Engine] // set by Watch, last: until then every method gives zero
	deadline atomic.Int64           // engine nanoseconds; never moves backwards
	status   atomic.Uint32          // a status; written under Engine.mu
	index    int32                  // in cohort.leases; under Engine.mu

	holder Holder // not changed after Watch

	// Under Engine.mu from here on.
	cohort *cohort // nil when not renewed (any more)
	err    error   // the last renewal error since the last success
	lost   *Loss   // how it was lost, not changed after that; nil: it wasn't
	sent   int64   // when the request of the last confirmed renewal was sent
	ttl    int64
	margin int64

	unrenewedPos int32 // in Engine.unrenewed, the deadlines of leases without a cohort
	alarmPos     int32 // in Engine.alarms
	tries        uint16
	hops         uint8 // moves since the last success
	verify       bool  // renew once more when the call in flight has returned
	brief        bool  // granted for less than ttl, and not renewed yet: see Spec.Until
	stopping     bool  // brief, and to be renewed no more after that
	alarmDue     bool  // waits for its Alarm call
}

type status = uint32

const (
	unwatched status = iota
	kept             // renewed, its deadline watched
	winding          // not renewed (any more), its deadline watched
	lost
	removed
)

// watched reports whether a lease of that status is in the engine.
func watched(s status) bool { return s == kept || s == winding }

// Deadline is how long this process trusts the lease: the send time of the last confirmed request, plus the TTL, less
// the margin. It carries the monotonic clock, never moves backwards and is readable at any time; zero before Watch.
func (l *Lease) Deadline() time.Time {
	e := l.engine.Load()
	if e == nil {
		return time.Time{}
	}
	return e.at(l.deadline.Load())
}

// NextRenewal is when the next attempt is planned; in the past when it is overdue or in flight. Zero when none is
// planned: a lease without renewal, stopped, lost or removed.
func (l *Lease) NextRenewal() time.Time {
	e := l.engine.Load()
	if e == nil {
		return time.Time{}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if l.cohort == nil {
		return time.Time{}
	}
	return e.at(l.cohort.due)
}

// Loss is how the lease was lost, once that is declared. Holder.Lost says the same, when its turn comes.
func (l *Lease) Loss() (Loss, bool) {
	e := l.engine.Load()
	if e == nil {
		return Loss{}, false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if l.status.Load() != lost {
		return Loss{}, false
	}
	return *l.lost, true
}

// Holder is the one given in Spec: the way from the leases of a Batch to the caller's own. Nil before Watch.
func (l *Lease) Holder() Holder {
	if l.engine.Load() == nil {
		return nil
	}
	return l.holder
}
