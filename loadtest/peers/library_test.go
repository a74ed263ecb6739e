package peers

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"
)

// The peers. Each has the settings that its own documentation recommends for a single Redis, except for the lease, and
// for when and how often it tries again.
const (
	rawFloor     = "floor"        // raw go-redis: SET NX PX and a compare-and-delete script
	rawGate      = "floor-gate"   // floor behind a FIFO queue in the process
	rawScript    = "raw-evalsha"  // floor that acquires with a script
	bsmRedislock = "redislock"    // github.com/bsm/redislock
	goRedsync    = "redsync"      // github.com/go-redsync/redsync
	rueidisLock  = "rueidislock"  // github.com/redis/rueidis/rueidislock
	lockdog      = "lockdog"      // with no-op telemetry
	lockdogSDK   = "lockdog-sdk"  // with the SDK's metrics, and every trace sampled
	lockdogLoss  = "lockdog-loss" // with no-op telemetry and WithLossNotifications

	// pooled ends a peer's name if its go-redis client may have as many connections as the process has callers.
	pooled = "+pool"
)

// retryEvery is the time between two tries of a waiter that isn't woken.
const retryEvery = 5 * time.Millisecond

var (
	errHeld    = errors.New("held by another client")
	errNotOurs = errors.New("not ours any more")

	setNX     = redis.NewScript(`return redis.call('set', KEYS[1], ARGV[1], 'nx', 'px', ARGV[2])`)
	deleteOwn = redis.NewScript(
		`if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0`)
)

// held is a lock that a caller holds.
type held interface {
	Release(ctx context.Context) error
}

// acquire acquires a lock.
type acquire func(ctx context.Context, name string) (held, error)

// library is a lock library in one process.
type library struct {
	lock  acquire // waits
	try   acquire
	taken error // the error of try if another client holds the lock
	close func() error

	// These are nil if the library doesn't notify a holder of the loss of its lock.
	lost   func(h held) <-chan struct{} // closed when the lock is lost or released
	prefix string                       // of the lock's key in Redis
	force  func(ctx context.Context, name string) error
}

// open starts a peer as w describes it.
func open(w work) (*library, error) {
	name, all := strings.CutSuffix(w.Peer, pooled)
	opts := &redis.UniversalOptions{Addrs: w.Addrs, IsClusterMode: w.Cluster} // as most programs: with the defaults
	if all {
		opts.PoolSize = w.Callers
	}
	switch name {
	case rawFloor, rawGate, rawScript:
		return newFloor(redis.NewUniversalClient(opts), w.Lease, name), nil
	case bsmRedislock:
		return newRedislock(redis.NewUniversalClient(opts), w.Lease), nil
	case goRedsync:
		return newRedsync(redis.NewUniversalClient(opts), w.Lease), nil
	case rueidisLock:
		return newRueidislock(w)
	case lockdog, lockdogSDK, lockdogLoss:
		return newLockdog(redis.NewUniversalClient(opts), w.Lease, name)
	}
	return nil, fmt.Errorf("no peer is called %q", w.Peer)
}

// either returns the lock or the error. Unlike h, the interface is nil if there is an error.
func either[H held](h H, err error) (held, error) {
	if err != nil {
		return nil, err
	}
	return h, nil
}

func newRedislock(rdb redis.UniversalClient, lease time.Duration) *library {
	locks := redislock.New(rdb)
	waiting := &redislock.Options{RetryStrategy: redislock.LinearBackoff(retryEvery)} // it has no state
	return &library{
		lock: func(ctx context.Context, name string) (held, error) {
			return either(locks.Obtain(ctx, name, lease, waiting))
		},
		try: func(ctx context.Context, name string) (held, error) {
			return either(locks.Obtain(ctx, name, lease, nil))
		},
		taken: redislock.ErrNotObtained,
		close: rdb.Close,
	}
}

// floorHeld is a lock without a library.
type floorHeld struct {
	rdb         redis.UniversalClient
	name, value string
}

func (h *floorHeld) Release(ctx context.Context) error {
	n, err := deleteOwn.Run(ctx, h.rdb, []string{h.name}, h.value).Int64()
	if err == nil && n != 1 {
		return errNotOurs
	}
	return err
}

