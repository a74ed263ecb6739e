package telemetry_test

import (
	"regexp"
	"testing"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"

	"github.com/lockdog/lockdog/telemetry"
)

const goodTraceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

func TestParseTraceparent(t *testing.T) {
	sc, ok := telemetry.ParseTraceparent(goodTraceparent)
	if !ok || sc.TraceID().String() != "0af7651916cd43dd8448eb211c80319c" || sc.SpanID().String() != "b7ad6b7169203331" ||
		!sc.IsSampled() || !sc.IsRemote() {
		t.Errorf("%v %v", sc, ok)
	}
	if sc, ok := telemetry.ParseTraceparent(goodTraceparent[:53] + "00"); !ok || sc.IsSampled() {
		t.Error("unsampled")
	}
	if sc, ok := telemetry.ParseTraceparent(goodTraceparent[:53] + "ff"); !ok || sc.TraceFlags() != trace.FlagsSampled {
		t.Error("flags nobody knows were taken over")
	}
}

var shapeOfTraceparent = regexp.MustCompile(`^00-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$`)

// FuzzParseTraceparent compares with OpenTelemetry's own parser, which takes more, and with the shape.
func FuzzParseTraceparent(f *testing.F) {
	for _, s := range []string{
		goodTraceparent, "", "00", goodTraceparent + "-", goodTraceparent[:54],
		"01" + goodTraceparent[2:], "ff" + goodTraceparent[2:],
		"00-0AF7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "00-00000000000000000000000000000000-b7ad6b7169203331-01",
		"00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01", "00_0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
		"00-0af7651916cd43dd8448eb211c80319c_b7ad6b7169203331-01", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331_01",
		"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0g", "00-0af7651916cd43dd8448eb211c8031 c-b7ad6b7169203331-01",
		"00-0af7651916cd43dd8448eb211c80319c-b7ad6b71692033\x00\x00-01",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, ok := telemetry.ParseTraceparent(s)
		want := trace.SpanContextFromContext(propagation.TraceContext{}.Extract(t.Context(), propagation.MapCarrier{"traceparent": s}))
		if ok != (shapeOfTraceparent.MatchString(s) && want.IsValid()) {
			t.Errorf("%q: %v", s, ok)
		}
		if ok && (got.TraceID() != want.TraceID() || got.SpanID() != want.SpanID() ||
			got.IsSampled() != want.IsSampled()) {
			t.Errorf("%q: %v, want %v", s, got, want)
		}
		if !ok && got.IsValid() {
			t.Errorf("%q: valid, but not ok", s)
		}
	})
}
