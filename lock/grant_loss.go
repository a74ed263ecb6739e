package lock

import (
	"fmt"
	"time"

	"github.com/lockdog/lockdog/lock/internal/redisfail"
	"github.com/lockdog/lockdog/telemetry"
	"github.com/lockdog/lockdog/watchdog"
)

// Lost implements watchdog.Holder.
func (g *grant) Lost(l watchdog.Loss) (tell func()) {
	g.lose(l.Cause, l.Err, g.client().renewer.Burst(l.Batch))
	return g.reportLoss
}

// lose decides that the grant ends because the lock is lost. It is called by the watchdog, by loseIfExpired, or by a
// release that finds the lock gone. It has no effect on a grant that has ended, or was lost before. It doesn't block;
// reportLoss must follow. The loss shows in this order:
//
//  1. the Err and the Context of every handle, and those of a composite with too few members left (evaluate), which
//     reports its own loss in another goroutine
//  2. from here on by reportLoss: the span, the counter and the log (hold.Lost), unless the grant was canceled before
//  3. Ended of every handle (end), and then Recent (reportEnd)
//  4. the cleanup in Redis is scheduled, unless the lock is another's or was forced (and no delayed acquire may take it
//     again), or stays taken for a takeover delay; and this client's first waiters ask for the lock
func (g *grant) lose(cause Cause, err error, burst *telemetry.Burst) {
	if cause == CauseMissing || cause == CauseTaken && !redisfail.IsWrongType(err) {
		err = nil // Redis said that the lock is gone; an earlier failed renewal isn't the cause
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.endErr() != nil {
		return
	}
	why := cause
	// A renewal that was sent after the message of the ForceUnlock, and succeeded, shows that it isn't the cause.
	if extra := g.extraCopy(); extra.forced != nil && !g.wd.Confirmed().After(extra.forcedAt) &&
		(cause == CauseMissing || cause == CauseTaken) {
		why, err = CauseForced, extra.forced
	}
	canceled := g.extraCopy().canceled
	if canceled != nil && why == CauseExpired {
		err = canceled
	}
	lost := &LostError{Name: g.lock.name, Cause: why, err: err}
	g.ensureExtra().err = lost
	for l := range g.handles() {
		l.endContext(lost)
		if l.composite != nil { // its context may have ended before
			l.composite.memberEnded(l, lost)
		}
	}
	g.hold.NotRenewed()
	g.extras.pendingReport = func() {
		defer g.endLost(lost) // also if the program's code panics
		if canceled == nil {
			g.hold.Lost(why, err, burst)
		}
	}
}

// endLost takes the steps 3 and 4 of a loss: see lose.
func (g *grant) endLost(lost *LostError) {
	defer g.client().waits.wake(g.lock.key) // also if the program's code panics
	g.finish(lost)
	// With a takeover delay the lock stays taken until the delay is over, or Release shows that the work has ended.
	delayed := g.lock.cfg.takeoverDelay > 0 && lost.Cause != CauseMissing
	others := (lost.Cause == CauseTaken || lost.Cause == CauseForced) && !isAhead(g.claim.lateWriteUntil())
	if !others && !delayed {
		// Redis may still have the lock as ours, or get it by a delayed acquire. If its key was deleted, nothing has
		// woken the waiters of other clients.
		g.claim.cleanUp()
	}
}

// reportLoss reports the loss, if there is one that hasn't been reported, and ends the grant. It calls the program's
// code, which may block.
func (g *grant) reportLoss() {
	g.mu.Lock()
	report := g.extraCopy().pendingReport
	if report != nil {
		g.extras.pendingReport = nil
	}
	g.mu.Unlock()
	if report != nil {
		report()
	}
}

// noteForced notes who called ForceUnlock. If the lock is then missing or taken, it was lost with CauseForced.
func (g *grant) noteForced(by string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	r := g.ensureExtra()
	r.forced, r.forcedAt = forcedError(fmt.Sprintf("%.*s", maxTextBytes, by)), time.Now()
}

// loseIfExpired ends the contexts of the grant if it has expired by the clock, or if the watchdog has found another
// loss. The watchdog reports the loss.
func (g *grant) loseIfExpired() {
	if g.client().renewer.Check(&g.wd) {
		return
	}
	if loss := g.wd.Loss(); loss != nil {
		g.Lost(*loss) // the watchdog may not have called Lost yet. It will, and then call what Lost returns
	}
}
