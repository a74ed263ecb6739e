package lock_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/lockdog/lockdog/telemetry"
)

// render writes spans as trees, one trace after the other, with numbers for their ids and without what differs from run
// to run: times, addresses, random owners.
func render(spans tracetest.SpanStubs) string {
	r := &renderer{children: map[trace.SpanID]tracetest.SpanStubs{}, number: map[trace.SpanID]int{}, tokens: map[int64]string{}}
	known := map[trace.SpanID]bool{}
	for _, s := range spans {
		known[s.SpanContext.SpanID()] = true
	}
	var roots tracetest.SpanStubs
	for _, s := range spans {
		if id := s.Parent.SpanID(); known[id] {
			r.children[id] = append(r.children[id], s)
		} else {
			roots = append(roots, s)
		}
	}
	inOrder(roots)
	for _, s := range roots {
		r.count(s)
	}
	for _, s := range roots {
		if s.Parent.IsValid() {
			r.line(0, "(its parent is missing)")
		}
		r.span(0, s)
		r.out.WriteString("\n")
	}
	return r.out.String()
}

// inOrder sorts spans by their start; the hold span starts with its grant but is made at the end.
func inOrder(spans tracetest.SpanStubs) {
	slices.SortStableFunc(spans, func(a, b tracetest.SpanStub) int {
		if c := a.StartTime.Compare(b.StartTime); c != 0 {
			return c
		}
		return strings.Compare(a.Name, b.Name)
	})
}

type renderer struct {
	out      strings.Builder
	children map[trace.SpanID]tracetest.SpanStubs
	number   map[trace.SpanID]int
	tokens   map[int64]string
}

// count numbers a span and those below it.
func (r *renderer) count(s tracetest.SpanStub) {
	r.number[s.SpanContext.SpanID()] = len(r.number) + 1
	for _, kv := range s.Attributes {
		if _, known := r.tokens[kv.Value.AsInt64()]; kv.Key == telemetry.KeyToken && !known {
			r.tokens[kv.Value.AsInt64()] = fmt.Sprintf("<token %d>", len(r.tokens)+1)
		}
	}
	inOrder(r.children[s.SpanContext.SpanID()])
	for _, c := range r.children[s.SpanContext.SpanID()] {
		r.count(c)
	}
}

func (r *renderer) line(depth int, format string, args ...any) {
	fmt.Fprintf(&r.out, strings.Repeat("    ", depth)+format+"\n", args...)
}

func (r *renderer) span(depth int, s tracetest.SpanStub) {
	r.line(depth, "[%d] %s (%s)", r.number[s.SpanContext.SpanID()], s.Name, s.SpanKind)
	depth++
	if s.InstrumentationScope.Name == telemetry.ScopeName && s.EndTime.Sub(s.StartTime) <= time.Microsecond {
		r.line(depth, "a moment")
	}
	if s.Status.Code != codes.Unset {
		r.line(depth, "status %s: %s", s.Status.Code, anonymous(s.Status.Description))
	}
	for _, a := range r.attributes(s.Attributes) {
		r.line(depth, "%s", a)
	}
	for _, e := range s.Events {
		r.line(depth, "event %s %v", e.Name, r.attributes(e.Attributes))
	}
	for _, l := range s.Links {
		r.line(depth, "link to [%d] %v", r.number[l.SpanContext.SpanID()], r.attributes(l.Attributes))
	}
	for _, c := range r.children[s.SpanContext.SpanID()] {
		r.span(depth, c)
	}
}

func (r *renderer) attributes(set []attribute.KeyValue) []string {
	var out []string
	for _, kv := range set {
		out = append(out, fmt.Sprintf("%s = %s", kv.Key, r.value(kv)))
	}
	slices.Sort(out)
	return out
}

func (r *renderer) value(kv attribute.KeyValue) string {
	switch kv.Key {
	case telemetry.KeyRemaining, telemetry.KeyUtilization, telemetry.KeyLag:
		if kv.Value.Type() == attribute.FLOAT64 && kv.Value.AsFloat64() >= 0 {
			return "<some>"
		}
	case semconv.ServerPortKey:
		return "<port>"
	case telemetry.KeyToken:
		return r.tokens[kv.Value.AsInt64()]
	}
	return anonymous(kv.Value.String())
}

var (
	addresses = regexp.MustCompile(`(127\.0\.0\.1|fake):\d+`)
	random    = regexp.MustCompile(`:[0-9a-f]{16}-(\d+)`)
	broken    = regexp.MustCompile(`^(EOF|(read|write) tcp .*)$`) // which of them, is a matter of who was faster
)

func anonymous(text string) string {
	text = broken.ReplaceAllString(text, "<connection broken>")
	return random.ReplaceAllString(addresses.ReplaceAllString(text, "<address>"), ":<random>-$1")
}
