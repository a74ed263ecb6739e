package lock

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/lockdog/lockdog/lock/internal/redisfail"
	"github.com/lockdog/lockdog/lock/internal/script"
	"github.com/lockdog/lockdog/telemetry"
	"github.com/lockdog/lockdog/watchdog"
)

// grant is one grant of a lock by Redis. Leases are the handles on it: the one that Lock returned, and those that
// joined it.
//
//	         cancel                 deadline, or the client gives up
//	held ─────────────▶ canceled ───────────────────────────┐
//	 │ │                   │                                ▼
//	 │ └───── lost ────────┼──────────────────────────▶   ended
//	 │                     │                                ▲
//	 └──── release ────────┴────▶ releasing ────────────────┘
//
// Every step is taken under mu by whoever comes first, so that a grant has one reason to end.
type grant struct {
	lock  *lock
	claim *claim
	wd    watchdog.Lease
	hold  telemetry.Hold

	mu     sync.Mutex
	state  grantState
	first  Lease
	extras *grantExtra // nil while there is nothing to say in it

	prev, next *grant // registry
}

type grantState uint8

const (
	grantHeld grantState = iota
	grantCanceled
	grantReleasing
	grantEnded
)

// newGrant makes the grant that Redis has given to a claim, and has the watchdog renew it; nil when the client
// is closed.
func (lk *lock) newGrant(ctx context.Context, a *telemetry.Acquire, b *claim, token int64, sent time.Time) *Lease {
	g := &grant{lock: lk, claim: b}
	l := &g.first
	l.init(g, lk, ctx)
	a.Grant(&g.hold, b.owner, token) // before anybody can find the grant, and look at it
	if lk.cfg.fixed {
		g.hold.NotRenewed()
	}
	if !lk.c.grants.add(g) {
		g.hold.End(telemetry.EndClosed)
		return nil
	}
	if lk.kind.force != nil {
		lk.c.watchControl(lk.key)
	}
	lk.c.rec.WatchdogLeases(1)
	lk.c.engine.Watch(&g.wd, watchdog.Spec{
		TTL: lk.cfg.lease, Interval: lk.cfg.interval(), Margin: lk.cfg.margin(),
		Partition: lk.c.dispatcher.Node(lk.key).Name,
		Sent:      sent, Alarm: g.nextAlarm(0), Holder: g,
	})
	g.watchKey()
	lk.c.layout.start()
	l.follow()
	return l
}

// init makes the handle on g that a call of lk with ctx is given.
func (l *Lease) init(g *grant, lk *lock, ctx context.Context) {
	l.g, l.ctx = g, lk.follows(ctx)
}

// follows is what a lease taken with ctx follows. Where that is another ctx, takenIn of it is the lease in whose Context ctx was made.
func (lk *lock) follows(ctx context.Context) context.Context {
	lc := lk.cfg.leaseCtx
	if lc == nil {
		return ctx
	}
	if outer := leaseOf(ctx); outer != nil {
		return context.WithValue(lc, takenInKey{}, outer)
	}
	return lc
}

// join adds a handle to a live grant, nil if it ended meanwhile.
func (g *grant) join(ctx context.Context, lk *lock) *Lease {
	l := &Lease{}
	l.init(g, lk, ctx)
	g.mu.Lock()
	if g.state != grantHeld {
		g.mu.Unlock()
		return nil
	}
	r := g.ensureExtra()
	r.joined = append(r.joined, l)
	g.mu.Unlock()
	l.follow()
	return l
}

// leases are the handles that aren't released. It is called with mu held.
func (g *grant) leases() iter.Seq[*Lease] {
	return func(yield func(*Lease) bool) {
		if !g.first.released && !yield(&g.first) {
			return
		}
		for _, l := range g.extra().joined {
			if !yield(l) {
				return
			}
		}
	}
}

// others reports whether a handle other than l still has the permission to work. It is called with mu held.
func (g *grant) others(l *Lease) bool {
	for o := range g.leases() {
		if o != l && o.cause == nil {
			return true
		}
	}
	return false
}

// only reports whether there is no handle but l.
func (g *grant) only(l *Lease) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	for o := range g.leases() {
		if o != l {
			return false
		}
	}
	return true
}

