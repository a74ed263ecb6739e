package watchdog

import (
	"context"
	"math"
	"sync"
	"time"
)

// never is the time of what isn't planned. It is after any time of the engine.
const never = math.MaxInt64

// Engine keeps leases alive. It is made by New, and is safe for concurrent use.
//
// Its times are nanoseconds since epoch, read from the monotonic clock.
type Engine struct {
	cfg   Config
	clock func() time.Time
	epoch time.Time

	ctx    context.Context // of every call; ends with Close
	cancel context.CancelFunc
	wg     sync.WaitGroup // scheduler, calls, callbacks; Add only under mu while not closed, or in a counted goroutine
	kick   chan struct{}  // see wake

	mu        sync.Mutex
	closed    bool
	started   bool
	leases    int
	groups    map[groupKey]*group
	nodes     map[string]*node
	agenda    heap[*node]   // nodes by the time of their next pass
	watches   heap[*cohort] // cohorts by their nearest deadline
	unrenewed heap[*Lease]  // leases that are not renewed, by deadline
	alarms    heap[*Lease]
	spare     []*cohort // empty cohorts to be reused
	began     bool      // since the last pass, a lease was added when there was none
	idle      bool      // there is no tick: the last pass found no lease, and none was added after the pass before it
	wakeAt    int64     // the time of the next pass; never while there is nothing to do
	lastPass  int64
	lastSweep int64
	callbacks callbacks
}

// New returns an engine without leases. It starts no goroutine: the scheduler starts with the first lease and runs
// until Close.
func New(cfg Config) *Engine {
	ctx, cancel := context.WithCancel(context.Background())
	return &Engine{
		cfg:       cfg,
		clock:     time.Now,
		epoch:     time.Now(),
		ctx:       ctx,
		cancel:    cancel,
		kick:      make(chan struct{}, 1),
		groups:    make(map[groupKey]*group),
		nodes:     make(map[string]*node),
		agenda:    heap[*node]{pos: func(n *node) *int32 { return &n.agendaPos }},
		watches:   heap[*cohort]{pos: func(c *cohort) *int32 { return &c.watchPos }},
		unrenewed: heap[*Lease]{pos: func(l *Lease) *int32 { return &l.unrenewedPos }},
		alarms:    heap[*Lease]{pos: func(l *Lease) *int32 { return &l.alarmPos }},
		idle:      true,
		wakeAt:    never,
	}
}

func (e *Engine) now() int64              { return e.since(e.clock()) }
func (e *Engine) since(t time.Time) int64 { return int64(t.Sub(e.epoch)) }
func (e *Engine) at(ns int64) time.Time   { return e.epoch.Add(time.Duration(ns)) }

// Close stops renewing, and ends the ctx of the calls in flight. It waits for these calls, for the scheduler and for
// running callbacks, and until all losses that came before Close have been reported. It drops pending calls of Alarm,
// and those of Renewal for leases that weren't lost. It must not be called from a callback or from Config.Renew, which
// it would wait for. No lease is released or declared lost, and no callback is made afterwards. A second call is
// allowed.
func (e *Engine) Close() {
	e.mu.Lock()
	e.closed = true
	e.mu.Unlock()
	e.cancel()
	e.wg.Wait()
}

// Watch keeps the lease alive from now on or, if Spec.Interval is 0, only watches its deadline. The lease joins the
// last cohort that has room and is renewed in time for the lease, or a new cohort: see group.seat. A second Watch of a
// lease does nothing. In a closed engine the lease has a deadline, but no renewals and no callbacks.
func (e *Engine) Watch(l *Lease, s Spec) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if l.status.Load() != unwatched {
		return
	}
	trust := int64(s.TTL - s.Margin)
	sent := min(e.since(s.Sent), e.now())
	l.holder, l.ttl, l.margin = s.Holder, int64(s.TTL), int64(s.Margin)
	l.sent = sent
	deadline := sent + trust
	if l.brief = !s.Until.IsZero(); l.brief {
		deadline = min(deadline, e.since(s.Until))
	}
	l.deadline.Store(deadline)
	if e.closed {
		e.leases++
		l.status.Store(winding)
		l.engine.Store(e)
		return
	}
	e.begin()
	e.leases++
	if s.Interval > 0 {
		l.status.Store(kept)
		interval := int64(s.Interval)
		if interval >= trust {
			interval = trust / 2
		}
		interval = max(interval, int64(time.Millisecond))
		by := sent + interval
		if l.brief {
			now := e.now()
			by = min(by, now+(deadline-now)/briefShare)
		}
		e.join(e.groupOf(groupKey{s.Node, interval, l.ttl}).seat(by), l)
	} else {
		e.stop(l)
	}
	l.engine.Store(e)
	e.setAlarm(l, s.Alarm)
}

