package dispatch

import (
	"context"
	"runtime/debug"
	"slices"
	"time"

	"github.com/lockdog/lockdog/lock/internal/backend"
	"github.com/lockdog/lockdog/lock/internal/redisfail"
	"github.com/lockdog/lockdog/lock/internal/script"
	"github.com/lockdog/lockdog/telemetry"
)

// maxBatch bounds the calls of one batch, and so the time for which its script blocks Redis: 4 to 5 µs for each call.
const maxBatch = 64

// worker sends calls to Redis, one batch after the other.
type worker struct {
	node   *Node
	calls  []*Call
	shared bool          // the batch may take more calls
	start  chan struct{} // calls has been filled
	batch  script.BatchArgs
}

// addInFlight counts batches to a node that begin or, if more is negative, end. It is called with mu held.
func (d *Dispatcher) addInFlight(n *Node, more int, shared bool) {
	n.inFlight += more
	if shared {
		d.sharedInFlight += more
	}
}

// mayStart reports whether a worker may take pending calls to a node. It is called with mu held.
func (d *Dispatcher) mayStart(n *Node) bool {
	return len(n.pending) > 0 && n.inFlight < maxInFlight && !d.isClosed()
}

// startBatch gives pending calls to a worker. It is called with mu held.
func (d *Dispatcher) startBatch(n *Node) {
	if last := len(d.idle) - 1; last >= 0 {
		w := d.idle[last]
		d.idle = d.idle[:last]
		d.fillBatch(n, w)
		w.start <- struct{}{}
		return
	}
	w := &worker{start: make(chan struct{}, 1)}
	d.fillBatch(n, w)
	d.running.Add(1)
	go d.work(w)
}

// fillBatch moves pending calls into the worker's batch. It is called with mu held.
func (d *Dispatcher) fillBatch(n *Node, w *worker) {
	w.node, w.shared = n, !n.pending[0].unbatchable
	d.addInFlight(n, 1, w.shared)
	count := 1
	if w.shared && d.prepared.Load() {
		for count < min(len(n.pending), maxBatch) && !n.pending[count].unbatchable {
			count++
		}
	}
	w.calls = append(w.calls[:0], n.pending[:count]...)
	left := copy(n.pending, n.pending[count:])
	clear(n.pending[left:])
	n.pending = n.pending[:left]
}

// finishInline notes that a caller's own call has ended.
func (d *Dispatcher) finishInline(n *Node) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.running.Done()
	d.addInFlight(n, -1, true)
	if d.mayStart(n) {
		d.startBatch(n)
	}
}

// work sends batches until the Dispatcher closes. A worker beyond maxIdle stays only while calls are pending.
func (d *Dispatcher) work(w *worker) {
	defer d.running.Done()
	for {
		d.runBatch(w)
		d.mu.Lock()
		if d.isClosed() {
			d.mu.Unlock()
			return
		}
		d.addInFlight(w.node, -1, w.shared)
		if d.mayStart(w.node) {
			d.fillBatch(w.node, w)
			d.mu.Unlock()
			continue
		}
		if len(d.idle) == maxIdle {
			d.mu.Unlock()
			return
		}
		d.idle = append(d.idle, w)
		d.mu.Unlock()
		select {
		case <-w.start:
		case <-d.closed:
			return // the callers of what is in its batch leave, too
		}
	}
}

// runBatch sends the batch and answers its callers.
func (d *Dispatcher) runBatch(w *worker) {
	w.calls = slices.DeleteFunc(w.calls, func(c *Call) bool { return c.state.Load() != waiting }) // their callers have left
	d.dispatch(w)
	for _, c := range w.calls {
		if c.state.CompareAndSwap(waiting, answered) {
			c.done <- struct{}{}
		} else if c.Owner != nil && !c.Sent.IsZero() {
			c.Owner.Abandoned(c)
		}
	}
	clear(w.calls)
}

// dispatch sends the batch.
func (d *Dispatcher) dispatch(w *worker) {
	defer d.recoverPanic(w.calls...)
	switch len(w.calls) {
	case 0:
	case 1:
		d.send(w.calls[0])
	default:
		d.sendAll(w)
	}
}

// sendInline is dispatch for a caller that sends its own call.
func (d *Dispatcher) sendInline(c *Call) {
	defer d.recoverPanic(c)
	d.send(c)
}

