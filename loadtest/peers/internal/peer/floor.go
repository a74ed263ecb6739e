package peer

import (
	"context"
	"crypto/rand"
	"errors"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// floor is the cheapest possible lock, on plain go-redis: no lock library, no renewal, no telemetry.
type floor struct {
	rdb   redis.UniversalClient
	lease time.Duration
	head  string // of values; random
	seq   atomic.Uint64
}

// floorHeld is a lock of a floor.
type floorHeld struct {
	f     *floor
	name  string
	value string
}

var deleteOwn = redis.NewScript(
	`if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0`)

func newFloor(cfg Config) *floor {
	return &floor{rdb: connect(cfg), lease: cfg.Lease, head: rand.Text() + "-"}
}

func openFloor(cfg Config) (Locks, error) { return newFloor(cfg), nil }

func (f *floor) value() string { return f.head + strconv.FormatUint(f.seq.Add(1), 10) }

func (f *floor) TryLock(ctx context.Context, name string) (Held, error) {
	h := &floorHeld{f: f, name: name, value: f.value()}
	ok, err := f.rdb.SetNX(ctx, name, h.value, f.lease).Result()
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, ErrHeld
	}
	return h, nil
}

// Lock polls: nothing wakes it.
func (f *floor) Lock(ctx context.Context, name string) (Held, error) {
	for {
		h, err := f.TryLock(ctx, name)
		if !errors.Is(err, ErrHeld) {
			return h, err
		}
		timer := time.NewTimer(retryEvery)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil, context.Cause(ctx)
		}
	}
}

func (f *floor) Close() error { return f.rdb.Close() }

func (h *floorHeld) Release(ctx context.Context) error {
	n, err := deleteOwn.Run(ctx, h.f.rdb, []string{h.name}, h.value).Int64()
	if err == nil && n != 1 {
		return errNotOurs
	}
	return err
}

// rawScript is floor, but acquires with a script.
type rawScript struct{ *floor }

var setNX = redis.NewScript(`return redis.call('set', KEYS[1], ARGV[1], 'nx', 'px', ARGV[2])`)

func openRawScript(cfg Config) (Locks, error) { return rawScript{newFloor(cfg)}, nil }

func (r rawScript) TryLock(ctx context.Context, name string) (Held, error) {
	h := &floorHeld{f: r.floor, name: name, value: r.value()}
	err := setNX.Run(ctx, r.rdb, []string{name}, h.value, r.lease.Milliseconds()).Err()
	switch {
	case errors.Is(err, redis.Nil):
		return nil, ErrHeld
	case err != nil:
		return nil, err
	}
	return h, nil
}
