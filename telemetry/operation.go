package telemetry

import (
	"cmp"
	"context"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
)

// operation is what Acquire, Release and Force have in common: the telemetry of one call, with a span.
type operation struct {
	lock      *Lock // nil: a Release that has ended, or never started
	op        Operation
	ctx       context.Context // carries the span, for exemplars
	span      trace.Span      // nil with a no-op tracer
	start     time.Time       // zero: the duration isn't measured
	errorType ErrorType       // of the last call that failed
}

// begin starts the span of an operation, and returns the ctx that carries it.
func (o *operation) begin(ctx context.Context, name string, opts ...trace.SpanStartOption) context.Context {
	o.ctx, o.span = o.lock.rec.tracing.start(ctx, name, opts...)
	return o.ctx
}

// clock returns the time, or zero if neither the span nor i needs it: without an SDK, reading clocks would be most of
// the cost of telemetry.
func clock(ctx context.Context, span trace.Span, i metric.Float64Histogram) time.Time {
	if span == nil && !i.Enabled(ctx) {
		return time.Time{}
	}
	return time.Now()
}

// took records the time since start, unless start is zero.
func took(ctx context.Context, i metric.Float64Histogram, start time.Time, s *set) {
	if !start.IsZero() {
		i.Record(ctx, time.Since(start).Seconds(), s.record...)
	}
}

// Error counts a failed call, as Recorder.Error does, and notes its type for the span.
func (o *operation) Error(t ErrorType) {
	if o.lock != nil {
		o.Failed(t)
		o.lock.rec.Error(o.ctx, o.op, t)
	}
}

// Failed notes, for the span, the type of an error that was counted elsewhere.
func (o *operation) Failed(t ErrorType) { o.errorType = t }

// recording reports whether the attributes of the span are of any use.
func (o *operation) recording() bool { return o.span != nil && o.span.IsRecording() }

// finish sets the attributes of the span at its end; more includes the outcome. With the outcome operationError, err
// becomes the status of the span, except for a member: a composite may do without a member. A forced unlock has no span
// of the composite, so its members' spans have the status, too.
func (o *operation) finish(outcome Outcome, err error, more ...attribute.KeyValue) {
	if outcome == operationError {
		more = append(more, KeyErrorType.String(string(cmp.Or(o.errorType, ErrorOther))))
		if !o.lock.role.isMember() || o.op == OpForceUnlock {
			fail(o.span, err)
		}
	}
	o.span.SetAttributes(o.lock.describe(more...)...)
}

func (o *operation) endSpan() {
	if o.span != nil {
		o.span.End()
	}
}

// describe returns the attributes that spans about a lock have, except renewals, and more.
func (l *Lock) describe(more ...attribute.KeyValue) []attribute.KeyValue {
	attrs := make([]attribute.KeyValue, 0, len(more)+4)
	attrs = append(attrs, KeyName.String(l.name), KeyKind.String(l.kind), KeyGroup.String(l.Group()))
	attrs = append(attrs, more...)
	if l.role.isMember() {
		attrs = append(attrs, KeyNode.String(l.role.node()))
	}
	return attrs
}
