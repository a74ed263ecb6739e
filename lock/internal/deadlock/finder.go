// Package deadlock finds deadlocks across processes. Each client writes its long waits into Redis, and looks for cycles that
// they are part of. What it needs of the client's waits and leases it asks through interfaces: it knows no locks.
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

// Config says whose waits a Finder looks after.
type Config struct {
	After      time.Duration // how long a wait lasts before it is written into Redis; 0: the client takes no part
	Owners     string        // what the client's owners begin with: "<id>:<random>-"
	Prefix     string        // of all keys
	Control    string        // what the control channels of clients begin with
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

// Finder is a client's part of the wait graph: it writes the client's long waits into Redis (see records), and looks for
// deadlocks that they are part of (see search). All of that is done in passes, one at a time. A waiter that joins a queue only
// looks whether a pass is to come:
//
//	      a waiter joins           its time, or Notified
//	idle ────────────────▶ armed ───────────────────────▶ passing
//	  ▲                      ▲                              │ │
//	  │                      └── a waiter is left ──────────┘ │
//	  └────────── no waiter, and nothing of it in Redis ──────┘
//
// In each state Close leads to closed, once the pass that is under way has ended. A pass finds the long waits by itself. Nobody
// reports the end of a wait to the Finder.
type Finder struct {
	cfg    Config
	ctx    context.Context
	cancel context.CancelFunc
	busy   atomic.Bool // the state isn't idle
	passes sync.WaitGroup

	mu       sync.Mutex
	state    state
	timer    *time.Timer
	notified bool      // another client has found a cycle with a wait of this one
	passed   time.Time // the end of the last pass

	// The rest belongs to the pass.
	random     string // the client, in Redis: the random digits of its owners
	long       map[Waiter]*longWait
	records    records
	budget     budget
	searched   time.Time            // the last search
	lookNow    bool                 // notified, since the last search
	unreadable map[string]time.Time // locks whose holders the ACL hides from this client, and until when they aren't asked for
	denied     time.Time            // until when nothing is asked of a Redis whose ACL refuses the graph's keys
	warned     bool
}

const (
	passPause     = 100 * time.Millisecond // between passes, at least
	passShare     = 50                     // a pass takes one of so many parts of the time, at most
	callTimeout   = time.Second
	panickedPause = time.Second // after a pass that panicked

	// DeniedPause is how long the Finder asks for nothing that the ACL has refused.
	DeniedPause = time.Minute

	// Notification is a message on a client's control channel: somebody has found a cycle that a wait of the client is part of.
	Notification = "lockdog deadlock?"
)

// state is what a Finder does.
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

// Joined is called when a waiter has joined a queue.
func (f *Finder) Joined() {
	if f.cfg.After > 0 && !f.busy.Load() {
		f.arm(f.cfg.After)
	}
}

// Notified is called when another client has found a cycle.
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

// arm has a pass made after a while, unless one is to come.
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

// run is called by the timer.
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
	if f.cfg.Waits.Any() { // a waiter that joined in the meantime may have found it busy
		f.arm(f.cfg.After)
	}
}

// Close ends the passes, and takes the client's waits out of Redis. They would expire by themselves.
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

// guardedPass makes a pass, and survives a panic of the program's code: contexts, and what is called when a lease has ended.
// Nobody else recovers from that on the timer's goroutine.
func (f *Finder) guardedPass() (next time.Duration, more bool) {
	defer func() {
		if v := recover(); v != nil {
			next, more = panickedPause, true
			defer func() { _ = recover() }() // the logger is the program's, too
			f.cfg.Panicked(v, debug.Stack())
		}
	}()
	return f.pass()
}

// pass writes what has changed, and looks for deadlocks. It returns when the next pass is to be made, if there is to be one.
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
		if redisfail.IsForbidden(err) {
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

// refused notes that the ACL doesn't allow what the graph needs. Then nobody sees this client's waits. Locks work as before.
func (f *Finder) refused(now time.Time, err error) {
	f.denied = now.Add(DeniedPause)
	f.records.forget()
	if !f.warned {
		f.warned = true
		f.cfg.Logger().Warn("lockdog: Redis's ACL refuses the wait graph; deadlocks across processes aren't found", "error", err.Error())
	}
}

// call makes one call, and has its reply read. Without a reply the script writes nothing after writeTimeout, if it has a not-after
// time.
func (f *Finder) call(ctx context.Context, timeout, writeTimeout time.Duration, args func(*script.Request), read func(*dispatch.Call) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	c := f.cfg.Dispatcher.Call(telemetry.PurposeOther)
	args(&c.Request)
	c.WriteTimeout = writeTimeout
	if left := f.cfg.Dispatcher.Do(ctx, c, timeout); left != nil {
		return left
	}
	defer f.cfg.Dispatcher.Recycle(c)
	if c.Err != nil {
		return c.Err
	}
	return read(c)
}
