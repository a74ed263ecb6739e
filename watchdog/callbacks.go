package watchdog

import (
	"runtime/debug"
	"time"
)

// callbacks are the pending calls to holders and of Config.Done. Two goroutines make them, each only while there are
// some. One calls Lost and Alarm, which don't block, so that a loss never waits for a call that does. The other one
// calls what may block: the functions that Lost and Alarm return, Renewal and Done.
type callbacks struct {
	losses []*Lease // whose Lost is to be called
	alarms []*Lease
	prompt bool // the goroutine that calls these exists

	tells   []tell
	flush   bool // a tell of a loss was called since the last Config.Done(nil)
	reports []*report
	slow    bool // the goroutine that calls these exists
}

// tell is what Alarm returned, or what Lost (then loss is true) returned for a loss that no batch has found. What Lost
// returned for one that a batch has found is called by callRenewal.
type tell struct {
	call func()
	loss bool
}

// report is a call to the server that has returned, and the Holder calls that it leads to.
type report struct {
	batch *Batch
	notes []note
}

type note struct {
	lease   *Lease
	renewal Renewal
	lost    bool // missing or taken: what Lost returned is called next
}

// notify starts the goroutines that make the callbacks, if there are some.
func (e *Engine) notify() {
	cb := &e.callbacks
	if !cb.prompt && len(cb.losses)+len(cb.alarms) > 0 {
		cb.prompt = true
		e.wg.Add(1)
		go e.runCallbacks(&cb.prompt, e.callPrompt)
	}
	// Lost is called before the report of the renewal that found the loss.
	if !cb.slow && !cb.prompt && (cb.flush || len(cb.tells)+len(cb.reports) > 0) {
		cb.slow = true
		e.wg.Add(1)
		go e.runCallbacks(&cb.slow, e.callSlow)
	}
}

// runCallbacks makes the pending calls of one goroutine: it calls next until that reports false. If a callback ends
// this goroutine (runtime.Goexit), another one goes on.
func (e *Engine) runCallbacks(exists *bool, next func() bool) {
	defer e.wg.Done()
	e.mu.Lock()
	defer e.mu.Unlock()
	defer func() {
		*exists = false
		e.notify()
	}()
	for next() {
	}
}

// callPrompt makes one pending call that doesn't block, and reports whether there was one. It drops the alarm of a
// lease that has ended. mu must be held; it is unlocked during the call.
func (e *Engine) callPrompt() bool {
	cb := &e.callbacks
	switch {
	case len(cb.losses) > 0:
		l := pop(&cb.losses)
		e.callLost(l)
		if l.lost.Batch == nil { // otherwise its report does this
			cb.tells = append(cb.tells, tell{l.lost.tell, true})
		}
	case len(cb.alarms) > 0:
		if l := pop(&cb.alarms); watched(l.status.Load()) && !e.closed {
			e.callAlarm(l)
		}
	default:
		return false
	}
	return true
}

// callLost calls Lost, and keeps what that returns in l.lost.
func (e *Engine) callLost(l *Lease) {
	var call func()
	e.unlocked(func() { call = l.holder.Lost(l.lost.Loss) })
	l.lost.tell = call
}

func (e *Engine) callAlarm(l *Lease) {
	var next time.Time
	var call func()
	now := e.clock()
	e.unlocked(func() { next, call = l.holder.Alarm(now) })
	if call != nil {
		e.callbacks.tells = append(e.callbacks.tells, tell{call, false})
	}
	if watched(l.status.Load()) && !e.closed {
		e.setAlarm(l, next)
	}
}

// callSlow is callPrompt for the calls that may block. It also reports false while calls of Lost or Alarm are pending
// or running.
func (e *Engine) callSlow() bool {
	cb := &e.callbacks
	switch {
	case cb.prompt || len(cb.losses)+len(cb.alarms) > 0: // go on when these were called: see notify
		return false
	case len(cb.tells) > 0:
		t := pop(&cb.tells)
		cb.flush = cb.flush || t.loss
		e.unlocked(t.call)
	case cb.flush:
		cb.flush = false
		e.unlocked(func() { e.done(nil) })
	case len(cb.reports) > 0:
		r := cb.reports[0]
		if len(r.notes) > 0 {
			e.callRenewal(pop(&r.notes))
			break
		}
		pop(&cb.reports)
		e.unlocked(func() { e.done(r.batch) })
	default:
		return false
	}
	return true
}

func (e *Engine) callRenewal(n note) {
	l := n.lease
	if !n.lost && (e.closed || !watched(l.status.Load())) {
		return
	}
	defer func() { // also if Renewal ends the goroutine
		if n.lost {
			e.unlocked(l.lost.tell)
		}
	}()
	e.unlocked(func() { l.holder.Renewal(n.renewal) })
}

// unlocked calls foreign code without mu. mu is held again afterwards, even if that code ends the goroutine. A nil call
// does nothing.
func (e *Engine) unlocked(call func()) {
	if call == nil {
		return
	}
	e.mu.Unlock()
	defer e.mu.Lock()
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
