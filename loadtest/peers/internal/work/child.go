package work

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/lockdog/lockdog/loadtest/internal/fleet"
	"github.com/lockdog/lockdog/loadtest/peers/internal/peer"
	"github.com/lockdog/lockdog/loadtest/peers/internal/witness"
)

// Main runs a child, and returns its exit code.
func Main(in io.Reader, out io.Writer) int {
	return fleet.Serve(in, out, func(cfg Config) (fleet.Worker[Result], error) { return &worker{cfg: &cfg}, nil })
}

// worker is the state of a child: it sets up, warms up, measures when asked to, and reports.
type worker struct {
	cfg     *Config
	loop    *loop          // nil for Loss, and before the warm-up
	closers []func() error // for everything opened, in order
}

// Do implements fleet.Worker.
func (w *worker) Do(ctx context.Context, request fleet.Request) (Result, error) {
	switch {
	case request.Do == Warm:
		return Result{}, w.warm(ctx)
	case request.Do == Go && w.cfg.Kind == Loss:
		return lose(ctx, w.cfg)
	case request.Do == Go && w.loop != nil:
		return w.loop.run(ctx, w.cfg.Window)
	}
	return Result{}, fmt.Errorf("%q can't be asked for now", request.Do)
}

// Close implements fleet.Worker.
func (w *worker) Close() error {
	if w.loop != nil && w.loop.left {
		abandon(w.loop.locks)
		return nil
	}
	var errs []error
	for _, f := range slices.Backward(w.closers) {
		errs = append(errs, f())
	}
	return errors.Join(errs...)
}

func (c *Config) peer() peer.Config {
	return peer.Config{Addrs: c.Addrs, Cluster: c.Cluster, Lease: c.Lease, Callers: c.Goroutines}
}

// abandon tries to close what goroutines that were left behind still use, for up to lastGrace. They end with the
// process.
func abandon(locks peer.Locks) {
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		_ = locks.Close() // an error is about what was left behind
	}()
	select {
	case <-closed:
	case <-time.After(lastGrace):
	}
}

// warm sets up and warms up.
func (w *worker) warm(ctx context.Context) error {
	if err := w.cfg.check(); err != nil || w.cfg.Kind == Loss {
		return err
	}
	locks, err := w.open()
	if err != nil {
		return err
	}
	w.loop = &loop{cfg: w.cfg, locks: locks}
	switch w.cfg.Kind {
	case Shared:
		if w.loop.w, err = witness.Open(w.cfg.Witness, w.cfg.Process); err != nil {
			return err
		}
		w.closers = append(w.closers, w.loop.w.Close)
	case Held:
		holder, err := w.open()
		if err != nil {
			return err
		}
		h, err := holder.Lock(ctx, newLane(w.cfg, 0).names[0])
		if err != nil {
			return err
		}
		w.closers = append(w.closers, func() error { return h.Release(context.WithoutCancel(ctx)) })
	}
	r, err := w.loop.run(ctx, w.cfg.Warm)
	if err == nil && r.All == 0 && w.cfg.Kind != Shared { // in Shared, other processes may have had all turns
		err = errors.New("no operation ended")
	}
	if err != nil {
		return fmt.Errorf("warming up: %w", err)
	}
	return nil
}

// open opens the peer. Close closes it.
func (w *worker) open() (peer.Locks, error) {
	locks, err := peer.Open(w.cfg.Peer, w.cfg.peer())
	if err == nil {
		w.closers = append(w.closers, locks.Close)
	}
	return locks, err
}
