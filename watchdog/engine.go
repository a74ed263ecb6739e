package watchdog

import (
	"context"
	"math"
	"sync"
	"time"
)

// never is later than any time of the engine.
const never = math.MaxInt64

// Engine keeps leases alive. Make one with New; all methods may be called from any goroutine.
//
// Times inside are nanoseconds since epoch, read from the monotonic clock.
type Engine struct {
	cfg   Config
	clock func() time.Time
	epoch time.Time

	ctx    context.Context // of every call; ends with Close
	cancel context.CancelFunc
	wg     sync.WaitGroup // scheduler, calls in flight, callbacks; Add only under mu while not closed, or from within
	kick   chan struct{}  // wakes the scheduler, see wake

	mu        sync.Mutex
	closed    bool
	started   bool
	leases    int
	cohorts   int
	groups    map[groupKey]*group
	nodes     map[string]*node
	agenda    heap[*node]   // nodes by when they next have something to do
	watches   heap[*cohort] // cohorts by their nearest deadline: one deadline watch per cohort
	unrenewed heap[*Lease]  // leases that are not renewed, by deadline
	alarms    heap[*Lease]
	spare     []*cohort // empty cohorts to be used again
	began     bool      // since the last pass there was a lease where there had been none
	wakeAt    int64     // when the scheduler will look next; never while it has nothing to do
	lastPass  int64
	lastSweep int64
	callbacks callbacks
}

// New makes an engine. It starts nothing: the one scheduler goroutine starts with the first lease and lives until
// Close. The error says what is wrong with the Config.
func New(cfg Config) (*Engine, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
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
		wakeAt:    never,
	}, nil
}

func (e *Engine) now() int64              { return e.since(e.clock()) }
func (e *Engine) since(t time.Time) int64 { return int64(t.Sub(e.epoch)) }
func (e *Engine) at(ns int64) time.Time   { return e.epoch.Add(time.Duration(ns)) }

// Close stops renewing and waits for the scheduler, the calls in flight (whose ctx it ends) and the callback that may
// be running; it must not be called from a callback. The leases stay as they are: none is released, none declared
// lost, and no callback is made afterwards. Closing twice is fine.
func (e *Engine) Close() {
	e.mu.Lock()
	e.closed = true
	e.mu.Unlock()
	e.cancel()
	e.wg.Wait()
}

// Watch keeps the lease alive from now on. It joins a cohort that has room and will be renewed late, though not
// later than Spec.Interval after Spec.Sent. A lease is watched once: a second Watch does nothing. In a closed engine
// the lease has its deadline and nothing else.
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

// briefShare is the part of the time that a brief lease has after which it is renewed.
const briefShare = 8

// begin starts the scheduler with the first lease, and the tick when it had nothing to do.
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
	if e.wakeAt == never {
		e.lastPass = e.now()
		e.wake(e.lastPass + int64(tick))
	}
}

// StopRenewal lets the lease run out: no renewal of it starts any more, the outcome of one in flight is ignored, and
// its deadline is still watched. A lease that was granted for less than its TTL (Spec.Until) is renewed once before.
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

// stop watches the deadline of a lease without a cohort.
func (e *Engine) stop(l *Lease) {
	deadline := l.deadline.Load()
	l.status.Store(winding)
	e.unrenewed.set(l, deadline)
	e.wake(deadline)
}

// Remove forgets the lease. It is false when it is not in the engine: lost, removed before, or never watched. After
// it returned true Lost is never called; another callback that had begun may still be running.
func (e *Engine) Remove(l *Lease) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !watched(l.status.Load()) {
		return false
	}
	e.forget(l, removed)
	return true
}

// Check reports whether the lease is live: watched, and its deadline not reached. When it finds the deadline reached it
// declares the loss here and now, whatever the scheduler is doing: Holder.Lost is called on this goroutine before
// Check returns. (Unless another callback of the lease is running just then: Lost follows it, on its goroutine.)
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
	if e.now() < l.deadline.Load() { // renewed meanwhile
		e.mu.Unlock()
		return true
	}
	e.loseAtDeadline(l)
	if e.callbacks.current == l {
		e.callbacks.losses = append(e.callbacks.losses, l)
		e.notify()
		e.mu.Unlock()
		return false
	}
	e.wg.Add(1)
	e.mu.Unlock()
	defer e.wg.Done()
	e.guard(func() { l.holder.Lost(*l.lost) })
	e.lossesDone(1)
	return false
}

// setAlarm has Holder.Alarm called at that time, zero: not at all. It is called with mu held.
func (e *Engine) setAlarm(l *Lease, at time.Time) {
	if at.IsZero() {
		return
	}
	ns := e.since(at)
	e.alarms.set(l, ns)
	e.wake(ns)
}

// Verify renews these leases ahead of their time, once: something was heard that puts them in doubt. All that are given,
// or asked for at the same time, share their calls, and the pacing holds for these as well. While a call with a lease is in
// flight another one follows it; one that is about to be made anyway is enough. A lease without renewal can't be
// verified.
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

// TickAge is how long ago the scheduler last looked: over two seconds, it is late. It reports false when the scheduler has nothing
// to do, because there are no leases.
func (e *Engine) TickAge() (time.Duration, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.leases == 0 || e.closed {
		return 0, false
	}
	return time.Duration(e.now() - e.lastPass), true
}
