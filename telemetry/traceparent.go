package telemetry

import (
	"strconv"
	"strings"

	"go.opentelemetry.io/otel/trace"
)

// A traceparent is "00-<trace id>-<span id>-<flags>", all in lower-case hex.

// formatTraceparent returns the W3C traceparent of a span context, "" if that is invalid or isn't sampled.
func formatTraceparent(sc trace.SpanContext) string {
	if !sc.IsValid() || !sc.IsSampled() {
		return ""
	}
	return "00-" + sc.TraceID().String() + "-" + sc.SpanID().String() + "-01"
}

// ParseTraceparent parses a W3C traceparent of version 00, the only version that lockdog writes. It accepts nothing
// else: no upper case, no further text, no zero ids. It ignores all flags but "sampled". The result is marked remote.
func ParseTraceparent(s string) (trace.SpanContext, bool) {
	parts := strings.Split(s[:min(len(s), 56)], "-")
	if len(s) != 55 || len(parts) != 4 || parts[0] != "00" || s != strings.ToLower(s) {
		return trace.SpanContext{}, false
	}
	traceID, traceErr := trace.TraceIDFromHex(parts[1])
	spanID, spanErr := trace.SpanIDFromHex(parts[2])
	flags, flagsErr := strconv.ParseUint(parts[3], 16, 8)
	if traceErr != nil || spanErr != nil || flagsErr != nil {
		return trace.SpanContext{}, false
	}
	return trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: traceID, SpanID: spanID, TraceFlags: trace.TraceFlags(flags) & trace.FlagsSampled, Remote: true,
	}), true
}
