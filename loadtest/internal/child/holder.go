package child

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"
)

// locks is what differs between the modes. Locks are numbered from 0.
type locks interface {
	// warmUp acquires and releases an extra lock.
	warmUp(ctx context.Context, name string) error
	take(ctx context.Context, i int, name string) error
	// begin and stop start and stop the work that runs while all locks are held.
	begin()
	stop() error
	// drop releases a lock. ours reports whether it was still ours. taken is false if it was never acquired, because
	// the run was interrupted.
	drop(ctx context.Context, i int) (taken, ours bool, err error)
	// end is called after the last drop.
	end(ctx context.Context) error
}

// holder holds locks. It implements role.
type holder struct {
	locks
	cfg *Config
}

// warm fills the connection pools, because connections are large and must not count as memory of the locks. Then it
// acquires the first lock.
func (h holder) warm(ctx context.Context) error {
	err := each(ctx, 0, atOnce, 0, func(ctx context.Context, i int) error {
		return h.warmUp(ctx, fmt.Sprint("loadtest:warm:", Name(h.cfg.First), ":", i))
	})
	if err != nil {
		return err
	}
	return h.takeOne(ctx, 0)
}

func (h holder) acquire(ctx context.Context, over time.Duration) error {
	err := each(ctx, 1, h.cfg.Locks, over, h.takeOne)
	if err == nil {
		h.begin()
	}
	return err
}

func (h holder) takeOne(ctx context.Context, i int) error {
	return h.take(ctx, i, Name(h.cfg.First+i))
}

func (h holder) release(ctx context.Context) (released, lost int, err error) {
	stopped := h.stop()
	var kept, gone atomic.Int64
	err = each(ctx, 0, h.cfg.Locks, 0, func(ctx context.Context, i int) error {
		taken, ours, err := h.drop(ctx, i)
		switch {
		case !taken || err != nil:
			return err
		case ours:
			kept.Add(1)
		default:
			gone.Add(1)
		}
		return nil
	})
	return int(kept.Load()), int(gone.Load()), errors.Join(stopped, err, h.end(ctx))
}
