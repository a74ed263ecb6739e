// Package child is the load test's child processes: the holders of locks, one kind for each mode, and the foreground traffic.
package child

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/loadtest/internal/fleet"
	"github.com/lockdog/lockdog/loadtest/internal/wire"
)

// worker is what a child does.
type worker interface {
	// warm sets up what is needed once, whatever the number of locks, and acquires the first lock.
	warm(ctx context.Context) error
	// acquire acquires the other locks, evenly over that time or as fast as it can.
	acquire(ctx context.Context, over time.Duration) error
	// release releases what is held and ends the work: how many locks were still ours, and how many not. No call to Redis, and no count,
	// comes after it.
	release(ctx context.Context) (released, lost int, err error)
}

// Main is the whole life of a child, up to its exit code.
func Main(in io.Reader, out io.Writer) int { return fleet.Serve(in, out, serve) }

func serve(ctx context.Context, lines <-chan []byte, out *json.Encoder) (err error) {
	var cfg wire.Config
	line, ok := <-lines
	if !ok {
		return nil
	}
	if err := json.Unmarshal(line, &cfg); err != nil {
		return fmt.Errorf("config: %w", err)
	}
	m := newMeter()
	rdb, err := open(&cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rdb.Close()) }()
	w, err := newWorker(&cfg, rdb, m)
	if err = errors.Join(err, m.err); err != nil {
		return err
	}
	released := false
	defer func() {
		if !released { // the run was interrupted or failed
			_, _, failed := w.release(context.WithoutCancel(ctx))
			err = errors.Join(err, failed)
		}
	}()
	for line := range lines {
		var req wire.Request
		if err := json.Unmarshal(line, &req); err != nil {
			return fmt.Errorf("request: %w", err)
		}
		reply, err := answer(ctx, w, m, req)
		if err != nil {
			reply.Error = err.Error()
		}
		released = released || req.Do == wire.DoRelease
		if err := out.Encode(reply); err != nil {
			return err
		}
	}
	return nil
}

// answer does what is asked.
func answer(ctx context.Context, w worker, m *meter, req wire.Request) (reply wire.Reply, err error) {
	reply.Did = req.Do
	switch req.Do {
	case wire.DoWarm:
		err = w.warm(ctx)
	case wire.DoAcquire:
		err = w.acquire(ctx, seconds(req.Over))
	case wire.DoWeigh:
		reply.Weight = weigh()
	case wire.DoRead:
		reply.Reading, err = m.read(context.WithoutCancel(ctx)) // also after a release
	case wire.DoRelease:
		reply.Released, reply.Lost, err = w.release(context.WithoutCancel(ctx))
	default:
		err = fmt.Errorf("unknown request %q", req.Do)
	}
	return reply, err
}

func newWorker(cfg *wire.Config, rdb redis.UniversalClient, m *meter) (worker, error) {
	switch cfg.Role {
	case wire.None, wire.Batched:
		return newLockdog(cfg, rdb, m)
	case wire.PerLock:
		return newPerLock(cfg, rdb, m), nil
	case wire.Foreground:
		return newForeground(cfg, rdb, m), nil
	default:
		return nil, fmt.Errorf("unknown role %q", cfg.Role)
	}
}

// open connects as most programs do: with go-redis's defaults.
func open(cfg *wire.Config) (redis.UniversalClient, error) {
	if cfg.Cluster {
		return redis.NewClusterClient(&redis.ClusterOptions{Addrs: cfg.Addrs}), nil
	}
	opts, err := wire.Options(cfg.Addrs[0])
	if err != nil {
		return nil, err
	}
	return redis.NewClient(opts), nil
}

// weigh reports the memory that live objects and stacks take.
func weigh() *wire.Weight {
	// Twice: the second one frees what the first one found to be finalizable, and shrinks stacks.
	runtime.GC()
	runtime.GC()
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	return &wire.Weight{Heap: int64(mem.HeapAlloc), Stacks: int64(mem.StackInuse), Goroutines: runtime.NumGoroutine()}
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
