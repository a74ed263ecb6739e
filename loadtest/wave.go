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

// The stages of a wave.
const (
	stageAcquire = "after the mass acquire"
	stageCut     = "connections cut"
	stageStop    = "a client stopped"
)

// wave has all clients of a mode take their locks within a second, then cuts their connections, then stops one of them for half a lease.
// Nothing of that needs to cost a lock: a lease that was renewed a third of it ago outlives it.
func wave(ctx context.Context, b *bench, rep *report.Report) error {
	if err := b.traffic(ctx, true); err != nil {
		return err
	}
	one := b.acquireOver() + b.settleFor() + b.stage(stageAcquire) + b.stage(stageCut) + b.stage(stageStop) + overhead
	b.out.plan(time.Duration(len(b.locks)*len(b.modes)) * one)
	defer func() { rep.Targets = append(rep.Targets, b.waveTargets(rep.Rows)...) }() // also of one that ends early
	for _, locks := range b.locks {
		for _, mode := range b.modes {
			b.out.say("%d locks, %s: taking them", locks, mode)
			if err := waveOne(ctx, b, rep, mode, locks, one); err != nil {
				return err
			}
		}
	}
	return nil
}

// stage is how long a stage takes.
func (b *bench) stage(name string) time.Duration {
	if name == stageStop {
		return b.lease/2 + b.interval()
	}
	return b.interval()
}

func waveOne(ctx context.Context, b *bench, rep *report.Report, mode string, locks int, hold time.Duration) error {
	h, err := b.start(ctx, mode, locks, 2*hold+b.lease)
	if err != nil {
		return err
	}
	rows, events, err := h.stages(ctx)
	if err != nil {
		_ = h.fleet.Close()
		rep.Rows = append(rep.Rows, rows...)
		return err
	}
	if err := h.finish(ctx); err != nil {
		return err
	}
	rows[0].Timeline, rows[0].Events = h.timeline(h.open.info.At), events
	rep.Rows = append(rep.Rows, rows...)
	b.out.pass(overhead)
	return nil
}

// stages goes through the three.
func (h *holders) stages(ctx context.Context) (rows []report.Row, events []report.Event, err error) {
	if err := h.settle(ctx); err != nil {
		return nil, nil, err
	}
	if err := h.begin(ctx); err != nil {
		return nil, nil, err
	}
	began := time.Now().Add(-h.open.info.At.Sub(h.began)) // of the timeline, by our clock
	mark := func(what string) {
		events = append(events, report.Event{At: time.Since(began).Seconds(), What: what})
		h.b.out.say("%d locks, %s: %s", h.locks, h.mode, what)
	}
	mark("locks taken")
	for _, stage := range []struct {
		name string
		run  func(ctx context.Context, mark func(string)) error
	}{
		{stageAcquire, func(ctx context.Context, _ func(string)) error { return h.b.out.wait(ctx, h.b.interval()) }},
		{stageCut, h.cut},
		{stageStop, h.pause},
	} {
		if err := stage.run(ctx, mark); err != nil {
			return rows, events, err
		}
		w, err := h.end(ctx)
		if err != nil {
			return rows, events, err
		}
		row := h.row(w, nil)
		row.Stage, row.Losses, row.LossCauses = stage.name, report.Figure(w.own.Total(wire.Losses)), w.own.Counts[wire.Losses]
		rows = append(rows, row)
	}
	return rows, events, nil
}

// cut cuts all connections but the sampler's, half an interval into the stage.
func (h *holders) cut(ctx context.Context, mark func(string)) error {
	if err := h.b.out.wait(ctx, h.b.interval()/2); err != nil {
		return err
	}
	mark("connections cut")
	if err := h.b.sampler.Cut(ctx); err != nil {
		return err
	}
	return h.b.out.wait(ctx, h.b.interval()/2)
}

// pause stops a client for half a lease, as an overloaded host or a debugger does.
func (h *holders) pause(ctx context.Context, mark func(string)) error {
	stopped := h.fleet[0]
	mark("a client stopped")
	if err := stopped.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	waited := h.b.out.wait(ctx, h.b.lease/2)
	mark("it goes on")
	if err := errors.Join(waited, stopped.Signal(syscall.SIGCONT)); err != nil {
		return err
	}
	return h.b.out.wait(ctx, h.b.interval())
}

// waveTargets are what is promised of a wave.
func (b *bench) waveTargets(rows []report.Row) []report.Target {
	var targets []report.Target
	for _, r := range rows {
		if r.Mode != wire.Batched {
			continue
		}
		t := b.trickle(fmt.Sprintf("%d locks, %s: ", r.Locks, r.Stage), &r)
		targets = append(targets, t, report.Target{
			What: fmt.Sprintf("%d locks, %s: locks lost", r.Locks, r.Stage), Want: "0", Got: strings.TrimSpace(fmt.Sprintf("%.0f %s", float64(r.Losses), losses(r.LossCauses))),
			Met: r.Losses == 0, Hard: true,
		})
	}
	return targets
}
