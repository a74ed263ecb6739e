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

// collectEvery is shorter than a scrape interval: a short measurement has collections, too.
const collectEvery = time.Second

// openLockdogSDK is lockdog as a service has it: metrics that are collected, and traces, all of them sampled, that are
// batched. What exporters do with them, in the background, isn't lockdog's; these do nothing.
func openLockdogSDK(cfg Config) (Locks, error) {
	tracers := sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.AlwaysSample()), sdktrace.WithBatcher(noSpans{}))
	meters := sdkmetric.NewMeterProvider(sdkmetric.WithReader(
		sdkmetric.NewPeriodicReader(noMetrics{}, sdkmetric.WithInterval(collectEvery))))
	stop := func(ctx context.Context) error { return errors.Join(tracers.Shutdown(ctx), meters.Shutdown(ctx)) }
	return newDog(cfg, stop, lock.WithTracerProvider(tracers), lock.WithMeterProvider(meters))
}

// noSpans is a trace exporter.
type noSpans struct{}

func (noSpans) ExportSpans(context.Context, []sdktrace.ReadOnlySpan) error { return nil }
func (noSpans) Shutdown(context.Context) error                             { return nil }

// noMetrics is a metric exporter.
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
