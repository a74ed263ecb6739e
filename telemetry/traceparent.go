package telemetry

import (
	"encoding/hex"

	"go.opentelemetry.io/otel/trace"
)

// A traceparent is "00-<trace id>-<span id>-<flags>", all in lower-case hex.
const (
	traceparentLen = 55
	traceIDAt      = 3
	spanIDAt       = 36
	flagsAt        = 53
)

// formatTraceparent gives the W3C traceparent of a sampled span context, else "".
func formatTraceparent(sc trace.SpanContext) string {
	if !sc.IsValid() || !sc.IsSampled() {
		return ""
	}
	traceID, spanID := sc.TraceID(), sc.SpanID()
	b := make([]byte, 0, traceparentLen)
	b = append(b, "00-"...)
	b = hex.AppendEncode(b, traceID[:])
	b = append(b, '-')
	b = hex.AppendEncode(b, spanID[:])
	b = append(b, "-01"...)
	return string(b)
}

// ParseTraceparent reads a W3C traceparent of version 00, the only one lockdog writes, and nothing else: no
// upper case, no surplus, no zero ids. Of the flags only "sampled" is taken over. The result is marked remote.
func ParseTraceparent(s string) (trace.SpanContext, bool) {
	if len(s) != traceparentLen || s[:traceIDAt] != "00-" || s[spanIDAt-1] != '-' || s[flagsAt-1] != '-' {
		return trace.SpanContext{}, false
	}
	var traceID trace.TraceID
	var spanID trace.SpanID
	var flags [1]byte
	if !unhex(traceID[:], s[traceIDAt:]) || !unhex(spanID[:], s[spanIDAt:]) || !unhex(flags[:], s[flagsAt:]) {
		return trace.SpanContext{}, false
	}
	sc := trace.NewSpanContext(trace.SpanContextConfig{
		TraceID:    traceID,
		SpanID:     spanID,
		TraceFlags: trace.TraceFlags(flags[0]) & trace.FlagsSampled,
		Remote:     true,
	})
	return sc, sc.IsValid()
}

// unhex fills dst from lower-case hex digits.
func unhex(dst []byte, s string) bool {
	for i := range dst {
		high, ok := nibble(s[2*i])
		low, ok2 := nibble(s[2*i+1])
		if !ok || !ok2 {
			return false
		}
		dst[i] = high<<4 | low
	}
	return true
}

func nibble(c byte) (byte, bool) {
	switch {
	case '0' <= c && c <= '9':
		return c - '0', true
	case 'a' <= c && c <= 'f':
		return c - 'a' + 10, true
	}
	return 0, false
}
