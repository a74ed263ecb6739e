package peer

import (
	"context"
	"errors"
	"math"

	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
)

// rsync is github.com/go-redsync/redsync with a single Redis.
type rsync struct {
	rdb  redis.UniversalClient
	rs   *redsync.Redsync
	opts []redsync.Option
}

// syncHeld is a lock of an rsync.
type syncHeld struct{ m *redsync.Mutex }

func newRedsync(cfg Config) *rsync {
	rdb := connect(cfg)
	return &rsync{rdb: rdb, rs: redsync.New(goredis.NewPool(rdb)), opts: []redsync.Option{
		redsync.WithExpiry(cfg.Lease), redsync.WithTries(math.MaxInt), redsync.WithRetryDelay(retryEvery),
	}}
}

// Lock makes a new Mutex each time, because redsync's Mutex has the state of one holder.
func (s *rsync) Lock(ctx context.Context, name string, wait bool) (Held, error) {
	m := s.rs.NewMutex(name, s.opts...)
	var err error
	if wait {
		err = m.LockContext(ctx)
	} else {
		err = m.TryLockContext(ctx)
	}
	if err != nil {
		var taken *redsync.ErrTaken
		return nil, refused(err, !wait && errors.As(err, &taken))
	}
	return syncHeld{m}, nil
}

func (s *rsync) Close() error { return s.rdb.Close() }

func (h syncHeld) Release(ctx context.Context) error {
	ok, err := h.m.UnlockContext(ctx)
	if err == nil && !ok {
		return errNotOurs
	}
	return err
}
