package lock

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockdog/lockdog/lock/internal/backend"
	"github.com/lockdog/lockdog/lock/internal/redisfail"
	"github.com/lockdog/lockdog/lock/internal/script"
	"github.com/lockdog/lockdog/telemetry"
)

// transport is the only way to Redis. It sends every call exactly once, and knows what a failed one may have left behind. The operations
// above it (operations.go) decide whether to try again.
//
// A caller sends its call itself (inline) if the node is idle and quick, and the call's ctx can't end or go-redis obeys it. Otherwise the call
// is pending until a worker sends it in a batch (batcher.go), so that a caller can leave when its ctx ends, although go-redis may wait until
// ReadTimeout. At most three batches are in flight, or one to each node; a batch takes all calls that became pending meanwhile, in one round
// trip.
type transport struct {
	backend   backend.Backend
	rec       *telemetry.Recorder
	abandoned func(*call) // takes the reply to a claim whose caller has left
	panicked  func(v any, stack []byte)
	closed    chan struct{}
	running   sync.WaitGroup // workers, and callers that send their own calls
	calls     sync.Pool

	prepared      atomic.Bool // the backend knows its servers
	waitSetDenied atomic.Bool // the ACL doesn't allow the wait sets

	mu             sync.Mutex
	nodes          map[string]*node
	sharedInFlight int                  // batches that take pending calls, to all nodes
	idle           []*worker            // of no node: nodes come and go
	only           atomic.Pointer[node] // the node, while there is just one
}

// node is one server: its pending calls, and its clock. A node that hangs delays only its own calls.
type node struct {
	name   string
	clock  serverClock
	lately atomic.Int64 // how long the last call that was sent alone took, in ns; 0: unknown

	singleSlotOnly atomic.Bool // it has refused a script whose keys are in several slots

	// Guarded by transport.mu.
	pending  []*call
	inFlight int
}

const (
	maxInFlight = 64 // to one node; renewals aside
	maxShared   = 3  // ... to all nodes, of those that take pending calls, unless they are slow; each node may have one in any case
	maxIdle     = 8
	slowBatch   = 100 * time.Millisecond
)

// call is one script on its way.
type call struct {
	script.Request
	node        *node
	purpose     telemetry.Purpose
	window      time.Duration // from sending: the time in which the script may run
	claim       *claim        // of an acquire: what to clean up if its caller has left
	moreClaims  []*claim      // ... if it is for several locks
	replicas    int           // how many must have the script's writes ...
	patience    time.Duration // ... within this time
	unbatchable bool          // it shares no batch

	state atomic.Int32 // callWaiting, then what came first
	done  chan struct{}
	timer *time.Timer

	ctx     context.Context
	sent    time.Time
	expires time.Time // sent + window
	reply   any
	acked   int // replicas
	err     error
}

const (
	callWaiting = iota
	callAnswered
	callLeft
)

func newTransport(b backend.Backend, rec *telemetry.Recorder, abandoned func(*call), panicked func(v any, stack []byte)) *transport {
	t := &transport{backend: b, rec: rec, abandoned: abandoned, panicked: panicked, closed: make(chan struct{}), nodes: make(map[string]*node)}
	t.calls.New = func() any {
		timer := time.NewTimer(time.Hour)
		timer.Stop()
		return &call{done: make(chan struct{}, 1), timer: timer}
	}
	return t
}

// close ends the workers once their calls in flight have ended.
func (t *transport) close() {
	t.mu.Lock()
	close(t.closed)
	t.mu.Unlock()
	t.running.Wait()
}

// isClosed is called with mu held where the answer has to stay true for what follows.
func (t *transport) isClosed() bool {
	select {
	case <-t.closed:
		return true
	default:
		return false
	}
}

// nodeOf returns the node that a key lives on now.
func (t *transport) nodeOf(key string) *node {
	return t.nodeNamed(t.backend.Node(key))
}

