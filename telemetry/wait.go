package telemetry

import (
	"context"
	"sync"
	"time"

	"go.opentelemetry.io/otel/trace"
)

// waits adds up how long the acquires below one ctx have waited.
type waits struct {
	outer *waits // of the ctx that this one's was made from, which counts the same waits
	began time.Time

	mu      sync.Mutex
	running int           // waits under way
	sum     time.Duration // of all waits, less, of those under way, the time from began to their start
}

type waitsKey struct{}

// TrackWaits gives a ctx below which waits are added up; Waited tells the sum.
func TrackWaits(ctx context.Context) context.Context {
	outer, _ := ctx.Value(waitsKey{}).(*waits)
	return context.WithValue(ctx, waitsKey{}, &waits{outer: outer, began: time.Now()})
}

// Waited is how long acquires below the innermost TrackWaits of ctx have waited by now; 0 if there is none.
func Waited(ctx context.Context) time.Duration {
	w, ok := ctx.Value(waitsKey{}).(*waits)
	if !ok {
		return 0
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.sum + time.Duration(w.running)*time.Since(w.began)
}

// start adds a wait to w and to those around it. w may be nil, as in stop.
func (w *waits) start(now time.Time) {
	for ; w != nil; w = w.outer {
		w.mu.Lock()
		w.running++
		w.sum -= now.Sub(w.began)
		w.mu.Unlock()
	}
}

// stop ends a wait.
func (w *waits) stop(now time.Time) {
	for ; w != nil; w = w.outer {
		w.mu.Lock()
		w.running--
		w.sum += now.Sub(w.began)
		w.mu.Unlock()
	}
}

// callers has how long acquires have waited in each of their callers' spans, for all recorders: a span can be written to, but not read.
var callers = callerSpans{waited: map[spanID]*callerSpan{}}

const (
	minCallerSpans = 64
	// maxCallerSpans bounds the memory where spans are never ended. Past it, a span that is new has only its last wait.
	maxCallerSpans = 10_000
)

type callerSpans struct {
	mu      sync.Mutex
	waited  map[spanID]*callerSpan
	toSweep int // how many more spans may come before those that have ended are looked for
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

// add puts one more wait on a span.
func (c *callerSpans) add(span trace.Span, d time.Duration) {
	if !span.IsRecording() {
		return
	}
	s := c.of(span)
	s.mu.Lock() // also while it is written, so that the last sum stays
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
		c.toSweep = max(minCallerSpans, len(c.waited)) // so that a sweep costs each of them no more than a moment
	}
	s := &callerSpan{span: span}
	if len(c.waited) < maxCallerSpans {
		c.waited[id] = s
	}
	return s
}
