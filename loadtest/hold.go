package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/lockdog/lockdog/loadtest/internal/fleet"
	"github.com/lockdog/lockdog/loadtest/internal/hist"
	"github.com/lockdog/lockdog/loadtest/internal/load"
	"github.com/lockdog/lockdog/loadtest/internal/sample"
	"github.com/lockdog/lockdog/telemetry"
)

const (
	// longestAcquire is the maximum time over which the acquires are spread, as at the restart of a service.
	longestAcquire = time.Second
	// clientAcquire is the time for the acquires of each client, if there are many.
	clientAcquire = 20 * time.Millisecond
	// longestSettle is the maximum pause between the acquires and the measurement.
	longestSettle = time.Second
	// soakEvery is the minimum time between two looks of a soak. Only the last look may come sooner.
	soakEvery = 5 * time.Second
	// margin is added to the fixed lease of the mode without renewal.
	margin = time.Minute
)

// holders are the clients of one mode, from before their acquires until after their releases.
type holders struct {
	b      *bench
	mode   string
	locks  int
	fleet  fleet.Fleet[load.Reading]
	window *window       // what was measured; nil: nothing yet
	began  time.Time     // when the acquires began, by Redis's clock
	base   load.Reading  // memory with one lock per client
	full   load.Reading  // memory with all locks
	took   time.Duration // to acquire the locks
	points []sample.Point
	start  sample.Info  // before the clients were started
	open   sample.Info  // at the start of the window
	counts load.Reading // the clients' counts since their start
	warmed int64        // late renewals during the warm-up, whose leases are short
	lost   int          // locks that were lost before their release

	fewest, most int // goroutines at the looks of watch
}

// acquireOver returns the time over which the acquires are spread. It is shorter for short leases: otherwise one storm
// of renewals would last into the next one. It is longer for many clients: each has to connect first.
func (f *flags) acquireOver() time.Duration {
	return max(min(longestAcquire, f.interval()/10), time.Duration(f.clients)*clientAcquire)
}

// settleFor returns the pause between the acquires and the first window. In per-lock mode renewals come in storms. The
// pause puts the ends of the window between two storms, so that no renewal is in flight when the counts are read.
// lockdog's renewals are spread over the interval.
func (f *flags) settleFor() time.Duration { return min(longestSettle, f.interval()/2) }

// looks returns how long the locks are watched, and the maximum time between two looks.
func (f *flags) looks() (total, every time.Duration) {
	if f.soak > 0 {
		return f.soak, max(soakEvery, f.interval())
	}
	return f.duration, f.duration
}

// window is what happened between two looks.
type window struct {
	from, to   time.Time // by Redis's clock
	info       sample.Info
	own        load.Reading
	foreground *hist.Hist // latencies; nil: no foreground traffic
}

func (w *window) seconds() float64 { return w.to.Sub(w.from).Seconds() }

// measure makes the clients of a mode acquire their locks, watches them, and makes them release the locks. If a soak is
// interrupted, or a look of it fails, measure returns what was measured until then, if anything, and an error. After
// any other error it returns nil.
func (b *bench) measure(ctx context.Context, mode string, locks int) (_ *holders, err error) {
	h := &holders{b: b, mode: mode, locks: locks}
	defer func() { err = errors.Join(err, h.fleet.Close()) }()
	if err := h.acquire(ctx); err != nil {
		return nil, err
	}
	interrupted := h.watch(ctx)
	if h.window == nil {
		return nil, interrupted
	}
	if err := h.release(context.WithoutCancel(ctx)); err != nil {
		return nil, errors.Join(interrupted, err)
	}
	return h, interrupted
}

// acquire starts the clients, makes them acquire their locks, and begins the first window.
func (h *holders) acquire(ctx context.Context) (err error) {
	b := h.b
	if h.start, err = b.sampler.Look(ctx); err != nil {
		return err
	}
	h.open = h.start
	var command []string
	if h.mode == load.Redisson {
		command = b.redisson
	}
	total, _ := b.looks()
	cfg := load.Config{
		Mode: h.mode, Addrs: b.addrs, Cluster: b.cluster, RTT: b.rtt.Seconds(), Socket: b.socket,
		Lease: b.lease.Seconds(), Hold: (2*total + b.lease + margin).Seconds(), Churn: b.churn / float64(b.clients),
	}
	if h.mode == load.Agent {
		cfg.Serve = true
		if err := h.fleet.Start(nil, cfg); err != nil {
			return err
		}
		if _, err := h.ask(ctx, fleet.Request{Do: load.Warm}); err != nil { // it listens
			return err
		}
		cfg.Serve = false
	}
	for i := range b.clients { // each has a part of the locks
		cfg.First = h.locks * i / b.clients
		cfg.Locks = h.locks*(i+1)/b.clients - cfg.First
		if err := h.fleet.Start(command, cfg); err != nil {
			return err
		}
	}
	warm := fleet.Request{Do: load.Warm, Over: (time.Duration(b.clients) * clientAcquire).Seconds()}
	if _, err := h.ask(ctx, warm); err != nil {
		return err
	}
	if _, err := h.look(ctx); err != nil { // empties the metrics of the warm-up: their memory must not be part of base
		return err
	}
	h.warmed = h.counts.Total(load.Late)
	if h.base, err = h.ask(ctx, fleet.Request{Do: load.Weigh}); err != nil {
		return err
	}
	info, err := b.sampler.Look(ctx)
	if err != nil {
		return err
	}
	h.began = info.At
	start := time.Now()
	if _, err := h.ask(ctx, fleet.Request{Do: load.Acquire, Over: b.acquireOver().Seconds()}); err != nil {
		return err
	}
	h.took = time.Since(start)
	if err := load.Wait(ctx, b.settleFor()); err != nil {
		return err
	}
	if h.full, err = h.ask(ctx, fleet.Request{Do: load.Weigh}); err != nil {
		return err
	}
	_, err = h.look(ctx)
	return err
}

