package peer

import (
	"context"
	"errors"
	"time"

	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/lockdog/lockdog/lock"
)

// collectEvery is shorter than a scrape interval, so that even a short measurement has collections.
const collectEvery = time.Second

// openLockdogSDK opens lockdog with the telemetry of a service: metrics that are collected, and traces that are all
// sampled and batched. The exporters do nothing: what real ones do in the background isn't a cost of lockdog.
func openLockdogSDK(cfg Config) (Locks, error) {
	tracers := sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.AlwaysSample()),
		sdktrace.WithBatcher(noSpans{}))
	meters := sdkmetric.NewMeterProvider(sdkmetric.WithReader(
		sdkmetric.NewPeriodicReader(noMetrics{}, sdkmetric.WithInterval(collectEvery))))
	stop := func(ctx context.Context) error { return errors.Join(tracers.Shutdown(ctx), meters.Shutdown(ctx)) }
	return newDog(cfg, stop, lock.WithTracerProvider(tracers), lock.WithMeterProvider(meters))
}

// noSpans is a trace exporter that does nothing.
type noSpans struct{}

func (noSpans) ExportSpans(context.Context, []sdktrace.ReadOnlySpan) error { return nil }
func (noSpans) Shutdown(context.Context) error                             { return nil }

// noMetrics is a metric exporter that does nothing.
type noMetrics struct{}

func (noMetrics) Temporality(k sdkmetric.InstrumentKind) metricdata.Temporality {
	return sdkmetric.DefaultTemporalitySelector(k)
}

func (noMetrics) Aggregation(k sdkmetric.InstrumentKind) sdkmetric.Aggregation {
	return sdkmetric.DefaultAggregationSelector(k)
}
func (noMetrics) Export(context.Context, *metricdata.ResourceMetrics) error { return nil }
func (noMetrics) ForceFlush(context.Context) error                          { return nil }
func (noMetrics) Shutdown(context.Context) error                            { return nil }
