package main

import (
	"context"
	"fmt"
	"time"

	"github.com/lockdog/lockdog/loadtest/internal/report"
	"github.com/lockdog/lockdog/loadtest/internal/wire"
)

// compare measures all modes and numbers of locks in interleaved rounds: what changes on the machine meanwhile changes for all.
// A run that ends early has rows, too, of what was complete.
func compare(ctx context.Context, b *bench, rep *report.Report) error {
	b.out.plan(time.Duration(b.rounds*len(b.locks)*len(b.modes)) * b.planned(b.duration))
	c := &comparison{b: b, rounds: make(map[string][]report.Row)}
	err := c.run(ctx)
	for _, rows := range c.rounds {
		rep.Rows = append(rep.Rows, report.Median(rows))
	}
	report.Sort(rep.Rows, allModes)
	rep.Predictions = b.curves()
	rep.Targets = append(agreement(c.differ, rep.Rows), b.targets(rep.Rows)...)
	return err
}

type comparison struct {
	b      *bench
	rounds map[string][]report.Row // by mode and locks
	differ []string                // where Redis and the clients count differently
}

func (c *comparison) run(ctx context.Context) error {
	for round := range c.b.rounds {
		// Every second round is a quiet one: the foreground's share of Redis varies by more than renewals take.
		if err := c.b.traffic(ctx, round%2 == 0); err != nil {
			return err
		}
		for _, locks := range c.b.locks {
			var idle *window
			for _, mode := range c.b.modes {
				c.b.out.say("round %d of %d: %d locks, %s", round+1, c.b.rounds, locks, mode)
				w, row, err := c.measure(ctx, mode, locks, idle)
				if err != nil {
					return err
				}
				if mode == wire.None {
					idle = w
				}
				key := fmt.Sprint(mode, " ", locks)
				if round > 0 {
					row.Timeline, row.Events, row.Commands = nil, nil, nil // the first round's are kept
				}
				c.rounds[key] = append(c.rounds[key], row)
			}
		}
	}
	return nil
}

// measure measures one mode with one number of locks.
func (c *comparison) measure(ctx context.Context, mode string, locks int, idle *window) (w *window, row report.Row, err error) {
	h, err := c.b.hold(ctx, mode, locks, c.b.duration, func(h *holders) (err error) {
		if err = c.b.out.wait(ctx, c.b.duration); err == nil {
			w, err = h.look(ctx)
		}
		return err
	})
	if err != nil {
		return nil, row, err
	}
	if received, own, ok := h.agree(); counts(mode) && !ok {
		c.differ = append(c.differ, fmt.Sprintf("%s, %d locks: Redis %d, clients %d", mode, locks, received, own))
	}
	row = h.row(w, idle)
	if c.b.rounds > 1 && w.foreground != nil {
		row.RedisCPU, row.RedisPerRenewal, row.NetIn, row.NetOut = report.None(), report.None(), report.None(), report.None()
	}
	row.Timeline = h.timeline(w.to)
	row.Events = []report.Event{{At: w.from.Sub(h.began).Seconds(), What: "measured from here"}}
	return w, row, nil
}
