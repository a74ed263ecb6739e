// Package deadlock finds deadlocks across processes. Each client writes its long waits into Redis, and searches for
// cycles that they are part of. The package knows the client's waits and leases only by the interfaces Waits, Waiter
// and Lease.
package deadlock

import (
	"context"
	"log/slog"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockdog/lockdog/lock/internal/dispatch"
	"github.com/lockdog/lockdog/lock/internal/redisfail"
	"github.com/lockdog/lockdog/lock/internal/script"
	"github.com/lockdog/lockdog/telemetry"
)

// Config is the configuration of the Finder of one client.
type Config struct {
	After      time.Duration // a wait is long, and written into Redis, after that time; 0: the Finder does nothing
	Owners     string        // the prefix of the client's owners: "<id>:<random>-"
	Prefix     string        // of all keys
	Control    string        // the prefix of the clients' control channels, after Prefix
	Waits      Waits
	Dispatcher *dispatch.Dispatcher
	Logger     func() *slog.Logger
	Panicked   func(v any, stack []byte)
}

// Bounds of Config.After.
const (
	DefaultAfter = time.Second
	MinAfter     = 100 * time.Millisecond
	MaxAfter     = time.Hour
)

// Finder is a client's part of the wait graph: it writes the client's long waits into Redis (see records), and searches
// for deadlocks that they are part of (see search). All work is done in passes, one at a time. A waiter that joins a
// queue only starts a timer, if there is none:
//
//	      a waiter joins        the timer fires, or Notified
//	idle ────────────────▶ armed ───────────────────────▶ passing
//	  ▲                      ▲                              │ │
//	  │                      └───── otherwise ──────────────┘ │
//	  └────────── no waiter, and no wait in Redis ────────────┘
//
// Close leads from each state to closed, waits for the pass under way, and removes the records. Each pass reads the
// client's waits: the end of a wait isn't reported to the Finder.
type Finder struct {
	cfg    Config
	ctx    context.Context
	cancel context.CancelFunc
	busy   atomic.Bool // the state is armed or passing; of no use after Close
	passes sync.WaitGroup

	mu       sync.Mutex
	state    state
	timer    *time.Timer
	notified bool      // another client has found a cycle with a wait of this client
	passed   time.Time // the end of the last pass

	// The rest is only used by the pass, and by Close after the last pass.
	random     string // the client's name in Redis: the random digits of its owners
	long       map[Waiter]*longWait
	records    records
	budget     budget
	searched   time.Time            // the last search
	lookNow    bool                 // notified since the last search
	unreadable map[string]time.Time // locks whose holders the ACL forbids to read -> when to try again
	denied     time.Time            // the ACL forbids the graph's keys: when to try again
	warned     bool
}

const (
	passPause     = 100 * time.Millisecond // between passes, at least
	passShare     = 50                     // collect takes 1/50 of the time at most, unless Notified is called
	callTimeout   = time.Second
	panickedPause = time.Second // after a pass that panicked

	// DeniedPause is the time after which the Finder tries again what the ACL has refused.
	DeniedPause = time.Minute

	// Notification is what a client that has found a cycle publishes on the control channels of the cycle's other
	// clients.
	Notification = "lockdog deadlock?"
)

type state uint8

const (
	idle state = iota
	armed
	passing
	closed
)

// New returns a Finder that does nothing before Joined is called.
func New(cfg Config) *Finder {
	f := &Finder{cfg: cfg, long: make(map[Waiter]*longWait), unreadable: make(map[string]time.Time)}
	_, f.random = script.ClientOf(cfg.Owners + "0")
	f.ctx, f.cancel = context.WithCancel(telemetry.Untraced(context.Background()))
	f.records.f = f
	return f
}

// Joined notes that a waiter has joined a queue.
func (f *Finder) Joined() {
	if f.cfg.After > 0 && !f.busy.Load() {
		f.arm(f.cfg.After)
	}
}

// Notified notes that another client has found a cycle with a wait of this client.
func (f *Finder) Notified() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.state != armed && f.state != passing {
		return
	}
	f.notified = true
	if f.state == armed {
		f.timer.Reset(time.Until(f.passed.Add(passPause)))
	}
}

// arm starts the timer of a pass, if the state is idle.
func (f *Finder) arm(wait time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.state != idle {
		return
	}
	f.busy.Store(true)
	f.setTimer(wait)
}

