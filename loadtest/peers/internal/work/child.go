package work

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

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
	locks   peer.Locks       // nil for Loss, and before the warm-up
	witness *witness.Witness // for Shared
	closers []func() error   // for everything opened, in order
}

// Do implements fleet.Worker.
func (w *worker) Do(ctx context.Context, request fleet.Request) (Result, error) {
	switch {
	case request.Do == Warm:
		return Result{}, w.warm(ctx)
	case request.Do == Go && w.cfg.Kind == Loss:
		return lose(ctx, w.cfg)
	case request.Do == Go && w.locks != nil:
		return w.run(ctx, w.cfg.Window)
	}
	return Result{}, fmt.Errorf("%q can't be asked for now", request.Do)
}

// Close implements fleet.Worker.
func (w *worker) Close() error {
	var errs []error
	for _, f := range slices.Backward(w.closers) {
		errs = append(errs, f())
	}
	return errors.Join(errs...)
}

// warm sets up and warms up.
func (w *worker) warm(ctx context.Context) error {
	if w.cfg.Kind == Loss {
		return nil
	}
	locks, err := w.open()
	if err != nil {
		return err
	}
	switch w.cfg.Kind {
	case Shared:
		if w.witness, err = witness.Open(w.cfg.Witness, w.cfg.Process); err != nil {
			return err
		}
		w.closers = append(w.closers, w.witness.Close)
	case Held:
		holder, err := w.open()
		if err != nil {
			return err
		}
		h, err := holder.Lock(ctx, sharedName, true)
		if err != nil {
			return err
		}
		w.closers = append(w.closers, func() error { return h.Release(context.WithoutCancel(ctx)) })
	}
	w.locks = locks
	r, err := w.run(ctx, w.cfg.Warm)
	if err == nil && r.Total.Operations == 0 && w.cfg.Kind != Shared { // in Shared, others may have had all turns
		err = errors.New("no operation ended")
	}
	if err != nil {
		return fmt.Errorf("warming up: %w", err)
	}
	return nil
}

// open opens the peer. Close closes it.
func (w *worker) open() (peer.Locks, error) {
	locks, err := peer.Open(w.cfg.Peer, w.cfg.Config)
	if err == nil {
		w.closers = append(w.closers, locks.Close)
	}
	return locks, err
}
