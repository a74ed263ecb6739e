package telemetry

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

// Hold is the telemetry of one grant. The caller has it as a field, by value. Acquire.Grant starts it and End ends it;
// in between it must not be moved or copied. Methods of a Hold that was not granted record nothing. Renewal is for one
// goroutine at a time; the other methods are safe for concurrent use.
type Hold struct {
	lock  *Lock
	start time.Time
	owner string
	token int64

	// parent is the acquire's span if firstTrail is nil. Logs have its ids. nil: firstTrail isn't nil, or the tracer is
	// a no-op.
	parent trace.Span
	// firstTrail is the trace in which the lock was acquired; nil: it isn't recorded.
	firstTrail *trail
	// trail is the trace of the renewals now: at first firstTrail, later made by nextTrail. nil if firstTrail is nil.
	trail atomic.Pointer[trail]

	lease     time.Duration
	confirmed atomic.Int64  // from start to the sending of the last confirmed renewal
	ordinal   atomic.Uint32 // of the last confirmed renewal
	failing   atomic.Bool   // copy of holdFailing, to read without the lock
	unrenewed atomic.Bool   // see NotRenewed
	state     uint8         // guarded by group.mu, as are prev and next

	prev, next *Hold
}

// The bits of Hold.state.
const (
	holdEnded uint8 = 1 << iota
	holdLost
	holdFailing
)

// trail is one trace of a hold.
type trail struct {
	ctx     context.Context   // carries held, and nothing of the caller's ctx
	held    trace.SpanContext // of the trace's "held" span
	spans   int               // renew spans in the trace
	refused bool              // the sampler declined the next trace
	retryAt uint32            // ordinal of the renewal at which the sampler is asked again
}

func (h *Hold) begin(a *Acquire, now time.Time, owner string, token int64) {
	h.lock, h.start, h.owner, h.token, h.lease = a.lock, now, owner, token, a.lease
	if a.span != nil && a.span.IsRecording() {
		h.firstTrail = h.newTrail(a.ctx, now)
		h.trail.Store(h.firstTrail)
	}
	if h.firstTrail == nil {
		h.parent = a.span
	}
	role := a.lock.role
	role.held.add(a.ctx, 1)
	role.group.enter(h)
}

const (
	// heldLength isn't 0, because Jaeger warns about spans of length 0.
	heldLength = time.Nanosecond
	// markLength is longer: Jaeger's adjustment of clock skew moves a child that isn't longer than its parent into the
	// parent.
	markLength = time.Microsecond
)

// newTrail makes the "held" span of a trace, the parent of the hold's other spans there. It returns nil if that isn't
// recorded: the sampler declined it, or there is no tracer.
func (h *Hold) newTrail(ctx context.Context, now time.Time, opts ...trace.SpanStartOption) *trail {
	_, span := h.lock.rec.tracing.start(ctx, h.lock.role.heldSpan, append(opts, trace.WithTimestamp(now))...)
	if span == nil || !span.IsRecording() {
		return nil
	}
	span.SetAttributes(h.describe(KeyLease.Float64(h.lease.Seconds()))...)
	if n := h.ordinal.Load(); n > 0 {
		span.SetAttributes(KeyOrdinal.Int64(int64(n)))
	}
	span.End(trace.WithTimestamp(now.Add(heldLength)))
	held := span.SpanContext()
	return &trail{ctx: trace.ContextWithSpanContext(context.Background(), held), held: held}
}

// describe returns the attributes of every span of the hold except renewals, followed by more.
func (h *Hold) describe(more ...attribute.KeyValue) []attribute.KeyValue {
	attrs := append(make([]attribute.KeyValue, 0, 3), KeyOwner.String(h.owner), KeyToken.Int64(h.token))
	return h.lock.describe(append(attrs, more...)...)
}

// Since returns when the lock was granted.
func (h *Hold) Since() time.Time { return h.start }

// Token returns the token of the grant.
func (h *Hold) Token() int64 { return h.token }

// SpanContext returns the span context of the grant's held span. It is invalid if that span isn't recorded.
func (h *Hold) SpanContext() trace.SpanContext {
	if h.firstTrail == nil {
		return trace.SpanContext{}
	}
	return h.firstTrail.held
}

// here returns the context of the hold's present trace.
func (h *Hold) here() context.Context {
	if t := h.trail.Load(); t != nil {
		return t.ctx
	}
	return context.Background()
}

// logged returns the span context for log records about the hold: that of the present held span or, if the hold isn't
// recorded, that of the acquire.
func (h *Hold) logged() trace.SpanContext {
	if t := h.trail.Load(); t != nil {
		return t.held
	}
	if h.parent == nil {
		return trace.SpanContext{}
	}
	return h.parent.SpanContext()
}

// mark starts a span under the held span. If the hold isn't recorded, the span is the root of a new trace and links to
// the acquire: the sampler is asked again, and gets why, the group and the kind as attributes. mark returns the ctx for
// measurements, the span (nil: it isn't recorded), and the span context of log records.
func (h *Hold) mark(
	name string, now time.Time, why attribute.KeyValue,
) (context.Context, trace.Span, trace.SpanContext) {
	ctx, t, sc := h.here(), h.trail.Load(), h.logged()
	if t == nil && h.parent == nil {
		return ctx, nil, sc
	}
	opts := make([]trace.SpanStartOption, 0, 4)
	opts = append(opts, trace.WithTimestamp(now),
		trace.WithAttributes(why, KeyGroup.String(h.lock.Group()), KeyKind.String(h.lock.kind)))
	if t == nil {
		opts = append(opts, trace.WithNewRoot(), trace.WithLinks(linkTo(h.parent.SpanContext(), linkHeld)))
	}
	own, span := h.lock.rec.tracing.start(ctx, name, opts...)
	if span == nil || !span.IsRecording() {
		return ctx, nil, sc
	}
	span.SetAttributes(h.describe()...)
	if t == nil {
		ctx = own
	}
	return ctx, span, span.SpanContext()
}

