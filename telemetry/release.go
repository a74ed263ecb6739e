package telemetry

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
)

// Release is the telemetry of one call to Release. It belongs to one goroutine at a time.
type Release struct {
	hold  *Hold // nil when ended, or never started
	ctx   context.Context
	span  trace.Span // nil with a no-op tracer
	start time.Time  // zero if nobody wants to know

	errorType ErrorType
	failed    bool
}

// StartRelease begins the release of h. The ctx it returns carries the span for the Redis calls below it.
//
// The span is a child of the caller's. A caller without one (a deferred Release on a fresh ctx) would make it
// a root that points into another trace, which Jaeger takes for an incomplete trace; then it is a child of
// the grant.
func (r *Recorder) StartRelease(ctx context.Context, h *Hold) (context.Context, Release) {
	if h.lock == nil {
		return ctx, Release{}
	}
	var opts []trace.SpanStartOption
	if h.grant != nil && h.grant.held.IsSampled() {
		if !trace.SpanContextFromContext(ctx).IsValid() {
			ctx = trace.ContextWithSpanContext(ctx, h.grant.held)
		}
		opts = []trace.SpanStartOption{trace.WithLinks(trace.Link{
			SpanContext: h.grant.held, Attributes: []attribute.KeyValue{KeyLink.String(LinkHeld)},
		})}
	}
	ctx, span := r.tracing.start(ctx, h.lock.group.releaseSpan, opts...)
	return ctx, Release{hold: h, ctx: ctx, span: span, start: r.clock(ctx, span)}
}

// Error counts a failed try, as Recorder.Error does, and puts its type on the span.
func (rel *Release) Error(t ErrorType) {
	if rel.hold != nil {
		rel.errorType, rel.failed = t, true
		rel.hold.lock.rec.Error(rel.ctx, OpRelease, t)
	}
}

// End ends the release, once. unconfirmed says that it is taken for released though the reply that said so was
// lost. Hold.End has still to follow.
func (rel *Release) End(outcome ReleaseOutcome, unconfirmed bool, err error) {
	h := rel.hold
	if h == nil {
		return
	}
	rel.hold = nil
	r, g := h.lock.rec, h.lock.group
	r.metrics.releases.Add(rel.ctx, 1, at(g.releases, outcome)...)
	took(rel.ctx, r.metrics.releaseTime, rel.start, g.record)
	if rel.span == nil {
		return
	}
	if rel.span.IsRecording() {
		attrs := make([]attribute.KeyValue, 0, len(SpanRelease.Attributes))
		attrs = append(attrs,
			KeyName.String(h.lock.name), KeyKind.String(h.lock.kind), KeyGroup.String(g.name),
			KeyOwner.String(h.owner), KeyToken.Int64(h.token), KeyOutcome.String(outcome.String()))
		if unconfirmed {
			attrs = append(attrs, KeyUnconfirmed.Bool(true))
		}
		if outcome == ReleaseError {
			if rel.failed {
				attrs = append(attrs, KeyErrorType.String(rel.errorType.String()))
			}
			fail(rel.span, err)
		}
		rel.span.SetAttributes(attrs...)
	}
	rel.span.End()
}
