package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"time"

	"github.com/lockdog/lockdog/loadtest/internal/report"
	"github.com/lockdog/lockdog/loadtest/internal/wire"
)

// wave has all clients of a mode acquire their locks within a second, then cuts their connections, then stops one of them for half a
// lease. None of that needs to cost a lock: a lease that was renewed a third of it ago outlives it.
func wave(ctx context.Context, b *bench, rep *report.Report) error {
	if err := b.traffic(ctx, true); err != nil {
		return err
	}
	measured := 3*b.interval() + b.lease/2
	b.out.plan(time.Duration(len(b.locks)*len(b.modes)) * b.planned(measured))
	defer func() { rep.Targets = append(rep.Targets, b.waveTargets(rep.Rows)...) }() // also of one that ends early
	for _, locks := range b.locks {
		for _, mode := range b.modes {
			b.out.say("%d locks, %s: acquiring them", locks, mode)
			_, err := b.hold(ctx, mode, locks, measured, func(h *holders) error { return h.stages(ctx, rep) })
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// stages goes through the stages of a wave, each of which is a row.
func (h *holders) stages(ctx context.Context, rep *report.Report) error {
	var events []report.Event
	first := len(rep.Rows)
	began := time.Now().Add(-h.open.At.Sub(h.began)) // of the timeline, by our clock
	mark := func(what string) {
		events = append(events, report.Event{At: time.Since(began).Seconds(), What: what})
		h.b.out.say("%d locks, %s: %s", h.locks, h.mode, what)
	}
	wait := func(d time.Duration) error { return h.b.out.wait(ctx, d) }
	mark("locks acquired")
	for _, stage := range []struct {
		name string
		run  func() error
	}{
		{"after the mass acquire", func() error { return wait(h.b.interval()) }},
		{"connections cut", func() error {
			if err := wait(h.b.interval() / 2); err != nil {
				return err
			}
			mark("connections cut")
			if err := h.b.sampler.Cut(ctx); err != nil {
				return err
			}
			return wait(h.b.interval() / 2)
		}},
		{"a client stopped", func() error { // as an overloaded host or a debugger does
			mark("a client stopped")
			if err := h.fleet[0].Signal(syscall.SIGSTOP); err != nil {
				return err
			}
			waited := wait(h.b.lease / 2)
			mark("it goes on")
			if err := errors.Join(waited, h.fleet[0].Signal(syscall.SIGCONT)); err != nil {
				return err
			}
			return wait(h.b.interval())
		}},
	} {
		if err := stage.run(); err != nil {
			return err
		}
		w, err := h.look(ctx)
		if err != nil {
			return err
		}
		row := h.row(w, nil)
		row.Late = report.Figure(w.own.Total(wire.Late))
		row.Stage, row.Losses, row.LossCauses = stage.name, report.Figure(w.own.Total(wire.Losses)), w.own.Counts[wire.Losses]
		rep.Rows = append(rep.Rows, row)
	}
	rep.Rows[first].Timeline, rep.Rows[first].Events = h.timeline(h.open.At), events
	return nil
}

// waveTargets are what is promised of a wave.
func (b *bench) waveTargets(rows []report.Row) []report.Target {
	var targets []report.Target
	for _, r := range rows {
		if r.Mode != wire.Batched {
			continue
		}
		stage := fmt.Sprintf("%d locks, %s: ", r.Locks, r.Stage)
		targets = append(targets, b.trickle(stage, &r), report.Target{
			What: stage + "locks lost", Want: "0", Got: strings.TrimSpace(fmt.Sprintf("%.0f %s", float64(r.Losses), losses(r.LossCauses))),
			Met: r.Losses == 0, Hard: true,
		})
	}
	return targets
}
