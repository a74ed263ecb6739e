package telemetry

import (
	"bytes"
	"context"
	"reflect"
	"sync/atomic"

	"go.opentelemetry.io/otel"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
)

// tracing finds the tracer, and finds out whether it is worth asking: a no-op tracer's Start costs four
// allocations, a lock of ours should cost none.
type tracing struct {
	configured trace.TracerProvider // nil: the global one
	state      atomic.Pointer[tracerState]
}

// tracerState is what is known about a tracer for as long as the global provider stays the same one.
type tracerState struct {
	global     trace.TracerProvider
	comparable bool // global can be compared with ==
	tracer     trace.Tracer
	mode       atomic.Uint32
}

// same reports whether the global provider is still g. One whose type cannot be compared counts as the same.
func (s *tracerState) same(g trace.TracerProvider) bool {
	if s.comparable {
		return s.global == g
	}
	return reflect.TypeOf(s.global) == reflect.TypeOf(g)
}

const (
	tracerUnknown uint32 = iota // no span of it was seen yet
	tracerLive
	tracerNoop
)

// current returns the state, a new one after the global provider was replaced. That matters for a configured provider
// too: it may be OpenTelemetry's default one, which forwards to the first that replaces it.
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

// live reports whether spans may be recorded, as far as is known.
func (t *tracing) live() bool { return t.current().mode.Load() != tracerNoop }

// start starts a span. With a no-op tracer it gives ctx back and a nil span. Options that have to be made for
// the call must be made only after something else showed that there is a tracer.
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
		// Most likely a no-op. But it may be a wrapper that passes over this one ctx (a suppressed request),
		// so ask again with a ctx that has nothing on it but a parent that samplers follow in not sampling. The
		// span is left alone: ended, it could be exported.
		if _, probe := s.tracer.Start(probeContext, name); inherited(probeContext, probe) {
			s.mode.Store(tracerNoop)
			return ctx, nil
		}
	}
	s.mode.Store(tracerLive)
	return spanCtx, span
}

// inherited reports whether span is no span of its own: a no-op tracer hands on the parent's span context.
func inherited(ctx context.Context, span trace.Span) bool {
	sc := span.SpanContext()
	return !sc.IsValid() || sc.SpanID() == trace.SpanContextFromContext(ctx).SpanID()
}

var probeContext = trace.ContextWithRemoteSpanContext(context.Background(), trace.NewSpanContext(trace.SpanContextConfig{
	TraceID: trace.TraceID{15: 1},
	SpanID:  trace.SpanID{7: 1},
}))

// Untraced gives a context for calls that belong to no request: instrumentation below starts no trace of its own for each, unless
// its sampler doesn't heed the parent.
func Untraced(ctx context.Context) context.Context {
	return trace.ContextWithSpanContext(ctx, unsampled)
}

// unsampled is any valid span context that isn't sampled. A sampler that takes a share of the traces by their ids takes those with small ones.
var unsampled = trace.NewSpanContext(trace.SpanContextConfig{
	TraceID: trace.TraceID(bytes.Repeat([]byte{0xff}, 16)), SpanID: trace.SpanID{1},
})
