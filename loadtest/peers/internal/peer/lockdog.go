package peer

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

// dog is lockdog.
type dog struct {
	rdb   redis.UniversalClient
	locks *lock.Client
	stop  func(context.Context) error // of the telemetry
}

const (
	// closeTimeout bounds Close, except for the closing of the Redis client.
	closeTimeout = 10 * time.Second
	// collectEvery is shorter than a scrape interval, so that even a short measurement has collections.
	collectEvery = time.Second
)

// openLockdog opens lockdog as one of its three peers.
func openLockdog(name string, cfg Config) (Locks, error) {
	d := &dog{rdb: connect(cfg), stop: func(context.Context) error { return nil }}
	opts := []lock.Option{
		lock.WithLease(cfg.Lease),
		lock.WithTracerProvider(tracenoop.NewTracerProvider()), lock.WithMeterProvider(metricnoop.NewMeterProvider()),
	}
	switch name {
	case LockdogLoss:
		opts = append(opts, lock.WithLossNotifications())
	case LockdogSDK:
		// The telemetry of a service: metrics that are collected, and traces that are all sampled and batched. The
		// exporters do nothing: what real ones do in the background isn't a cost of lockdog.
		tracers := sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.AlwaysSample()),
			sdktrace.WithBatcher(tracetest.NewNoopExporter()))
		meters := sdkmetric.NewMeterProvider(sdkmetric.WithReader(
			sdkmetric.NewPeriodicReader(noMetrics{}, sdkmetric.WithInterval(collectEvery))))
		opts = append(opts, lock.WithTracerProvider(tracers), lock.WithMeterProvider(meters))
		d.stop = func(ctx context.Context) error { return errors.Join(tracers.Shutdown(ctx), meters.Shutdown(ctx)) }
	}
	var err error
	if d.locks, err = lock.New(d.rdb, opts...); err != nil {
		return nil, errors.Join(err, d.rdb.Close())
	}
	return d, nil
}

func (d *dog) Lock(ctx context.Context, name string, wait bool) (Held, error) {
	m := d.locks.Mutex(name)
	var l *lock.Lease
	var err error
	if wait {
		l, err = m.Lock(ctx)
	} else {
		l, err = m.TryLock(ctx)
	}
	if err != nil {
		return nil, refused(err, !wait && errors.Is(err, lock.ErrHeld))
	}
	return l, nil
}

func (d *dog) Lost(h Held) <-chan struct{} { return h.(*lock.Lease).Context().Done() }

func (d *dog) Key(name string) string { return name }

func (d *dog) Force(ctx context.Context, name string) error {
	_, err := d.locks.Mutex(name).ForceUnlock(ctx)
	return err
}

func (d *dog) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	return errors.Join(d.locks.Close(ctx), d.rdb.Close(), d.stop(ctx))
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