// setTimer makes the state armed. mu must be held.
func (f *Finder) setTimer(wait time.Duration) {
	f.state = armed
	if f.timer == nil {
		f.timer = time.AfterFunc(wait, f.run)
		return
	}
	f.timer.Reset(wait)
}

// run makes a pass when the timer fires.
func (f *Finder) run() {
	f.mu.Lock()
	if f.state != armed {
		f.mu.Unlock()
		return
	}
	f.state = passing
	f.lookNow, f.notified = f.lookNow || f.notified, false
	f.passes.Add(1)
	f.mu.Unlock()
	defer f.passes.Done()

	next, more := f.guardedPass()

	f.mu.Lock()
	f.passed = time.Now()
	if f.state == closed {
		f.mu.Unlock()
		return
	}
	if more {
		if f.notified {
			next = passPause
		}
		f.setTimer(next)
		f.mu.Unlock()
		return
	}
	f.state = idle
	f.busy.Store(false)
	f.mu.Unlock()
	if f.cfg.Waits.Any() { // a waiter that joined in the meantime may have found busy set, and started no timer
		f.arm(f.cfg.After)
	}
}

// Close ends the passes, and removes the client's waits from Redis. If that fails, they expire.
func (f *Finder) Close() {
	f.mu.Lock()
	f.state = closed
	if f.timer != nil {
		f.timer.Stop()
	}
	f.mu.Unlock()
	f.cancel()
	f.passes.Wait()
	f.records.remove(time.Now(), lastTimeout)
}

// guardedPass makes a pass, and recovers from a panic of the program's code: its contexts and, if a lease turns out to
// be lost, its logger and meters. On the timer's goroutine nothing else would recover.
func (f *Finder) guardedPass() (next time.Duration, more bool) {
	defer func() {
		if v := recover(); v != nil {
			next, more = panickedPause, true
			f.cfg.Panicked(v, debug.Stack())
		}
	}()
	return f.pass()
}

// pass writes the changes of the waits, and searches for deadlocks. Before the time f.denied it does neither. It
// returns the time until the next pass, and whether there is to be one.
func (f *Finder) pass() (next time.Duration, more bool) {
	began := time.Now()
	f.budget.refill(began, len(f.long))
	soonest, more := f.collect(began)
	took := time.Since(began)
	for _, w := range f.long {
		w.update()
	}
	wake := soonest
	earlier := func(t time.Time) {
		if !t.IsZero() && (wake.IsZero() || t.Before(wake)) {
			wake = t
		}
	}
	switch {
	case began.Before(f.denied):
		if len(f.long) > 0 {
			earlier(f.denied)
		}
	default:
		err := f.records.write(began, f.long)
		if err == nil && len(f.long) > 0 {
			var look time.Time
			look, err = f.search(began)
			earlier(look)
		}
		if isForbidden(err) {
			f.refused(began, err)
		}
		earlier(f.records.due())
	}
	if !more && wake.IsZero() {
		return 0, false
	}
	if wake.IsZero() {
		wake = began.Add(f.cfg.After)
	}
	return max(time.Until(wake), passPause, passShare*took), true
}

// refused notes that the ACL forbids the graph's keys. Other clients then don't see this client's waits. Locks work as
// before.
func (f *Finder) refused(now time.Time, err error) {
	f.denied = now.Add(DeniedPause)
	f.records.forget()
	if !f.warned {
		f.warned = true
		f.cfg.Logger().Warn(
			"lockdog: Redis's ACL refuses the wait graph; deadlocks across processes aren't found",
			"error", err.Error())
	}
}

// isForbidden reports whether the ACL forbids a script or a command in it.
func isForbidden(err error) bool {
	return redisfail.IsForbidden(err) || redisfail.IsForbiddenInScript(err)
}

// call makes one call, and reads its reply by read. If the server's clock is known, a script that takes a not-after
// writes nothing once writeTimeout has passed.
func (f *Finder) call(
	ctx context.Context, timeout, writeTimeout time.Duration,
	args func(*script.Request), read func(dispatch.Reply) error,
) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	c := f.cfg.Dispatcher.NewCall(telemetry.PurposeOther)
	args(&c.Request)
	c.MayWriteFor = writeTimeout
	reply, err := f.cfg.Dispatcher.Do(ctx, c, timeout)
	if err != nil {
		return err
	}
	return read(reply)
}
