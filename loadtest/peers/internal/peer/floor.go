package peer

import (
	"context"
	"crypto/rand"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

// floor is the cheapest possible lock, on plain go-redis: no lock library, no renewal, no telemetry.
type floor struct {
	rdb    redis.UniversalClient
	lease  time.Duration
	script bool   // it acquires with a script
	head   string // of values; random
	seq    atomic.Uint64
}

// floorHeld is a lock of a floor.
type floorHeld struct {
	f     *floor
	name  string
	value string
}

var (
	setNX     = redis.NewScript(`return redis.call('set', KEYS[1], ARGV[1], 'nx', 'px', ARGV[2])`)
	deleteOwn = redis.NewScript(
		`if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) end return 0`)
)

func newFloor(cfg Config, script bool) *floor {
	return &floor{rdb: connect(cfg), lease: cfg.Lease, script: script, head: rand.Text() + "-"}
}

// Lock polls: nothing wakes it.
func (f *floor) Lock(ctx context.Context, name string, wait bool) (Held, error) {
	h := &floorHeld{f: f, name: name, value: f.head + strconv.FormatUint(f.seq.Add(1), 10)}
	for {
		ok, err := h.set(ctx)
		switch {
		case err != nil:
			return nil, err
		case ok:
			return h, nil
		case !wait:
			return nil, ErrHeld
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

func (h *floorHeld) set(ctx context.Context) (bool, error) {
	if !h.f.script {
		return h.f.rdb.SetNX(ctx, h.name, h.value, h.f.lease).Result()
	}
	err := setNX.Run(ctx, h.f.rdb, []string{h.name}, h.value, h.f.lease.Milliseconds()).Err()
	if errors.Is(err, redis.Nil) {
		return false, nil
	}
	return err == nil, err
}

func (h *floorHeld) Release(ctx context.Context) error {
	n, err := deleteOwn.Run(ctx, h.f.rdb, []string{h.name}, h.value).Int64()
	if err == nil && n != 1 {
		return errNotOurs
	}
	return err
}

// gated is a floor in which only one goroutine of the process at a time waits for a name in Redis. A channel serves its
// senders in the order in which they came.
type gated struct {
	*floor
	gates sync.Map // name -> chan struct{}; never deleted, because there are few names
}

// gatedHeld is a lock of a gated.
type gatedHeld struct {
	Held
	gate chan struct{}
}

func (g *gated) Lock(ctx context.Context, name string, wait bool) (Held, error) {
	if !wait {
		return g.floor.Lock(ctx, name, wait)
	}
	c, ok := g.gates.Load(name)
	if !ok {
		c, _ = g.gates.LoadOrStore(name, make(chan struct{}, 1))
	}
	gate := c.(chan struct{})
	select {
	case gate <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	h, err := g.floor.Lock(ctx, name, wait)
	if err != nil {
		<-gate
		return nil, err
	}
	return &gatedHeld{Held: h, gate: gate}, nil
}

func (h *gatedHeld) Release(ctx context.Context) error {
	err := h.Held.Release(ctx)
	<-h.gate
	return err
}
