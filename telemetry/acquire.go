package telemetry

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
)

// Acquire is the telemetry of one call to Lock or TryLock. It is a value so that it can live on the caller's
// stack, and belongs to one goroutine at a time. Exactly one of Grant, Pass, Reenter and Fail ends it; what comes
// after that is ignored.
type Acquire struct {
	lock     *Lock
	ctx      context.Context // carries the span: for exemplars
	span     trace.Span      // nil with a no-op tracer
	start    time.Time       // zero if nobody wants to know how long it took
	lease    time.Duration
	attempts int
	wakeups  int
	blocked  string       // the last holder seen; kept only if the span is recorded, as are the links
	links    []trace.Link // to the holders seen

	waits     *waits        // of the ctx, nil if nobody wants to know
	caller    trace.Span    // to put the waits on, nil if that isn't wanted
	waitStart time.Time     // of the wait under way, if somebody wants to know
	waited    time.Duration // by the waits that ended, if somebody wants to know

	takeover  TakeoverReason
	errorType ErrorType // of the last call that failed
	waiting   bool
	ended     bool
}

// maxHolderLinks bounds the links of an acquire span: each costs a microsecond and a half, and it is the
// latest holders that kept the waiter waiting at the end.
const maxHolderLinks = 8

// maxOwner bounds what is taken over of an owner that somebody else wrote, in bytes.
const maxOwner = 256

// StartAcquire begins an acquire. The ctx it returns carries the span for the Redis calls below it, and is the
// caller's own when nothing traces. lease is how long one grant lasts, 0 if it has no end; l must stay where it is until the
// hold that may come of it ended.
func (r *Recorder) StartAcquire(ctx context.Context, l *Lock, lease time.Duration) (context.Context, Acquire) {
	l.role.appear(ctx)
	var caller trace.Span
	if r.callerAttributes && !l.role.isMember() { // a member's waits are its whole's, by Inherit
		caller = trace.SpanFromContext(ctx)
	}
	ctx, span := r.tracing.start(ctx, l.role.acquireSpan)
	return ctx, Acquire{lock: l, ctx: ctx, span: span, start: r.clock(ctx, span), lease: lease, caller: caller}
}

// clock is the time if anything is to be measured by it, else zero: without an SDK reading clocks would be
// most of what telemetry costs.
func (r *Recorder) clock(ctx context.Context, span trace.Span) time.Time {
	if span == nil && !r.metrics.acquireTime.Enabled(ctx) {
		return time.Time{}
	}
	return time.Now()
}

// took records how long something took, if its start was noted.
func took(ctx context.Context, i metric.Float64Histogram, start time.Time, s *set) {
	if !start.IsZero() {
		i.Record(ctx, time.Since(start).Seconds(), s.record...)
	}
}

// Traceparent is the W3C traceparent of the acquire span when it is sampled, else "". Stored beside the lock
// it lets waiters link to it.
func (a *Acquire) Traceparent() string {
	if a.span == nil {
		return ""
	}
	return formatTraceparent(a.span.SpanContext())
}

// Attempt counts one try at the server.
func (a *Acquire) Attempt() { a.attempts++ }

// Error counts a failed try, as Recorder.Error does, and puts its type on the span.
func (a *Acquire) Error(t ErrorType) {
	a.Failed(t)
	a.lock.rec.Error(a.ctx, OpAcquire, t)
}

// Failed notes, for the span, the type of an error that was counted elsewhere.
func (a *Acquire) Failed(t ErrorType) { a.errorType = t }

// Inherit gives a whole what the acquire of a member came to: how long it waited, who was in the way, and what failed.
func (a *Acquire) Inherit(m *Acquire) {
	m.WaitEnd() // of one that had the lock by its first call, after trouble
	a.addWait(m.waited)
	a.attempts += m.attempts
	a.wakeups += m.wakeups
	if m.blocked != "" {
		a.blocked, a.links = m.blocked, m.links
	}
	if m.errorType != "" {
		a.errorType = m.errorType
	}
}

