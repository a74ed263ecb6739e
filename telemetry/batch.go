package telemetry

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/trace"
)

// RenewBatch is the telemetry of one renewal call to Redis. It belongs to one goroutine at a time until End;
// after that RenewalEvents may refer to it.
type RenewBatch struct {
	rec   *Recorder // nil when ended, or never started
	ctx   context.Context
	span  trace.Span // nil with a no-op tracer
	start time.Time
	size  int
}

// newRoot is made once: a slice of options made per call is an allocation also where nothing traces.
var newRoot = []trace.SpanStartOption{trace.WithNewRoot()}

// StartBatch begins a renewal call for size leases to node, made lag after it was due. The span is the root of
// a trace of its own. The call to Redis is to run in the ctx this returns, so that instrumentation of the
// Redis client makes no roots of its own.
func (r *Recorder) StartBatch(ctx context.Context, node string, size int, lag time.Duration) (context.Context, RenewBatch) {
	ctx, span := r.tracing.start(ctx, SpanBatch.Name, newRoot...)
	r.metrics.scheduleLag.Record(ctx, max(lag, 0).Seconds())
	r.metrics.batchSize.Record(ctx, int64(size))
	if span != nil && span.IsRecording() {
		span.SetAttributes(KeyNode.String(node), KeyBatchSize.Int(size), KeyLag.Float64(lag.Seconds()))
	}
	return ctx, RenewBatch{rec: r, ctx: ctx, span: span, start: r.clock(ctx, span), size: size}
}

// End ends the call, once. The counts are of leases; failed are those that got no answer. err, if the call as
// a whole failed, is the span's error.
func (b *RenewBatch) End(renewed, missing, taken, failed int, err error) {
	r := b.rec
	if r == nil {
		return
	}
	b.rec = nil
	outcome := BatchOK
	switch {
	case failed > 0 && failed < b.size:
		outcome = BatchPartial
	case failed > 0 || err != nil:
		outcome = BatchError
	}
	took(b.ctx, r.metrics.batchTime, b.start, at(r.metrics.batchSets, outcome))
	r.leases.settle(b.ctx, nil)
	if b.span == nil {
		return
	}
	if b.span.IsRecording() {
		b.span.SetAttributes(KeyOutcome.String(outcome.String()),
			KeyRenewed.Int(renewed), KeyMissing.Int(missing), KeyTaken.Int(taken), KeyFailed.Int(failed))
		if outcome == BatchError || err != nil {
			fail(b.span, err)
		}
	}
	b.span.End()
}

// spanContext is that of the batch's span, for links to it. b may be nil.
func (b *RenewBatch) spanContext() trace.SpanContext {
	if b == nil || b.span == nil {
		return trace.SpanContext{}
	}
	return b.span.SpanContext()
}