// recoverPanic, deferred, makes a panic, in a hook of the program's client for example, the outcome of the calls. Their callers run in other
// goroutines and could not recover from it.
func (d *Dispatcher) recoverPanic(calls ...*Call) {
	if v := recover(); v != nil {
		d.panicked(v, debug.Stack())
		for _, c := range calls {
			if c.Reply == nil && c.Err == nil { // otherwise it was answered, and the panic came with another call's retry
				c.Err = &redisfail.PanicError{Value: v}
			}
		}
	}
}

// send runs one call.
func (d *Dispatcher) send(c *Call) {
	if !d.prepared.Load() {
		if c.Err = d.backend.Prepare(c.ctx, c.Keys[0]); c.Err != nil {
			return
		}
		d.prepared.Store(true)
		c.node = d.Node(c.Keys[0]) // for its clock
	}
	c.stamp(time.Now())
	if c.Replicas > 0 {
		c.Reply, c.Acked, c.Err = d.evalWait(c)
	} else {
		c.Reply, c.Err = d.Eval(c.ctx, c.purpose, c.Call)
		lately := int64(0) // a failure doesn't tell how long the next call takes
		if c.Err == nil {
			lately = max(int64(time.Since(c.Sent)), 1)
		}
		c.node.lately.Store(lately)
	}
	if c.Err != nil && redisfail.MovedElsewhere(c.Err) {
		d.backend.Moved(c.ctx)
	}
}

// sendAll sends several calls in one round trip: in one script or, where the server doesn't allow that, each in its own. Each call gets its
// own answer, which may be an error.
func (d *Dispatcher) sendAll(w *worker) {
	ctx := context.WithoutCancel(w.calls[0].ctx) // one caller's ctx doesn't end the others' calls
	now := time.Now()
	for _, c := range w.calls {
		c.stamp(now)
	}
	each := w.calls
	if traits := d.backend.Traits(); traits.MultiLockScripts && !w.node.SingleSlotOnly.Load() {
		each = d.sendBatch(ctx, w, traits.UndeclaredKeys)
	}
	if len(each) > 0 {
		calls := make([]backend.Call, len(each))
		for i, c := range each {
			calls[i] = c.Call
		}
		for i, r := range d.evalEach(ctx, calls, func(i int) telemetry.Purpose { return each[i].purpose }) {
			each[i].Reply, each[i].Err = r.Reply, r.Err
		}
	}
	for _, c := range w.calls {
		if c.Err != nil && redisfail.MovedElsewhere(c.Err) {
			d.backend.Moved(ctx)
			break
		}
	}
}

// count counts a command with the outcome err, if it was sent.
func (d *Dispatcher) count(purpose telemetry.Purpose, err error) {
	if !redisfail.IsUnsent(err) {
		d.rec.Command(purpose)
	}
}

// Eval runs a script on the server, once, in this goroutine. It is for renewals, which have connections of their own.
func (d *Dispatcher) Eval(ctx context.Context, purpose telemetry.Purpose, call backend.Call) (any, error) {
	for {
		reply, err := d.backend.Eval(ctx, call)
		d.count(purpose, err)
		if call.SendSource || !redisfail.IsNoScript(err) {
			return reply, err
		}
		call.SendSource = true
	}
}

// evalWait runs a script once and waits for replicas.
func (d *Dispatcher) evalWait(c *Call) (reply any, acked int, err error) {
	call := c.Call
	for {
		reply, acked, err = d.backend.EvalWait(c.ctx, call, c.Replicas, c.ReplicaPatience)
		d.count(c.purpose, err)
		d.count(telemetry.PurposeOther, err) // the WAIT
		if call.SendSource || !redisfail.IsNoScript(err) {
			return reply, acked, err
		}
		call.SendSource = true
	}
}

// EvalEach is Eval for several scripts, in one round trip to each node.
func (d *Dispatcher) EvalEach(ctx context.Context, purpose telemetry.Purpose, calls []backend.Call) []backend.Result {
	return d.evalEach(ctx, calls, func(int) telemetry.Purpose { return purpose })
}

func (d *Dispatcher) evalEach(ctx context.Context, calls []backend.Call, purpose func(i int) telemetry.Purpose) []backend.Result {
	results := d.backend.EvalEach(ctx, calls)
	for i := range results {
		d.count(purpose(i), results[i].Err)
		if redisfail.IsNoScript(results[i].Err) {
			calls[i].SendSource = true
			results[i].Reply, results[i].Err = d.Eval(ctx, purpose(i), calls[i])
		}
	}
	return results
}
