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
	// grace is the time for operations that are running at the end of a window. Then they are canceled: they wait, and
	// nothing wakes them.
	grace = 2 * time.Second
	// lastGrace is the time for canceled operations. Then their goroutines are left behind.
	lastGrace = 2 * time.Second

	namesEach = 64 // names per goroutine in Distinct
	expected  = 1 << 17
)

// loop runs an operation repeatedly on several goroutines.
type loop struct {
	cfg   *Config
	locks peer.Locks
	w     *witness.Witness // for Shared
	left  bool             // goroutines were left behind: what they use can't be closed
}

// lane is the state of one goroutine. Others read it after the goroutine has ended, or with mu held if it was left
// behind.
type lane struct {
	number   int
	names    []string
	end      time.Time       // of the window
	stop     *atomic.Bool    // of all lanes of a run: start no operation any more
	releases context.Context // for Release

	mu       sync.Mutex
	began    time.Time // start of the running operation
	count    int64     // operations in the window
	all      int64
	times    []time.Duration
	handoffs []time.Duration
	handed   Handed // in the window
	allHands Handed
	stuck    bool
	ended    bool
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

// run runs every goroutine for the window.
func (l *loop) run(ctx context.Context, window time.Duration) (Result, error) {
	lanes := make([]*lane, l.cfg.Goroutines)
	for i := range lanes {
		lanes[i] = newLane(l.cfg, i)
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var stop atomic.Bool
	var used usage
	used.begin()
	began := time.Now()
	for _, n := range lanes {
		n.began, n.end, n.stop = began, began.Add(window), &stop
	}
	ended := l.start(ctx, lanes)
	timer := time.AfterFunc(window, func() { stop.Store(true) })
	defer timer.Stop()
	select {
	case <-ended: // at the end of the window, or after an error
	case <-time.After(window + grace):
		cancel()
		select {
		case <-ended:
		case <-time.After(lastGrace):
			l.left = true
		}
	}
	r := Result{Seconds: min(time.Since(began), window).Seconds()}
	used.end(&r)
	var errs []error
	for _, n := range lanes {
		errs = append(errs, n.sum(&r))
	}
	if l.w != nil {
		r.Overlaps = l.w.Overlaps()
	}
	return r, errors.Join(errs...)
}

// start runs every lane's goroutine until it is stopped. It returns a channel that is closed when all have ended.
func (l *loop) start(ctx context.Context, lanes []*lane) <-chan struct{} {
	op := l.lock
	if l.cfg.Kind == Held {
		op = l.try
	}
	var all sync.WaitGroup
	for _, n := range lanes {
		all.Go(func() {
			// Each goroutine has its own ctx that can be canceled, like a request. A shared one would slow down all
			// that use it. Release has another ctx: the end of the grace must not make a release fail, and leave the
			// lock held.
			releases, end := context.WithCancel(context.WithoutCancel(ctx))
			defer end()
			n.releases = releases
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			var err error
			for err == nil && !n.stop.Load() && ctx.Err() == nil {
				err = op(ctx, n)
			}
			if err != nil {
				n.stop.Store(true)
			}
			n.finish(err)
		})
	}
	ended := make(chan struct{})
	go func() {
		all.Wait()
		close(ended)
	}()
	return ended
}

func (n *lane) finish(err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.ended, n.err = true, err
}

// gaveUp records an operation that didn't end within the grace. It waited for at least the rest of the window. mu must
// be held.
func (n *lane) gaveUp() {
	n.times, n.stuck = append(n.times, max(n.end.Sub(n.began), 0)), true
}

// sum adds the results of a goroutine. It returns the goroutine's error.
func (n *lane) sum(r *Result) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.ended {
		n.gaveUp()
	}
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
	if n.stuck || n.count == 0 {
		r.Unserved++
	}
	r.Handed += n.allHands.Handed
	r.Between += n.allHands.Between
	r.Window.Handed += n.handed.Handed
	r.Window.Between += n.handed.Between
	return n.err
}

// lock is the operation of Distinct and Shared: it acquires and releases a lock.
func (l *loop) lock(ctx context.Context, n *lane) error {
	began, name := n.begin()
	h, err := l.locks.Lock(ctx, name)
	if err != nil {
		if ctx.Err() != nil { // the end of the grace
			n.mu.Lock()
			defer n.mu.Unlock()
			n.gaveUp()
			return nil
		}
		return fmt.Errorf("lock: %w", err)
	}
	if l.w == nil {
		if err := h.Release(n.releases); err != nil {
			return fmt.Errorf("release: %w", err)
		}
		n.done(time.Since(began))
		return nil
	}

	now := time.Now()
	turn := l.w.Granted(n.number, began, now)
	l.w.Releasing(n.number, time.Now())
	if err := h.Release(n.releases); err != nil {
		return fmt.Errorf("release: %w", err)
	}
	n.turn(turn)
	n.done(now.Sub(began))
	if l.cfg.Pause > 0 && !n.stop.Load() {
		time.Sleep(rand.N(l.cfg.Pause))
	}
	return nil
}

// try is the operation of Held: it tries to acquire a held lock.
func (l *loop) try(ctx context.Context, n *lane) error {
	began, name := n.begin()
	h, err := l.locks.TryLock(ctx, name)
	switch {
	case err == nil:
		return errors.Join(errors.New("TryLock of a lock that is held: granted"), h.Release(ctx))
	case !errors.Is(err, peer.ErrHeld):
		return fmt.Errorf("TryLock of a lock that is held: %w", err)
	}
	n.done(time.Since(began))
	return nil
}

// begin records the start of an operation. It returns the name of the lock.
func (n *lane) begin() (began time.Time, name string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.began = time.Now()
	return n.began, n.names[int(n.all)%len(n.names)]
}

func (n *lane) done(took time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.times = append(n.times, took)
	n.all++
	if !n.stop.Load() {
		n.count++
	}
}

func (n *lane) turn(t witness.Turn) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if t.Between && t.Awaited {
		n.handoffs = append(n.handoffs, t.Took)
	}
	n.allHands.add(t)
	if !n.stop.Load() {
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

// usage measures the memory and CPU time that this process uses.
type usage struct {
	memory runtime.MemStats
	cpu    time.Duration
}

func (u *usage) begin() {
	runtime.GC() // so that every window starts in the same state
	runtime.ReadMemStats(&u.memory)
	u.cpu = fleet.CPUTime()
}

func (u *usage) end(r *Result) {
	r.CPU = fleet.CPUTime() - u.cpu
	var now runtime.MemStats
	runtime.ReadMemStats(&now)
	r.Mallocs, r.Bytes = now.Mallocs-u.memory.Mallocs, now.TotalAlloc-u.memory.TotalAlloc
}
