package telemetry

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
)

// Release is the telemetry of one call to Release. It belongs to one goroutine at a time.
type Release struct {
	lock  *Lock // nil: ended, or never started
	hold  *Hold // nil: there was no hold
	ctx   context.Context
	span  trace.Span // nil with a no-op tracer
	start time.Time  // zero: the duration isn't measured

	errorType ErrorType // of the last call that failed
}

// StartRelease begins the release of h. The ctx that it returns carries the span, for the Redis calls.
//
// The span is a child of the caller's span. If the caller has none (a deferred Release with a new ctx), it is a child
// of the held span, if that is sampled: a root that links to another trace would be an incomplete trace in Jaeger.
func (r *Recorder) StartRelease(ctx context.Context, h *Hold) (context.Context, Release) {
	if h.lock == nil {
		return ctx, Release{}
	}
	h.NotRenewed()
	var opts []trace.SpanStartOption
	if h.grant != nil && h.grant.held.IsSampled() {
		if !trace.SpanContextFromContext(ctx).IsValid() {
			ctx = trace.ContextWithSpanContext(ctx, h.grant.held)
		}
		opts = []trace.SpanStartOption{trace.WithLinks(trace.Link{
			SpanContext: h.grant.held, Attributes: []attribute.KeyValue{KeyLink.String(linkHeld)},
		})}
	}
	ctx, span := r.tracing.start(ctx, h.lock.role.releaseSpan, opts...)
	return ctx, Release{lock: h.lock, hold: h, ctx: ctx, span: span, start: r.clock(ctx, span)}
}

// StartGive is StartRelease without a hold: for permits without a lease, or a latch that is counted down.
func (r *Recorder) StartGive(ctx context.Context, l *Lock) (context.Context, Release) {
	l.role.appear(ctx)
	ctx, span := r.tracing.start(ctx, l.role.releaseSpan)
	return ctx, Release{lock: l, ctx: ctx, span: span, start: r.clock(ctx, span)}
}

// Error counts a failed call, as Recorder.Error does, and notes its type for the span.
func (rel *Release) Error(t ErrorType) {
	if rel.lock != nil {
		rel.Failed(t)
		rel.lock.rec.Error(rel.ctx, OpRelease, t)
	}
}

// Failed notes, for the span, the type of an error that was counted elsewhere.
func (rel *Release) Failed(t ErrorType) { rel.errorType = t }

// End ends the release; a second End does nothing. unconfirmed says that the reply was lost, but the lock counts as
// released. Hold.End must follow, except after StartGive. With ReleaseError, err becomes the status of the span, unless
// that is a member's.
func (rel *Release) End(outcome Outcome, unconfirmed bool, err error) {
	l, h := rel.lock, rel.hold
	if l == nil {
		return
	}
	rel.lock = nil
	role, m := l.role, l.role.metrics
	m.releases.Add(rel.ctx, 1, at(role.releases, outcome).add...)
	took(rel.ctx, m.releaseTime, rel.start, &role.set)
	if rel.span == nil {
		return
	}
	if rel.span.IsRecording() {
		attrs := make([]attribute.KeyValue, 0, len(SpanRelease.Attributes)-1) // most have no node
		attrs = append(attrs,
			KeyName.String(l.name), KeyKind.String(l.kind), KeyGroup.String(l.Group()),
			KeyOutcome.String(string(outcome)))
		if h != nil {
			attrs = append(attrs, KeyOwner.String(h.owner), KeyToken.Int64(h.token))
		}
		if unconfirmed {
			attrs = append(attrs, KeyUnconfirmed.Bool(true))
		}
		if outcome == ReleaseError {
			attrs = append(attrs, KeyErrorType.String(string(typeOr(rel.errorType))))
			if !role.isMember() {
				fail(rel.span, err)
			}
		}
		rel.span.SetAttributes(role.located(attrs)...)
	}
	rel.span.End()
}
