package work

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockdog/lockdog/loadtest/internal/fleet"
	"github.com/lockdog/lockdog/loadtest/peers/internal/peer"
	"github.com/lockdog/lockdog/loadtest/peers/internal/witness"
)

const (
	// grace is the time for operations that are running at the end of a window. Operations that still wait for the lock
	// after it are canceled, because nothing has woken them. A running release isn't canceled.
	grace = 2 * time.Second

	sharedName = "peers:shared"
	namesEach  = 64 // names per goroutine in Distinct
	expected   = 1 << 17
)

// lane is the state of one goroutine that repeats an operation. Others read it after the goroutine has ended.
type lane struct {
	number   int
	names    []string
	end      time.Time       // of the window
	stop     *atomic.Bool    // of all lanes of a run: start no operation any more
	releases context.Context // for Release

	total    witness.Tally
	window   witness.Tally
	times    []time.Duration
	handoffs []time.Duration
	stuck    bool
	err      error
}

func newLane(cfg *Config, number int) *lane {
	n := &lane{number: number, names: []string{sharedName}}
	if cfg.Kind == Distinct {
		n.names = make([]string, namesEach)
		for i := range n.names {
			n.names[i] = fmt.Sprintf("peers:%x-%d-%d", rand.Uint64(), number, i)
		}
	}
	n.times = make([]time.Duration, 0, expected/cfg.Callers)
	return n
}

// run runs every goroutine for the window.
func (w *worker) run(ctx context.Context, window time.Duration) (Result, error) {
	lanes := make([]*lane, w.cfg.Callers)
	for i := range lanes {
		lanes[i] = newLane(w.cfg, i)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var stop atomic.Bool
	var before, after runtime.MemStats
	runtime.GC() // so that every window starts in the same state
	runtime.ReadMemStats(&before)
	cpu, began := fleet.CPUTime(), time.Now()
	var all sync.WaitGroup
	for _, n := range lanes {
		n.end, n.stop = began.Add(window), &stop
		all.Go(func() { w.drive(ctx, n) })
	}
	ended := make(chan struct{})
	go func() {
		all.Wait()
		close(ended)
	}()
	timer := time.AfterFunc(window, func() { stop.Store(true) })
	defer timer.Stop()
	select {
	case <-ended: // after the end of the window, or after an error
	case <-time.After(window + grace):
		cancel()
		<-ended // a client that doesn't heed its ctx gives up by its own timeout
	}
	r := Result{Seconds: min(time.Since(began), window).Seconds(), CPU: fleet.CPUTime() - cpu}
	runtime.ReadMemStats(&after)
	r.Mallocs, r.Bytes = after.Mallocs-before.Mallocs, after.TotalAlloc-before.TotalAlloc
	var errs []error
	for _, n := range lanes {
		errs = append(errs, n.sum(&r))
	}
	if w.witness != nil {
		r.Overlaps = w.witness.Overlaps()
	}
	return r, errors.Join(errs...)
}

// drive repeats a lane's operation until the lane is stopped, an operation fails or ctx ends.
func (w *worker) drive(ctx context.Context, n *lane) {
	op := w.lock
	if w.cfg.Kind == Held {
		op = w.try
	}
	// Each goroutine has its own ctx that can be canceled, like a request. A shared one would slow down all that use
	// it. Release has another ctx: the end of the grace must not make a release fail, and leave the lock held.
	releases, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	n.releases = releases
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for n.err == nil && !n.stop.Load() && ctx.Err() == nil {
		n.err = op(ctx, n)
	}
	if n.err != nil {
		n.stop.Store(true)
	}
}

// sum adds the results of a goroutine. It returns the goroutine's error.
func (n *lane) sum(r *Result) error {
	r.Total.Add(n.total)
	r.Window.Add(n.window)
	r.Counts = append(r.Counts, n.window.Operations)
	for _, d := range n.times {
		r.Times.Add(d)
	}
	for _, d := range n.handoffs {
		r.Handoffs.Add(d)
	}
	if n.stuck {
		r.Stuck++
	}
	if n.stuck || n.window.Operations == 0 {
		r.Unserved++
	}
	return n.err
}

// lock is the operation of Distinct and Shared: it acquires and releases a lock.
func (w *worker) lock(ctx context.Context, n *lane) error {
	began := time.Now()
	h, err := w.locks.Lock(ctx, n.names[int(n.total.Operations)%len(n.names)], true)
	switch {
	case err != nil && ctx.Err() != nil: // the end of the grace: it waited for at least the rest of the window
		n.times, n.stuck = append(n.times, max(n.end.Sub(began), 0)), true
		return nil
	case err != nil:
		return fmt.Errorf("lock: %w", err)
	}
	turn := witness.Tally{Operations: 1}
	var took, handoff time.Duration
	var awaited bool
	if w.witness != nil {
		granted := time.Now()
		took = granted.Sub(began)
		turn, handoff, awaited = w.witness.Granted(n.number, began, granted)
		w.witness.Releasing(n.number, time.Now())
	}
	if err := h.Release(n.releases); err != nil {
		return fmt.Errorf("release: %w", err)
	}
	if w.witness == nil {
		took = time.Since(began)
	}
	if awaited && turn.Between > 0 {
		n.handoffs = append(n.handoffs, handoff)
	}
	n.done(took, turn)
	if w.cfg.Pause > 0 && !n.stop.Load() {
		time.Sleep(rand.N(w.cfg.Pause))
	}
	return nil
}

// try is the operation of Held: it tries to acquire a held lock.
func (w *worker) try(ctx context.Context, n *lane) error {
	began := time.Now()
	h, err := w.locks.Lock(ctx, sharedName, false)
	switch {
	case err == nil:
		return errors.Join(errors.New("TryLock of a lock that is held: granted"), h.Release(ctx))
	case !errors.Is(err, peer.ErrHeld):
		return fmt.Errorf("TryLock of a lock that is held: %w", err)
	}
	n.done(time.Since(began), witness.Tally{Operations: 1})
	return nil
}

func (n *lane) done(took time.Duration, turn witness.Tally) {
	n.times = append(n.times, took)
	n.total.Add(turn)
	if !n.stop.Load() {
		n.window.Add(turn)
	}
}
