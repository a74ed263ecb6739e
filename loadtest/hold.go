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
	// longestAcquire is how long the locks are acquired for, in every mode: what a restart of a service looks like.
	longestAcquire = time.Second
	// longestSettle is from then to the measurement.
	longestSettle = time.Second
	// margin allows for what takes longer than planned.
	margin = time.Minute
)

// holders are the clients of one mode, from before they acquire their locks until they have released them.
type holders struct {
	b      *bench
	mode   string
	locks  int
	fleet  fleet.Fleet[child.Reading]
	began  time.Time     // by Redis's clock: when the first lock was acquired
	base   child.Reading // the weight with one lock each
	full   child.Reading // ... with all
	took   time.Duration // to acquire the locks
	points []sample.Point
	start  sample.Info   // before the clients were started
	open   sample.Info   // where the window began
	counts child.Reading // what the clients have counted since their start
	warmed int64         // late ones of the warm-up, whose leases are short
	lost   int           // locks that were no longer theirs when they released them
}

// acquireOver and settleFor are shorter with short leases: otherwise the renewals of one round would run into the next.
func (f *flags) acquireOver() time.Duration { return min(longestAcquire, f.interval()/10) }

// settleFor puts the ends of a window between two storms of renewals, so no renewal is on its way when they are read.
func (f *flags) settleFor() time.Duration { return min(longestSettle, f.interval()/2) }

// window is what happened between two looks.
type window struct {
	from, to   time.Time // by Redis's clock
	info       sample.Info
	own        child.Reading
	foreground *child.Reading // nil without
}

func (w *window) seconds() float64 { return w.to.Sub(w.from).Seconds() }

// hold has the clients of a mode acquire their locks, calls measure, and has them release the locks. expected is how long measure takes.
func (b *bench) hold(ctx context.Context, mode string, locks int, expected time.Duration, measure func(*holders) error) (_ *holders, err error) {
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
	if _, err := h.look(ctx); err != nil { // the first window begins
		return nil, err
	}
	if err := measure(h); err != nil {
		return nil, err
	}
	return h, h.release(context.WithoutCancel(ctx))
}

// ask has all clients do something, and adds up what they answer.
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

// acquire has the clients acquire their locks.
func (h *holders) acquire(ctx context.Context) (err error) {
	if _, err := h.ask(ctx, fleet.Request{Do: child.Warm}); err != nil {
		return err
	}
	if _, err := h.look(ctx); err != nil { // what the warm-up has recorded is not to be weighed
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

// look reads everything at one time. It ends a window and begins the next one.
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

// release has the clients release their locks.
func (h *holders) release(ctx context.Context) error {
	r, err := h.ask(ctx, fleet.Request{Do: child.Release})
	if err != nil {
		return err
	}
	if h.lost = r.Lost; r.Released+r.Lost != h.locks {
		return fmt.Errorf("%s: %d locks were released and %d lost, of %d", h.mode, r.Released, r.Lost, h.locks)
	}
	_, err = h.look(ctx) // now nothing more is to be counted
	return err
}

// Two counts of the same calls may differ by that much: a call that timed out may have been sent twice, or not at all, and a node
// may not read the last message of a subscription that ends.
const (
	agreeShare = 0.02 // of the renewals' calls
	agreeCalls = 2    // for each node
)

// agree compares what Redis received with what the clients' own metrics say they sent, from before they were started until they have
// ended. At any other time a call may be in one of the two only. The greetings of connections are go-redis's, and in neither.
func (h *holders) agree() (received, own int64, ok bool) {
	c := sample.Sort(h.open.Since(h.start).Commands, 0)
	received, own = c.Scripts+c.PubSub, h.counts.Total(child.Calls)
	renewals := h.counts.Count(child.Calls, string(telemetry.PurposeRenew))
	return received, own, math.Abs(float64(received-own)) <= max(float64(agreeCalls*len(h.b.servers)), agreeShare*float64(renewals))
}

// faults are what makes all figures worthless. For what Redisson loses it has to answer itself, and it doesn't count its calls.
func (h *holders) faults() (faults []error) {
	if h.mode == child.Redisson {
		return nil
	}
	if received, own, ok := h.agree(); !ok {
		faults = append(faults, fmt.Errorf("%s, %d locks: Redis counts %d calls, the clients %d", h.mode, h.locks, received, own))
	}
	if h.lost > 0 {
		faults = append(faults, fmt.Errorf("%s, %d locks: %d were lost: %v", h.mode, h.locks, h.lost, h.counts.Counts))
	}
	return faults
}
