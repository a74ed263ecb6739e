package work

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/lockdog/lockdog/loadtest/internal/fleet"
	"github.com/lockdog/lockdog/loadtest/peers/internal/peer"
	"github.com/lockdog/lockdog/loadtest/peers/internal/witness"
)

// Main is the whole life of a child, up to its exit code.
func Main(in io.Reader, out io.Writer) int { return fleet.Serve(in, out, serve) }

// serve sets up, warms up, measures when told to, and reports.
func serve(ctx context.Context, lines <-chan []byte, out *json.Encoder) (err error) {
	var cfg Config
	if err := json.Unmarshal(<-lines, &cfg); err != nil {
		return fmt.Errorf("config: %w", err)
	}
	measure, done, err := prepare(ctx, &cfg)
	defer func() { err = errors.Join(err, done()) }()
	if err := report(out, Reply{}, err); err != nil {
		return err
	}
	if _, ok := <-lines; !ok { // Go
		return nil
	}
	r, err := measure()
	if err := report(out, Reply{Result: r}, err); err != nil {
		return err
	}
	for range lines { // until the others have ended, too
	}
	return nil
}

func report(out *json.Encoder, r Reply, err error) error {
	if err != nil {
		r = Reply{Error: err.Error()}
	}
	return out.Encode(r)
}

func (c *Config) peer() peer.Config {
	return peer.Config{Addrs: c.Addrs, Cluster: c.Cluster, HeedCtx: c.HeedCtx, Lease: c.Lease, Callers: c.Goroutines}
}

// abandon closes what goroutines that were left behind still use, as far as that can be done in time. They end with the process.
func abandon(locks peer.Locks) {
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		_ = locks.Close() // its errors are about what was left behind
	}()
	select {
	case <-closed:
	case <-time.After(lastGrace):
	}
}

// prepare does what comes before the window. done is never nil.
func prepare(ctx context.Context, cfg *Config) (measure func() (*Result, error), done func() error, err error) {
	var closers []func() error
	done = func() error {
		var errs []error
		for _, f := range slices.Backward(closers) {
			errs = append(errs, f())
		}
		return errors.Join(errs...)
	}
	if err := cfg.check(); err != nil {
		return nil, done, err
	}
	if cfg.Kind == Loss {
		return func() (*Result, error) { return lose(ctx, cfg) }, done, nil
	}
	locks, err := peer.Open(cfg.Peer, cfg.peer())
	if err != nil {
		return nil, done, err
	}
	l := &loop{cfg: cfg, locks: locks}
	closers = append(closers, locks.Close)
	closeAll := done
	done = func() error {
		if l.left {
			abandon(locks)
			return nil
		}
		return closeAll()
	}
	switch cfg.Kind {
	case Shared:
		if l.w, err = witness.Open(cfg.Witness, cfg.Process); err != nil {
			return nil, done, err
		}
		closers = append(closers, l.w.Close)
	case Held:
		holder, err := peer.Open(cfg.Peer, cfg.peer())
		if err != nil {
			return nil, done, err
		}
		closers = append(closers, holder.Close)
		h, err := holder.Lock(ctx, newLane(cfg, 0).names[0])
		if err != nil {
			return nil, done, err
		}
		closers = append(closers, func() error { return h.Release(context.WithoutCancel(ctx)) })
	}
	r, err := l.run(ctx, cfg.Warm)
	if err == nil && r.All == 0 && cfg.Kind != Shared { // of a Shared others may have had all turns
		err = errors.New("no operation ended")
	}
	if err != nil {
		return nil, done, fmt.Errorf("warming up: %w", err)
	}
	return func() (*Result, error) { return l.run(ctx, cfg.Window) }, done, nil
}
