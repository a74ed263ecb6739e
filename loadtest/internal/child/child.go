// Package child is the load test's child processes: the holders of locks, one kind for each mode, and the foreground traffic.
package child

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/lockdog/lockdog/loadtest/internal/wire"
)

// Env is a variable that, when set, makes the program a child.
const Env = "LOCKDOG_LOADTEST_CHILD"

// Is reports whether this process is to be a child.
func Is() bool { return os.Getenv(Env) != "" }

// worker is what a child does.
type worker interface {
	// warm sets up what is needed once, whatever the number of locks, and takes the first lock.
	warm(ctx context.Context) error
	// acquire takes the other locks, evenly over that time or as fast as it can.
	acquire(ctx context.Context, over time.Duration) error
	// release gives back what is held: how many were still ours, and how many not.
	release(ctx context.Context) (released, lost int, err error)
	close() error
}

// closeTimeout is how long the end may take.
const closeTimeout = 5 * time.Second

// Main is the whole life of a child, up to its exit code. It ends with its input.
func Main(in io.Reader, out io.Writer) int {
	// What goes wrong on purpose (the wave cuts connections) is told by figures, not by ten thousand lines.
	logging.Disable()
	slog.SetDefault(slog.New(slog.DiscardHandler))

	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	lines := make(chan []byte, 8)
	go func() {
		defer close(lines)
		defer cancel() // whatever is under way: the parent is gone
		for sc := bufio.NewScanner(in); sc.Scan(); {
			var req wire.Request
			if json.Unmarshal(sc.Bytes(), &req) == nil && req.Do == wire.DoRelease {
				cancel() // also what is being acquired, when the run is interrupted
			}
			lines <- append([]byte(nil), sc.Bytes()...)
		}
	}()
	if err := serve(ctx, lines, json.NewEncoder(out)); err != nil {
		fmt.Fprintln(os.Stderr, "loadtest child:", err)
		return 1
	}
	return 0
}

func serve(ctx context.Context, lines <-chan []byte, out *json.Encoder) (err error) {
	var cfg wire.Config
	line, ok := <-lines
	if !ok {
		return nil
	}
	if err := json.Unmarshal(line, &cfg); err != nil {
		return fmt.Errorf("config: %w", err)
	}
	m, err := newMeter()
	if err != nil {
		return err
	}
	rdb, err := open(&cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rdb.Close()) }()
	w, err := newWorker(&cfg, rdb, m)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	for line := range lines {
		var req wire.Request
		if err := json.Unmarshal(line, &req); err != nil {
			return fmt.Errorf("request: %w", err)
		}
		reply, err := answer(ctx, w, m, req)
		if err != nil {
			reply.Error = err.Error()
		}
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
		err = w.acquire(ctx, time.Duration(req.Over*float64(time.Second)))
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
		return newPerLock(cfg, rdb, m)
	case wire.Foreground:
		return newForeground(cfg, rdb, m)
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
