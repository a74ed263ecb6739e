package watchdog

import (
	"runtime/debug"
	"time"
)

// callbacks are the pending calls to holders. One goroutine makes them, one at a time and in order. It exists only
// while there are some. Losses and alarms go before reports of renewals.
type callbacks struct {
	losses  []*Lease // lost at their deadline
	run     bool     // Lost was called for them since Config.Done(nil)
	alarms  []*Lease
	reports []*report
	current *Lease // whose callback is running
	open    bool   // the goroutine exists
}

// report is a call to the server that has returned, and the Holder calls that it leads to.
type report struct {
	batch *Batch
	notes []note
}

type note struct {
	lease   *Lease
	renewal Renewal
	lost    bool // missing or taken: Lost follows
}

// notify starts the goroutine that makes the callbacks, if there are some.
func (e *Engine) notify() {
	cb := &e.callbacks
	if cb.open || e.closed || !cb.run && len(cb.losses)+len(cb.alarms)+len(cb.reports) == 0 {
		return
	}
	cb.open = true
	e.wg.Add(1)
	go e.runCallbacks()
}

// runCallbacks makes the pending calls. If a callback ends this goroutine (runtime.Goexit), another goroutine goes on.
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

// callNext makes one pending call, and reports whether there was one. mu must be held; it is unlocked during the call.
func (e *Engine) callNext() bool {
	cb := &e.callbacks
	switch {
	case len(cb.losses) > 0:
		l := pop(&cb.losses)
		cb.run = true
		e.unlocked(l, func() { l.holder.Lost(*l.lost) })
	case cb.run:
		cb.run = false
		e.unlocked(nil, func() { e.done(nil) })
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
		e.unlocked(nil, func() { e.done(r.batch) })
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

func (e *Engine) callAlarm(l *Lease) {
	var next time.Time
	now := e.clock()
	e.unlocked(l, func() { next = l.holder.Alarm(now) })
	if watched(l.status.Load()) && !e.closed {
		e.setAlarm(l, next)
	}
}

// unlocked calls foreign code without mu. mu is held again afterwards, even if that code ends the goroutine.
func (e *Engine) unlocked(l *Lease, call func()) {
	e.callbacks.current = l
	e.mu.Unlock()
	defer func() {
		e.mu.Lock()
		e.callbacks.current = nil
	}()
	e.guard(call)
}

func (e *Engine) done(b *Batch) {
	if done := e.cfg.Done; done != nil {
		e.guard(func() { done(b) })
	}
}

// guard calls foreign code, and recovers from and reports its panic.
func (e *Engine) guard(call func()) {
	defer func() {
		if v := recover(); v != nil {
			e.panicked(v, debug.Stack())
		}
	}()
	call()
}

// panicked reports a panic. A panic in Config.Panicked is ignored.
func (e *Engine) panicked(v any, stack []byte) {
	if e.cfg.Panicked == nil {
		return
	}
	defer func() { _ = recover() }()
	e.cfg.Panicked(v, stack)
}

// pop removes and returns the first item of a queue.
func pop[T any](queue *[]T) T {
	q := *queue
	first := q[0]
	clear(q[:1])
	*queue = q[1:]
	return first
}
