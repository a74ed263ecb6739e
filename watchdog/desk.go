package watchdog

import (
	"runtime/debug"
	"time"
)

// callbacks is where the calls to holders wait. One goroutine makes them, one at a time and in order; it is there only
// while there is something to tell. Losses and alarms go before reports of renewals.
type callbacks struct {
	losses  queue[*Lease] // declared because the deadline was reached
	run     int           // losses told since the last LossesDone
	alarms  queue[*Lease]
	reports queue[*report]
	current *Lease // whose callback is running
	open    bool   // the goroutine is there
}

// report is a call that landed.
type report struct {
	batch *Batch
	notes []note
	next  int
}

// note is what a Renewal will say about one lease, as it was when the call landed.
type note struct {
	index                        int32
	attempt                      uint16
	lost                         bool // missing or taken: Lost follows
	remaining, elapsed, deadline int64
}

// notify has the holders told.
func (e *Engine) notify() {
	d := &e.desk
	if d.open || e.closed || d.losses.len()+d.run+d.alarms.len()+d.reports.len() == 0 {
		return
	}
	d.open = true
	e.wg.Add(1)
	go e.tell()
}

// tell makes the calls that wait. A callback may end this goroutine (runtime.Goexit): then another one goes on.
func (e *Engine) tell() {
	defer e.wg.Done()
	returned := false
	defer func() {
		if !returned {
			e.mu.Lock()
			e.desk.current, e.desk.open = nil, false
			e.notify()
			e.mu.Unlock()
		}
	}()
	e.mu.Lock()
	for !e.closed && e.tellOne() {
	}
	e.desk.open = false
	e.mu.Unlock()
	returned = true
}

// tellOne makes one call, if there is one to make. It is entered and left with mu held.
func (e *Engine) tellOne() bool {
	d := &e.desk
	switch {
	case d.losses.len() > 0:
		l := d.losses.pop()
		loss := l.loss(nil)
		d.run++
		e.unlocked(l, func() { l.holder.Lost(loss) })
	case d.run > 0:
		n := d.run
		d.run = 0
		e.unlocked(nil, func() { e.lossesDone(n) })
	case d.alarms.len() > 0:
		if l := d.alarms.pop(); watched(l.status.Load()) {
			e.ring(l)
		}
	case d.reports.len() > 0:
		r := d.reports.first()
		if r.next == len(r.notes) {
			d.reports.pop()
			if done := e.cfg.BatchDone; done != nil {
				e.unlocked(nil, func() { done(r.batch) })
			}
			break
		}
		n := &r.notes[r.next]
		r.next++
		e.tellRenewal(r.batch, n)
	default:
		return false
	}
	return true
}

func (e *Engine) tellRenewal(b *Batch, n *note) {
	l := b.Leases[n.index]
	if !n.lost && !watched(l.status.Load()) {
		return
	}
	e.unlocked(l, func() {
		l.holder.Renewal(Renewal{
			Batch:     b,
			Result:    b.Results[n.index],
			Attempt:   int(n.attempt),
			Lag:       max(0, b.Sent.Sub(b.Planned)),
			Remaining: time.Duration(n.remaining),
			Elapsed:   time.Duration(n.elapsed),
			Deadline:  e.at(n.deadline),
		})
	})
	if n.lost && !e.closed {
		loss := l.loss(b)
		e.unlocked(l, func() { l.holder.Lost(loss) })
	}
}

// ring makes an Alarm call.
func (e *Engine) ring(l *Lease) {
	l.ringing = false
	var next time.Time
	now := e.clock()
	e.unlocked(l, func() { next = l.holder.Alarm(now) })
	if watched(l.status.Load()) && !e.closed {
		e.setAlarm(l, next)
	}
}

// loss is what the holder of a lost lease is told.
func (l *Lease) loss(b *Batch) Loss {
	return Loss{Cause: l.cause, Err: l.err, Elapsed: time.Duration(l.lostAt - l.sent), Batch: b}
}

// unlocked calls foreign code without mu.
func (e *Engine) unlocked(l *Lease, call func()) {
	e.desk.current = l
	e.mu.Unlock()
	e.guard(call) // may not return (runtime.Goexit): see tell
	e.mu.Lock()
	e.desk.current = nil
}

func (e *Engine) lossesDone(n int) {
	if done := e.cfg.LossesDone; done != nil {
		e.guard(func() { done(n) })
	}
}

// guard calls foreign code and survives its panic.
func (e *Engine) guard(call func()) {
	defer func() {
		if v := recover(); v != nil {
			e.panicked(v, debug.Stack())
		}
	}()
	call()
}

// panicked reports a panic; a panic of the report itself is dropped.
func (e *Engine) panicked(v any, stack []byte) {
	if e.cfg.Panicked == nil {
		return
	}
	defer func() { _ = recover() }()
	e.cfg.Panicked(v, stack)
}