// cancel takes the permission to work away: the lease is renewed no more.
func (g *grant) cancel(reason Reason, err error) {
	g.mu.Lock()
	if g.state != grantHeld || g.end() != nil { // a loss is decided before the state changes
		g.mu.Unlock()
		return
	}
	g.state, g.ensureExtra().reason = grantCanceled, reason
	for l := range g.leases() {
		l.stop(err)
	}
	g.mu.Unlock()
	if reason != ReasonClosed { // a closing client keeps renewing while its holders wind down
		g.lock.c.engine.StopRenewal(&g.wd)
	}
	g.hold.Canceled(cancelReasons[reason], err)
}

// closing takes the permission to work away because the client closes.
func (g *grant) closing() {
	g.cancel(ReasonClosed, &CanceledError{g.lock.name, ReasonClosed, ErrClosed})
}

// abandon leaves the grant to Redis: the client has closed, and waits no longer.
func (g *grant) abandon() {
	g.finish(wrapError(g.lock.name, "hold", ErrClosed), telemetry.EndClosed, string(ReasonClosed))
}

// finish is the last step of every grant, taken once.
func (g *grant) finish(err error, end telemetry.HoldEnd, cause string) {
	g.mu.Lock()
	decided := g.extra().err // by lose, which is still being told
	switch {
	case g.state == grantEnded, decided != nil && !errors.Is(err, decided),
		g.state == grantReleasing && end == telemetry.EndClosed: // the release under way reports its own end
		g.mu.Unlock()
		return
	}
	if reason := g.extra().reason; reason != "" {
		end, cause = telemetry.EndCanceled, string(reason)
		if reason == ReasonClosed {
			end = telemetry.EndClosed
		}
	}
	g.state = grantEnded
	if !errors.Is(err, ErrReleased) {
		g.ensureExtra().err = err
	}
	for l := range g.leases() {
		l.stop(err)
		l.end()
	}
	g.mu.Unlock()
	g.hold.End(end)
	g.lock.c.rec.WatchdogLeases(-1)
	g.unwatchKey()
	g.lock.c.grants.remove(g, end, cause, err)
}

// lose ends the grant without a release. Whoever learns of it first does: the watchdog's callback, or somebody
// who looks at the lease while the callback waits for its turn.
func (g *grant) lose(cause watchdog.Cause, err error, burst *telemetry.Burst) {
	if cause == watchdog.CauseMissing || cause == watchdog.CauseTaken && !redisfail.IsWrongType(err) {
		err = nil // Redis has answered: that it hadn't before isn't why
	}
	g.mu.Lock()
	if g.end() != nil {
		g.mu.Unlock()
		return
	}
	why := lossCauses[cause]
	if told := g.extra(); told.forced != nil && (cause == watchdog.CauseMissing || cause == watchdog.CauseTaken) {
		why, err = CauseForced, told.forced
	}
	lost := &LostError{Name: g.lock.name, Cause: why, err: err}
	g.ensureExtra().err = lost
	for l := range g.leases() {
		l.stop(lost) // before anything that may take a while
	}
	canceled := g.extra().reason != ""
	g.mu.Unlock()
	if !canceled {
		g.hold.Lost(telemetryCauses[why], err, burst)
	}
	g.finish(lost, telemetry.EndLost, string(lost.Cause))
	if cause != watchdog.CauseMissing && cause != watchdog.CauseTaken {
		// Redis may hold the entry yet: give it back, if we can.
		g.claim.cleanUp()
	}
	g.lock.c.waits.wake(g.lock.key)
}

// noteForced notes who took the lock away by ForceUnlock, if it turns out that it was taken away.
func (g *grant) noteForced(by string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	r := g.ensureExtra()
	r.forced, r.forcedAt = fmt.Errorf("ForceUnlock by %.*q", maxTextBytes, by), time.Now()
}

// check looks at the clock, and reports whether the grant may still be trusted.
func (g *grant) check() bool {
	if g.lock.c.engine.Check(&g.wd) {
		return true
	}
	if loss, ok := g.wd.Loss(); ok {
		g.Lost(loss)
	}
	return false
}

// release ends one handle, and with the last one the grant.
func (g *grant) release(ctx context.Context, l *Lease) error {
	last, err := g.leave(l)
	if !last {
		return err
	}
	return g.giveBack(ctx)
}

