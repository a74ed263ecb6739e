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
	// longestAcquire is how long the locks are acquired for, in every mode: what a restart of a service looks like.
	longestAcquire = time.Second
	// longestSettle is from then to the measurement.
	longestSettle = time.Second
	// overhead is about what starting, releasing and ending the clients take.
	overhead = 1500 * time.Millisecond
	// margin allows for what takes longer than planned.
	margin = time.Minute
)

// holders are the clients of one mode, from before they acquire their locks until they have released them.
type holders struct {
	b      *bench
	mode   string
	locks  int
	fleet  fleet.Fleet[wire.Reply]
	began  time.Time     // by Redis's clock: when the first lock was acquired
	base   wire.Weight   // with one lock each
	full   wire.Weight   // with all
	took   time.Duration // to acquire the locks
	points []sample.Point
	start  sample.Info  // before the clients were started
	open   sample.Info  // where the window began
	counts wire.Reading // what the clients have counted since their start
	warmed int64        // late ones of the warm-up, whose leases are short
	lost   int          // locks that were no longer theirs when they released them
}

// acquireOver and settleFor are shorter with short leases: otherwise the renewals of one round would run into the next.
func (f *flags) acquireOver() time.Duration { return min(longestAcquire, f.interval()/10) }

// settleFor puts the ends of a window between two storms of renewals, so no renewal is on its way when they are read.
func (f *flags) settleFor() time.Duration { return min(longestSettle, f.interval()/2) }

// planned is the whole time of holders that are measured for that long.
func (f *flags) planned(measured time.Duration) time.Duration {
	return f.acquireOver() + f.settleFor() + measured + overhead
}

// window is what happened between two looks.
type window struct {
	from, to   time.Time // by Redis's clock
	info       sample.Info
	own        wire.Reading
	foreground *wire.Reading // nil without
}

func (w *window) seconds() float64 { return w.to.Sub(w.from).Seconds() }

// hold has the clients of a mode acquire their locks, calls measure, and has them release the locks. expected is how long measure takes.
func (b *bench) hold(ctx context.Context, mode string, locks int, expected time.Duration, measure func(*holders) error) (_ *holders, err error) {
	h := &holders{b: b, mode: mode, locks: locks}
	defer func() { err = errors.Join(err, h.fleet.Close()) }()
	var command []string
	if mode == wire.Redisson {
		command = b.redisson
	}
	if h.open, err = b.sampler.Look(ctx); err != nil {
		return nil, err
	}
	h.start = h.open
	for _, cfg := range b.configs(mode, locks, 2*expected+b.lease+margin) {
		if err := h.fleet.Start(command, cfg); err != nil {
			return nil, err
		}
	}
	if err := h.acquire(ctx); err != nil {
		return nil, err
	}
	b.out.pass(b.acquireOver())
	if err := b.out.wait(ctx, b.settleFor()); err != nil {
		return nil, err
	}
	if h.full, err = h.weigh(ctx); err != nil {
		return nil, err
	}
	if _, err := h.look(ctx); err != nil { // the first window begins
		return nil, err
	}
	if err := measure(h); err != nil {
		return nil, err
	}
	err = h.release(context.WithoutCancel(ctx))
	b.out.pass(overhead)
	return h, err
}

// acquire has the clients acquire their locks.
func (h *holders) acquire(ctx context.Context) (err error) {
	if _, err := h.fleet.Ask(ctx, wire.Request{Do: wire.DoWarm}); err != nil {
		return err
	}
	if _, err := h.look(ctx); err != nil { // what the warm-up has recorded is not to be weighed
		return err
	}
	h.warmed = h.counts.Total(wire.Late)
	if h.base, err = h.weigh(ctx); err != nil {
		return err
	}
	info, err := h.b.sampler.Look(ctx)
	if err != nil {
		return err
	}
	h.began = info.At
	start := time.Now()
	_, err = h.fleet.Ask(ctx, wire.Request{Do: wire.DoAcquire, Over: h.b.acquireOver().Seconds()})
	h.took = time.Since(start)
	return err
}

func (h *holders) weigh(ctx context.Context) (sum wire.Weight, err error) {
	replies, err := h.fleet.Ask(ctx, wire.Request{Do: wire.DoWeigh})
	for _, r := range replies {
		if r.Weight != nil {
			sum.Heap += r.Weight.Heap
			sum.Stacks += r.Weight.Stacks
			sum.Goroutines += r.Weight.Goroutines
		}
	}
	return sum, err
}

// look reads everything at one time. It ends a window and begins the next one.
func (h *holders) look(ctx context.Context) (*window, error) {
	w := &window{from: h.open.At}
	var info sample.Info
	var own, foreground []wire.Reply
	var errs [4]error
	var all sync.WaitGroup
	all.Go(func() { info, errs[0] = h.b.sampler.Look(ctx) })
	all.Go(func() { own, errs[1] = h.fleet.Ask(ctx, wire.Request{Do: wire.DoRead}) })
	all.Go(func() { foreground, errs[2] = h.b.foreground.Ask(ctx, wire.Request{Do: wire.DoRead}) })
	all.Wait()
	points, err := h.b.sampler.Take()
	if err != nil {
		errs[3] = fmt.Errorf("sampling ended: %w", err)
	}
	h.points = append(h.points, points...)
	w.to, w.info, w.own = info.At, info.Since(h.open), merge(own)
	if h.b.foreground != nil {
		sum := merge(foreground)
		w.foreground = &sum
	}
	h.counts.Add(&wire.Reading{Counts: w.own.Counts})
	h.open = info
	return w, errors.Join(errs[:]...)
}

// release has the clients release their locks.
func (h *holders) release(ctx context.Context) error {
	replies, err := h.fleet.Ask(ctx, wire.Request{Do: wire.DoRelease})
	released := 0
	for _, r := range replies {
		released += r.Released
		h.lost += r.Lost
	}
	if err != nil {
		return err
	}
	if released+h.lost != h.locks {
		return fmt.Errorf("%s: %d locks were released and %d lost, of %d", h.mode, released, h.lost, h.locks)
	}
	_, err = h.look(ctx) // now nothing more is to be counted
	return err
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
