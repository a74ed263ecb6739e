package lock

import (
	"cmp"
	"context"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockdog/lockdog/lock/internal/redisfail"
	"github.com/lockdog/lockdog/lock/internal/script"
	"github.com/lockdog/lockdog/lock/internal/waitgraph"
	"github.com/lockdog/lockdog/telemetry"
)

// waitGraph is this client's part of the wait graph: it writes the client's lasting waits into Redis (see waitRecords), and looks for deadlocks that
// they are part of (see deadlockSearch). All of that is done in passes, one at a time. A waiter that joins a queue does no more than to look whether
// a pass is to come:
//
//	      a waiter joins            its time, or a nudge
//	idle ────────────────▶ armed ───────────────────────▶ passing
//	  ▲                      ▲                              │ │
//	  │                      └── a waiter is left ──────────┘ │
//	  └────────── no waiter, and nothing of it in Redis ──────┘
//
// In each state Close leads to closed, once the pass that is under way has ended. A pass finds the waits that last by itself; nobody tells it of a
// wait that has ended.
type waitGraph struct {
	c      *Client
	after  time.Duration // when a wait lasts; 0: the client takes no part
	ctx    context.Context
	cancel context.CancelFunc
	busy   atomic.Bool // the state isn't idle
	passes sync.WaitGroup

	mu     sync.Mutex
	state  graphState
	timer  *time.Timer
	haste  bool      // somebody has found a cycle with a wait of this client
	passed time.Time // the end of the last pass

	// The rest belongs to the pass.
	random     string // the client, in Redis: the random digits of its owners
	lasting    map[*waiter]*lastingWait
	records    waitRecords
	budget     budget
	searched   time.Time            // the last search
	hurry      bool                 // haste, since the last search
	unreadable map[string]time.Time // names of locks whose holders the ACL hides from this client, and until when they aren't asked for
	denied     time.Time            // until when nothing is asked of a Redis whose ACL refuses the graph's keys
	warned     bool
}

const (
	defaultLasting = time.Second // of WithWaitGraph
	minLasting     = 100 * time.Millisecond
	maxLasting     = time.Hour

	passPause     = 100 * time.Millisecond // between passes, at least
	passShare     = 50                     // a pass takes one of so many parts of the time, at most
	graphPatience = time.Second            // for a call
	deniedPause   = time.Minute
	panickedPause = time.Second // after a pass that panicked

	maxRecorded = 1000 // waits of a client in Redis

	// nudge is a message on a client's control channel: somebody has found a cycle that a wait of the client is part of.
	nudge = "lockdog deadlock?"
)

// graphState is what a waitGraph does.
type graphState uint8

const (
	graphIdle graphState = iota
	graphArmed
	graphPassing
	graphClosed
)

// lastingWait is a wait that lasts.
type lastingWait struct {
	w       *waiter
	holds   []grantHandle  // that its ctx carries, also those that have ended
	record  waitgraph.Wait // as of this pass
	follows bool           // it may be part of a deadlock, as of this pass
	search  searchState
}

func newWaitGraph(c *Client) *waitGraph {
	g := &waitGraph{c: c, after: c.cfg.graphAfter, lasting: make(map[*waiter]*lastingWait), unreadable: make(map[string]time.Time)}
	_, g.random = script.ClientOf(c.ownerHead + "0")
	g.ctx, g.cancel = context.WithCancel(telemetry.Untraced(context.Background()))
	g.records.g = g
	return g
}

// joined is called when a waiter has joined a queue.
func (g *waitGraph) joined() {
	if g.after > 0 && !g.busy.Load() {
		g.arm(g.after)
	}
}

// nudged is called when another client has found a cycle.
func (g *waitGraph) nudged() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.state != graphArmed && g.state != graphPassing {
		return
	}
	g.haste = true
	if g.state == graphArmed {
		g.timer.Reset(time.Until(g.passed.Add(passPause)))
	}
}

// arm has a pass made after a while, unless one is to come.
func (g *waitGraph) arm(wait time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.state != graphIdle {
		return
	}
	g.busy.Store(true)
	g.setTimer(wait)
}

// setTimer makes the state graphArmed. It is called with mu held.
func (g *waitGraph) setTimer(wait time.Duration) {
	g.state = graphArmed
	if g.timer == nil {
		g.timer = time.AfterFunc(wait, g.run)
		return
	}
	g.timer.Reset(wait)
}

// run is what the timer runs.
func (g *waitGraph) run() {
	g.mu.Lock()
	if g.state != graphArmed {
		g.mu.Unlock()
		return
	}
	g.state = graphPassing
	g.hurry, g.haste = g.hurry || g.haste, false
	g.passes.Add(1)
	g.mu.Unlock()
	defer g.passes.Done()

	next, more := g.guardedPass()

	g.mu.Lock()
	g.passed = time.Now()
	if g.state == graphClosed {
		g.mu.Unlock()
		return
	}
	if more {
		if g.haste {
			next = passPause
		}
		g.setTimer(next)
		g.mu.Unlock()
		return
	}
	g.state = graphIdle
	g.busy.Store(false)
	g.mu.Unlock()
	if g.c.waits.queued() { // a waiter that joined meanwhile may have found it busy
		g.arm(g.after)
	}
}

// close ends the passes, and takes the client's waits out of Redis. They would expire by themselves.
func (g *waitGraph) close() {
	g.mu.Lock()
	g.state = graphClosed
	if g.timer != nil {
		g.timer.Stop()
	}
	g.mu.Unlock()
	g.cancel()
	g.passes.Wait()
	g.records.remove(time.Now(), lastPatience)
}

