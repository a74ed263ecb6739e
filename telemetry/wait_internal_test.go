package telemetry

import (
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// Spans that ended are forgotten, those that are open aren't, and spans that nobody ends take a bounded memory.
func TestCallerSpansAreBounded(t *testing.T) {
	t.Parallel()
	tracer := sdktrace.NewTracerProvider().Tracer("test")
	c := callerSpans{waited: map[spanID]*callerSpan{}}
	start := func() trace.Span {
		_, span := tracer.Start(t.Context(), "request")
		return span
	}
	wait := func(span trace.Span) (sum string) {
		c.add(span, time.Second)
		for _, kv := range span.(sdktrace.ReadOnlySpan).Attributes() {
			if kv.Key == KeyWait {
				sum = kv.Value.String()
			}
		}
		return sum
	}
	open := start()
	wait(open)
	for range 10_000 {
		span := start()
		wait(span)
		span.End()
		if n := len(c.waited); n > 2*minCallerSpans+1 {
			t.Fatalf("%d spans are kept", n)
		}
	}
	if got := wait(open); got != "2" {
		t.Errorf("a span that is open waited %q, want 2", got)
	}
	for range 2 * maxCallerSpans {
		wait(start())
	}
	if n := len(c.waited); n > maxCallerSpans {
		t.Errorf("%d spans are kept", n)
	}
	if got := wait(open); got != "3" {
		t.Errorf("a span that is open waited %q, want 3", got)
	}
	if last := start(); wait(last) != "1" {
		t.Error("a span past the limit hasn't its last wait")
	}
}
