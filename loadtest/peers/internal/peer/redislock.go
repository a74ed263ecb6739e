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

func newRedislock(cfg Config) *bsm {
	rdb := connect(cfg)
	return &bsm{rdb: rdb, locks: redislock.New(rdb), lease: cfg.Lease}
}

func (b *bsm) Lock(ctx context.Context, name string, wait bool) (Held, error) {
	var opts *redislock.Options
	if wait {
		opts = waiting
	}
	l, err := b.locks.Obtain(ctx, name, b.lease, opts)
	if err != nil { // not l: an interface with a nil *Lock isn't nil
		return nil, refused(err, !wait && errors.Is(err, redislock.ErrNotObtained))
	}
	return l, nil
}

func (b *bsm) Close() error { return b.rdb.Close() }
