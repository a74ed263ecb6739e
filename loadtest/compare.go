package main

import (
	"context"
	"fmt"
	"time"

	"github.com/lockdog/lockdog/loadtest/internal/report"
	"github.com/lockdog/lockdog/loadtest/internal/wire"
)

// comparison is the rounds of all modes and numbers of locks, interleaved: what changes on the machine meanwhile changes for all.
type comparison struct {
	b      *bench
	rounds map[string][]report.Row // by mode and locks
	order  []string
	differ []string // where Redis and the clients count differently
}

// compare runs it. Also of a run that ends early there are rows, of what was complete.
func compare(ctx context.Context, b *bench, rep *report.Report) error {
	c := &comparison{b: b, rounds: make(map[string][]report.Row)}
	one := b.acquireOver() + b.settleFor() + b.duration + overhead
	b.out.plan(time.Duration(b.rounds*len(b.locks)*len(b.modes)) * one)
	err := c.run(ctx)
	for _, key := range c.order {
		rep.Rows = append(rep.Rows, report.Median(c.rounds[key]))
	}
	report.Sort(rep.Rows, allModes)
	rep.Predictions = b.curves()
	rep.Targets = append(agreement(c.differ, rep.Rows), b.targets(rep.Rows)...)
	return err
}

func (c *comparison) run(ctx context.Context) error {
	for round := range c.b.rounds {
		// Every second round is a quiet one: what the foreground takes of Redis varies by more than renewals take.
		if err := c.b.traffic(ctx, round%2 == 0); err != nil {
			return err
		}
		for _, locks := range c.b.locks {
			var idle *window
			for _, mode := range c.b.modes {
				c.b.out.say("round %d of %d: %d locks, %s", round+1, c.b.rounds, locks, mode)
				w, row, err := c.phase(ctx, mode, locks, idle)
				if err != nil {
					return err
				}
				if mode == wire.None {
					idle = w
				}
				key := fmt.Sprint(mode, " ", locks)
				if len(c.rounds[key]) == 0 {
					c.order = append(c.order, key)
				} else {
					row.Timeline, row.Events, row.Commands = nil, nil, nil // the first round's are kept
				}
				c.rounds[key] = append(c.rounds[key], row)
			}
		}
	}
	return nil
}

// phase measures one mode with one number of locks.
func (c *comparison) phase(ctx context.Context, mode string, locks int, idle *window) (*window, report.Row, error) {
	const margin = time.Minute // for what takes longer than planned
	h, err := c.b.start(ctx, mode, locks, 2*c.b.duration+c.b.lease+margin)
	if err != nil {
		return nil, report.Row{}, err
	}
	c.b.out.pass(c.b.acquireOver())
	w, err := h.measure(ctx, c.b.duration)
	if err != nil {
		_ = h.fleet.Close() // the first error says more
		return nil, report.Row{}, err
	}
	if err := h.finish(ctx); err != nil {
		return nil, report.Row{}, err
	}
	c.b.out.pass(overhead)
	if received, own, ok := agree(w); counts(mode) && !ok {
		c.differ = append(c.differ, fmt.Sprintf("%s, %d locks: Redis %d, clients %d", mode, locks, received, own))
	}
	row := h.row(w, idle)
	if c.b.rounds > 1 && w.foreground != nil {
		row.RedisCPU, row.RedisPerRenewal, row.NetIn, row.NetOut = report.None(), report.None(), report.None(), report.None()
	}
	row.Timeline = h.timeline(w.to)
	row.Events = []report.Event{{At: w.from.Sub(h.began).Seconds(), What: "measured from here"}}
	return w, row, nil
}

// measure is the window of a comparison.
func (h *holders) measure(ctx context.Context, d time.Duration) (*window, error) {
	if err := h.settle(ctx); err != nil {
		return nil, err
	}
	if err := h.begin(ctx); err != nil {
		return nil, err
	}
	if err := h.b.out.wait(ctx, d); err != nil {
		return nil, err
	}
	return h.end(ctx)
}