// briefShare sets the first renewal of a brief lease: after 1/briefShare of the time to its deadline, or earlier.
const briefShare = 8

// begin is called before a lease is added. If the engine has no lease, begin starts the tick, unless that still runs.
// For the engine's first lease, begin also starts the scheduler.
func (e *Engine) begin() {
	if e.leases > 0 {
		return
	}
	e.began = true
	if !e.started {
		e.started = true
		e.wg.Add(1)
		go e.run()
	}
	if e.idle {
		e.idle = false
		e.lastPass = e.now()
		e.wake(e.lastPass + int64(tick))
	}
}

// StopRenewal lets the lease run out: no renewal of it starts any more, and the outcome of a renewal in flight is
// ignored. Its deadline is still watched. If the lease was granted for less than its TTL (Spec.Until) and hasn't been
// renewed yet, it is still renewed once, with retries, and runs out only then.
func (e *Engine) StopRenewal(l *Lease) {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case l.status.Load() != kept || e.closed:
	case l.brief:
		l.stopping = true
	default:
		e.leave(l)
		e.stop(l)
	}
}

// stop watches only the deadline of a lease, which must have no cohort.
func (e *Engine) stop(l *Lease) {
	deadline := l.deadline.Load()
	l.status.Store(winding)
	e.unrenewed.set(l, deadline)
	e.wake(deadline)
}

// Remove removes the lease from the engine, and reports whether it was there: not if it was lost, removed before, or
// never watched. After it returned true, Lost is never called. Another callback may still be running, and a function
// that Alarm returned before may still be called.
func (e *Engine) Remove(l *Lease) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !watched(l.status.Load()) {
		return false
	}
	e.forget(l, removed)
	return true
}

// Check reports whether the lease is live: watched, and its deadline not reached. If the deadline is reached, and the
// engine isn't closed, Check declares the loss itself: it calls Holder.Lost before it returns, but not what Lost
// returns.
func (e *Engine) Check(l *Lease) bool {
	if !watched(l.status.Load()) {
		return false
	}
	if e.now() < l.deadline.Load() {
		return true
	}
	e.mu.Lock()
	if !watched(l.status.Load()) || e.closed {
		e.mu.Unlock()
		return false
	}
	if e.now() < l.deadline.Load() { // renewed in the meantime
		e.mu.Unlock()
		return true
	}
	e.markLostAtDeadline(l)
	e.wg.Add(1)
	defer e.wg.Done()
	defer e.mu.Unlock()
	e.callLost(l)
	e.callbacks.tells = append(e.callbacks.tells, tell{l.lost.tell, true})
	e.notify()
	return false
}

// setAlarm sets when Holder.Alarm is called; a zero time changes nothing. mu must be held.
func (e *Engine) setAlarm(l *Lease, at time.Time) {
	if at.IsZero() {
		return
	}
	ns := e.since(at)
	e.alarms.set(l, ns)
	e.wake(ns)
}

// Verify renews the leases ahead of their time, once: the caller has a reason to doubt them. The leases share calls,
// also with those of other Verify calls at the same time, and the pacing applies to these calls. If a call for the
// lease's cohort is in flight, another call follows. If a call is due but hasn't started, or is to be retried, Verify
// adds no other call. Leases that aren't renewed are left out.
func (e *Engine) Verify(leases ...*Lease) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, l := range leases {
		if l.status.Load() != kept || e.closed {
			continue
		}
		switch l.cohort.stage {
		case planned:
			e.move(l, l.cohort.group.expedite(e.now()))
		case inFlight:
			l.verify = true
		}
	}
}

// TickAge returns the time since the scheduler's last pass. If it is more than two seconds, the scheduler is late. It
// reports false if the scheduler has nothing to do: there are no leases, or the engine is closed.
func (e *Engine) TickAge() (time.Duration, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.leases == 0 || e.closed {
		return 0, false
	}
	return time.Duration(e.now() - e.lastPass), true
}
