package telemetry

import (
	"context"
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
)

// Release is the telemetry of one call to Release. It belongs to one goroutine at a time.
type Release struct {
	operation
	hold *Hold // nil: there was no hold
}

// StartRelease begins the release of h. The ctx that it returns carries the span, for the Redis calls.
//
// The span is a child of the caller's span. If the caller has none (a deferred Release with a new ctx), it is a child
// of the held span, if that is sampled: a root that links to another trace would be an incomplete trace in Jaeger.
func (r *Recorder) StartRelease(ctx context.Context, h *Hold) (_ context.Context, rel Release) {
	if h.lock == nil {
		return ctx, rel
	}
	h.NotRenewed()
	var opts []trace.SpanStartOption
	if h.firstTrail != nil && h.firstTrail.held.IsSampled() {
		if !trace.SpanContextFromContext(ctx).IsValid() {
			ctx = trace.ContextWithSpanContext(ctx, h.firstTrail.held)
		}
		opts = []trace.SpanStartOption{trace.WithLinks(linkTo(h.firstTrail.held, linkHeld))}
	}
	rel.hold = h
	ctx = rel.begin(ctx, h.lock, opts...)
	return ctx, rel
}

// StartGive is StartRelease without a hold: for permits without a lease, or a latch that is counted down.
func (r *Recorder) StartGive(ctx context.Context, l *Lock) (_ context.Context, rel Release) {
	l.role.startCounting(ctx)
	ctx = rel.begin(ctx, l)
	return ctx, rel
}

// Crashed records that the agent has released the lock l, from start until now, because the process of its owner, pid,
// had died. traceparent is that of the acquire.
func (r *Recorder) Crashed(l *Lock, owner, traceparent string, pid int, start time.Time) {
	ctx := context.Background()
	if sc, ok := ParseTraceparent(traceparent); ok {
		ctx = trace.ContextWithRemoteSpanContext(ctx, sc)
	}
	l.role.startCounting(ctx)
	var rel Release
	rel.begin(ctx, l, trace.WithTimestamp(start), trace.WithAttributes(KeyOwner.String(owner)))
	if r.logs(LogCrashed) && r.ends.admit(LogCrashed) {
		l.log(LogCrashed, trace.SpanContextFromContext(rel.ctx), nil, slog.String("owner", owner), slog.Int("pid", pid))
	}
	rel.start = start
	rel.End(ReleaseCrashed, false, nil)
}

func (rel *Release) begin(ctx context.Context, l *Lock, opts ...trace.SpanStartOption) context.Context {
	rel.lock, rel.op = l, OpRelease
	ctx = rel.operation.begin(ctx, l.role.releaseSpan, opts...)
	rel.start = clock(ctx, rel.span, l.role.releaseTime)
	return ctx
}

// End ends the release; a second End does nothing. unconfirmed says that the reply was lost, but the lock counts as
// released. Hold.End must follow, except after StartGive. With ReleaseError, err becomes the status of the span, unless
// it is the span of a member.
func (rel *Release) End(outcome Outcome, unconfirmed bool, err error) {
	l, h := rel.lock, rel.hold
	if l == nil {
		return
	}
	l.role.releases.inc(rel.ctx, string(outcome))
	took(rel.ctx, l.role.releaseTime, rel.start, &l.role.group.attrs)
	if rel.recording() {
		attrs := make([]attribute.KeyValue, 0, 5) // so many that finish can add one without an allocation
		attrs = append(attrs, KeyOutcome.String(string(outcome)))
		if h != nil {
			attrs = append(attrs, KeyOwner.String(h.owner), KeyToken.Int64(h.token))
		}
		if unconfirmed {
			attrs = append(attrs, KeyUnconfirmed.Bool(true))
		}
		rel.finish(outcome, err, attrs...)
	}
	rel.endSpan()
	rel.lock = nil
}
