package lock

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/lockdog/lockdog/lock/internal/agentlink"
	"github.com/lockdog/lockdog/lock/internal/renewal"
	"github.com/lockdog/lockdog/lock/internal/script"
	"github.com/lockdog/lockdog/telemetry"
	"github.com/lockdog/lockdog/watchdog"
)

// grant is one grant of a lock by Redis, to a claim. For the program it has handles, each a Lease: the first one, and
// those that joined it. For the watchdog it is one watchdog.Lease, of which it is the Holder, and for telemetry one
// Hold.
//
//	         cancel                 deadline, or the client gives up
//	held ─────────────▶ canceled ───────────────────────────┐
//	 │ │                   │                                ▼
//	 │ └───── lost ────────┼──────────────────────────▶   ended
//	 │                     │                                ▲
//	 └──── release ────────┴────▶ releasing ────────────────┘
//
// Each step is taken once, by the first caller, with mu held. So a grant ends for exactly one reason. A loss is decided
// before the state changes: once lose has set extras.err, endErr returns it, and finish accepts no other end. A grant
// that is canceled, or is being released, may still be lost.
//
// The functions that end contexts are separate from those that report the end: a report calls the program's code, and
// may block.
//
//	under mu                 reports, without mu
//	cancel (its caller's)    the function that it returns
//	lose                     reportLoss, which also finishes
//	end                      reportEnd; finish does both
type grant struct {
	lock  *lock
	claim *claim
	wd    watchdog.Lease
	hold  telemetry.Hold

	mu            sync.Mutex
	state         grantState
	firstReleased bool
	first         Lease       // the handle of the call that took the lock
	extras        *grantExtra // nil while it isn't needed

	prev, next *grant // in the registry's ring
}

var (
	_ watchdog.Holder = (*grant)(nil)
	_ renewal.Holder  = (*grant)(nil)
)

type grantState uint8

const (
	grantHeld grantState = iota
	grantCanceled
	grantReleasing
	grantEnded
)

// startGrant returns the grant of a claim that Redis has granted, and gives it to the watchdog. It returns nil if the
// client is closing.
func (lk *lock) startGrant(ctx context.Context, a *telemetry.Acquire, claim *claim, v *acquireReply) *grant {
	if lk.c.isClosing() {
		return nil
	}
	g := &grant{lock: lk, claim: claim}
	g.first.target, g.first.parent = g, lk.parentOf(ctx)
	a.Grant(&g.hold, claim.owner, v.Token) // before others can find the grant in the registry
	if lk.cfg.fixed {
		g.hold.NotRenewed()
	}
	g.tellAgent() // before anything can end the grant
	if !lk.c.grants.add(g) {
		lk.c.agent.Free(claim.owner)
		g.hold.End(telemetry.EndClosed)
		return nil
	}
	if lk.kind.force != nil {
		lk.c.watchControl(lk.key)
	}
	lk.c.rec.WatchdogLeases(1)
	lk.c.renewer.Watch(&g.wd, watchdog.Spec{
		TTL: lk.cfg.lease, Interval: lk.cfg.interval(), Margin: lk.cfg.margin(),
		Node: lk.node(),
		Sent: v.sent, Until: v.until, Alarm: g.nextAlarm(0), Holder: g,
	})
	g.watchKey()
	g.follow(&g.first)
	return g
}

// cancel ends the context of every handle. It stops the renewal unless Client.Close is the reason. It returns a
// function that reports the cancellation, and so calls the program's code; nil: the grant wasn't canceled, because it
// had been canceled before, is being released, or has ended. mu must be held.
func (g *grant) cancel(err *CanceledError) (report func()) {
	if g.state != grantHeld || g.endErr() != nil {
		return nil
	}
	g.state, g.ensureExtra().canceled = grantCanceled, err
	g.hold.NotRenewed()
	for l := range g.handles() {
		l.endContext(err)
	}
	if err.Reason != ReasonClosed { // a closing client keeps renewing while its holders wind down
		g.stopRenewal()
	}
	return func() { g.hold.Canceled(err.Reason, err.logged()) }
}

