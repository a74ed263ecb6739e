package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/lockdog/lockdog/loadtest/internal/fleet"
	"github.com/lockdog/lockdog/loadtest/internal/sample"
	"github.com/lockdog/lockdog/loadtest/internal/wire"
)

const (
	// acquireMost is what the locks are taken in, in every mode: what a restart of a service looks like.
	acquireMost = time.Second
	// settleMost is from then to the measurement.
	settleMost = time.Second
	// overhead is about what starting, releasing and ending the clients take.
	overhead = 1500 * time.Millisecond
)

// holders is the clients of one mode, from before they take their locks until they have given them back.
type holders struct {
	b      *bench
	mode   string
	locks  int
	fleet  fleet.Fleet[wire.Reply]
	began  time.Time     // by Redis's clock: when the first lock was taken
	base   weight        // with one lock each
	full   weight        // with all
	took   time.Duration // to take the locks
	points []sample.Point
	losses map[string]int64
	open   edge
	lost   int // locks that were not theirs when they gave them back
}

// acquireOver and settleFor are shorter with short leases: a storm is to be told from the next one.
func (f *flags) acquireOver() time.Duration { return min(acquireMost, f.interval()/10) }
func (f *flags) settleFor() time.Duration   { return min(settleMost, f.interval()) }

// weight is the sum of wire.Weights.
type weight struct{ heap, stacks, goroutines float64 }

// edge is one end of a window.
type edge struct {
	info       sample.Info
	own        []wire.Reply
	foreground []wire.Reply
}

// window is what happened between two edges.
type window struct {
	from, to   time.Time // by Redis's clock
	info       sample.Info
	own        wire.Reading
	foreground *wire.Reading // nil without
}

func (w *window) seconds() float64 { return w.to.Sub(w.from).Seconds() }

// start starts the clients and has them take their locks. hold is how long the locks are needed.
func (b *bench) start(ctx context.Context, mode string, locks int, hold time.Duration) (_ *holders, err error) {
	h := &holders{b: b, mode: mode, locks: locks, losses: make(map[string]int64)}
	var command []string
	if mode == wire.Redisson {
		command = b.redisson
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, h.fleet.Close())
		}
	}()
	for _, cfg := range b.configs(mode, locks, hold) {
		if err := h.fleet.Start(command, cfg); err != nil {
			return nil, err
		}
	}
	for _, do := range []string{wire.DoWarm, wire.DoRead} { // what is read of the warming up is thrown away
		if _, err := h.fleet.Ask(ctx, wire.Request{Do: do}); err != nil {
			return nil, err
		}
	}
	if h.base, err = h.weigh(ctx); err != nil {
		return nil, err
	}
	look, err := b.sampler.Look(ctx)
	if err != nil {
		return nil, err
	}
	h.began = look.At
	if _, err := b.sampler.Take(); err != nil {
		return nil, err
	}
	start := time.Now()
	_, err = h.fleet.Ask(ctx, wire.Request{Do: wire.DoAcquire, Over: b.acquireOver().Seconds()})
	h.took = time.Since(start)
	return h, err
}

// settle lets what the acquires have stirred up calm down, and weighs what is left.
func (h *holders) settle(ctx context.Context) (err error) {
	if err := h.b.out.wait(ctx, h.b.settleFor()); err != nil {
		return err
	}
	h.full, err = h.weigh(ctx)
	return err
}

func (h *holders) weigh(ctx context.Context) (sum weight, err error) {
	replies, err := h.fleet.Ask(ctx, wire.Request{Do: wire.DoWeigh})
	for _, r := range replies {
		if r.Weight != nil {
			sum.heap += float64(r.Weight.Heap)
			sum.stacks += float64(r.Weight.Stacks)
			sum.goroutines += float64(r.Weight.Goroutines)
		}
	}
	return sum, err
}

// look reads everything at one time.
func (h *holders) look(ctx context.Context) (edge, error) {
	var e edge
	var errs [3]error
	var all sync.WaitGroup
	all.Go(func() { e.info, errs[0] = h.b.sampler.Look(ctx) })
	all.Go(func() { e.own, errs[1] = h.fleet.Ask(ctx, wire.Request{Do: wire.DoRead}) })
	if h.b.foreground != nil {
		all.Go(func() { e.foreground, errs[2] = h.b.foreground.Ask(ctx, wire.Request{Do: wire.DoRead}) })
	}
	all.Wait()
	for cause, n := range merge(e.own).Counts[wire.Losses] {
		h.losses[cause] += n
	}
	return e, errors.Join(errs[:]...)
}

// begin opens a window, end closes it. end may be called again: each window begins where the one before ended.
func (h *holders) begin(ctx context.Context) (err error) {
	h.open, err = h.look(ctx)
	return err
}

func (h *holders) end(ctx context.Context) (*window, error) {
	to, err := h.look(ctx)
	if err != nil {
		return nil, err
	}
	points, err := h.b.sampler.Take()
	if err != nil {
		return nil, fmt.Errorf("sampling ended: %w", err)
	}
	h.points = append(h.points, points...)
	w := &window{from: h.open.info.At, to: to.info.At, info: to.info.Since(h.open.info), own: merge(to.own)}
	if to.foreground != nil {
		r := merge(to.foreground)
		w.foreground = &r
	}
	h.open = to
	return w, nil
}

// finish has the clients give their locks back, and ends them.
func (h *holders) finish(ctx context.Context) error {
	replies, err := h.fleet.Ask(ctx, wire.Request{Do: wire.DoRelease})
	released := 0
	for _, r := range replies {
		released += r.Released
		h.lost += r.Lost
	}
	if err == nil && released+h.lost != h.locks {
		err = fmt.Errorf("%s: %d locks were released and %d lost, of %d", h.mode, released, h.lost, h.locks)
	}
	return errors.Join(err, h.fleet.Close())
}

// merge adds up what several processes read.
func merge(replies []wire.Reply) (sum wire.Reading) {
	for _, r := range replies {
		if r.Reading != nil {
			sum.Add(r.Reading)
		}
	}
	return sum
}
