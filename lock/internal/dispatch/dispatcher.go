// Package dispatch is the only way to Redis for scripts. Every call but a renewal runs at most once: it is sent again
// only if the server refused it and ran nothing (NOSCRIPT or MOVED, for example). Callers decide whether to retry.
//
// A caller sends its call itself (inline) if the node is idle and quick: see MaySendInline. Otherwise a worker sends
// it, because a caller must leave when its ctx ends, and go-redis may wait until ReadTimeout. The call is pending until
// a worker takes it. A batch takes the calls that are pending when it is sent, maxBatch at most, in one round trip. A
// call that can't share a batch needn't be pending: while fewer than maxInFlight are in flight, a worker sends it at
// once. How many batches may be in flight depends on the round-trip time to the server: see rttEstimate. If the server
// is far away, they share a connection of their own if they can: see backend.Redis.OpenStream.
//
// A Call is a backend.Call (what is sent: a script with its keys and arguments) in a script.Request (which knows where
// the not-after is) with a LateHandler and an outcome.
//
// The not-after is the server time after which a script must write nothing. So a call whose reply is lost can still
// write only for a known time:
//
//	Reply.Sent
//	  + MayWriteFor, or at ctx's deadline if that is sooner   = not-after, by this machine's clock
//	  + slack                                                 = Reply.LateWriteUntil
//
// The script compares the not-after with the server's clock. Clock.At translates it, and slack is by how much the
// server's clock may be behind the result: a script may believe that much longer that it isn't late. While the Clock
// knows nothing, calls have no not-after, and LateWriteUntil bounds nothing.
package dispatch

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockdog/lockdog/lock/internal/backend"
	"github.com/lockdog/lockdog/lock/internal/redisfail"
	"github.com/lockdog/lockdog/telemetry"
)

// Backend is the part of backend.Redis that a Dispatcher needs.
type Backend interface {
	Prepare(ctx context.Context, key string) error
	Node(key string) string
	Moved(ctx context.Context)
	Traits() backend.Traits
	PoolSize() int
	OpenStream()
	HasStream() bool
	FastTimeout() time.Duration
	Eval(ctx context.Context, call backend.Call) (any, error)
	EvalEach(ctx context.Context, calls []backend.Call) []backend.Result
	EvalWait(
		ctx context.Context, call backend.Call, replicas int, timeout time.Duration,
	) (reply any, acked int, err error)
}

// Config is what a Dispatcher needs. All fields are required.
type Config struct {
	Backend  Backend
	Recorder *telemetry.Recorder
	Panicked func(v any, stack []byte) // called after a panic during a call, for example in a hook of the client
}

// Dispatcher sends calls. It is safe for concurrent use.
type Dispatcher struct {
	backend  Backend
	rec      *telemetry.Recorder
	panicked func(v any, stack []byte)
	closed   chan struct{}
	running  sync.WaitGroup // workers and inline calls
	calls    sync.Pool

	prepared   atomic.Bool   // the backend knows its servers
	ready      chan struct{} // closed when prepared is set
	unprepared Node          // has the calls that prepare the backend

	mu              sync.Mutex
	nodes           atomic.Pointer[map[string]*Node] // by name; replaced with mu held, never changed
	limitedInFlight int                              // batches of pending calls, and inline calls, to all nodes
	idle            []*worker                        // not tied to a node, because nodes come and go
}

// Node is one server: its pending calls and its clock. While other nodes hang, it can still have a batch in flight: see
// makeRoom.
type Node struct {
	Name           string
	Clock          Clock
	SingleSlotOnly atomic.Bool // it has refused a script whose keys are in several slots
	DeclaredOnly   atomic.Bool // it has refused a key that its script didn't declare

	lastRTT atomic.Int64 // how long the last call that was sent alone took, in ns; 0: unknown, or it failed

	// Guarded by Dispatcher.mu.
	pending  []*Call
	starting int // workers that are about to take pending calls
	inFlight int // batches, including those of starting workers, and inline calls
	rtt      rttEstimate
}

