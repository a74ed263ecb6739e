package telemetry_test

import (
	"context"
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/lockdog/lockdog/telemetry"
)

// What is done in no request's name starts no trace, not even with a program that samples all.
func TestUntraced(t *testing.T) {
	t.Parallel()
	tracer := sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.AlwaysSample()))).Tracer("redisotel")
	if _, span := tracer.Start(context.Background(), "evalsha"); !span.IsRecording() {
		t.Error("the sampler samples nothing")
	}
	share := sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.TraceIDRatioBased(.5))).Tracer("redisotel")
	for _, tracer := range []trace.Tracer{tracer, share} {
		if _, span := tracer.Start(telemetry.Untraced(context.Background()), "evalsha"); span.IsRecording() {
			t.Error("a span is recorded")
		}
	}
}
