package telemetry

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

// Acquire is the telemetry of one call that takes a lock or permits, or waits for a latch. A call of a Multi or a
// Quorum has another one for each member. It is a value, so that it can be on the caller's stack. It belongs to one
// goroutine at a time. Exactly one of Grant, Pass, Reenter and Fail ends it; later calls of these are ignored.
type Acquire struct {
	operation
	lease    time.Duration
	attempts int
	wakeups  int
	blocked  string       // the last holder seen; kept only if the span is recorded, as are the links
	links    []trace.Link // to the holders seen

	waits *waits // of TrackWaits; nil: the ctx has none

	takeover TakeoverReason
	waiting  bool
	ended    bool
}

// maxHolderLinks limits the links of an acquire span: each costs 1.5 µs. The latest holders are kept, as they made the
// waiter wait at the end.
const maxHolderLinks = 8

// maxOwner limits the length of an owner that another client wrote, in bytes.
const maxOwner = 256

// StartAcquire begins an acquire. The ctx that it returns carries the span, for the Redis calls. With a no-op tracer it
// is the given ctx. lease is how long a grant lasts, 0 if it has no end. l must not move until the hold that may follow
// has ended.
func (r *Recorder) StartAcquire(ctx context.Context, l *Lock, lease time.Duration) (_ context.Context, a Acquire) {
	l.role.startCounting(ctx)
	a.lock, a.op, a.lease = l, OpAcquire, lease
	ctx = a.begin(ctx, l.role.acquireSpan)
	a.start = clock(ctx, a.span, l.role.acquireTime)
	return ctx, a
}

// Traceparent returns the W3C traceparent of the acquire span, "" if it isn't sampled. It is stored in the lock, so
// that the spans of waiters can link to the acquire.
func (a *Acquire) Traceparent() string {
	if a.span == nil {
		return ""
	}
	return formatTraceparent(a.span.SpanContext())
}

// Attempt counts an attempt to take the lock. It may consist of several requests, if some fail.
func (a *Acquire) Attempt() { a.attempts++ }

// Inherit adds the acquire of a member to that of its composite: its attempts and wake-ups. The last holder, with
// the links, and the last error of m replace those of a, if m has them.
func (a *Acquire) Inherit(m *Acquire) {
	m.WaitEnd() // a wait that began because Redis failed may not have ended
	a.attempts += m.attempts
	a.wakeups += m.wakeups
	if m.blocked != "" {
		a.blocked, a.links = m.blocked, m.links
	}
	if m.errorType != "" {
		a.errorType = m.errorType
	}
}

