package peer

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	tracenoop "go.opentelemetry.io/otel/trace/noop"

	"github.com/lockdog/lockdog/lock"
)

// dog is lockdog.
type dog struct {
	rdb   redis.UniversalClient
	locks *lock.Client
	stop  func(context.Context) error // of the telemetry
}

// closeTimeout bounds Close.
const closeTimeout = 10 * time.Second

func openLockdog(cfg Config) (Locks, error) { return newQuietDog(cfg) }

// openLockdogLoss opens lockdog with notifications of losses.
func openLockdogLoss(cfg Config) (Locks, error) {
	return newQuietDog(cfg, lock.WithLossNotifications())
}

func newQuietDog(cfg Config, opts ...lock.Option) (Locks, error) {
	return newDog(cfg, func(context.Context) error { return nil }, append(opts,
		lock.WithTracerProvider(tracenoop.NewTracerProvider()),
		lock.WithMeterProvider(metricnoop.NewMeterProvider()))...)
}

func newDog(cfg Config, stop func(context.Context) error, opts ...lock.Option) (Locks, error) {
	d := &dog{rdb: connect(cfg), stop: stop}
	var err error
	if d.locks, err = lock.New(d.rdb, append(opts, lock.WithLease(cfg.Lease))...); err != nil {
		return nil, errors.Join(err, d.rdb.Close())
	}
	return d, nil
}

func (d *dog) Lock(ctx context.Context, name string) (Held, error) {
	l, err := d.locks.Mutex(name).Lock(ctx)
	if err != nil {
		return nil, err
	}
	return l, nil
}

func (d *dog) TryLock(ctx context.Context, name string) (Held, error) {
	l, err := d.locks.Mutex(name).TryLock(ctx)
	switch {
	case errors.Is(err, lock.ErrHeld):
		return nil, ErrHeld
	case err != nil:
		return nil, err
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