// watch looks until the time is over, ctx ends or a look fails. It merges the windows between the looks of a soak into
// one.
func (h *holders) watch(ctx context.Context) error {
	total, every := h.b.looks()
	start, end := h.open, time.Now().Add(total)
	for left := total; left > 0; left = time.Until(end) {
		interrupted := load.Wait(ctx, min(left, every))
		if interrupted != nil && h.b.soak == 0 { // in a part of an interval, per-lock mode renews all locks or none
			return interrupted
		}
		w, err := h.look(context.WithoutCancel(ctx))
		if err != nil {
			return err
		}
		n := w.own.Goroutines
		if h.b.soak > 0 {
			lag := w.own.Times[load.Lag]
			h.b.say("%d lost, %.0f calls/s, lag p99 %v", h.counts.Total(load.Losses),
				float64(sample.Sort(w.info.Commands, 0).Scripts)/w.seconds(), lag.Quantile(.99).Round(time.Millisecond))
		}
		if h.window == nil {
			h.window, h.fewest, h.most = w, n, n
		} else {
			h.window.to, h.window.info = w.to, h.open.Since(start)
			h.window.own.Add(&w.own)
			if w.foreground != nil {
				h.window.foreground.Merge(*w.foreground)
			}
			h.fewest, h.most = min(h.fewest, n), max(h.most, n)
		}
		if interrupted != nil {
			return interrupted
		}
	}
	return nil
}

// ask sends a request to all clients, and returns the sum of their answers.
func (h *holders) ask(ctx context.Context, request fleet.Request) (load.Reading, error) {
	answers, err := h.fleet.Ask(ctx, request)
	var sum load.Reading
	for _, r := range answers {
		sum.Add(&r)
	}
	return sum, err
}

// look reads Redis and the clients at the same time, and then takes the foreground's latencies and the samples. It ends
// a window and starts the next one.
func (h *holders) look(ctx context.Context) (*window, error) {
	w := &window{from: h.open.At}
	var info sample.Info
	var errs [3]error
	var all sync.WaitGroup
	all.Go(func() { info, errs[0] = h.b.sampler.Look(ctx) })
	all.Go(func() { w.own, errs[1] = h.ask(ctx, fleet.Request{Do: load.Read}) })
	all.Wait()
	if h.b.traffic != nil {
		latency := h.b.traffic.Take()
		w.foreground = &latency
	}
	points, err := h.b.sampler.Take()
	if err != nil {
		errs[2] = fmt.Errorf("sampling ended: %w", err)
	}
	h.points = append(h.points, points...)
	w.to, w.info = info.At, info.Since(h.open)
	h.counts.Add(&load.Reading{Counts: w.own.Counts})
	h.open = info
	return w, errors.Join(errs[:]...)
}

// release makes the clients release their locks.
func (h *holders) release(ctx context.Context) error {
	r, err := h.ask(ctx, fleet.Request{Do: load.Release})
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
// are left out: Redis may not read what a client sends right before it closes the connection.
func (h *holders) agree() (received, own int64, ok bool) {
	c := sample.Sort(h.open.Since(h.start).Commands, 0)
	received = c.Scripts
	own = h.counts.Total(load.Calls) - h.counts.Count(load.Calls, string(telemetry.PurposeSubscribe))
	renewals := h.counts.Count(load.Calls, string(telemetry.PurposeRenew))
	return received, own, math.Abs(float64(received-own)) <=
		max(float64(agreeCalls*len(h.b.servers)), agreeShare*float64(renewals))
}

// faults returns reasons why all figures are worthless. It checks nothing for Redisson: its losses aren't lockdog's,
// and it doesn't count its calls.
func (h *holders) faults() (faults []error) {
	if h.mode == load.Redisson {
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