// BlockedBy notes who holds the lock; "" is nobody to name. The span links once to each distinct holder whose traceparent is valid
// and says that it is sampled; the latest eight are kept. Both strings are somebody else's: the traceparent
// is parsed strictly and is never made a parent, and the owner is cut to a bearable length.
func (a *Acquire) BlockedBy(owner, traceparent string) {
	if a.span == nil || a.ended || owner == "" || !a.span.IsRecording() {
		return
	}
	if len(owner) > maxOwner {
		owner = owner[:maxOwner]
	}
	owner = printable(owner)
	if a.blocked == owner {
		return
	}
	a.blocked = owner
	sc, ok := ParseTraceparent(traceparent)
	holder := KeyOwner.String(owner)
	if !ok || !sc.IsSampled() || slices.ContainsFunc(a.links, func(l trace.Link) bool { return slices.Contains(l.Attributes, holder) }) {
		return
	}
	if len(a.links) == maxHolderLinks {
		a.links = slices.Delete(a.links, 0, 1)
	}
	a.links = append(a.links, trace.Link{SpanContext: sc, Attributes: []attribute.KeyValue{KeyLink.String(linkBlockedBy), holder}})
}

// WaitStart reports that the call waits from now on.
func (a *Acquire) WaitStart() {
	if a.waiting || a.ended {
		return
	}
	a.waiting = true
	a.lock.role.waiting.add(a.ctx, 1, a.lock.role.add)
	a.waits, _ = a.ctx.Value(waitsKey{}).(*waits)
	if a.waits != nil || a.lock.rec.callerAttributes {
		a.waitStart = time.Now()
		a.waits.start(a.waitStart)
	}
}

// WaitEnd reports that it no longer waits. The end of the acquire implies it.
func (a *Acquire) WaitEnd() {
	if !a.waiting {
		return
	}
	a.waiting = false
	a.lock.role.waiting.add(a.ctx, -1, a.lock.role.add)
	if !a.waitStart.IsZero() {
		now := time.Now()
		a.waits.stop(now)
		a.addWait(now.Sub(a.waitStart))
		a.waitStart = time.Time{}
	}
}

// addWait adds a wait that has ended, also to the caller's span if that is wanted.
func (a *Acquire) addWait(d time.Duration) {
	a.waited += d
	if a.caller != nil && d > 0 {
		callers.add(a.caller, d)
	}
}

// Wakeup counts one more attempt of a waiter, by what woke it.
func (a *Acquire) Wakeup(s WakeupSource) {
	a.wakeups++
	a.lock.rec.metrics.wakeups.Add(a.ctx, 1, at(a.lock.role.wakeups, s).add...)
}

// Takeover reports that the waiter gets the lock without having heard of its release. Call it before Grant.
func (a *Acquire) Takeover(r TakeoverReason) {
	a.takeover = r
	a.lock.rec.metrics.takeovers.Add(a.ctx, 1, at(a.lock.role.takeovers, r).add...)
}

// Deadlock reports that the wait is part of a deadlock. cycle describes all of it for people, in one line; it may quote what others wrote.
// broken tells whether this acquire is to fail, to end the deadlock. Call it once for each wait and cycle, on the acquire that waits: that
// of a member where a Multi waits.
func (a *Acquire) Deadlock(cycle string, broken bool) {
	if a.ended {
		return
	}
	r := a.lock.rec
	r.metrics.deadlocks.Add(a.ctx, 1, a.lock.role.add...)
	event, logged := a.span != nil && a.span.IsRecording(), r.logs(LogDeadlock) && r.ends.admit(LogDeadlock)
	if !event && !logged {
		return
	}
	cycle = printableUpTo(maxCycle, cycle)
	if event {
		a.deadlockSpans(KeyDeadlockCycle.String(cycle), KeyDeadlockBroken.Bool(broken))
	}
	if logged {
		a.lock.log(LogDeadlock, trace.SpanContextFromContext(a.ctx), nil, slog.String("cycle", cycle), slog.Bool("broken", broken))
	}
}

// deadlockSpans shows a deadlock in the trace: as an event of the acquire's span, which isn't exported before the wait ends, and as a span, which
// is at once.
func (a *Acquire) deadlockSpans(attrs ...attribute.KeyValue) {
	a.span.AddEvent(EventDeadlock.Name, trace.WithAttributes(attrs...))
	now := time.Now()
	_, span := a.lock.rec.tracing.start(a.ctx, a.lock.role.deadlockSpan, trace.WithTimestamp(now))
	if span == nil {
		return
	}
	attrs = append(attrs, KeyName.String(a.lock.name), KeyKind.String(a.lock.kind), KeyGroup.String(a.lock.Group()))
	span.SetAttributes(a.lock.role.located(attrs)...)
	span.End(trace.WithTimestamp(now.Add(markLength)))
}

