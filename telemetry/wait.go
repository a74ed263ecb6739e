package telemetry

import (
	"context"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"
)

// waits sums the times that the acquires below a ctx have waited.
type waits struct {
	outer *waits // of the parent ctx, which sums the same waits, too; nil: none
	began time.Time

	mu      sync.Mutex
	running int           // waits that haven't ended
	sum     time.Duration // of the waits that have ended; for each running one, minus the time from began to its start
}

type waitsKey struct{}

// TrackWaits returns a ctx that sums the waits of the acquires below it: see Waited.
func TrackWaits(ctx context.Context) context.Context {
	outer, _ := ctx.Value(waitsKey{}).(*waits)
	return context.WithValue(ctx, waitsKey{}, &waits{outer: outer, began: time.Now()})
}

// Waited returns how long the acquires below the innermost TrackWaits of ctx have waited so far; 0 if there is none.
func Waited(ctx context.Context) time.Duration {
	w, ok := ctx.Value(waitsKey{}).(*waits)
	if !ok {
		return 0
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.sum + time.Duration(w.running)*time.Since(w.began)
}

// change adds delta to the running waits of w and its outer ones. w may be nil.
func (w *waits) change(delta int, now time.Time) {
	for ; w != nil; w = w.outer {
		w.mu.Lock()
		w.running += delta
		w.sum -= time.Duration(delta) * now.Sub(w.began)
		w.mu.Unlock()
	}
}

// callers has the sum of the waits for each caller's span, of all recorders: the attributes of a span can't be read.
var callers = callerSpans{waited: map[spanID]*callerSpan{}}

const (
	minCallerSpans = 64
	// maxCallerSpans limits the memory if spans are never ended. Further spans get only their last wait.
	maxCallerSpans = 10_000
)

type callerSpans struct {
	mu      sync.Mutex
	waited  map[spanID]*callerSpan
	toSweep int // new spans until those that have ended are removed
}

type spanID struct {
	trace trace.TraceID
	span  trace.SpanID
}

type callerSpan struct {
	span trace.Span
	mu   sync.Mutex
	sum  time.Duration
}

// add adds a wait to the attribute of a span.
func (c *callerSpans) add(span trace.Span, d time.Duration) {
	if !span.IsRecording() {
		return
	}
	s := c.of(span)
	s.mu.Lock() // also during SetAttributes, so that the largest sum is written last
	defer s.mu.Unlock()
	s.sum += d
	span.SetAttributes(KeyWait.Float64(s.sum.Seconds()))
}

func (c *callerSpans) of(span trace.Span) *callerSpan {
	sc := span.SpanContext()
	id := spanID{sc.TraceID(), sc.SpanID()}
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.waited[id]; s != nil {
		return s
	}
	if c.toSweep--; c.toSweep < 0 {
		for id, s := range c.waited {
			if !s.span.IsRecording() {
				delete(c.waited, id)
			}
		}
		c.toSweep = max(minCallerSpans, len(c.waited)) // so that a sweep has a constant cost per new span
	}
	s := &callerSpan{span: span}
	if len(c.waited) < maxCallerSpans {
		c.waited[id] = s
	}
	return s
}
