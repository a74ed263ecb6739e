package telemetry

import (
	"bytes"
	"context"
	"reflect"
	"sync/atomic"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
)

// tracing finds the tracer, and finds out whether it is a no-op: Start of a no-op tracer costs four allocations, and
// tracing that is off should cost none.
type tracing struct {
	configured trace.TracerProvider // nil: the global one
	state      atomic.Pointer[tracerState]
}

// tracerState is what is known about a tracer. It is valid as long as the global provider isn't replaced.
type tracerState struct {
	global     trace.TracerProvider
	comparable bool // global can be compared with ==
	tracer     trace.Tracer
	mode       atomic.Uint32
}

// same reports whether g, the present global provider, is the one for which s was made. If that one can't be compared,
// any g of its type counts as the same.
func (s *tracerState) same(g trace.TracerProvider) bool {
	if s.comparable {
		return s.global == g
	}
	return reflect.TypeOf(s.global) == reflect.TypeOf(g)
}

const (
	tracerUnknown uint32 = iota // no span of the tracer was seen yet
	tracerLive
	tracerNoop
)

// current returns the state; a new one after the global provider was replaced. That matters for a configured provider,
// too: it may be OpenTelemetry's default provider, which forwards to the first one that replaces it.
func (t *tracing) current() *tracerState {
	global := otel.GetTracerProvider()
	if s := t.state.Load(); s != nil && s.same(global) {
		return s
	}
	provider := t.configured
	if provider == nil {
		provider = global
	}
	s := &tracerState{
		global:     global,
		comparable: reflect.ValueOf(global).Comparable(),
		tracer: provider.Tracer(ScopeName,
			trace.WithInstrumentationVersion(Version), trace.WithSchemaURL(semconv.SchemaURL)),
	}
	t.state.Store(s)
	return s
}

// live reports whether the tracer isn't known to be a no-op.
func (t *tracing) live() bool { return t.current().mode.Load() != tracerNoop }

// start starts a span. With a no-op tracer it returns ctx and a nil span. Building options allocates: callers should do
// so only if they know that there is a tracer.
func (t *tracing) start(ctx context.Context, name string, opts ...trace.SpanStartOption) (context.Context, trace.Span) {
	s := t.current()
	switch s.mode.Load() {
	case tracerNoop:
		return ctx, nil
	case tracerLive:
		return s.tracer.Start(ctx, name, opts...)
	}
	spanCtx, span := s.tracer.Start(ctx, name, opts...)
	if inherited(ctx, span) {
		// Probably a no-op. But it may be a wrapper that suppresses spans for this ctx. So start another span, with a
		// ctx that has only an unsampled parent, whose decision most samplers follow. That span isn't ended: otherwise
		// it could be exported.
		if _, probe := s.tracer.Start(probeContext, name); inherited(probeContext, probe) {
			s.mode.Store(tracerNoop)
			return ctx, nil
		}
	}
	s.mode.Store(tracerLive)
	return spanCtx, span
}

// inherited reports whether span has the span id of its parent in ctx, or no valid span context, as have the spans of a
// no-op tracer.
func inherited(ctx context.Context, span trace.Span) bool {
	sc := span.SpanContext()
	return !sc.IsValid() || sc.SpanID() == trace.SpanContextFromContext(ctx).SpanID()
}

var probeContext = trace.ContextWithRemoteSpanContext(context.Background(),
	trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID{15: 1},
		SpanID:  trace.SpanID{7: 1},
	}))

// linkTo returns a link. kind is its KeyLink.
func linkTo(sc trace.SpanContext, kind string, more ...attribute.KeyValue) trace.Link {
	attrs := append(make([]attribute.KeyValue, 0, len(more)+1), KeyLink.String(kind))
	return trace.Link{SpanContext: sc, Attributes: append(attrs, more...)}
}

// Untraced returns a context for calls that belong to no request. With it, instrumentation of the Redis client starts
// no trace for each call, unless its sampler ignores the parent.
func Untraced(ctx context.Context) context.Context {
	return trace.ContextWithSpanContext(ctx, unsampled)
}

// unsampled is a valid span context that isn't sampled. Its trace id is the largest: a sampler that takes a share of
// the traces by their ids takes small ones.
var unsampled = trace.NewSpanContext(trace.SpanContextConfig{
	TraceID: trace.TraceID(bytes.Repeat([]byte{0xff}, 16)), SpanID: trace.SpanID{1},
})
