package main

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/lockdog/lockdog/telemetry"
)

// spanPrinter prints lockdog's spans as they end. It is an ordinary span processor, like the one that sends them to a
// tracing backend with -otlp.
type spanPrinter struct {
	service string
	out     *printer
	seen    *record
}

// OnEnd implements sdktrace.SpanProcessor.
func (p *spanPrinter) OnEnd(s sdktrace.ReadOnlySpan) {
	if s.InstrumentationScope().Name != telemetry.ScopeName || s.Name() == telemetry.SpanBatch.Name {
		return // the service's own, or the call to Redis that several renewals share
	}
	kind, _, _ := strings.Cut(s.Name(), " ")
	sp := span{ReadOnlySpan: s, attrs: attribute.NewSet(s.Attributes()...)}
	if line, c := sp.line(kind); line != "" {
		p.out.event(p.service, kind, c, line)
	}
	p.seen.add(event{p.service, kind, sp.text(telemetry.KeyOutcome)})
}

// OnStart implements sdktrace.SpanProcessor.
func (*spanPrinter) OnStart(context.Context, sdktrace.ReadWriteSpan) {}

// Shutdown implements sdktrace.SpanProcessor.
func (*spanPrinter) Shutdown(context.Context) error { return nil }

// ForceFlush implements sdktrace.SpanProcessor.
func (*spanPrinter) ForceFlush(context.Context) error { return nil }

// span reads the attributes of a span.
type span struct {
	sdktrace.ReadOnlySpan
	attrs attribute.Set
}

func (s span) value(k attribute.Key) attribute.Value { v, _ := s.attrs.Value(k); return v }
func (s span) text(k attribute.Key) string           { return s.value(k).AsString() }
func (s span) number(k attribute.Key) int64          { return s.value(k).AsInt64() }
func (s span) took() string                          { return short(s.EndTime().Sub(s.StartTime())) }

func (s span) seconds(k attribute.Key) string {
	return short(time.Duration(s.value(k).AsFloat64() * float64(time.Second)))
}

// line returns what the attributes of a span mean; "" for held, which has no length.
func (s span) line(kind string) (string, colour) {
	name, outcome := s.text(telemetry.KeyName), s.text(telemetry.KeyOutcome)
	switch kind {
	case telemetry.SpanAcquire.Name:
		if outcome != "acquired" {
			return fmt.Sprintf("%s: %s after %s", name, outcome, s.took()), red
		}
		text := fmt.Sprintf("%s taken in %s, token %d", name, s.took(), s.number(telemetry.KeyToken))
		if by := s.text(telemetry.KeyBlockedBy); by != "" {
			text += ", blocked by " + by
		}
		return text, green
	case telemetry.SpanRenew.Name:
		text, c := s.renewal(outcome)
		left := bar(1 - s.value(telemetry.KeyUtilization).AsFloat64())
		return fmt.Sprintf("#%d %s %s left: %s", s.number(telemetry.KeyOrdinal), left, s.seconds(telemetry.KeyRemaining), text), c
	case telemetry.SpanLost.Name:
		return fmt.Sprintf("%s, cause: %s", name, s.text(telemetry.KeyCause)), red
	case telemetry.SpanRelease.Name:
		return fmt.Sprintf("%s %s in %s", name, outcome, s.took()), green
	case telemetry.SpanHold.Name:
		return fmt.Sprintf("%s was held for %s, until %s", name, s.took(), s.text(telemetry.KeyEnd)), faint
	}
	return "", plain
}

func (s span) renewal(outcome string) (string, colour) {
	attempt := s.number(telemetry.KeyAttempt)
	switch {
	case outcome == "renewed" && attempt > 1:
		return fmt.Sprintf("renewed in %s, at attempt %d", s.took(), attempt), green
	case outcome == "renewed":
		return fmt.Sprintf("renewed in %s, lag %s", s.took(), s.seconds(telemetry.KeyLag)), green
	case outcome == "error":
		return fmt.Sprintf("attempt %d failed, %s", attempt, s.text(telemetry.KeyErrorType)), yellow
	default: // missing, taken
		return "the lock is " + outcome, red
	}
}

// bar draws how much of the lease is left.
func bar(share float64) string {
	const width = 12
	n := min(max(int(width*share+.5), 0), width)
	return "[" + strings.Repeat("=", n) + strings.Repeat(" ", width-n) + "]"
}

// short prints a duration in three digits.
func short(d time.Duration) string {
	digit := time.Duration(1)
	for d >= 1000*digit {
		digit *= 10
	}
	return d.Round(digit).String()
}

// event is a span of a service, and its outcome if it has one.
type event struct{ service, span, outcome string }

// record counts the spans that have ended.
type record struct {
	mu      sync.Mutex
	count   map[event]int
	changed chan struct{} // closed at the next change
}

func newRecord() *record {
	return &record{count: make(map[event]int), changed: make(chan struct{})}
}

func (r *record) add(e event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.count[e]++
	close(r.changed)
	r.changed = make(chan struct{})
}

func (r *record) of(e event) (int, <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.count[e], r.changed
}

// expect returns a function that waits until n spans have ended since expect was called.
func (r *record) expect(n int, e event) func(context.Context) error {
	had, _ := r.of(e)
	return func(ctx context.Context) error {
		for {
			count, changed := r.of(e)
			if count >= had+n {
				return nil
			}
			select {
			case <-changed:
			case <-ctx.Done():
				return fmt.Errorf("waiting for %s %s of %s: %w", e.span, e.outcome, e.service, context.Cause(ctx))
			}
		}
	}
}
