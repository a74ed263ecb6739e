package child

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/loadtest/internal/wire"
	"github.com/lockdog/lockdog/lock"
)

// lockdog holds locks through package lock: watched ones with default options, or, as the mode without renewal, such with a fixed
// lease that outlives the run.
type lockdog struct {
	cfg    *wire.Config
	client *lock.Client
	leases []*lock.Lease

	stopChurn func()
	churned   chan struct{}
	churnErr  error
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

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// warmLease is that of the locks which are there to be renewed once, soon; warmHold is when they have been.
const (
	warmLease = 900 * time.Millisecond
	warmHold  = 400 * time.Millisecond
)

// warm fills the pools, also the one for renewals, as connections are large. That takes locks that are renewed.
func (d *lockdog) warm(ctx context.Context) error {
	err := crowd(ctx, 0, crowdSize, 0, func(ctx context.Context, i int) error {
		name := fmt.Sprint("loadtest:warm:", wire.Name(d.cfg.Seed, d.cfg.First), ":", i)
		l, err := d.client.Mutex(name, lock.WithWatchdog(warmLease)).TryLock(ctx)
		if err != nil {
			return err
		}
		if err := sleepUntil(ctx, time.Now().Add(warmHold)); err != nil {
			return err
		}
		if err := l.Release(ctx); !errors.Is(err, lock.ErrLost) { // on a machine that stands still; it was to warm up only
			return err
		}
		return nil
	})
	if err != nil {
		return err
	}
	return d.take(ctx, 0)
}

func (d *lockdog) acquire(ctx context.Context, over time.Duration) error {
	if err := crowd(ctx, 1, d.cfg.Locks, over, d.take); err != nil {
		return err
	}
	if d.cfg.Churn > 0 {
		d.churn()
	}
	return nil
}

// take takes one lock. The lease follows a ctx that never ends, as holders' do that release: one that can end costs the client 460 bytes more
// for each lock.
func (d *lockdog) take(ctx context.Context, i int) error {
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
		<-d.churned
	}
	var ok, gone atomic.Int64
	err = crowd(ctx, 0, len(d.leases), 0, func(ctx context.Context, i int) error {
		if d.leases[i] == nil {
			return nil // the run was interrupted while locks were taken
		}
		err := d.leases[i].Release(ctx)
		switch {
		case err == nil:
			ok.Add(1)
		case errors.Is(err, lock.ErrLost):
			gone.Add(1)
		default:
			return err
		}
		return nil
	})
	return int(ok.Load()), int(gone.Load()), errors.Join(err, d.churnErr)
}

// churn takes and releases other locks at the rate that was asked for, in an open loop, until stopped.
func (d *lockdog) churn() {
	ctx, stop := context.WithCancel(context.Background())
	d.stopChurn, d.churned = stop, make(chan struct{})
	go func() {
		defer close(d.churned)
		defer stop()
		var pairs sync.WaitGroup
		defer pairs.Wait()
		flight := make(chan struct{}, 4*crowdSize) // what comes on top waits, and makes up for it later
		var once sync.Once
		random := rand.New(rand.NewPCG(d.cfg.Seed, uint64(d.cfg.First)))
		next := time.Now()
		for i := 0; ctx.Err() == nil; i++ {
			next = next.Add(seconds(random.ExpFloat64() / d.cfg.Churn))
			if sleepUntil(ctx, next) != nil {
				return
			}
			m := d.client.Mutex("loadtest:churn:" + wire.Name(d.cfg.Seed, d.cfg.First) + ":" + fmt.Sprint(i))
			flight <- struct{}{}
			pairs.Go(func() {
				defer func() { <-flight }()
				l, err := m.TryLock(context.Background())
				if err == nil {
					err = l.Release(context.Background())
				}
				if err != nil {
					once.Do(func() { d.churnErr = fmt.Errorf("churn: %w", err) })
					stop()
				}
			})
		}
	}()
}

func (d *lockdog) close() error {
	d.stopChurn()
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	return d.client.Close(ctx)
}
