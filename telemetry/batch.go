package telemetry

import (
	"cmp"
	"context"
	"net"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
)

// RenewBatch is the telemetry of one renewal call to Redis. It belongs to one goroutine at a time until End. After
// that, RenewalEvents may refer to it.
type RenewBatch struct {
	rec   *Recorder // nil: ended, or never started
	ctx   context.Context
	span  trace.Span // nil with a no-op tracer, or if quiet
	start time.Time
	node  string
	size  int
	lag   time.Duration
	quiet bool // there is a span only if a renewal fails
}

// StartBatch begins a renewal call for size leases to node, made lag after it was due. If shown is true, because
// Hold.ShowsRenewal is true for one of the leases, StartBatch starts a span, the root of a new trace. Otherwise there
// is a span only if a renewal fails. Redis must be called with the returned ctx: otherwise instrumentation of the Redis
// client starts a trace for each call.
func (r *Recorder) StartBatch(
	ctx context.Context, node string, size int, lag time.Duration, shown bool,
) (context.Context, RenewBatch) {
	b := RenewBatch{rec: r, node: node, size: size, lag: lag}
	switch {
	case shown:
		ctx, b.span = b.begin(ctx, r)
		b.start = clock(ctx, b.span, r.batchTime)
	case r.tracing.live():
		b.quiet, b.start, ctx = true, time.Now(), Untraced(ctx)
	default:
		b.start = clock(ctx, nil, r.batchTime)
	}
	b.ctx = ctx
	r.scheduleLag.Record(ctx, max(lag, 0).Seconds())
	r.shared.batchSize.Record(ctx, int64(size))
	return ctx, b
}

// renewOperation is the command of a renewal. If the server doesn't know the script yet, an EVAL follows.
var renewOperation = semconv.DBOperationName("EVALSHA")

// begin starts the span. It sets the attributes at the start, so that a sampler can use them.
func (b *RenewBatch) begin(
	ctx context.Context, r *Recorder, opts ...trace.SpanStartOption,
) (context.Context, trace.Span) {
	attrs := make([]attribute.KeyValue, 0, len(SpanBatch.Attributes))
	attrs = append(attrs, semconv.DBSystemNameRedis, renewOperation,
		KeyNode.String(b.node), KeyBatchSize.Int(b.size), KeyLag.Float64(b.lag.Seconds()))
	host, port, err := net.SplitHostPort(b.node)
	if err != nil { // node is a Unix socket, or unknown
		host = b.node
	}
	if host != "" {
		attrs = append(attrs, semconv.ServerAddress(host))
	}
	if n, err := strconv.Atoi(port); err == nil {
		attrs = append(attrs, semconv.ServerPort(n))
	}
	if b.size > 1 { // by the semantic conventions, a batch has at least two operations
		attrs = append(attrs, semconv.DBOperationBatchSize(b.size))
	}
	opts = append(opts, trace.WithNewRoot(), trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(attrs...))
	return r.tracing.start(ctx, SpanBatch.Name, opts...)
}

// End ends the call; a second End does nothing. The counts are of leases; failed are those with RenewalError. t is the
// type of the first failure. err is the error of the span, if the whole call failed.
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
	took(b.ctx, r.batchTime, b.start, r.batchSets.at(string(outcome)))
	r.leases.settle(b.ctx)
	errorType := KeyErrorType.String(string(cmp.Or(t, ErrorOther)))
	if b.quiet && outcome != batchOK {
		_, b.span = b.begin(context.Background(), r, trace.WithTimestamp(b.start),
			trace.WithAttributes(KeyOutcome.String(string(outcome)), errorType))
	}
	if b.span == nil {
		return
	}
	if b.span.IsRecording() {
		b.span.SetAttributes(KeyOutcome.String(string(outcome)),
			KeyRenewed.Int(renewed), KeyMissing.Int(missing), KeyTaken.Int(taken), KeyFailed.Int(failed))
		if outcome != batchOK {
			b.span.SetAttributes(errorType)
		}
		if outcome == batchError || err != nil {
			fail(b.span, err)
		}
	}
	b.span.End()
}

// ByAgent notes how many leases of the call the agent of this machine has renewed.
func (b *RenewBatch) ByAgent(renewed int) {
	if renewed > 0 && b.span != nil {
		b.span.SetAttributes(KeyByAgent.Int(renewed))
	}
}

// AgentRequest counts a request to the agent of this machine, for size leases, of which the agent renewed some.
func (r *Recorder) AgentRequest(ctx context.Context, renewed, size int) {
	outcome := batchPartial
	switch renewed {
	case 0:
		outcome = batchError
	case size:
		outcome = batchOK
	}
	r.agentRequests.inc(ctx, string(outcome))
}

// spanContext returns the span context of the batch, for links to it. b may be nil.
func (b *RenewBatch) spanContext() trace.SpanContext {
	if b == nil || b.span == nil {
		return trace.SpanContext{}
	}
	return b.span.SpanContext()
}