// leave ends one handle. It reports whether that was the last, and the lock is to be given back.
func (g *grant) leave(l *Lease) (last bool, err error) {
	g.check()
	g.mu.Lock()
	if l.released {
		g.mu.Unlock()
		return false, wrapError(g.lock.name, "release", ErrReleased)
	}
	l.released = true
	l.end()
	if err := g.end(); err != nil {
		g.mu.Unlock()
		return false, err
	}
	l.stop(ErrReleased)
	if g.extras != nil {
		g.extras.joined = slices.DeleteFunc(g.extras.joined, func(o *Lease) bool { return o == l })
	}
	if !g.first.released || len(g.extra().joined) > 0 {
		abandoned := !g.others(nil) // those left have lost their permission already
		g.mu.Unlock()
		if abandoned {
			g.cancel(ReasonContext, &CanceledError{g.lock.name, ReasonContext, errJoinedLast})
		}
		return false, nil
	}
	g.state = grantReleasing
	g.mu.Unlock()

	if !g.lock.c.engine.Remove(&g.wd) && !g.check() { // the watchdog was quicker
		return false, g.ended()
	}
	return true, nil
}

// ended is how the grant has ended.
func (g *grant) ended() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.end()
}

// giveBack releases the lock in Redis. The renewal has been stopped.
func (g *grant) giveBack(ctx context.Context) error {
	if ctx.Err() != nil {
		ctx = context.WithoutCancel(ctx)
	}
	ctx, rel := g.lock.c.rec.StartRelease(ctx, &g.hold)
	deadline := g.wd.Deadline()
	f, err := g.lock.c.waits.release(ctx, &rel, g, deadline)
	return g.given(&rel, f, err)
}

// given ends the grant by what became of its release.
func (g *grant) given(rel *telemetry.Release, f releaseReply, err error) error {
	if time.Now().Before(g.claim.lateWriteUntil()) {
		g.claim.cleanUpLater()
	}
	switch {
	case err != nil:
		g.claim.cleanUp()
		rel.End(telemetry.ReleaseError, false, err)
		g.finish(ErrReleased, telemetry.EndReleased, "")
		return wrapError(g.lock.name, "release", err)
	case f.Outcome >= script.Missing:
		cause := watchdog.CauseMissing
		if f.Outcome == script.Taken {
			cause = watchdog.CauseTaken
		}
		rel.End(telemetry.ReleaseLost, false, ErrLost)
		g.lose(cause, nil, nil)
		return g.ended()
	default:
		rel.End(telemetry.ReleaseReleased, f.unconfirmed, nil)
		g.finish(ErrReleased, telemetry.EndReleased, "")
		return nil
	}
}

// Renewal implements watchdog.Holder.
func (g *grant) Renewal(r watchdog.Renewal) {
	if r.Result.Outcome == watchdog.Moved {
		return // the watchdog tries again where the lock lives now
	}
	g.mu.Lock()
	if g.extras != nil || r.Result.Err != nil {
		g.ensureExtra().failing.note(r.Result.Err)
	}
	if r.Result.Outcome == watchdog.Renewed && r.Batch.Sent.After(g.extra().forcedAt) && g.extra().forced != nil {
		g.extras.forced = nil // it wasn't so
	}
	g.mu.Unlock()
	g.lock.c.renewer.report(g, r)
}

// Lost implements watchdog.Holder.
func (g *grant) Lost(l watchdog.Loss) {
	g.lose(l.Cause, l.Err, g.lock.c.renewer.burst(l.Batch))
}

// lossCauses gives the watchdog's causes their names here, and telemetryCauses those there.
var (
	lossCauses = map[watchdog.Cause]Cause{
		watchdog.CauseMissing:     CauseMissing,
		watchdog.CauseTaken:       CauseTaken,
		watchdog.CauseExpired:     CauseExpired,
		watchdog.CauseUnreachable: CauseUnreachable,
		watchdog.CauseStalled:     CauseStalled,
	}
	telemetryCauses = map[Cause]telemetry.LossCause{
		CauseMissing:     telemetry.LossMissing,
		CauseTaken:       telemetry.LossTaken,
		CauseExpired:     telemetry.LossExpired,
		CauseUnreachable: telemetry.LossUnreachable,
		CauseStalled:     telemetry.LossStalled,
		CauseForced:      telemetry.LossForced,
	}
)

var cancelReasons = map[Reason]telemetry.CancelReason{
	ReasonContext:   telemetry.CancelContext,
	ReasonMaxHold:   telemetry.CancelMaxHold,
	ReasonHeartbeat: telemetry.CancelHeartbeat,
	ReasonClosed:    telemetry.CancelClosed,
}

// errJoinedLast is why a lease is canceled when the only handles left are of those whose ctx has ended.
var errJoinedLast = errors.New("every ctx that the lease follows has ended")