// stopRenewal stops the renewals. The watchdog still watches the deadline. If a message granted the lock, and no
// renewal has followed yet, one still does: see watchdog.Spec.Until.
func (g *grant) stopRenewal() { g.client().renewer.StopRenewal(&g.wd) }

// cancelForClose cancels the grant because the client closes. It returns the same as cancel.
func (g *grant) cancelForClose() (report func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.cancel(&CanceledError{g.lock.name, ReasonClosed, ErrClosed})
}

// endUnreleased ends the grant without a release, because Client.Close no longer waits for it. The lock expires in
// Redis. A release that is under way goes on, and ends the grant itself. endUnreleased returns a function that reports
// the end, or a loss that the watchdog hadn't reported when it was closed.
func (g *grant) endUnreleased() (report func()) {
	g.loseIfExpired()
	if end, ended := g.end(wrapError(g.lock.name, "hold", ErrClosed)); ended {
		return func() { g.reportEnd(end) }
	}
	return g.reportLoss
}

// ending is how a grant has ended.
type ending struct {
	err  error // Lease.Err
	hold telemetry.HoldEnd
	why  string // EndedLease.Why
}

// endingOf returns how a grant ends with err as its Lease.Err: released, lost, or closed with its client. But if it was
// canceled before, it ends as canceled, or as closed if Close canceled it.
func endingOf(err error, canceled *CanceledError) ending {
	switch {
	case canceled != nil && canceled.Reason != ReasonClosed:
		return ending{err, telemetry.EndCanceled, string(canceled.Reason)}
	case canceled != nil:
		return ending{err, telemetry.EndClosed, string(ReasonClosed)}
	case errors.Is(err, ErrReleased): // before errors.As, which allocates
		return ending{err, telemetry.EndReleased, ""}
	}
	if lost := (*LostError)(nil); errors.As(err, &lost) {
		return ending{err, telemetry.EndLost, string(lost.Cause)}
	}
	return ending{err, telemetry.EndClosed, string(ReasonClosed)}
}

// finish ends the grant, and reports that. err is Lease.Err from then on. It has no effect if end returns false.
func (g *grant) finish(err error) {
	if end, ended := g.end(err); ended {
		g.reportEnd(end)
	}
}

// end is finish without reportEnd. It returns false, and changes nothing, if the grant has ended before, if lose has
// decided on another end, or if err ends it unreleased while a release is under way.
func (g *grant) end(err error) (end ending, ended bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	decided := g.extraCopy().err // lose has set it
	unreleased := !errors.Is(err, ErrLost) && !errors.Is(err, ErrReleased)
	switch {
	case g.state == grantEnded, decided != nil && !errors.Is(err, decided),
		g.state == grantReleasing && unreleased: // the release under way reports its own end
		return ending{}, false
	}
	end = endingOf(err, g.extraCopy().canceled)
	g.state = grantEnded
	if !errors.Is(err, ErrReleased) {
		g.ensureExtra().err = err
	}
	for l := range g.handles() {
		l.endContext(err)
		l.closeEnded()
		if l.composite != nil {
			l.composite.memberEnded(l, g.endErr())
		}
	}
	return end, true
}

// reportEnd reports the end of the grant, which calls the program's code, and then forgets the grant.
func (g *grant) reportEnd(end ending) {
	g.mu.Lock()
	sample := g.extraCopy().sample
	g.mu.Unlock()
	defer g.client().grants.retire(g, end) // also if that code panics
	g.client().agent.Free(g.claim.owner)
	g.hold.End(end.hold)
	sample.End()
	g.client().rec.WatchdogLeases(-1)
	g.unwatchKey()
}

// whyEnded returns how the grant has ended, nil while it lives.
func (g *grant) whyEnded() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.endErr()
}

// releaseInRedis releases the lock in Redis, after dropHandle has stopped the renewal. The queues do it, because the
// same script may pass the lock on to a waiter.
func (g *grant) releaseInRedis(ctx context.Context) error {
	if ctx.Err() != nil {
		ctx = context.WithoutCancel(ctx)
	}
	ctx, rel := g.client().rec.StartRelease(ctx, &g.hold)
	deadline := g.wd.Deadline()
	f, err := g.client().waits.handOverOrRelease(ctx, &rel, g, deadline)
	return g.finishRelease(&rel, f, err)
}

