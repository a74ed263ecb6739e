package peer

import (
	"context"
	"errors"
	"time"

	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
)

// ruler is github.com/redis/rueidis/rueidislock, with the settings of its README for a single Redis.
type ruler struct{ locker rueidislock.Locker }

// rulerHeld is a lock of a ruler.
type rulerHeld struct {
	ctx     context.Context
	release context.CancelFunc
}

// rulerPrefix is the library's default.
const rulerPrefix = "rueidislock"

func openRueidislock(cfg Config) (Locks, error) {
	locker, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption:   rueidis.ClientOption{InitAddress: cfg.Addrs},
		KeyPrefix:      rulerPrefix,
		KeyMajority:    1,
		NoLoopTracking: true,
		KeyValidity:    cfg.Lease,
		// By default it gives up on a reply after 20 ms, and then waits for a message about the end of its own key.
		// NoLoopTracking suppresses that message. So on a machine that is busy for a moment it would wait forever.
		TryNextAfter: 5 * time.Second,
	})
	if err != nil {
		return nil, err
	}
	return &ruler{locker}, nil
}

func (r *ruler) Lock(ctx context.Context, name string, wait bool) (Held, error) {
	var held context.Context
	var release context.CancelFunc
	var err error
	if wait {
		held, release, err = r.locker.WithContext(ctx, name)
	} else {
		held, release, err = r.locker.TryWithContext(ctx, name)
	}
	if err != nil {
		return nil, refused(err, !wait && errors.Is(err, rueidislock.ErrNotLocked))
	}
	return &rulerHeld{held, release}, nil
}

func (r *ruler) Lost(h Held) <-chan struct{} { return h.(*rulerHeld).ctx.Done() }

func (r *ruler) Key(name string) string { return rulerPrefix + ":0:" + name }

// Force makes the library take over the lock, and releases it at once.
func (r *ruler) Force(ctx context.Context, name string) error {
	_, release, err := r.locker.ForceWithContext(ctx, name)
	if err != nil {
		return err
	}
	release()
	return nil
}

func (r *ruler) Close() error {
	r.locker.Close()
	return nil
}

// Release returns nil: the library waits for Redis's reply, but doesn't return it.
func (h *rulerHeld) Release(context.Context) error {
	h.release()
	return nil
}