// Grant ends the acquire with a new grant and starts h, which must be zero and must stay where it is until its
// End.
func (a *Acquire) Grant(h *Hold, owner string, token int64) {
	if a.ended {
		return
	}
	g, m := a.lock.role.group, a.lock.role.metrics
	now := time.Now()
	if !a.start.IsZero() {
		// On the clock the span was started on, so that they agree when the wall clock steps.
		now = a.start.Add(now.Sub(a.start))
		m.acquireTime.Record(a.ctx, now.Sub(a.start).Seconds(), at(g.acquireTime, AcquireAcquired).record...)
	}
	h.begin(a, now, owner, token)
	a.end(AcquireAcquired, nil, h)
}

// Pass ends an acquire after which nothing is held: of permits without a lease, or of an open latch.
func (a *Acquire) Pass() {
	if !a.ended {
		took(a.ctx, a.lock.role.metrics.acquireTime, a.start, at(a.lock.role.acquireTime, AcquireAcquired))
		a.end(AcquireAcquired, nil, nil)
	}
}

// Reenter ends the acquire by joining h, the caller's own grant.
func (a *Acquire) Reenter(h *Hold) {
	if !a.ended {
		a.end(AcquireReentered, nil, h)
	}
}

// Fail ends the acquire without a grant. Only with AcquireError is err an error of the span, unless that is a member's: then it is its whole's,
// which may have the lock without it.
func (a *Acquire) Fail(outcome Outcome, err error) {
	if a.ended {
		return
	}
	g, m := a.lock.role.group, a.lock.role.metrics
	took(a.ctx, m.acquireTime, a.start, at(g.acquireTime, acquireFailed))
	a.end(outcome, err, nil)
}

func (a *Acquire) end(outcome Outcome, err error, h *Hold) {
	a.WaitEnd()
	a.ended = true
	g, m := a.lock.role.group, a.lock.role.metrics
	m.acquisitions.Add(a.ctx, 1, at(g.acquisitions, outcome).add...)
	if a.span == nil {
		return
	}
	if a.span.IsRecording() {
		a.describe(outcome, err, h)
	}
	a.span.End()
}

// describe puts on the span what is known at its end.
func (a *Acquire) describe(outcome Outcome, err error, h *Hold) {
	attrs := make([]attribute.KeyValue, 0, len(SpanAcquire.Attributes)-1) // most have no node
	attrs = append(attrs,
		KeyName.String(a.lock.name), KeyKind.String(a.lock.kind), KeyGroup.String(a.lock.Group()),
		KeyOutcome.String(string(outcome)), KeyAttempts.Int(a.attempts), KeyWakeups.Int(a.wakeups))
	if a.lease > 0 {
		attrs = append(attrs, KeyLease.Float64(a.lease.Seconds()))
	}
	if h != nil {
		attrs = append(attrs, KeyOwner.String(h.owner), KeyToken.Int64(h.token))
	}
	if a.takeover != "" {
		attrs = append(attrs, KeyTakeover.String(string(a.takeover)))
	}
	if a.blocked != "" {
		attrs = append(attrs, KeyBlockedBy.String(a.blocked))
		for _, l := range a.links {
			a.span.AddLink(l)
		}
	}
	if outcome == AcquireError {
		attrs = append(attrs, KeyErrorType.String(string(typeOr(a.errorType))))
		if !a.lock.role.isMember() {
			fail(a.span, err)
		}
	}
	a.span.SetAttributes(a.lock.role.located(attrs)...)
}

// typeOr is t, or ErrorOther if no call to Redis gave one.
func typeOr(t ErrorType) ErrorType {
	if t == "" {
		return ErrorOther
	}
	return t
}

// fail gives a span the status of err.
func fail(span trace.Span, err error) {
	var text string
	if err != nil {
		text = printable(err.Error())
	}
	span.SetStatus(codes.Error, text)
}

// maxText bounds what is shown of a text that somebody else may have written, in bytes: an error may quote what is in Redis.
const maxText = 1024

// maxCycle bounds the description of a deadlock likewise: sixteen waits, each with a name, an owner and a trace.
const maxCycle = 8192

// printable makes a string from outside fit for export: OTLP refuses a whole batch of spans for one that is no
// UTF-8, and backends one that is too long.
func printable(s string) string { return printableUpTo(maxText, s) }

func printableUpTo(most int, s string) string {
	cut := len(s) > most
	s = strings.ToValidUTF8(s[:min(len(s), most)], "\uFFFD")
	if cut || len(s) > most { // each \uFFFD is three bytes
		s = strings.ToValidUTF8(s[:min(len(s), most)], "") + "…"
	}
	return s
}