// keepUntil returns until when a release keeps the lock taken (WithMinHold); zero, or in the past: the release frees
// it.
func (g *grant) keepUntil() time.Time {
	if g.lock.cfg.minHold == 0 || g.lock.kind.retain == nil {
		return time.Time{}
	}
	g.mu.Lock()
	unused := g.extraCopy().unused
	g.mu.Unlock()
	if unused {
		return time.Time{}
	}
	return g.hold.Since().Add(g.lock.cfg.minHold)
}

// isAhead reports whether t is in the future. For a zero t, the usual case, it saves the cost of time.Now.
func isAhead(t time.Time) bool { return !t.IsZero() && time.Now().Before(t) }

// finishRelease ends the grant with the outcome of its release.
func (g *grant) finishRelease(rel *telemetry.Release, reply releaseReply, err error) error {
	if reply.OthersWait || reply.GrantedRemotely {
		g.noteOthersWait()
	}
	keepUntil := g.keepUntil()
	if err == nil || !isAhead(keepUntil) { // otherwise GiveBack might free the lock before keepUntil
		g.client().waits.abandonEntry(g.claim)
	}
	switch {
	case err != nil: // also if keepUntil is over: an earlier try may have replaced the owner
		g.claim.cleanUpKeeping(keepUntil)
	case isAhead(g.claim.lateWriteUntil()): // a delayed acquire may take it again
		g.claim.cleanUp()
	}
	switch {
	case err != nil:
		rel.End(telemetry.ReleaseError, false, err)
		g.finish(ErrReleased)
		return g.lock.wrapRelease(err)
	case reply.Outcome.NotOurs():
		cause := CauseMissing
		if reply.Outcome == script.Taken {
			cause = CauseTaken
		}
		rel.End(telemetry.ReleaseLost, false, ErrLost)
		g.lose(cause, nil, nil)
		g.reportLoss()
		return g.whyEnded()
	default:
		rel.End(telemetry.ReleaseReleased, reply.unconfirmed, nil)
		g.finish(ErrReleased)
		return nil
	}
}

// Target implements renewal.Holder.
func (g *grant) Target() renewal.Target {
	return renewal.Target{
		Key: g.lock.key, Owner: g.claim.owner, Holding: g.lock.kind.holding,
		Expiry: g.lock.cfg.ttl(), ExpiryArg: g.lock.cfg.ttlArg,
	}
}

// tellAgent makes the agent of this machine, if there is one, free the lock if this process dies. A lease that isn't
// renewed, and a lock that is to stay taken for longer than it is held, last as long as they are to.
func (g *grant) tellAgent() {
	lk := g.lock
	if lk.c.agent == nil || lk.cfg.fixed || lk.cfg.minHold > 0 || lk.cfg.takeoverDelay > 0 {
		return
	}
	t := g.Target()
	counter, _ := lk.counter.(string)
	lk.c.agent.Hold(&agentlink.Hold{
		Lease:   t.AgentLease(),
		Release: lk.kind.release.Name, Counter: counter,
		Name: lk.name, Kind: lk.kind.name, Group: lk.tel.Group(), Traceparent: g.claim.traceparent,
	})
}

// Telemetry implements renewal.Holder.
func (g *grant) Telemetry() *telemetry.Hold { return &g.hold }

// NodeChanged implements renewal.Holder. It listens where ForceUnlock publishes: at the node where the lock lives.
func (g *grant) NodeChanged() { g.client().watchControl(g.lock.key) }

// Renewal implements watchdog.Holder.
func (g *grant) Renewal(r watchdog.Renewal) {
	if r.Result.Outcome == watchdog.Moved {
		return // the watchdog tries again where the lock lives now
	}
	g.mu.Lock()
	if g.extras != nil || r.Result.Err != nil {
		g.ensureExtra().failures.note(r.Result.Err)
	}
	g.mu.Unlock()
	g.client().renewer.Report(g, r)
}

// errJoinedLast is the reason if the release of a handle cancels the grant: all remaining handles were canceled before.
var errJoinedLast = errors.New("every ctx that the lease follows has ended")
