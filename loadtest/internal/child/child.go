// Package child has the load test's child processes: the holders of locks, one kind for each mode, and the foreground
// traffic.
package child

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/loadtest/internal/fleet"
)

// role is the work of a child.
type role interface {
	// warm sets up what is needed once for any number of locks, and acquires the first lock.
	warm(ctx context.Context) error
	// acquire acquires the other locks, evenly over that time or as fast as possible.
	acquire(ctx context.Context, over time.Duration) error
	// release releases all locks and ends the work. It returns how many locks were still ours, and how many weren't.
	// After it there are no calls to Redis and no counts.
	release(ctx context.Context) (released, lost int, err error)
}

// Main runs a child, and returns its exit code.
func Main(in io.Reader, out io.Writer) int { return fleet.Serve(in, out, open) }

// worker is the state of a child.
type worker struct {
	role
	rdb      redis.UniversalClient
	m        *meter
	released bool
}

func open(cfg Config) (fleet.Worker[Reading], error) {
	// With go-redis's defaults, like most programs.
	rdb := redis.NewUniversalClient(&redis.UniversalOptions{Addrs: cfg.Addrs, IsClusterMode: cfg.Cluster})
	w := &worker{rdb: rdb, m: newMeter()}
	var err error
	switch cfg.Role {
	case None, Batched:
		w.role, err = newLockdog(&cfg, rdb, w.m)
	case PerLock:
		w.role = newPerLock(&cfg, rdb, w.m)
	case Foreground:
		w.role = newForeground(&cfg, rdb, w.m)
	default:
		err = fmt.Errorf("unknown role %q", cfg.Role)
	}
	if err = errors.Join(err, w.m.err); err != nil {
		return nil, errors.Join(err, rdb.Close())
	}
	return w, nil
}

// Do implements fleet.Worker.
func (w *worker) Do(ctx context.Context, request fleet.Request) (r Reading, err error) {
	switch request.Do {
	case Warm:
		err = w.warm(ctx)
	case Acquire:
		err = w.acquire(ctx, seconds(request.Over))
	case Weigh:
		r = weigh()
	case Read:
		r, err = w.m.read(context.WithoutCancel(ctx)) // works after a release too
	case Release:
		w.released = true
		r.Released, r.Lost, err = w.release(context.WithoutCancel(ctx))
	default:
		err = fmt.Errorf("unknown request %q", request.Do)
	}
	return r, err
}

// Close implements fleet.Worker.
func (w *worker) Close() error {
	var err error
	if !w.released { // the run was interrupted or failed
		_, _, err = w.release(context.Background())
	}
	return errors.Join(err, w.rdb.Close())
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

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