// newFloor returns the cheapest possible lock, on plain go-redis: no renewal, no telemetry, and nothing wakes a waiter.
func newFloor(rdb redis.UniversalClient, lease time.Duration, peer string) *library {
	try := func(ctx context.Context, name string) (held, error) {
		h := &floorHeld{rdb, name, strconv.FormatUint(rand.Uint64(), 36)}
		var ok bool
		var err error
		if peer == rawScript {
			err = setNX.Run(ctx, rdb, []string{name}, h.value, lease.Milliseconds()).Err()
			ok = !errors.Is(err, redis.Nil)
		} else {
			ok, err = rdb.SetNX(ctx, name, h.value, lease).Result()
		}
		if !ok && (err == nil || errors.Is(err, redis.Nil)) {
			err = errHeld
		}
		return either(h, err)
	}
	lock := func(ctx context.Context, name string) (held, error) {
		for {
			h, err := try(ctx, name)
			if !errors.Is(err, errHeld) {
				return h, err
			}
			select {
			case <-time.After(retryEvery):
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			}
		}
	}
	if peer == rawGate {
		lock = gated(lock)
	}
	return &library{lock: lock, try: try, taken: errHeld, close: rdb.Close}
}

// gatedHeld is a lock whose release lets the next caller of the process ask Redis.
type gatedHeld struct {
	held
	gate chan struct{}
}

func (h *gatedHeld) Release(ctx context.Context) error {
	err := h.held.Release(ctx)
	<-h.gate
	return err
}

// gated lets only one caller of the process at a time wait in Redis. It is for callers that all want one name. A
// channel serves its senders in the order in which they came.
func gated(lock acquire) acquire {
	gate := make(chan struct{}, 1)
	return func(ctx context.Context, name string) (held, error) {
		select {
		case gate <- struct{}{}:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		h, err := lock(ctx, name)
		if err != nil {
			<-gate
			return nil, err
		}
		return &gatedHeld{h, gate}, nil
	}
}

// syncHeld is a lock of redsync.
type syncHeld struct{ *redsync.Mutex }

func (h syncHeld) Release(ctx context.Context) error {
	ok, err := h.UnlockContext(ctx)
	if err == nil && !ok {
		return errNotOurs
	}
	return err
}

// newRedsync makes a new Mutex for each acquire, because redsync's Mutex has the state of one holder.
func newRedsync(rdb redis.UniversalClient, lease time.Duration) *library {
	rs := redsync.New(goredis.NewPool(rdb))
	opts := []redsync.Option{
		redsync.WithExpiry(lease), redsync.WithTries(math.MaxInt), redsync.WithRetryDelay(retryEvery),
	}
	return &library{
		lock: func(ctx context.Context, name string) (held, error) {
			m := rs.NewMutex(name, opts...)
			return either(syncHeld{m}, m.LockContext(ctx))
		},
		try: func(ctx context.Context, name string) (held, error) {
			m := rs.NewMutex(name, opts...)
			err := m.TryLockContext(ctx)
			if taken := new(redsync.ErrTaken); errors.As(err, &taken) {
				err = errHeld
			}
			return either(syncHeld{m}, err)
		},
		taken: errHeld,
		close: rdb.Close,
	}
}

// rueidisHeld is a lock of rueidislock. The library waits for Redis's reply to a release, but doesn't return it.
type rueidisHeld struct {
	ctx     context.Context
	release context.CancelFunc
}

func (h *rueidisHeld) Release(context.Context) error {
	h.release()
	return nil
}

// newRueidislock opens rueidislock with the settings of its README for a single Redis. It has one connection for all
// callers.
func newRueidislock(w work) (*library, error) {
	const prefix = "rueidislock" // the default
	locker, err := rueidislock.NewLocker(rueidislock.LockerOption{
		ClientOption:   rueidis.ClientOption{InitAddress: w.Addrs},
		KeyPrefix:      prefix,
		KeyMajority:    1,
		NoLoopTracking: true,
		KeyValidity:    w.Lease,
		// By default it gives up on a reply after 20 ms, and then waits for a message about the end of its own key.
		// NoLoopTracking suppresses that message. So on a machine that is busy for a moment it would wait forever.
		TryNextAfter: 5 * time.Second,
	})
	if err != nil {
		return nil, err
	}
	by := func(with func(context.Context, string) (context.Context, context.CancelFunc, error)) acquire {
		return func(ctx context.Context, name string) (held, error) {
			granted, release, err := with(ctx, name)
			return either(&rueidisHeld{granted, release}, err)
		}
	}
	return &library{
		lock: by(locker.WithContext), try: by(locker.TryWithContext), taken: rueidislock.ErrNotLocked,
		close: func() error {
			locker.Close()
			return nil
		},
		lost:   func(h held) <-chan struct{} { return h.(*rueidisHeld).ctx.Done() },
		prefix: prefix + ":0:",
		force: func(ctx context.Context, name string) error {
			_, release, err := locker.ForceWithContext(ctx, name)
			if err == nil {
				release()
			}
			return err
		},
	}, nil
}
