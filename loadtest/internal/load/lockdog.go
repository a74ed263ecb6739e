package load

import (
	"context"
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/lock"
)

// lockdog holds locks through package lock: renewed ones with default options or, in the mode without renewal, ones
// with a fixed lease that is longer than the run.
type lockdog struct {
	rtt    time.Duration
	client *lock.Client
	leases []*lock.Lease
}

func newLockdog(cfg Config, rdb redis.UniversalClient, m *meter) (locks, error) {
	opts := []lock.Option{lock.WithMeterProvider(m.provider)}
	if cfg.Mode == None {
		opts = append(opts, lock.WithFixedLease(seconds(cfg.Hold)))
	} else {
		opts = append(opts, lock.WithLease(seconds(cfg.Lease)))
	}
	if cfg.Mode == Agent {
		opts = append(opts, lock.WithAgent(cfg.Socket))
	}
	client, err := lock.New(rdb, opts...)
	return &lockdog{rtt: seconds(cfg.RTT), client: client, leases: make([]*lock.Lease, cfg.Locks)}, err
}

// closeTimeout bounds the Close of the client.
const closeTimeout = 5 * time.Second

// warmFor returns a lease for the locks of the warm-up, and how long to hold them: until each has been renewed once,
// because only renewals fill the pool for renewals. A call times out after a sixth of the lease, and the first call on
// a connection needs a few more round trips to connect.
func warmFor(rtt time.Duration) (lease, hold time.Duration) {
	const (
		least      = 900 * time.Millisecond
		slack      = 100 * time.Millisecond
		roundTrips = 6
	)
	lease = least + 6*roundTrips*rtt
	return lease, lease/3 + slack
}

func (d *lockdog) cycle(ctx context.Context, name string, renew bool) error {
	if !renew {
		l, err := d.client.Mutex(name).TryLock(ctx)
		if err != nil {
			return err
		}
		return l.Release(ctx)
	}
	lease, hold := warmFor(d.rtt)
	m := d.client.Mutex(name, lock.WithLease(lease))
	l, err := m.Lock(ctx)
	for errors.Is(err, lock.ErrUnavailable) && ctx.Err() == nil { // with so short a lease it gives up soon
		l, err = m.Lock(ctx)
	}
	if err != nil {
		return err
	}
	if err := Wait(ctx, hold); err != nil {
		return err
	}
	// If the machine stands still, such a short lease is lost, or too short for an answer. That doesn't matter for
	// a warm-up.
	if err := l.Release(ctx); !errors.Is(err, lock.ErrLost) && !errors.Is(err, lock.ErrUnavailable) {
		return err
	}
	return nil
}

// take gives TryLock a ctx that never ends, like programs that end their leases by Release. A ctx that can be canceled
// costs the client 460 more bytes per lock.
func (d *lockdog) take(ctx context.Context, i int, name string) (err error) {
	if ctx.Err() == nil {
		d.leases[i], err = d.client.Mutex(name).TryLock(context.Background())
	}
	return errors.Join(ctx.Err(), err)
}

func (d *lockdog) drop(ctx context.Context, i int) (taken, ours bool, err error) {
	if d.leases[i] == nil {
		return false, false, nil
	}
	err = d.leases[i].Release(ctx)
	if errors.Is(err, lock.ErrLost) {
		return true, false, nil
	}
	return true, true, err
}

// end closes the client, which waits for renewals in flight.
func (d *lockdog) end(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, closeTimeout)
	defer cancel()
	return d.client.Close(ctx)
}
