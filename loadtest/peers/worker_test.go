package peers

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/lockdog/lockdog/loadtest/internal/fleet"
)

// work is what the callers of a measurement do. The child processes get it as JSON.
type work struct {
	Kind      string
	Peer      string
	Processes int
	Callers   int           // of each process
	Pause     time.Duration // maximum after each lock; 0: none
	RTT       time.Duration // round trip from the callers to Redis; 0: none is added
	Cluster   bool          // of three nodes
	Lease     time.Duration
	Addrs     []string
	Board     string // its file
	Process   int    // the number of the child, from 0
}

// The kinds of work.
const (
	distinct = "distinct" // lock and release, names without contention
	one      = "one"      // lock and release, one name for all
	trying   = "trying"   // TryLock of a lock that another client holds
)

// The requests to a child.
const (
	begin = "begin" // starts the callers
	end   = "end"   // waits until the callers have ended, and reports
)

const (
	// grace is the time for operations that are running when the goal is reached. Operations that still wait for the
	// lock after it are canceled, because nothing has woken them. A running release isn't canceled.
	grace = 2 * time.Second

	sharedName  = "peers:shared"
	namesEach   = 64 // names per caller in distinct
	processBits = 32 // shift of the process's number in a caller's id
)

// result is what one caller, one process or all processes have measured. Operations, Mallocs, Bytes and CPU are of all
// operations. Times and Handoffs are of those after the start, Turns and Handed of those from the start to the goal.
type result struct {
	Operations int64
	Turns      []int64         // operations, by caller
	PerProcess []int64         // operations, by process
	Handed     int64           // operations that got the lock from another caller or, with several processes, process
	Times      []time.Duration // of operations; in one only the waits
	Handoffs   []time.Duration // from a release to the grant, for callers that were waiting already
	Stuck      int             // callers whose operation didn't end within the grace
	Mallocs    uint64
	Bytes      uint64
	CPU        time.Duration
}

func (r *result) add(o result) {
	r.Operations += o.Operations
	r.Turns = append(r.Turns, o.Turns...)
	r.PerProcess = append(r.PerProcess, o.PerProcess...)
	r.Handed += o.Handed
	r.Times = append(r.Times, o.Times...)
	r.Handoffs = append(r.Handoffs, o.Handoffs...)
	r.Stuck += o.Stuck
	r.Mallocs += o.Mallocs
	r.Bytes += o.Bytes
	r.CPU += o.CPU
}

// closers closes what was opened, the last first.
type closers []func() error

func (c *closers) add(f func() error) { *c = append(*c, f) }

// Close implements fleet.Worker.
func (c *closers) Close() (err error) {
	for _, f := range slices.Backward(*c) {
		err = errors.Join(err, f())
	}
	return err
}

// caller is one goroutine that repeats an operation. Others read it after the goroutine has ended.
type caller struct {
	result
	id    uint64
	names []string
	err   error
}

// worker is the state of a child.
type worker struct {
	work
	closers
	*board
	peer    *library
	callers []*caller
	all     sync.WaitGroup
	cancel  context.CancelFunc // ends the waits
	memory  runtime.MemStats   // at the beginning
	cpu     time.Duration      // at the beginning
}

// openWorker opens what a child needs.
func openWorker(cfg work) (fleet.Worker[result], error) {
	w := &worker{work: cfg}
	if err := w.open(); err != nil {
		return nil, errors.Join(err, w.Close())
	}
	return w, nil
}

func (w *worker) open() error {
	b, closeBoard, err := openBoard(w.Board)
	if err != nil {
		return err
	}
	w.board = b
	w.add(closeBoard)
	if w.peer, err = open(w.work); err != nil {
		return err
	}
	w.add(w.peer.close)
	for i := range w.Callers {
		c := &caller{id: uint64(w.Process+1)<<processBits | uint64(i), names: []string{sharedName}}
		if w.Kind == distinct {
			c.names = make([]string, namesEach)
			for k := range c.names {
				c.names[k] = fmt.Sprintf("peers:%x-%d", c.id, k)
			}
		}
		w.callers = append(w.callers, c)
	}
	if w.Kind != trying {
		return nil
	}
	other := w.work
	other.Lease = time.Hour // longer than any measurement
	holder, err := open(other)
	if err != nil {
		return err
	}
	w.add(holder.close)
	h, err := holder.lock(context.Background(), sharedName)
	if err == nil {
		w.add(func() error { return h.Release(context.Background()) })
	}
	return err
}