// BlockedBy notes the holder of the lock; "" is ignored. The span gets one link to each holder whose traceparent is
// valid and sampled, to the latest eight at most. Anybody may have written both strings: so the traceparent is parsed
// strictly and never becomes a parent, and a long owner is truncated.
func (a *Acquire) BlockedBy(owner, traceparent string) {
	if a.ended || owner == "" || !a.recording() {
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
	if !ok || !sc.IsSampled() || slices.ContainsFunc(a.links, func(l trace.Link) bool {
		return slices.Contains(l.Attributes, holder)
	}) {
		return
	}
	if len(a.links) == maxHolderLinks {
		a.links = slices.Delete(a.links, 0, 1)
	}
	a.links = append(a.links, linkTo(sc, linkBlockedBy, holder))
}

// WaitStart notes that the call waits from now on.
func (a *Acquire) WaitStart() {
	if a.waiting || a.ended {
		return
	}
	a.waiting = true
	a.lock.role.group.waiting.add(a.ctx, 1)
	a.waits, _ = a.ctx.Value(waitsKey{}).(*waits)
	if a.waits != nil {
		a.waits.change(1, time.Now())
	}
}

// WaitEnd notes that the call no longer waits. The end of the acquire implies it.
func (a *Acquire) WaitEnd() {
	if !a.waiting {
		return
	}
	a.waiting = false
	a.lock.role.group.waiting.add(a.ctx, -1)
	if a.waits != nil {
		a.waits.change(-1, time.Now())
	}
}

// Wakeup counts a wake-up of the waiter, by its source.
func (a *Acquire) Wakeup(s WakeupSource) {
	a.wakeups++
	a.lock.role.wakeups.inc(a.ctx, string(s))
}

// Takeover counts that the waiter gets the lock without a message of its release. It must be called before Grant.
func (a *Acquire) Takeover(r TakeoverReason) {
	a.takeover = r
	a.lock.role.takeovers.inc(a.ctx, string(r))
}

// Deadlock records that the wait is part of a deadlock. cycle describes the deadlock for people, in one line; it may
// quote text that anybody wrote. broken says whether this acquire is to fail, to end the deadlock. Deadlock must be
// called once for each wait and cycle, on the acquire that waits: if a Multi waits, on that of a member.
func (a *Acquire) Deadlock(cycle string, broken bool) {
	if a.ended {
		return
	}
	r := a.lock.rec
	a.lock.role.deadlocks.inc(a.ctx, "")
	event, logged := a.recording(), r.logs(LogDeadlock) && r.ends.admit(LogDeadlock)
	if !event && !logged {
		return
	}
	cycle = printableUpTo(maxCycle, cycle)
	if event {
		a.deadlockSpans(KeyDeadlockCycle.String(cycle), KeyDeadlockBroken.Bool(broken))
	}
	if logged {
		a.lock.log(LogDeadlock, trace.SpanContextFromContext(a.ctx), nil,
			slog.String("cycle", cycle), slog.Bool("broken", broken))
	}
}

// deadlockSpans adds a deadlock to the trace: as an event of the acquire's span, which is exported when the wait has
// ended, and as a separate span, which is exported at once.
func (a *Acquire) deadlockSpans(attrs ...attribute.KeyValue) {
	a.span.AddEvent(EventDeadlock.Name, trace.WithAttributes(attrs...))
	now := time.Now()
	_, span := a.lock.rec.tracing.start(a.ctx, a.lock.role.deadlockSpan, trace.WithTimestamp(now))
	if span == nil {
		return
	}
	span.SetAttributes(a.lock.describe(attrs...)...)
	span.End(trace.WithTimestamp(now.Add(markLength)))
}

// Grant ends the acquire with a new grant and starts h, which must be zero, and must not move until its End.
func (a *Acquire) Grant(h *Hold, owner string, token int64) {
	if a.ended {
		return
	}
	now := a.measured()
	if now.IsZero() {
		now = time.Now()
	}
	h.begin(a, now, owner, token)
	a.end(AcquireAcquired, now, nil, h)
}

// Pass ends a successful acquire that has no hold: of permits without a lease, or of an open latch.
func (a *Acquire) Pass() { a.end(AcquireAcquired, a.measured(), nil, nil) }

// Reenter ends the acquire by joining h, the caller's own grant. h is nil if a Multi or a Quorum joined leases that
// aren't members of one live Multi or Quorum.
func (a *Acquire) Reenter(h *Hold) { a.end(AcquireReentered, time.Time{}, nil, h) }

// Fail ends the acquire without a grant. With AcquireError, err becomes the status of the span. The span of a member
// gets no error status: its composite may get the lock without it.
func (a *Acquire) Fail(outcome Outcome, err error) { a.end(outcome, a.measured(), err, nil) }

// measured returns the current time, or zero if the duration isn't measured. The time is the span's start plus what has
// passed since by the monotonic clock, so that a wall clock that is set in between doesn't change the duration.
func (a *Acquire) measured() time.Time {
	if a.start.IsZero() {
		return time.Time{}
	}
	return a.start.Add(time.Since(a.start))
}

// end ends the acquire at now. The duration of a reentry isn't recorded.
func (a *Acquire) end(outcome Outcome, now time.Time, err error, h *Hold) {
	if a.ended {
		return
	}
	a.WaitEnd()
	a.ended = true
	role := a.lock.role
	role.acquisitions.inc(a.ctx, string(outcome))
	if !a.start.IsZero() && outcome != AcquireReentered {
		duration := role.acquireSets.at(string(outcome)) // the last one, failed, for all outcomes but acquired
		role.acquireTime.Record(a.ctx, now.Sub(a.start).Seconds(), duration.record...)
	}
	if a.recording() {
		a.describe(outcome, err, h)
	}
	a.endSpan()
}

// describe sets the attributes and links of the span at its end.
func (a *Acquire) describe(outcome Outcome, err error, h *Hold) {
	attrs := make([]attribute.KeyValue, 0, 9) // so many that finish can add one without an allocation
	attrs = append(attrs,
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
	a.finish(outcome, err, attrs...)
}

// fail sets the status of a span to an error with the text of err.
func fail(span trace.Span, err error) {
	var text string
	if err != nil {
		text = printable(err.Error())
	}
	span.SetStatus(codes.Error, text)
}

// maxText limits a text that anybody may have written, in bytes: an error may quote what is in Redis.
const maxText = 1024

// maxCycle limits the description of a deadlock: 16 waits, each with a name, an owner and a trace.
const maxCycle = 8192

// printable makes a string from outside fit for export. OTLP refuses a whole batch of spans for one string that isn't
// UTF-8, and backends refuse strings that are too long.
func printable(s string) string { return printableUpTo(maxText, s) }

func printableUpTo(most int, s string) string {
	cut := len(s) > most
	s = strings.ToValidUTF8(s[:min(len(s), most)], "\uFFFD")
	if cut || len(s) > most { // each \uFFFD is three bytes
		s = strings.ToValidUTF8(s[:min(len(s), most)], "") + "…"
	}
	return s
}