func (t *transport) nodeNamed(name string) *node {
	if n := t.only.Load(); n != nil && n.name == name {
		return n
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	n := t.nodes[name]
	if n == nil {
		n = &node{name: name}
		t.nodes[name] = n
	}
	if len(t.nodes) == 1 {
		t.only.Store(n)
	} else {
		t.only.Store(nil)
	}
	return n
}

// callTo returns a call to the node of a key, with no script yet. It goes back through recycle, unless its caller left.
func (t *transport) callTo(key string, purpose telemetry.Purpose) *call {
	c := t.calls.Get().(*call)
	c.node, c.purpose = t.nodeOf(key), purpose
	c.window, c.claim, c.moreClaims, c.replicas, c.acked = 0, nil, nil, 0, 0
	c.sent, c.expires, c.reply, c.err = time.Time{}, time.Time{}, nil, nil
	c.state.Store(callWaiting)
	return c
}

// learn takes the server's time from a reply, 0 = not in it, that was read with err. A call that came too late is an error.
func (c *call) learn(now int64, late bool, err error) error {
	if err != nil {
		return err
	}
	if now != 0 {
		c.node.clock.learn(now, c.sent, late)
	}
	if late {
		return redisfail.ErrLate
	}
	return nil
}

func (t *transport) recycle(c *call) {
	c.Reset()
	c.ctx = nil
	t.calls.Put(c)
}

// do sends a call and waits for its reply, the end of ctx, the end of patience or the transport's close, whichever is first. A call that is sent
// inline may notice the last three late, by the backend's Soon. do reports false if it left before the reply. Then the call belongs to the
// worker, its reply goes to abandoned, and its claim must not be used again.
func (t *transport) do(ctx context.Context, c *call, patience time.Duration) bool {
	c.ctx = ctx
	n := c.node
	switch t.enqueue(c, t.maySendInline(ctx, n, patience)) {
	case routeClosed:
		c.err = ErrClosed
		return true
	case routeInline:
		defer t.finishInline(n)
		c.Soon = true
		c.window = min(c.window, t.backend.Soon()) // nobody waits for it longer
		if ctx.Done() == nil {                     // then nothing ends a dial, or the wait for a connection
			limited, cancel := context.WithTimeoutCause(ctx, patience, errLeft)
			defer cancel()
			c.ctx = limited
		}
		if t.sendInline(c); c.err != nil && c.ctx.Err() != nil && ctx.Err() == nil { // its patience is over
			if c.err = errLeft; c.claim != nil {
				t.abandoned(c)
			}
		}
		return true
	}

	slow := min(patience, slowBatch)
	c.timer.Reset(slow)
	defer c.timer.Stop()
	for {
		select {
		case <-c.done:
			return true
		case <-c.timer.C:
			if slow < patience { // the batches in flight may hang: have another worker take the pending calls
				t.addWorker(n, c)
				c.timer.Reset(patience - slow)
				slow = patience
				continue
			}
		case <-ctx.Done():
		case <-t.closed:
		}
		if t.dequeue(n, c) {
			c.err = t.left(ctx, errBusyWorkers)
			return true
		}
		if c.state.CompareAndSwap(callWaiting, callLeft) {
			return false
		}
		<-c.done
		return true
	}
}

// inlinePatience is the least patience of a call that may be sent inline: dialing, or waiting for a connection, may take some seconds, and ends with
// ctx, but not with patience.
const inlinePatience = 10 * time.Second

// quick bounds the time of a call after which the next is expected to be quick, too.
const quick = backend.Unnoticed / 50

// maySendInline reports whether a caller may send its call itself. The end of ctx isn't noticed during an inline call. So the node must have
// been quick so far, and a deadline of ctx must not be near. A ctx that can't end allows it also where a server that falls silent
// meanwhile would be noticed.
func (t *transport) maySendInline(ctx context.Context, n *node, patience time.Duration) bool {
	soon, lately := t.backend.Soon(), time.Duration(n.lately.Load())
	switch {
	case soon == 0, patience < max(inlinePatience, 2*soon), lately == 0, lately > quick:
		return false
	case ctx.Done() == nil:
		return true
	}
	end, limited := ctx.Deadline()
	return soon <= backend.Unnoticed && (!limited || time.Until(end) > soon)
}

// route is how a call is sent.
type route uint8

const (
	routeClosed route = iota
	routeInline       // by its caller
	routeBatch        // by a worker
)

// enqueue chooses the route of a call, and begins it.
func (t *transport) enqueue(c *call, mayInline bool) route {
	n := c.node
	c.unbatchable = c.replicas > 0 || t.backend.Traits().MultiLockScripts && !c.Batchable()
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.isClosed():
		return routeClosed
	case mayInline && c.replicas == 0 && n.inFlight == 0 && len(n.pending) == 0:
		t.addInFlight(n, 1, true)
		t.running.Add(1)
		return routeInline
	case c.unbatchable && n.inFlight < maxInFlight: // in a batch of its own, before the pending calls
		n.pending = slices.Insert(n.pending, 0, c)
		t.startBatch(n)
	default:
		n.pending = append(n.pending, c)
		if n.inFlight == 0 || t.sharedInFlight < maxShared {
			t.startBatch(n)
		}
	}
	return routeBatch
}

// addWorker starts one more worker for a node's pending calls, if c is among them.
func (t *transport) addWorker(n *node, c *call) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if n.inFlight < maxInFlight && !t.isClosed() && slices.Contains(n.pending, c) {
		t.startBatch(n)
	}
}

// dequeue takes a pending call back. It reports false if a worker has it.
func (t *transport) dequeue(n *node, c *call) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	i := slices.Index(n.pending, c)
	if i < 0 {
		return false
	}
	n.pending = slices.Delete(n.pending, i, i+1)
	return true
}

// errBusyWorkers is the outcome of a call that was never sent, because every worker of its node was waiting for Redis.
var errBusyWorkers = redisfail.NewTimeout("lockdog: timeout: every worker is waiting for an answer of Redis")

// left returns why do came back without a reply.
func (t *transport) left(ctx context.Context, late error) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	if t.isClosed() {
		return ErrClosed
	}
	return late
}
