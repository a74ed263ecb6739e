package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/lockdog/lockdog/loadtest/internal/child"
	"github.com/lockdog/lockdog/loadtest/internal/fleet"
	"github.com/lockdog/lockdog/loadtest/internal/sample"
	"github.com/lockdog/lockdog/telemetry"
)

const (
	// longestAcquire is the maximum time over which the acquires are spread, as at the restart of a service.
	longestAcquire = time.Second
	// longestSettle is the maximum time between the acquires and the measurement.
	longestSettle = time.Second
	// margin is added to the fixed lease of the mode without renewal.
	margin = time.Minute
)

// holders are the clients of one mode, from before their acquires until after their releases.
type holders struct {
	b      *bench
	mode   string
	locks  int
	fleet  fleet.Fleet[child.Reading]
	began  time.Time     // when the acquires began, by Redis's clock
	base   child.Reading // memory with one lock per client
	full   child.Reading // memory with all locks
	took   time.Duration // to acquire the locks
	points []sample.Point
	start  sample.Info   // before the clients were started
	open   sample.Info   // at the start of the window
	counts child.Reading // the clients' counts since their start
	warmed int64         // late renewals during the warm-up, whose leases are short
	lost   int           // locks that were lost before their release
}

// acquireOver returns the time over which the acquires are spread. It and settleFor are shorter for short leases:
// otherwise one storm of renewals would last into the next one.
func (f *flags) acquireOver() time.Duration { return min(longestAcquire, f.interval()/10) }

// settleFor returns the pause between the acquires and the first window. In per-lock mode renewals come in storms. The
// pause puts the ends of the window between two storms, so that no renewal is in flight when the counts are read.
// lockdog's renewals are spread over the interval.
func (f *flags) settleFor() time.Duration { return min(longestSettle, f.interval()/2) }

// window is what happened between two looks.
type window struct {
	from, to   time.Time // by Redis's clock
	info       sample.Info
	own        child.Reading
	foreground *child.Reading // nil: no foreground traffic
}

func (w *window) seconds() float64 { return w.to.Sub(w.from).Seconds() }

// hold makes the clients of a mode acquire their locks, calls measure, and makes them release the locks. expected is
// the duration of measure.
func (b *bench) hold(
	ctx context.Context, mode string, locks int, expected time.Duration, measure func(*holders) error,
) (_ *holders, err error) {
	h := &holders{b: b, mode: mode, locks: locks}
	defer func() { err = errors.Join(err, h.fleet.Close()) }()
	var command []string
	if mode == child.Redisson {
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
	if err := wait(ctx, b.settleFor()); err != nil {
		return nil, err
	}
	if h.full, err = h.ask(ctx, fleet.Request{Do: child.Weigh}); err != nil {
		return nil, err
	}
	if _, err := h.look(ctx); err != nil { // starts the first window
		return nil, err
	}
	if err := measure(h); err != nil {
		return nil, err
	}
	return h, h.release(context.WithoutCancel(ctx))
}

// ask sends a request to all clients, and returns the sum of their answers.
func (h *holders) ask(ctx context.Context, request fleet.Request) (child.Reading, error) {
	answers, err := h.fleet.Ask(ctx, request)
	return sum(answers), err
}

func sum(readings []child.Reading) (all child.Reading) {
	for _, r := range readings {
		all.Add(&r)
	}
	return all
}

// acquire makes the clients acquire their locks.
func (h *holders) acquire(ctx context.Context) (err error) {
	if _, err := h.ask(ctx, fleet.Request{Do: child.Warm}); err != nil {
		return err
	}
	if _, err := h.look(ctx); err != nil { // empties the metrics of the warm-up, so that they aren't part of base
		return err
	}
	h.warmed = h.counts.Total(child.Late)
	if h.base, err = h.ask(ctx, fleet.Request{Do: child.Weigh}); err != nil {
		return err
	}
	info, err := h.b.sampler.Look(ctx)
	if err != nil {
		return err
	}
	h.began = info.At
	start := time.Now()
	_, err = h.ask(ctx, fleet.Request{Do: child.Acquire, Over: h.b.acquireOver().Seconds()})
	h.took = time.Since(start)
	return err
}

// look reads everything at the same time. It ends a window and starts the next one.
func (h *holders) look(ctx context.Context) (*window, error) {
	w := &window{from: h.open.At}
	var info sample.Info
	var foreground []child.Reading
	var errs [4]error
	var all sync.WaitGroup
	all.Go(func() { info, errs[0] = h.b.sampler.Look(ctx) })
	all.Go(func() { w.own, errs[1] = h.ask(ctx, fleet.Request{Do: child.Read}) })
	all.Go(func() { foreground, errs[2] = h.b.traffic.Ask(ctx, fleet.Request{Do: child.Read}) })
	all.Wait()
	points, err := h.b.sampler.Take()
	if err != nil {
		errs[3] = fmt.Errorf("sampling ended: %w", err)
	}
	h.points = append(h.points, points...)
	w.to, w.info = info.At, info.Since(h.open)
	if h.b.traffic != nil {
		f := sum(foreground)
		w.foreground = &f
	}
	h.counts.Add(&child.Reading{Counts: w.own.Counts})
	h.open = info
	return w, errors.Join(errs[:]...)
}

// release makes the clients release their locks.
func (h *holders) release(ctx context.Context) error {
	r, err := h.ask(ctx, fleet.Request{Do: child.Release})
	if err != nil {
		return err
	}
	if h.lost = r.Lost; r.Released+r.Lost != h.locks {
		return fmt.Errorf("%s: %d locks were released and %d lost, of %d", h.mode, r.Released, r.Lost, h.locks)
	}
	_, err = h.look(ctx) // the final counts
	return err
}

// The maximum difference between two counts of the same scripts. A call that timed out may have been sent twice or not
// at all.
const (
	agreeShare = 0.02 // of the renewals' calls
	agreeCalls = 2    // for each node
)

// agree compares the number of scripts that Redis ran with the number in the clients' own metrics, from before the
// clients' start until after their releases. At any other time a script may be in only one of the two. Subscriptions
// are left out: Redis needn't read what a client sends last on a connection that it closes.
func (h *holders) agree() (received, own int64, ok bool) {
	c := sample.Sort(h.open.Since(h.start).Commands, 0)
	received = c.Scripts
	own = h.counts.Total(child.Calls) - h.counts.Count(child.Calls, string(telemetry.PurposeSubscribe))
	renewals := h.counts.Count(child.Calls, string(telemetry.PurposeRenew))
	return received, own, math.Abs(float64(received-own)) <=
		max(float64(agreeCalls*len(h.b.servers)), agreeShare*float64(renewals))
}

// faults returns reasons why all figures are worthless. It checks nothing for Redisson: its losses aren't lockdog's,
// and it doesn't count its calls.
func (h *holders) faults() (faults []error) {
	if h.mode == child.Redisson {
		return nil
	}
	if received, own, ok := h.agree(); !ok {
		faults = append(faults,
			fmt.Errorf("%s, %d locks: Redis counts %d scripts, the clients %d", h.mode, h.locks, received, own))
	}
	if h.lost > 0 {
		faults = append(faults, fmt.Errorf("%s, %d locks: %d were lost: %v", h.mode, h.locks, h.lost, h.counts.Counts))
	}
	return faults
}
