package child

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/loadtest/internal/wire"
	"github.com/lockdog/lockdog/lock"
)

// lockdog holds locks through package lock: watched ones with default options or, in the mode without renewal, ones with a fixed lease
// that outlives the run.
type lockdog struct {
	cfg    *wire.Config
	client *lock.Client
	leases []*lock.Lease

	stopChurn func()
	churned   chan error // the result of the churn; nil without
}

func newLockdog(cfg *wire.Config, rdb redis.UniversalClient, m *meter) (*lockdog, error) {
	opt := lock.WithWatchdog(seconds(cfg.Lease))
	if cfg.Role == wire.None {
		opt = lock.WithFixedLease(seconds(cfg.Hold))
	}
	client, err := lock.New(rdb, lock.WithMeterProvider(m.provider), opt)
	if err != nil {
		return nil, err
	}
	return &lockdog{cfg: cfg, client: client, leases: make([]*lock.Lease, cfg.Locks), stopChurn: func() {}}, nil
}

// closeTimeout is how long the end may take.
const closeTimeout = 5 * time.Second

// warmFor is a lease for the warm-up, and how long to hold its locks: each is renewed once. A call has a sixth of the lease, in which at
// first a connection is made, in a few round trips.
func warmFor(rtt time.Duration) (lease, hold time.Duration) {
	const (
		least      = 900 * time.Millisecond
		slack      = 100 * time.Millisecond
		roundTrips = 6
	)
	lease = least + 6*roundTrips*rtt
	return lease, lease/3 + slack
}

// warm fills the pools, as connections are large. The pool for renewals needs locks that are renewed.
func (d *lockdog) warm(ctx context.Context) error {
	lease, hold := warmFor(seconds(d.cfg.RTT))
	err := each(ctx, 0, atOnce, 0, func(ctx context.Context, i int) error {
		name := fmt.Sprint("loadtest:warm:", wire.Name(d.cfg.Seed, d.cfg.First), ":", i)
		l, err := d.client.Mutex(name, lock.WithWatchdog(lease)).Lock(ctx) // TryLock gives up after a third of so short a lease
		if err != nil {
			return err
		}
		if err := sleepUntil(ctx, time.Now().Add(hold)); err != nil {
			return err
		}
		// On a machine that stands still so short a lease is lost, or has no time for an answer. It was only to warm up.
		if err := l.Release(ctx); !errors.Is(err, lock.ErrLost) && !errors.Is(err, lock.ErrUnavailable) {
			return err
		}
		return nil
	})
	if err != nil {
		return err
	}
	return d.acquireOne(ctx, 0)
}

func (d *lockdog) acquire(ctx context.Context, over time.Duration) error {
	if err := each(ctx, 1, d.cfg.Locks, over, d.acquireOne); err != nil {
		return err
	}
	if d.cfg.Churn > 0 {
		d.churn()
	}
	return nil
}

// acquireOne gives TryLock a ctx that never ends, as holders do that release. One that can be canceled costs the client 460 bytes more per lock.
func (d *lockdog) acquireOne(ctx context.Context, i int) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	name := wire.Name(d.cfg.Seed, d.cfg.First+i)
	l, err := d.client.Mutex(name).TryLock(context.Background())
	if errors.Is(err, lock.ErrHeld) {
		return fmt.Errorf("%w: does another load test use this Redis, with the same -seed?", err)
	}
	d.leases[i] = l
	return err
}

func (d *lockdog) release(ctx context.Context) (released, lost int, err error) {
	d.stopChurn()
	if d.churned != nil {
		err = <-d.churned
	}
	released, lost, failed := releaseAll(ctx, len(d.leases), func(ctx context.Context, i int) (ours, lost int64, err error) {
		if d.leases[i] == nil {
			return 0, 0, nil // the run was interrupted while locks were acquired
		}
		switch err := d.leases[i].Release(ctx); {
		case errors.Is(err, lock.ErrLost):
			return 0, 1, nil
		case err != nil:
			return 0, 0, err
		}
		return 1, 0, nil
	})
	ctx, cancel := context.WithTimeout(ctx, closeTimeout)
	defer cancel()
	return released, lost, errors.Join(err, failed, d.client.Close(ctx)) // which waits for renewals on their way
}

// churn acquires and releases other locks at the rate that was asked for, until stopped.
func (d *lockdog) churn() {
	ctx, stop := context.WithCancel(context.Background())
	d.stopChurn, d.churned = stop, make(chan error, 1)
	go func() {
		err := paced(ctx, 4*atOnce, arrivals(d.cfg.Churn, d.cfg.Seed, uint64(d.cfg.First)), func(_ context.Context, i int, _ time.Time) error {
			m := d.client.Mutex("loadtest:churn:" + wire.Name(d.cfg.Seed, d.cfg.First) + ":" + fmt.Sprint(i))
			l, err := m.TryLock(context.Background())
			if err == nil {
				err = l.Release(context.Background())
			}
			return err
		})
		if errors.Is(err, context.Canceled) { // stopped
			err = nil
		}
		d.churned <- err
	}()
}
