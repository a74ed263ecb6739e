package peers

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	tracenoop "go.opentelemetry.io/otel/trace/noop"

	"github.com/lockdog/lockdog/lock"
)

const (
	// closeTimeout bounds the closing of lockdog and its telemetry.
	closeTimeout = 10 * time.Second
	// collectEvery is shorter than a scrape interval, so that even a short measurement has collections.
	collectEvery = time.Second
)

// newLockdog opens lockdog as one of its three peers.
func newLockdog(rdb redis.UniversalClient, lease time.Duration, name string) (*library, error) {
	opts := []lock.Option{
		lock.WithLease(lease),
		lock.WithTracerProvider(tracenoop.NewTracerProvider()), lock.WithMeterProvider(metricnoop.NewMeterProvider()),
	}
	stop := func(context.Context) error { return nil }
	switch name {
	case lockdogLoss:
		opts = append(opts, lock.WithLossNotifications())
	case lockdogSDK:
		// The telemetry of a service: metrics that are collected, and traces that are all sampled and batched. The
		// exporters do nothing: what real ones do in the background isn't a cost of lockdog.
		tracers := sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.AlwaysSample()),
			sdktrace.WithBatcher(tracetest.NewNoopExporter()))
		meters := sdkmetric.NewMeterProvider(sdkmetric.WithReader(
			sdkmetric.NewPeriodicReader(noMetrics{}, sdkmetric.WithInterval(collectEvery))))
		opts = append(opts, lock.WithTracerProvider(tracers), lock.WithMeterProvider(meters))
		stop = func(ctx context.Context) error { return errors.Join(tracers.Shutdown(ctx), meters.Shutdown(ctx)) }
	}
	locks, err := lock.New(rdb, opts...)
	if err != nil {
		return nil, errors.Join(err, rdb.Close())
	}
	return &library{
		lock:  func(ctx context.Context, name string) (held, error) { return either(locks.Mutex(name).Lock(ctx)) },
		try:   func(ctx context.Context, name string) (held, error) { return either(locks.Mutex(name).TryLock(ctx)) },
		taken: lock.ErrHeld,
		close: func() error {
			ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
			defer cancel()
			return errors.Join(locks.Close(ctx), rdb.Close(), stop(ctx))
		},
		lost: func(h held) <-chan struct{} { return h.(*lock.Lease).Context().Done() },
		force: func(ctx context.Context, name string) error {
			_, err := locks.Mutex(name).ForceUnlock(ctx)
			return err
		},
	}, nil
}

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
