package watchdog

import (
	"sync/atomic"
	"time"
)

// Spec says how a lease is to be kept alive.
type Spec struct {
	// TTL is the whole lease. The server may keep it for longer, but not for less.
	TTL time.Duration
	// Interval is the time between renewals. 0: the lease is never renewed, and only its deadline is watched. An
	// Interval of TTL-Margin or more, which leaves no time for a renewal, counts as half of TTL-Margin; less than 1 ms
	// counts as 1 ms.
	Interval time.Duration
	// Margin is how long before the end of the TTL this process stops trusting the lease.
	Margin time.Duration
	// Node is the name of the server that has the lease. The engine only compares it: calls never mix nodes.
	Node string
	// Sent is a time that was read BEFORE the granted request was sent, with its monotonic reading. The first deadline
	// is Sent+TTL-Margin (but see Until), the first renewal is planned for Sent+Interval or earlier. A time in the
	// future counts as now.
	Sent time.Time
	// Until, if set, is the first deadline of a lease that was granted for less than TTL (in package lock: by a
	// message), unless Sent+TTL-Margin is earlier. The first renewal extends the lease to the whole TTL. It is planned
	// for when an eighth of the time from Watch to that deadline has passed, or earlier. StopRenewal doesn't prevent
	// it.
	Until time.Time
	// Alarm is when Holder.Alarm is called for the first time; zero: never.
	Alarm time.Time
	// Holder gets the events of the lease. Required.
	Holder Holder
}

// Holder gets the events of a lease. The engine calls it without holding the engine's lock, so it may call the engine,
// except Close.
//
// Lost and Alarm must not block, nor call a program's code: they do what must be done in time, for example end a
// context, and return a function for the rest, such as a log; nil: there is none. Lost and Alarm of one lease may run
// at the same time, because Engine.Check also calls Lost. The functions that they return, and Renewal, may take long:
// they are called one at a time. While one of them runs, renewals and deadlines, Lost and Alarm go on.
//
// A call that began before Engine.Remove may still be running when Remove returns, and a function that Alarm returned
// before may still be called. Lost is never called after Remove returned true. No Renewal is called after the function
// that Lost returned.
type Holder interface {
	// Renewal is called once for each attempt, whatever its outcome; after Missing and Taken, what Lost returned
	// follows. It isn't called if the lease has ended in another way by then, or the engine is closed, nor for an
	// attempt that returns after StopRenewal (except the attempts that Spec.Until needs).
	Renewal(Renewal)
	// Lost is called at most once. The engine no longer has the lease then.
	Lost(Loss) (tell func())
	// Alarm is called at the time given in Spec, or returned by the last Alarm, if the engine still has the lease and
	// isn't closed. It returns when to call again, zero for never.
	Alarm(now time.Time) (next time.Time, tell func())
}

// Lease is the engine's part of a lease. The caller has it as a field, by value, of its own lease, so that watching
// allocates nothing. It must not be copied after Watch. The zero value is ready for Engine.Watch. A Lease that was
// removed or lost can't be watched again.
type Lease struct {
	engine   atomic.Pointer[Engine] // set by Watch, last: until then every method returns zero
	deadline atomic.Int64           // engine nanoseconds; never moves backwards
	status   atomic.Uint32          // a status; written under Engine.mu
	index    int32                  // in cohort.leases; under Engine.mu

	holder Holder // not changed after Watch

	// Under Engine.mu from here on.
	cohort *cohort // nil: not renewed (any more)
	err    error   // see Loss.Err
	lost   *loss   // nil: not lost
	sent   int64   // when the last confirmed request was sent: that of the grant, or of a renewal
	ttl    int64
	margin int64

	unrenewedPos int32 // in Engine.unrenewed, the deadlines of leases without a cohort
	alarmPos     int32 // in Engine.alarms
	tries        uint32
	hops         uint8 // moves since the last success
	verify       bool  // to be renewed again when the call in flight has returned
	brief        bool  // granted for less than ttl, and not renewed yet: see Spec.Until
	stopping     bool  // brief, and not to be renewed after its first renewal
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

// Deadline returns until when this process trusts the lease: the send time of the last confirmed request, plus the TTL,
// less the margin; or Spec.Until, if that is earlier, before the first renewal. It has a monotonic reading and never
// moves backwards. It is zero before Watch.
func (l *Lease) Deadline() time.Time {
	e := l.engine.Load()
	if e == nil {
		return time.Time{}
	}
	return e.at(l.deadline.Load())
}

// Confirmed returns when the last confirmed request was sent: the acquire or a renewal. It is zero before Watch.
func (l *Lease) Confirmed() (at time.Time) {
	l.locked(func(e *Engine) { at = e.at(l.sent) })
	return at
}

// NextRenewal returns when the next renewal is planned, or was planned if it is overdue or in flight. If the lease is
// to be renewed after the call in flight, because it joined the cohort later, the time is still that of the call in
// flight. It is zero if no renewal is planned: the lease isn't renewed, or was stopped, lost or removed.
func (l *Lease) NextRenewal() (at time.Time) {
	l.locked(func(e *Engine) {
		if l.cohort != nil {
			at = e.at(l.cohort.due)
		}
	})
	return at
}

// Loss returns how the lease was lost; nil: it wasn't. Holder.Lost may not have been called yet.
func (l *Lease) Loss() (loss *Loss) {
	l.locked(func(*Engine) {
		if l.lost != nil {
			loss = &l.lost.Loss
		}
	})
	return loss
}

// loss is the loss of a lease, and what Holder.Lost returned.
type loss struct {
	Loss // not changed once the lease is lost
	tell func()
}

// locked calls f with Engine.mu held. Before Watch it does nothing.
func (l *Lease) locked(f func(e *Engine)) {
	if e := l.engine.Load(); e != nil {
		e.mu.Lock()
		defer e.mu.Unlock()
		f(e)
	}
}

// Holder returns Spec.Holder, by which Config.Renew finds the caller's lease; nil before Watch.
func (l *Lease) Holder() Holder {
	if l.engine.Load() == nil {
		return nil
	}
	return l.holder
}