// NoteKeyFault reports whether a call was refused because its keys are in several slots, or weren't declared. It notes
// that in SingleSlotOnly or DeclaredOnly.
func (n *Node) NoteKeyFault(refused error) bool {
	if refused == nil { // the fast path: it is called for each result of a renewal
		return false
	}
	switch redisfail.Classify(refused).Keys {
	case redisfail.KeysCrossSlot:
		n.SingleSlotOnly.Store(true)
	case redisfail.KeysUndeclared:
		n.DeclaredOnly.Store(true)
	default:
		return false
	}
	return true
}

const (
	maxInFlight = 64                     // batches and inline calls to one node; DoAlone, Eval and EvalEach don't count
	maxIdle     = 8                      // workers without a batch, for all nodes together
	slowBatch   = 100 * time.Millisecond // a healthy server answers sooner
)

// New returns a Dispatcher. It starts no goroutine before the first call.
func New(cfg Config) *Dispatcher {
	d := &Dispatcher{
		backend: cfg.Backend, rec: cfg.Recorder, panicked: cfg.Panicked,
		closed: make(chan struct{}), ready: make(chan struct{}),
	}
	d.nodes.Store(&map[string]*Node{})
	d.calls.New = func() any {
		timer := time.NewTimer(time.Hour)
		timer.Stop()
		return &Call{done: make(chan struct{}, 1), timer: timer}
	}
	return d
}

// Close makes the callers that wait for a worker leave, and waits until the inline calls and the workers have ended. It
// doesn't wait for DoAlone, Eval and EvalEach, which work after it, too. It must be called only once.
func (d *Dispatcher) Close() {
	d.mu.Lock()
	close(d.closed)
	d.mu.Unlock()
	d.running.Wait()
}

// isClosed reports whether Close was called. mu must be held if the answer must not change meanwhile.
func (d *Dispatcher) isClosed() bool {
	select {
	case <-d.closed:
		return true
	default:
		return false
	}
}

// Node returns the node on which a key lives now.
func (d *Dispatcher) Node(key string) *Node { return d.NodeNamed(d.backend.Node(key)) }

