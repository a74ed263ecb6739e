package watchdog

import (
	"runtime/debug"
	"time"
)

// callbacks are the calls to holders that wait. One goroutine makes them, one at a time and in order; it exists only
// while there are any. Losses and alarms go before reports of renewals.
type callbacks struct {
	losses  []*Lease // declared because the deadline was reached
	run     int      // losses told since the last LossesDone
	alarms  []*Lease
	reports []*report
	current *Lease // whose callback is running
	open    bool   // the goroutine exists
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
	cb := &e.callbacks
	if cb.open || e.closed || len(cb.losses)+cb.run+len(cb.alarms)+len(cb.reports) == 0 {
		return
	}
	cb.open = true
	e.wg.Add(1)
	go e.runCallbacks()
}

// runCallbacks makes the calls that wait. A callback may end this goroutine (runtime.Goexit): then another one goes on.
func (e *Engine) runCallbacks() {
	defer e.wg.Done()
	e.mu.Lock()
	defer e.mu.Unlock()
	defer func() {
		e.callbacks.open = false
		e.notify()
	}()
	for !e.closed && e.callNext() {
	}
}

// callNext makes one call, if there is one to make. It is entered and left with mu held.
func (e *Engine) callNext() bool {
	cb := &e.callbacks
	switch {
	case len(cb.losses) > 0:
		l := pop(&cb.losses)
		cb.run++
		e.unlocked(l, func() { l.holder.Lost(*l.lost) })
	case cb.run > 0:
		n := cb.run
		cb.run = 0
		e.unlocked(nil, func() { e.lossesDone(n) })
	case len(cb.alarms) > 0:
		if l := pop(&cb.alarms); watched(l.status.Load()) {
			e.callAlarm(l)
		}
	case len(cb.reports) > 0:
		r := cb.reports[0]
		if len(r.notes) > 0 {
			e.callRenewal(pop(&r.notes))
			break
		}
		pop(&cb.reports)
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
		e.unlocked(l, func() { l.holder.Lost(*l.lost) })
	}
}

// callAlarm makes an Alarm call.
func (e *Engine) callAlarm(l *Lease) {
	l.alarmDue = false
	var next time.Time
	now := e.clock()
	e.unlocked(l, func() { next = l.holder.Alarm(now) })
	if watched(l.status.Load()) && !e.closed {
		e.setAlarm(l, next)
	}
}

// unlocked calls foreign code without mu, which is held again afterwards, also when that code ends the goroutine.
func (e *Engine) unlocked(l *Lease, call func()) {
	e.callbacks.current = l
	e.mu.Unlock()
	defer func() {
		e.mu.Lock()
		e.callbacks.current = nil
	}()
	e.guard(call)
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