// guardedPass makes a pass, and survives a panic of what belongs to the program: contexts, and what is told of leases that have ended. Nobody else is there to
// recover from that on the timer's goroutine.
func (g *waitGraph) guardedPass() (next time.Duration, more bool) {
	defer func() {
		if v := recover(); v != nil {
			next, more = panickedPause, true
			defer func() { _ = recover() }() // the logger is the program's, too
			g.c.panicked(v, debug.Stack())
		}
	}()
	return g.pass()
}

// pass writes what has changed, and looks for deadlocks. It returns when the next pass is to be made, if there is to be one.
func (g *waitGraph) pass() (next time.Duration, more bool) {
	began := time.Now()
	g.budget.refill(began, len(g.lasting))
	soonest, more := g.collect(began)
	took := time.Since(began)
	for _, lw := range g.lasting {
		lw.update()
	}
	wake := soonest
	earlier := func(t time.Time) {
		if !t.IsZero() && (wake.IsZero() || t.Before(wake)) {
			wake = t
		}
	}
	switch {
	case began.Before(g.denied):
		if len(g.lasting) > 0 {
			earlier(g.denied)
		}
	default:
		err := g.records.write(began, g.lasting)
		if err == nil && len(g.lasting) > 0 {
			var look time.Time
			look, err = g.search(began)
			earlier(look)
		}
		if redisfail.IsForbidden(err) {
			g.refused(began, err)
		}
		earlier(g.records.due())
	}
	if !more && wake.IsZero() {
		return 0, false
	}
	if wake.IsZero() {
		wake = began.Add(g.after)
	}
	return max(time.Until(wake), passPause, passShare*took), true
}

// refused notes that the ACL doesn't allow what the graph needs. Then nobody sees it, and locks go on.
func (g *waitGraph) refused(now time.Time, err error) {
	g.denied = now.Add(deniedPause)
	g.records.forget()
	if !g.warned {
		g.warned = true
		g.c.logger().Warn("lockdog: Redis's ACL refuses the wait graph; deadlocks across processes aren't found", "error", err.Error())
	}
}

// collect brings lasting up to date. It returns when the next waiter will have waited for long, zero: none is to come; and whether there is any waiter.
func (g *waitGraph) collect(now time.Time) (soonest time.Time, any bool) {
	type found struct {
		w     *waiter
		claim *claim
	}
	var all []found
	ws := g.c.waits
	ws.mu.Lock()
	for _, q := range ws.queues {
		for w := q.head; w != nil; w = w.next {
			any = true
			if w.ctx == nil || w.won != nil {
				continue
			}
			if lasts := w.since.Add(g.after); lasts.After(now) {
				if soonest.IsZero() || lasts.Before(soonest) {
					soonest = lasts
				}
				continue
			}
			all = append(all, found{w, w.claim})
		}
	}
	ws.mu.Unlock()

	// The values of a ctx are the program's to find, so not with mu held.
	before := g.lasting
	g.lasting = make(map[*waiter]*lastingWait, len(all))
	for _, f := range all {
		lw := before[f.w]
		if lw == nil {
			lw = newLastingWait(f.w)
			g.budget.tokens += budgetStart
		}
		lw.record.Waiter, lw.record.Traceparent = f.claim.owner, f.claim.traceparent
		g.lasting[f.w] = lw
	}
	return soonest, any
}

func newLastingWait(w *waiter) *lastingWait {
	lk := w.lock
	lw := &lastingWait{w: w, record: waitgraph.Wait{Name: lk.name, Kind: lk.kind.name, Since: w.since.Truncate(time.Microsecond), Breaks: lk.cfg.breaks}}
	known := make(map[*grant]bool)
	add := func(h grantHandle) {
		if h.g.client() == lk.c && h.g.lock.kind != quorumKind && !known[h.g] {
			known[h.g] = true
			lw.holds = append(lw.holds, h)
		}
	}
	if cl := w.params.composite; cl != nil { // what a Multi has taken so far
		cl.grants(nil, add)
	}
	carried(w.ctx, lk, func(l *Lease) bool {
		l.target.grants(l, add)
		return len(known) < 4*waitgraph.MaxHolds
	})
	return lw
}

// update notes which leases live.
func (lw *lastingWait) update() {
	lw.record.Holds = lw.record.Holds[:0:0]
	for _, h := range lw.holds {
		if len(lw.record.Holds) == waitgraph.MaxHolds {
			break
		}
		if h.joinable() {
			lw.record.Holds = append(lw.record.Holds, waitgraph.Hold{Name: h.g.lock.name, Kind: h.g.lock.kind.name, Owner: h.g.claim.owner, Token: h.g.token()})
		}
	}
	lw.follows = len(lw.record.Holds) > 0 && waitgraph.Followed(lw.record.Kind)
}

// inOrder returns the waits that may be written: those with leases first, of these the ones that may fail, then the oldest.
func inOrder(lasting map[*waiter]*lastingWait) []*lastingWait {
	all := make([]*lastingWait, 0, len(lasting))
	for _, lw := range lasting {
		all = append(all, lw)
	}
	rank := func(lw *lastingWait) int {
		switch {
		case len(lw.record.Holds) == 0:
			return 2
		case !lw.record.Breaks:
			return 1
		}
		return 0
	}
	slices.SortFunc(all, func(a, b *lastingWait) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), a.record.Since.Compare(b.record.Since), cmp.Compare(a.record.Waiter, b.record.Waiter))
	})
	return all[:min(len(all), maxRecorded)]
}

// queued reports whether there is a waiter in a queue.
func (ws *waitQueues) queued() bool {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	return len(ws.queues) > 0
}