// NodeNamed returns the node that has this name in the backend. It makes the node if there is none yet.
func (d *Dispatcher) NodeNamed(name string) *Node {
	if n := (*d.nodes.Load())[name]; n != nil {
		return n
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	all := *d.nodes.Load()
	if all[name] == nil {
		all = maps.Clone(all)
		all[name] = &Node{Name: name}
		d.nodes.Store(&all)
	}
	return all[name]
}

// Do sends a call and waits until its reply arrives, ctx ends, the timeout is over or the Dispatcher closes. An inline
// call may notice the end of ctx or the timeout late, by up to the backend's FastTimeout, and doesn't notice the
// closing: Close waits for it. The caller must not use c afterwards.
//
// If the caller leaves before the call has ended, the error is the cause of ctx, redisfail.ErrClosed or ErrNoReply (or
// ErrBusyWorkers, if no worker took the call). Once the call has ended, its LateHandler is called, if the call was
// sent. A deadline of ctx that passes slowBatch or more after the call began counts as a timeout (not in an inline
// call), because a healthy server would have answered.
func (d *Dispatcher) Do(ctx context.Context, c *Call, timeout time.Duration) (reply Reply, err error) {
	unhandled, mayWriteFor := c.LateHandler == nil, c.MayWriteFor
	leaveErr := d.doPrepared(ctx, c, timeout)
	if leaveErr == nil { // the call has ended, perhaps with an error
		reply, err = c.outcome()
		d.recycle(c)
		return reply, err
	}
	// If a worker still has c, it calls the LateHandler when the call has ended.
	reply.MayHaveRun = unhandled
	if mayWriteFor > 0 { // if it was sent, or will be, its not-after was set before now: see runBatch
		reply.LateWriteUntil = time.Now().Add(mayWriteFor + time.Duration(c.slack.Load()))
	}
	return reply, leaveErr
}

// doPrepared makes the backend learn its servers, if it doesn't know them yet, and then calls do. It returns what do
// returns.
func (d *Dispatcher) doPrepared(ctx context.Context, c *Call, timeout time.Duration) (leaveErr error) {
	var began time.Time // zero: now. An inline call doesn't need it
	if !d.prepared.Load() {
		began = time.Now()
		if leaveErr = d.prepare(ctx, c, began, timeout); leaveErr != nil || c.err != nil {
			return leaveErr
		}
		timeout -= time.Since(began)
	}
	c.node = d.Node(c.Keys[0])
	return d.do(ctx, c, began, timeout)
}

// prepare waits until the backend knows its servers. Only then can the call go to its own node, without waiting for
// others. It sends a second call, p, whose script never runs. If that script may share a batch, inFlightLimit bounds
// how many such calls are in flight when many callers come at once. p is over when any preparation has succeeded,
// because the server that p itself asks may hang.
func (d *Dispatcher) prepare(ctx context.Context, c *Call, began time.Time, timeout time.Duration) (leaveErr error) {
	p := d.NewCall(c.purpose) // not recycled: a worker may still have it
	p.node, p.over = &d.unprepared, d.ready
	p.Script, p.Keys = c.Script, []string{c.Keys[0]}
	leaveErr = d.do(ctx, p, began, timeout)
	switch {
	case d.prepared.Load():
		return nil
	case leaveErr == nil:
		c.err = p.err
	}
	return leaveErr
}

// do is Do for a call whose node is known. began is when the caller began to wait; zero: now. If leaveErr is nil, the
// call has ended, in success or with c.err. Otherwise the caller must leave with leaveErr, and not use c any more: the
// call may go on, or its script may still run.
func (d *Dispatcher) do(ctx context.Context, c *Call, began time.Time, timeout time.Duration) (leaveErr error) {
	c.ctx = ctx
	n := c.node
	inline, err := d.enqueue(c, d.MaySendInline(ctx, n, timeout))
	if err != nil {
		c.err = err
		return nil
	}
	if inline {
		defer d.finishInline(n)
		c.Fast = true
		c.MayWriteFor = min(c.MayWriteFor, d.backend.FastTimeout()) // nobody waits longer for the reply
		if ctx.Done() == nil || timeout < leastUnboundedTimeout {
			limited, cancel := context.WithTimeoutCause(ctx, timeout, ErrNoReply)
			defer cancel()
			c.ctx = limited
		}
		d.sendInline(c)
		if timedOut := c.err != nil && c.ctx.Err() != nil && ctx.Err() == nil; timedOut {
			c.err = ErrNoReply
			c.handleLate()
			return ErrNoReply
		}
		return nil
	}

	if began.IsZero() {
		began = time.Now()
	}
	slow := min(timeout, slowBatch)
	c.timer.Reset(slow)
	defer c.timer.Stop()
	for {
		select {
		case <-c.done:
			d.noteDeadline(ctx, c, began)
			return nil
		case <-c.timer.C:
			if slow < timeout { // the batches in flight may hang: start another worker for the pending calls
				d.addWorker(n, c)
				c.timer.Reset(timeout - slow)
				slow = timeout
				continue
			}
		case <-c.over:
		case <-ctx.Done():
		case <-d.closed:
		}
		if d.removePending(n, c) {
			c.err = d.leaveError(ctx, began, ErrBusyWorkers)
			return nil
		}
		if c.state.CompareAndSwap(waiting, callerLeft) {
			return d.leaveError(ctx, began, ErrNoReply)
		}
		<-c.done
		d.noteDeadline(ctx, c, began)
		return nil
	}
}

// DoAlone sends a call in the caller's goroutine, outside a batch. It works after Close, too.
func (d *Dispatcher) DoAlone(ctx context.Context, c *Call) (Reply, error) {
	defer d.recycle(c)
	c.ctx, c.node = ctx, d.Node(c.Keys[0])
	d.sendInline(c)
	return c.outcome()
}

var (
	// ErrNoReply is the outcome of a call without a reply within its caller's timeout or ctx deadline: see Do.
	ErrNoReply = redisfail.NewTimeout("lockdog: timeout: no answer of Redis in time")
	// ErrBusyWorkers is the outcome of a call that was never sent because every worker of its node waited for Redis.
	ErrBusyWorkers = redisfail.NewTimeout("lockdog: timeout: every worker is waiting for an answer of Redis")
)

// noteDeadline replaces the error of a call that failed because go-redis noticed the deadline of ctx before
// Dispatcher.do noticed it. The new error is that of leaveError.
func (d *Dispatcher) noteDeadline(ctx context.Context, c *Call, began time.Time) {
	if errors.Is(c.err, context.DeadlineExceeded) && ctx.Err() != nil {
		c.err = d.leaveError(ctx, began, ErrNoReply)
	}
}

// leaveError returns the error with which a caller leaves without a reply. It returns noReply if a healthy server would
// have replied.
func (d *Dispatcher) leaveError(ctx context.Context, began time.Time, noReply error) error {
	cause := context.Cause(ctx)
	switch {
	case cause == nil && d.isClosed():
		return redisfail.ErrClosed
	case cause == nil:
		return noReply
	case !errors.Is(ctx.Err(), context.DeadlineExceeded), redisfail.IsUnavailable(cause), time.Since(began) < slowBatch:
		return cause
	}
	return noReply
}

// leastUnboundedTimeout is the least timeout for which an inline call uses its caller's ctx, if that can end. Dialing,
// or waiting for a connection, may take some seconds, and ends with ctx but not at the timeout. So a call with a
// shorter timeout gets a ctx that ends at the timeout.
const leastUnboundedTimeout = 10 * time.Second

// fastRTT is the longest round trip of a call after which the next call is expected to be fast.
const fastRTT = backend.MaxFastTimeout / 50

// MaySendInline reports whether a caller may send its call to a node itself, if the node is idle. An inline call
// doesn't notice the end of ctx before FastTimeout. So the last round trip must have been quick, FastTimeout must be
// short, and neither the deadline of ctx nor the timeout may be near. If ctx can't end, FastTimeout needn't be short.
func (d *Dispatcher) MaySendInline(ctx context.Context, n *Node, timeout time.Duration) bool {
	fast, lastRTT := d.backend.FastTimeout(), time.Duration(n.lastRTT.Load())
	switch {
	case fast == 0, timeout < 2*fast, lastRTT == 0, lastRTT > fastRTT:
		return false
	case ctx.Done() == nil:
		return true
	}
	end, limited := ctx.Deadline()
	return fast <= backend.MaxFastTimeout && (!limited || time.Until(end) > fast)
}

// enqueue gives a call to a worker or adds it to the pending calls, or reports that the caller sends it inline.
func (d *Dispatcher) enqueue(c *Call, mayInline bool) (inline bool, err error) {
	n := c.node
	c.unbatchable = c.Replicas > 0 || d.backend.Traits().MultiLockScripts && !c.Batchable()
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.isClosed():
		return false, redisfail.ErrClosed
	case mayInline && c.Replicas == 0 && n.inFlight == 0 && len(n.pending) == 0:
		d.addInFlight(n, 1, true)
		d.running.Add(1)
		return true, nil
	case c.unbatchable && n.inFlight < maxInFlight: // alone in its batch, before the pending calls
		d.startBatch(n, c)
	default:
		n.pending = append(n.pending, c)
		d.startIfRoom(n)
	}
	return false, nil
}

// addWorker starts one more worker for the pending calls of a node, if c is among them and maxInFlight allows it.
func (d *Dispatcher) addWorker(n *Node, c *Call) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.mayStart(n) && slices.Contains(n.pending, c) {
		d.startBatch(n, nil)
	}
}

// removePending removes a pending call. It reports false if a worker has the call.
func (d *Dispatcher) removePending(n *Node, c *Call) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	i := slices.Index(n.pending, c)
	if i < 0 {
		return false
	}
	n.pending = slices.Delete(n.pending, i, i+1)
	return true
}

// Hold keeps calls to the node of a key pending until resume, as if all connections were busy. It is for tests.
func (d *Dispatcher) Hold(key string) (pending func() int, resume func()) {
	n := d.Node(key)
	add := func(batches int) {
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.addInFlight(n, batches, true); d.mayStart(n) {
			d.startBatch(n, nil)
		}
	}
	add(maxInFlight)
	return func() int {
		d.mu.Lock()
		defer d.mu.Unlock()
		return len(n.pending)
	}, func() { add(-maxInFlight) }
}
