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

// teller prints lockdog's spans as they end. It is an ordinary span processor, like the one that would send them to a
// tracing backend (and does, with -otlp).
type teller struct {
	service string
	out     *printer
	seen    *record
}

// OnStart implements sdktrace.SpanProcessor.
func (t *teller) OnStart(context.Context, sdktrace.ReadWriteSpan) {}

// OnEnd implements sdktrace.SpanProcessor.
func (t *teller) OnEnd(s sdktrace.ReadOnlySpan) {
	if s.InstrumentationScope().Name != telemetry.ScopeName || s.Name() == telemetry.SpanBatch.Name {
		return // the service's own, or the call to Redis that the renewals below it share
	}
	kind, _, _ := strings.Cut(s.Name(), " ")
	sp := span{ReadOnlySpan: s, attrs: attribute.NewSet(s.Attributes()...)}
	if line, c := sp.line(kind); line != "" {
		t.out.event(t.service, kind, c, line)
	}
	t.seen.add(event{t.service, kind, sp.text(telemetry.KeyOutcome)})
}

// Shutdown implements sdktrace.SpanProcessor.
func (t *teller) Shutdown(context.Context) error { return nil }

// ForceFlush implements sdktrace.SpanProcessor.
func (t *teller) ForceFlush(context.Context) error { return nil }

// span reads the attributes of a span.
type span struct {
	sdktrace.ReadOnlySpan
	attrs attribute.Set
}

func (s span) value(k attribute.Key) attribute.Value { v, _ := s.attrs.Value(k); return v }
func (s span) text(k attribute.Key) string           { return s.value(k).AsString() }
func (s span) number(k attribute.Key) int64          { return s.value(k).AsInt64() }
func (s span) seconds(k attribute.Key) time.Duration {
	return time.Duration(s.value(k).AsFloat64() * float64(time.Second))
}
func (s span) took() time.Duration { return s.EndTime().Sub(s.StartTime()) }

// line says in words what a span says in attributes; "" for held, which has no length and stands for the grant.
func (s span) line(kind string) (string, colour) {
	name := s.text(telemetry.KeyName)
	switch kind {
	case telemetry.SpanAcquire.Name:
		if outcome := s.text(telemetry.KeyOutcome); outcome != "acquired" {
			return fmt.Sprintf("%s: %s after %s", name, outcome, short(s.took())), red
		}
		text := fmt.Sprintf("%s taken in %s, token %d", name, short(s.took()), s.number(telemetry.KeyToken))
		if by := s.text(telemetry.KeyBlockedBy); by != "" {
			text += ", blocked by " + by
		}
		return text, green
	case telemetry.SpanRenew.Name:
		return s.renewal()
	case telemetry.SpanLost.Name:
		return fmt.Sprintf("%s, cause: %s", name, s.text(telemetry.KeyCause)), red
	case telemetry.SpanRelease.Name:
		return fmt.Sprintf("%s %s in %s", name, s.text(telemetry.KeyOutcome), short(s.took())), green
	case telemetry.SpanHold.Name:
		return fmt.Sprintf("%s was held for %s, until %s", name, short(s.took()), s.text(telemetry.KeyEnd)), faint
	}
	return "", plain
}

// renewal is the line of one attempt to renew.
func (s span) renewal() (string, colour) {
	left, attempt := s.seconds(telemetry.KeyRemaining), s.number(telemetry.KeyAttempt)
	text := fmt.Sprintf("#%d %s %s left: ", s.number(telemetry.KeyOrdinal), bar(1-s.value(telemetry.KeyUtilization).AsFloat64()), short(left))
	switch outcome := s.text(telemetry.KeyOutcome); outcome {
	case "renewed":
		text += "renewed in " + short(s.took())
		if attempt > 1 {
			return text + fmt.Sprintf(", at attempt %d", attempt), green
		}
		return text + ", lag " + short(s.seconds(telemetry.KeyLag)), green
	case "error":
		return text + fmt.Sprintf("attempt %d failed, %s", attempt, s.text(telemetry.KeyErrorType)), yellow
	default: // missing, taken
		return text + "the lock is " + outcome, red
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

// event is what the story waits for: a span of a service, and its outcome if it has one.
type event struct{ service, span, outcome string }

// record counts the spans.
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

func (r *record) of(e event) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.count[e]
}

// until waits for n spans in all.
func (r *record) until(ctx context.Context, e event, n int) error {
	for {
		r.mu.Lock()
		count, changed := r.count[e], r.changed
		r.mu.Unlock()
		if count >= n {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s %s of %s: %w", e.span, e.outcome, e.service, context.Cause(ctx))
		}
	}
}