// Do implements fleet.Worker.
func (w *worker) Do(ctx context.Context, request fleet.Request) (result, error) {
	if request.Do == end {
		return w.end()
	}
	w.begin(ctx)
	return result{}, nil
}

// begin starts the callers.
func (w *worker) begin(ctx context.Context) {
	ctx, w.cancel = context.WithCancel(ctx)
	for _, c := range w.callers {
		// A caller may get more turns than others: there is room for some more.
		c.result = result{Turns: []int64{0}, Times: make([]time.Duration, 0, 2*int(w.goal.Load())/w.Callers)}
	}
	runtime.ReadMemStats(&w.memory)
	w.cpu = fleet.CPUTime()
	for _, c := range w.callers {
		w.all.Go(func() { w.drive(ctx, c) })
	}
}

// end waits for the callers.
func (w *worker) end() (r result, err error) {
	timer := time.AfterFunc(grace, w.cancel)
	w.all.Wait() // a client that doesn't heed its ctx gives up by its own timeout
	timer.Stop()
	w.cancel()
	r.CPU = fleet.CPUTime() - w.cpu
	var after runtime.MemStats
	runtime.ReadMemStats(&after)
	r.Mallocs, r.Bytes = after.Mallocs-w.memory.Mallocs, after.TotalAlloc-w.memory.TotalAlloc
	var turns int64
	for _, c := range w.callers {
		r.add(c.result)
		turns += c.Turns[0]
		err = errors.Join(err, c.err)
	}
	r.PerProcess = []int64{turns}
	runtime.GC() // so that every measurement begins in the same state
	return r, err
}

// drive repeats an operation until the goal is reached, the operation fails or ctx ends.
func (w *worker) drive(ctx context.Context, c *caller) {
	// Each caller has its own ctx that can be canceled, like a request. A shared one would slow down all that use it.
	// Release has another ctx: the end of the grace must not make a release fail, and leave the lock held.
	releases, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for c.err == nil && c.Stuck == 0 && !w.over() {
		c.err = w.operate(ctx, releases, c)
	}
	if c.err != nil {
		w.stop()
	}
}

func (w *worker) operate(ctx, releases context.Context, c *caller) error {
	began := time.Now()
	if w.Kind == trying {
		if _, err := w.peer.try(ctx, sharedName); !errors.Is(err, w.peer.taken) {
			return errors.Join(errors.New("TryLock of a lock that is held was not refused"), err)
		}
		w.record(c, time.Since(began), false, 0)
		return nil
	}
	h, err := w.peer.lock(ctx, c.names[c.Operations%int64(len(c.names))])
	took := time.Since(began)
	switch {
	case err != nil && ctx.Err() != nil: // the end of the grace
		c.Times, c.Stuck = append(c.Times, max(took-grace, 0)), 1
		return nil
	case err != nil:
		return fmt.Errorf("lock: %w", err)
	}
	var handed bool
	var handoff time.Duration
	if w.Kind == one {
		var previous uint64
		previous, handoff = w.granted(c.id, began, began.Add(took))
		handed = previous != c.id && (w.Processes == 1 || previous>>processBits != c.id>>processBits)
		w.releasing(c.id, time.Now())
	}
	if err := h.Release(releases); err != nil {
		return fmt.Errorf("release: %w", err)
	}
	if w.Kind == distinct {
		took = time.Since(began)
	}
	w.record(c, took, handed, handoff)
	if w.Pause > 0 && !w.over() {
		time.Sleep(rand.N(w.Pause))
	}
	return nil
}

// record records that an operation has ended.
func (w *worker) record(c *caller, took time.Duration, handed bool, handoff time.Duration) {
	c.Operations++
	started, over := w.count()
	if !started {
		return
	}
	c.Times = append(c.Times, took)
	if handed && handoff > 0 {
		c.Handoffs = append(c.Handoffs, handoff)
	}
	if !over {
		c.Turns[0]++
		if handed {
			c.Handed++
		}
	}
}
