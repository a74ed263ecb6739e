package watchdog

import (
	"runtime/debug"
	"time"
)

// callbacks is where the calls to holders wait. One goroutine makes them, one at a time and in order; it is there only
// while there is something to tell. Losses and alarms go before reports of renewals.
type callbacks struct {
	losses  []*Lease // declared because the deadline was reached
	run     int      // losses told since the last LossesDone
	alarms  []*Lease
	reports []*report
	current *Lease // whose callback is running
	open    bool   // the goroutine is there
}

// report is a call that has returned, and what its holders are to be told of it.
type report struct {
	batch *Batch
	notes []note
}

type note struct {
	lease   *Lease
	renewal Renewal
	lost    bool // missing or taken: Lost follows
}

// notify has the holders told.
func (e *Engine) notify() {
	d := &e.desk
	if d.open || e.closed || len(d.losses)+d.run+len(d.alarms)+len(d.reports) == 0 {
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
	case len(d.losses) > 0:
		l := pop(&d.losses)
		loss := l.loss(nil)
		d.run++
		e.unlocked(l, func() { l.holder.Lost(loss) })
	case d.run > 0:
		n := d.run
		d.run = 0
		e.unlocked(nil, func() { e.lossesDone(n) })
	case len(d.alarms) > 0:
		if l := pop(&d.alarms); watched(l.status.Load()) {
			e.ring(l)
		}
	case len(d.reports) > 0:
		r := d.reports[0]
		if len(r.notes) > 0 {
			e.callRenewal(pop(&r.notes))
			break
		}
		pop(&d.reports)
		if done := e.cfg.BatchDone; done != nil {
			e.unlocked(nil, func() { done(r.batch) })
		}
	default:
		return false
	}
	return true
}

func (e *Engine) callRenewal(n note) {
	l := n.lease
	if !n.lost && !watched(l.status.Load()) {
		return
	}
	e.unlocked(l, func() { l.holder.Renewal(n.renewal) })
	if n.lost && !e.closed {
		loss := l.loss(n.renewal.Batch)
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

// pop takes the first item of a queue.
func pop[T any](queue *[]T) T {
	q := *queue
	first := q[0]
	clear(q[:1])
	*queue = q[1:]
	return first
}
