package main

import (
	"context"

	"github.com/lockdog/lockdog/loadtest/internal/child"
	"github.com/lockdog/lockdog/loadtest/internal/figures"
)

// compare measures all modes and numbers of locks in interleaved rounds, so that changes on the machine affect all of
// them.
func (b *bench) compare(ctx context.Context, rep *report) error {
	for round := range b.rounds {
		// Every second round has no foreground traffic: its share of Redis's CPU varies by more than renewals take.
		if err := b.setTraffic(ctx, round%2 == 0); err != nil {
			return err
		}
		for _, locks := range b.locks {
			var idle *window
			for _, mode := range b.modes {
				b.say("round %d of %d: %d locks, %s", round+1, b.rounds, locks, mode)
				h, w, err := b.measure(ctx, mode, locks)
				if err != nil {
					return err
				}
				if mode == child.None {
					idle = w
				}
				f := h.figures(w, idle)
				if b.rounds > 1 && w.foreground != nil {
					delete(f, figures.RedisShare)
					delete(f, figures.RedisPerRenewal)
				}
				r := rep.row(mode, locks)
				if r.rounds = append(r.rounds, f); r.timeline == nil {
					r.timeline = h.timeline(w.to)
				}
				rep.faults = append(rep.faults, h.faults()...)
			}
		}
	}
	return nil
}

// measure measures one mode with one number of locks.
func (b *bench) measure(ctx context.Context, mode string, locks int) (h *holders, w *window, err error) {
	h, err = b.hold(ctx, mode, locks, b.duration, func(h *holders) (err error) {
		if err = wait(ctx, b.duration); err == nil {
			w, err = h.look(ctx)
		}
		return err
	})
	return h, w, err
}