// NotRenewed notes that the lease may run out: it is fixed or lost, or its holder winds down.
// lockdog.lease.utilization.worst then leaves it out. Canceled and StartRelease imply NotRenewed.
func (h *Hold) NotRenewed() { h.unrenewed.Store(true) }

// Lost records that the lease was lost. End must follow. b limits the log records of losses that come together; nil:
// ten a second are logged with the lock's name. The loss of a member is no error: its composite may go on.
func (h *Hold) Lost(cause LossCause, err error, b *Burst) {
	if h.lock == nil {
		return
	}
	r, role := h.lock.rec, h.lock.role
	role.group.mu.Lock()
	h.state |= holdLost
	role.group.setFailing(h, false)
	role.group.mu.Unlock()
	now := h.now()
	ctx, span, sc := h.mark(role.lostSpan, now, KeyCause.String(string(cause)))
	role.losses.inc(ctx, string(cause))
	used := h.utilization(now)
	if !role.isComposite() && (cause == LossUnreachable || cause == LossStalled) {
		// The loss was found at the deadline, not by a renewal, which would have recorded the utilization.
		role.recordUtilization(ctx, used)
	}
	if span != nil {
		span.SetAttributes(KeyUtilization.Float64(used), KeyErrorType.String(string(cause)))
		switch {
		case role.isMember():
		case err == nil:
			span.SetStatus(codes.Error, "lock lost: "+string(cause))
		default:
			fail(span, err)
		}
		span.End(trace.WithTimestamp(now.Add(markLength)))
	}
	if b == nil {
		b = &r.ends
	}
	kind := LogLost
	if role.isMember() {
		kind = LogMember
	}
	if r.logs(kind) && b.admit(kind) {
		attrs := []slog.Attr{slog.String("cause", string(cause)), seconds("held", now.Sub(h.start))}
		if role.isMember() {
			attrs = append(attrs, slog.String("node", role.node()))
		}
		h.log(kind, sc, err, attrs...)
	}
}

// Canceled notes that this client ended the lease before its release. End must follow. It logs LogEnd or LogCut: of
// each kind at most ten a second with the lock's name, and the number of the others. A member gets at most a span.
func (h *Hold) Canceled(reason CancelReason, err error) {
	if h.lock == nil {
		return
	}
	h.NotRenewed()
	r, role := h.lock.rec, h.lock.role
	if role.isMember() && h.trail.Load() == nil { // the span of the composite is enough
		return
	}
	now := h.now()
	ctx, span, sc := h.mark(role.cancelSpan, now, KeyReason.String(string(reason)))
	role.cancellations.inc(ctx, string(reason))
	if span != nil {
		span.End(trace.WithTimestamp(now.Add(markLength)))
	}
	kind := LogEnd
	if reason == CancelMaxHold || reason == CancelHeartbeat {
		kind = LogCut
	}
	if !role.isMember() && r.logs(kind) && r.ends.admit(kind) {
		h.log(kind, sc, err, slog.String("reason", string(reason)), seconds("held", now.Sub(h.start)))
	}
}

// Warn logs that the lock has been held longer than WithHoldWarning allows. Ten such records a second are logged by
// name, the others are counted.
func (h *Hold) Warn(held time.Duration) {
	if h.lock == nil || !h.lock.rec.logs(LogHeld) || !h.lock.rec.ends.admit(LogHeld) {
		return
	}
	sc := h.logged()
	if h.firstTrail != nil {
		sc = h.firstTrail.held
	}
	h.log(LogHeld, sc, nil, seconds("held", held))
}

// End ends the hold. A second call does nothing.
func (h *Hold) End(end HoldEnd) {
	if h.lock == nil || !h.lock.role.group.exit(h) {
		return
	}
	r, role := h.lock.rec, h.lock.role
	ctx := context.Background()
	if h.firstTrail != nil {
		ctx = h.firstTrail.ctx
	}
	role.held.add(ctx, -1)
	if h.firstTrail == nil && !role.holdTime.Enabled(ctx) {
		return
	}
	now := h.now()
	role.holdTime.Record(ctx, now.Sub(h.start).Seconds(), role.group.attrs.record...)
	if h.firstTrail == nil {
		return
	}
	if _, span := r.tracing.start(ctx, role.holdSpan, trace.WithTimestamp(h.start)); span != nil && span.IsRecording() {
		span.SetAttributes(h.describe(KeyEnd.String(string(end)))...)
		span.End(trace.WithTimestamp(now))
	}
}

// now returns the time of the grant plus what has passed since by the monotonic clock, so that spans agree with each
// other even if the wall clock is set.
func (h *Hold) now() time.Time { return h.start.Add(time.Since(h.start)) }

// utilization returns the time since the last confirmed renewal was sent (before the first: since the grant), divided
// by the lease. For a composite, role.confirmed says when the renewals were sent.
func (h *Hold) utilization(now time.Time) float64 {
	if confirmed := h.lock.role.confirmed; confirmed != nil {
		return ratio(now.Sub(confirmed()), h.lease)
	}
	return ratio(now.Sub(h.start)-time.Duration(h.confirmed.Load()), h.lease)
}

func ratio(elapsed, lease time.Duration) float64 {
	if lease <= 0 || elapsed < 0 {
		return 0
	}
	return float64(elapsed) / float64(lease)
}
