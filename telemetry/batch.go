package telemetry

import (
	"context"
	"net"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
)

// RenewBatch is the telemetry of one renewal call to Redis. It belongs to one goroutine at a time until End;
// after that RenewalEvents may refer to it.
type RenewBatch struct {
	rec   *Recorder // nil when ended, or never started
	ctx   context.Context
	span  trace.Span // nil with a no-op tracer, and while nothing is to be shown
	start time.Time
	node  string
	size  int
	lag   time.Duration
	quiet bool // there is a span only if a renewal fails
}

// StartBatch begins a renewal call for size leases to node, made lag after it was due. shown is true if Hold.ShowsRenewal is, of one
// of them: then there is a span, the root of a new trace. Otherwise there is one only if a renewal fails. Call Redis in the ctx that
// this returns: without it, instrumentation of the Redis client starts a trace for each call.
func (r *Recorder) StartBatch(ctx context.Context, node string, size int, lag time.Duration, shown bool) (context.Context, RenewBatch) {
	b := RenewBatch{rec: r, node: node, size: size, lag: lag}
	switch {
	case shown:
		ctx, b.span = b.begin(ctx, r)
		b.start = r.clock(ctx, b.span)
	case r.tracing.live():
		b.quiet, b.start, ctx = true, time.Now(), Untraced(ctx)
	default:
		b.start = r.clock(ctx, nil)
	}
	b.ctx = ctx
	r.metrics.scheduleLag.Record(ctx, max(lag, 0).Seconds())
	r.metrics.batchSize.Record(ctx, int64(size))
	return ctx, b
}

// renewOperation is the command of a renewal. A server that doesn't know the script yet is sent an EVAL after it.
var renewOperation = semconv.DBOperationName("EVALSHA")

// begin starts the span, with all that a sampler may go by.
func (b *RenewBatch) begin(ctx context.Context, r *Recorder, opts ...trace.SpanStartOption) (context.Context, trace.Span) {
	attrs := make([]attribute.KeyValue, 0, len(SpanBatch.Attributes))
	attrs = append(attrs, semconv.DBSystemNameRedis, renewOperation, KeyNode.String(b.node), KeyBatchSize.Int(b.size), KeyLag.Float64(b.lag.Seconds()))
	host, port, err := net.SplitHostPort(b.node)
	if err != nil { // a socket, or not known
		host = b.node
	}
	if host != "" {
		attrs = append(attrs, semconv.ServerAddress(host))
	}
	if n, err := strconv.Atoi(port); err == nil {
		attrs = append(attrs, semconv.ServerPort(n))
	}
	if b.size > 1 { // one operation is no batch, by the conventions
		attrs = append(attrs, semconv.DBOperationBatchSize(b.size))
	}
	opts = append(opts, trace.WithNewRoot(), trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(attrs...))
	return r.tracing.start(ctx, SpanBatch.Name, opts...)
}

// End ends the call, once. The counts are of leases; failed are those that got no answer, for the reason t. err, if the call as
// a whole failed, is the span's error.
func (b *RenewBatch) End(renewed, missing, taken, failed int, t ErrorType, err error) {
	r := b.rec
	if r == nil {
		return
	}
	b.rec = nil
	outcome := batchOK
	switch {
	case failed > 0 && failed < b.size:
		outcome = batchPartial
	case failed > 0 || err != nil:
		outcome = batchError
	}
	took(b.ctx, r.metrics.batchTime, b.start, at(r.metrics.batchSets, outcome))
	r.leases.settle(b.ctx, nil)
	if b.quiet && outcome != batchOK {
		_, b.span = b.begin(context.Background(), r, trace.WithTimestamp(b.start),
			trace.WithAttributes(KeyOutcome.String(string(outcome)), KeyErrorType.String(string(typeOr(t)))))
	}
	if b.span == nil {
		return
	}
	if b.span.IsRecording() {
		b.span.SetAttributes(KeyOutcome.String(string(outcome)),
			KeyRenewed.Int(renewed), KeyMissing.Int(missing), KeyTaken.Int(taken), KeyFailed.Int(failed))
		if outcome != batchOK {
			b.span.SetAttributes(KeyErrorType.String(string(typeOr(t))))
		}
		if outcome == batchError || err != nil {
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
