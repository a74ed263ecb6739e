// Package load is the load on Redis: child processes, each of which holds locks in one of the modes, and the foreground
// traffic.
package load

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/loadtest/internal/fleet"
)

// locks is what differs between the modes. Locks are numbered from 0.
type locks interface {
	// cycle acquires and releases an extra lock. With renew, the modes of package lock hold it for long enough to renew
	// it once; per-lock mode doesn't renew it.
	cycle(ctx context.Context, name string, renew bool) error
	take(ctx context.Context, i int, name string) error
	// drop releases a lock. Without an error, ours reports whether it was still ours. taken is false if it was never
	// acquired, because the run was interrupted or failed.
	drop(ctx context.Context, i int) (taken, ours bool, err error)
	// end is called after the last drop.
	end(ctx context.Context) error
}

// holder is a child that holds locks.
type holder struct {
	locks
	cfg      Config
	rdb      redis.UniversalClient
	m        *meter
	released bool

	stopChurn context.CancelFunc
	churned   chan error // the result of the churn
}

// Main runs a child, and returns its exit code.
func Main(in io.Reader, out io.Writer) int { return fleet.Serve(in, out, open) }

// connect makes a client with go-redis's defaults, like most programs.
func connect(addrs []string, cluster bool) redis.UniversalClient {
	return redis.NewUniversalClient(&redis.UniversalOptions{Addrs: addrs, IsClusterMode: cluster})
}

func open(cfg Config) (fleet.Worker[Reading], error) {
	if cfg.Serve {
		return openAgent(cfg)
	}
	h := &holder{cfg: cfg, rdb: connect(cfg.Addrs, cfg.Cluster), m: newMeter()}
	var err error
	switch cfg.Mode {
	case None, Batched, Agent:
		h.locks, err = newLockdog(cfg, h.rdb, h.m)
	case PerLock:
		h.locks = newPerLock(cfg, h.rdb, h.m)
	default:
		err = fmt.Errorf("unknown mode %q", cfg.Mode)
	}
	if err != nil {
		return nil, errors.Join(err, h.rdb.Close())
	}
	return h, nil
}

// Do implements fleet.Worker.
func (h *holder) Do(ctx context.Context, request fleet.Request) (r Reading, err error) {
	switch request.Do {
	case Warm:
		err = h.warm(ctx, seconds(request.Over))
	case Acquire:
		if err = each(ctx, 1, h.cfg.Locks, seconds(request.Over), h.takeOne); err == nil && h.cfg.Churn > 0 {
			h.churn()
		}
	case Weigh:
		r = weigh()
	case Read:
		r, err = h.m.read(context.WithoutCancel(ctx)) // works after a release too
	case Release:
		r.Released, r.Lost, err = h.release(context.WithoutCancel(ctx))
	default:
		err = fmt.Errorf("unknown request %q", request.Do)
	}
	return r, err
}

// Close implements fleet.Worker.
func (h *holder) Close() error {
	var err error
	if !h.released { // the run was interrupted or failed
		_, _, err = h.release(context.Background())
	}
	return errors.Join(err, h.rdb.Close())
}

// warm fills the connection pools, because connections are large and must not count as memory of the locks. Then it
// acquires the first lock. It begins at some time within over: a server doesn't accept the connections of many
// children at once.
func (h *holder) warm(ctx context.Context, over time.Duration) error {
	if err := Wait(ctx, time.Duration(rand.Float64()*float64(over))); err != nil {
		return err
	}
	// Many children with few locks each must not have more connections than a server allows.
	err := each(ctx, 0, min(atOnce, 1+h.cfg.Locks/4), 0, func(ctx context.Context, i int) error {
		return h.cycle(ctx, fmt.Sprint("loadtest:warm:", Name(h.cfg.First), ":", i), true)
	})
	if err != nil {
		return err
	}
	return h.takeOne(ctx, 0)
}

func (h *holder) takeOne(ctx context.Context, i int) error {
	return h.take(ctx, i, Name(h.cfg.First+i))
}

// churn acquires and releases other locks at the configured rate, until the release.
func (h *holder) churn() {
	ctx, stop := context.WithCancel(context.Background())
	h.stopChurn, h.churned = stop, make(chan error, 1)
	go func() {
		h.churned <- paced(ctx, 4*atOnce, arrivals(h.cfg.Churn), func(_ context.Context, i int, _ time.Time) error {
			return h.cycle(context.Background(), fmt.Sprint("loadtest:churn:", Name(h.cfg.First), ":", i), false)
		})
	}()
}

// release ends the work. It returns how many locks were still ours, and how many weren't. After it there are no more
// calls to Redis, and nothing more is counted.
func (h *holder) release(ctx context.Context) (released, lost int, err error) {
	h.released = true
	if h.churned != nil {
		h.stopChurn()
		if err = <-h.churned; errors.Is(err, context.Canceled) {
			err = nil
		}
	}
	var kept, gone atomic.Int64
	dropped := each(ctx, 0, h.cfg.Locks, 0, func(ctx context.Context, i int) error {
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
	return int(kept.Load()), int(gone.Load()), errors.Join(err, dropped, h.end(ctx))
}

// weigh reports the memory of live objects and stacks.
func weigh() Reading {
	// Twice: the second collection frees what the first one has finalized, and shrinks stacks.
	runtime.GC()
	runtime.GC()
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	return Reading{Heap: int64(mem.HeapAlloc), Stacks: int64(mem.StackInuse), Goroutines: runtime.NumGoroutine()}
}
