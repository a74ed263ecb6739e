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
	// An operation under way at the end of a window may finish. It is canceled if it cannot, as nothing wakes it.
	grace = 2 * time.Second

	namesEach = 64 // a Distinct's names of each goroutine
	expected  = 1 << 17
)

// loop runs an operation on some goroutines, over and over.
type loop struct {
	cfg   *Config
	locks peer.Locks
	w     *witness.Witness // of a Shared
	stop  atomic.Bool
	end   time.Time // of the window
}

// lane is one goroutine's part. Nothing of it is shared before it ends.
type lane struct {
	number   int
	names    []string
	count    int64 // operations in the window
	all      int64
	times    []time.Duration
	handoffs []time.Duration
	handed   Handed // in the window
	allHands Handed
	stuck    bool
	releases context.Context // what Release gets
	err      error
}

func newLane(cfg *Config, number int) *lane {
	n := &lane{number: number, names: []string{"peers:shared"}}
	if cfg.Kind == Distinct {
		n.names = make([]string, namesEach)
		for i := range n.names {
			n.names[i] = fmt.Sprintf("peers:%x-%d-%d", rand.Uint64(), number, i)
		}
	}
	n.times = make([]time.Duration, 0, expected/cfg.Goroutines)
	return n
}

// run has every goroutine work for that long.
func (l *loop) run(ctx context.Context, window time.Duration) (*Result, error) {
	lanes := make([]*lane, l.cfg.Goroutines)
	for i := range lanes {
		lanes[i] = newLane(l.cfg, i)
	}
	op := l.lock
	if l.cfg.Kind == Held {
		op = l.try
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	l.stop.Store(false)
	var used usage
	used.begin()
	began := time.Now()
	l.end = began.Add(window)
	var all sync.WaitGroup
	for _, n := range lanes {
		all.Go(func() {
			// A ctx that can be canceled, as requests have it, one each: sharing it would slow down all that follow it.
			// Releases have another: one under way at the end of the grace would fail, and leave the lock held.
			releases, end := context.WithCancel(context.WithoutCancel(ctx))
			defer end()
			n.releases = releases
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			for n.err == nil && !l.stop.Load() && ctx.Err() == nil {
				n.err = op(ctx, n)
			}
			if n.err != nil {
				l.stop.Store(true)
			}
		})
	}
	timer := time.AfterFunc(window, func() { l.stop.Store(true) })
	ended := make(chan struct{})
	go func() {
		all.Wait()
		close(ended)
	}()
	select {
	case <-ended: // the window's end, or an error
	case <-time.After(window + grace):
		cancel()
		<-ended
	}
	timer.Stop()
	r := &Result{Seconds: min(time.Since(began), window).Seconds()}
	used.end(r)
	var errs []error
	for _, n := range lanes {
		n.sum(r)
		errs = append(errs, n.err)
	}
	if l.w != nil {
		r.Overlaps = l.w.Overlaps()
	}
	return r, errors.Join(errs...)
}

// sum adds what a goroutine has done.
func (n *lane) sum(r *Result) {
	r.All += n.all
	r.Counts = append(r.Counts, n.count)
	for _, d := range n.times {
		r.Times.Add(d)
	}
	for _, d := range n.handoffs {
		r.Handoffs.Add(d)
	}
	if n.stuck {
		r.Stuck++
	}
	r.Handed += n.allHands.Handed
	r.Between += n.allHands.Between
	r.Window.Handed += n.handed.Handed
	r.Window.Between += n.handed.Between
}

// lock acquires and releases.
func (l *loop) lock(ctx context.Context, n *lane) error {
	name := n.names[int(n.all)%len(n.names)]
	began := time.Now()
	h, err := l.locks.Lock(ctx, name)
	if err != nil {
		if ctx.Err() != nil { // the end of the grace: it waited for at least the rest of the window
			n.times, n.stuck = append(n.times, max(l.end.Sub(began), 0)), true
			return nil
		}
		return fmt.Errorf("lock: %w", err)
	}
	if l.w == nil {
		if err := h.Release(n.releases); err != nil {
			return fmt.Errorf("release: %w", err)
		}
		n.done(l, time.Since(began))
		return nil
	}

	now := time.Now()
	turn := l.w.Granted(n.number, began, now)
	l.w.Releasing(n.number, time.Now())
	if err := h.Release(n.releases); err != nil {
		return fmt.Errorf("release: %w", err)
	}
	n.turn(l, turn)
	n.done(l, now.Sub(began))
	if l.cfg.Pause > 0 && !l.stop.Load() {
		time.Sleep(rand.N(l.cfg.Pause))
	}
	return nil
}

// try asks for what is held.
func (l *loop) try(ctx context.Context, n *lane) error {
	began := time.Now()
	h, err := l.locks.TryLock(ctx, n.names[0])
	switch {
	case err == nil:
		return errors.Join(errors.New("TryLock of a lock that is held: granted"), h.Release(ctx))
	case !errors.Is(err, peer.ErrHeld):
		return fmt.Errorf("TryLock of a lock that is held: %w", err)
	}
	n.done(l, time.Since(began))
	return nil
}

func (n *lane) done(l *loop, took time.Duration) {
	n.times = append(n.times, took)
	n.all++
	if !l.stop.Load() {
		n.count++
	}
}

func (n *lane) turn(l *loop, t witness.Turn) {
	if t.Between && t.Awaited {
		n.handoffs = append(n.handoffs, t.Took)
	}
	n.allHands.add(t)
	if !l.stop.Load() {
		n.handed.add(t)
	}
}

func (h *Handed) add(t witness.Turn) {
	if t.Handed {
		h.Handed++
	}
	if t.Between {
		h.Between++
	}
}

// usage is what this process uses.
type usage struct {
	memory runtime.MemStats
	cpu    time.Duration
}

func (u *usage) begin() {
	runtime.GC() // every window begins alike
	runtime.ReadMemStats(&u.memory)
	u.cpu = fleet.CPUTime()
}

func (u *usage) end(r *Result) {
	r.CPU = fleet.CPUTime() - u.cpu
	var now runtime.MemStats
	runtime.ReadMemStats(&now)
	r.Mallocs, r.Bytes = now.Mallocs-u.memory.Mallocs, now.TotalAlloc-u.memory.TotalAlloc
}
