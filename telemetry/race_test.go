package telemetry_test

import (
	"log/slog"
	"sync"
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/lockdog/lockdog/telemetry"
	"github.com/lockdog/lockdog/telemetry/internal/story"
)

// TestConcurrentEnds: a hold that is renewed, lost, canceled and released all at once ends once, and leaves
// the gauges at zero.
func TestConcurrentEnds(t *testing.T) {
	b := newBench(t, func(c *telemetry.Config, _ *[]sdktrace.TracerProviderOption) {
		c.Logger = slog.New(slog.DiscardHandler)
	})
	const holds = 200
	var wg sync.WaitGroup
	for range holds {
		h := b.grant()
		wg.Go(func() {
			for range 3 {
				h.Renewal(renewed(time.Now()))
				h.Renewal(failed())
			}
		})
		wg.Go(func() { h.Lost(telemetry.LossTaken, nil, nil) })
		wg.Go(func() { h.Canceled(telemetry.CancelContext, nil) })
		wg.Go(func() { h.End(telemetry.EndLost) })
		wg.Go(func() {
			_, rel := b.StartRelease(b.caller, h)
			rel.End(telemetry.ReleaseLost, false, nil)
			h.End(telemetry.EndReleased)
		})
		wg.Go(func() { b.metrics() })
	}
	wg.Wait()
	for _, m := range []telemetry.Metric{telemetry.MetricHeld, telemetry.MetricFailing, telemetry.MetricOldestAge} {
		b.want(0, m, "lockdog.group=orders")
	}
	if n := len(b.named("hold orders")); n != holds {
		t.Errorf("%d holds ended %d times", holds, n)
	}
}

// TestConcurrentGroups: many first uses of a group make it once.
func TestConcurrentGroups(t *testing.T) {
	b := newBench(t)
	var wg sync.WaitGroup
	for range 32 {
		wg.Go(func() {
			for range 60 {
				l := b.Lock("users:1", "mutex", "", 0)
				_, a := b.StartAcquire(b.caller, &l, ttl)
				a.Fail(telemetry.AcquireHeld, nil)
			}
		})
	}
	wg.Wait()
	b.want(32*60, telemetry.MetricAcquisitions, "lockdog.group=users", "lockdog.outcome=held")
}

// TestConcurrentJoins: recorders come and go while metrics are collected; neither waits for the other for ever.
func TestConcurrentJoins(t *testing.T) {
	b := newBench(t, withState(story.Busy))
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 20 {
				r, err := telemetry.NewRecorder(telemetry.Config{MeterProvider: b.mp, TracerProvider: b.tp, State: story.Busy})
				if err != nil {
					t.Error(err)
					return
				}
				b.metrics()
				r.Close()
			}
		})
	}
	wg.Wait()
	b.Close()
	if _, ok := b.value(telemetry.MetricTickAge); ok {
		t.Error("a callback is left")
	}
}
