package peer

import (
	"context"
	"errors"
	"time"

	"github.com/bsm/redislock"
	"github.com/redis/go-redis/v9"
)

// bsm is github.com/bsm/redislock.
type bsm struct {
	rdb   redis.UniversalClient
	locks *redislock.Client
	lease time.Duration
}

// waiting makes Obtain retry. It has no state.
var waiting = &redislock.Options{RetryStrategy: redislock.LinearBackoff(retryEvery)}

func openRedislock(cfg Config) (Locks, error) {
	rdb := connect(cfg)
	return &bsm{rdb: rdb, locks: redislock.New(rdb), lease: cfg.Lease}, nil
}

func (b *bsm) Lock(ctx context.Context, name string) (Held, error) {
	return b.obtain(ctx, name, waiting)
}

func (b *bsm) TryLock(ctx context.Context, name string) (Held, error) {
	h, err := b.obtain(ctx, name, nil)
	if errors.Is(err, redislock.ErrNotObtained) {
		return nil, ErrHeld
	}
	return h, err
}

func (b *bsm) obtain(ctx context.Context, name string, opts *redislock.Options) (Held, error) {
	l, err := b.locks.Obtain(ctx, name, b.lease, opts)
	if err != nil {
		return nil, err // not l: an interface with a nil *Lock isn't nil
	}
	return l, nil
}

func (b *bsm) Close() error { return b.rdb.Close() }
