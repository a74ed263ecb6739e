package dispatch

import (
	"context"
	"runtime"
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
	node    *Node
	calls   []*Call
	limited bool          // it sends the next batch only within inFlightLimit
	shared  bool          // it takes pending calls, as they are when it starts
	alone   bool          // nothing else was in flight when it started
	took    time.Duration // the last batch; 0: it failed
	start   chan struct{} // node is set
	batch   script.BatchArgs
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

// startIfRoom starts a batch of pending calls within inFlightLimit, unless one is starting, which will take them. Each node may have
// one in flight in any case. It is called with mu held.
func (d *Dispatcher) startIfRoom(n *Node) {
	if n.starting == 0 && d.hasRoom(n) && d.mayStart(n) {
		d.startBatch(n, nil).limited = true
	}
}

// hasRoom reports whether one more batch of pending calls is within inFlightLimit. It is called with mu held.
func (d *Dispatcher) hasRoom(n *Node) bool {
	return n.inFlight == 0 || d.sharedInFlight < n.rtt.inFlightLimit(d.backend.PoolSize())
}

// startBatch has a worker send only, or pending calls if that is nil, also beyond inFlightLimit. It is called with mu held.
func (d *Dispatcher) startBatch(n *Node, only *Call) (w *worker) {
	if last := len(d.idle) - 1; last >= 0 {
		w = d.idle[last]
		d.idle = d.idle[:last]
	} else {
		w = &worker{start: make(chan struct{}, 1)}
		d.running.Add(1)
		go d.work(w)
	}
	w.node, w.limited, w.shared, w.alone = n, false, only == nil, n.inFlight == 0
	if w.shared {
		n.starting++
	} else {
		w.calls = append(w.calls[:0], only)
	}
	d.addInFlight(n, 1, w.shared)
	w.start <- struct{}{}
	return w
}

// fillBatch moves pending calls into the worker's batch. It is called with mu held.
func (d *Dispatcher) fillBatch(w *worker) {
	n, count := w.node, 0
	if len(n.pending) > 0 {
		for count = 1; !n.pending[0].unbatchable && d.prepared.Load() && count < min(len(n.pending), maxBatch) && !n.pending[count].unbatchable; {
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
	n.rtt.learn(time.Duration(n.lastRTT.Load()), true)
	d.addInFlight(n, -1, true)
	d.startIfRoom(n)
}

// work sends batches until the Dispatcher closes. A worker beyond maxIdle stays only while calls are pending.
func (d *Dispatcher) work(w *worker) {
	defer d.running.Done()
	for {
		select {
		case <-w.start:
		case <-d.closed:
			return // the callers of what is in its batch leave, too
		}
		if w.shared {
			runtime.Gosched() // callers that run now, such as those of the last batch, can still join
		}
		for more := d.begin(w); more; more = d.end(w) {
			d.runBatch(w)
		}
		if !d.rest(w) {
			return
		}
	}
}

// begin fills the batch of a worker that was started for pending calls. It reports false if there are none left.
func (d *Dispatcher) begin(w *worker) bool {
	if !w.shared {
		return true
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	w.node.starting--
	d.fillBatch(w)
	if len(w.calls) == 0 || d.isClosed() {
		d.addInFlight(w.node, -1, true)
		return false
	}
	w.alone = w.alone && len(w.calls) == 1
	d.startIfRoom(w.node)
	return true
}

// end notes that the batch has ended, and fills the next one. It reports false if there is none.
func (d *Dispatcher) end(w *worker) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	w.node.rtt.learn(w.took, w.alone)
	d.addInFlight(w.node, -1, w.shared)
	if w.limited && !d.hasRoom(w.node) || !d.mayStart(w.node) {
		return false
	}
	alone := w.node.inFlight == 0
	d.addInFlight(w.node, 1, true)
	d.fillBatch(w)
	w.shared, w.alone = true, alone && len(w.calls) == 1
	return true
}

// rest has the worker wait for its next batch. It reports false if the worker isn't needed any more.
func (d *Dispatcher) rest(w *worker) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.isClosed() || len(d.idle) == maxIdle {
		return false
	}
	d.idle = append(d.idle, w)
	return true
}

// runBatch sends the batch and answers its callers.
func (d *Dispatcher) runBatch(w *worker) {
	w.calls = slices.DeleteFunc(w.calls, func(c *Call) bool { return c.state.Load() != waiting }) // their callers have left
	began := time.Now()
	d.dispatch(w)
	w.took = 0 // a failure says nothing of the round-trip time, nor does a wait for replicas
	if len(w.calls) > 0 && w.calls[0].Err == nil && w.calls[0].Replicas == 0 {
		w.took = time.Since(began)
	}
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
	switch {
	case len(w.calls) == 0:
	case w.node == &d.unprepared:
		d.sendPreparation(w.calls[0])
	case len(w.calls) == 1:
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

// sendPreparation has the backend learn its servers, unless it knows them by now.
func (d *Dispatcher) sendPreparation(c *Call) {
	if d.prepared.Load() {
		return
	}
	if c.Err = d.backend.Prepare(c.ctx, c.Keys[0]); c.Err == nil && !d.prepared.Swap(true) {
		close(d.ready)
	}
}

// send runs one call.
func (d *Dispatcher) send(c *Call) {
	c.stamp(time.Now())
	if c.Replicas > 0 {
		c.Reply, c.Acked, c.Err = d.evalWait(c)
	} else {
		c.Reply, c.Err = d.Eval(c.ctx, c.purpose, c.Call)
		lastRTT := int64(0) // a failure doesn't tell how long the next call takes
		if c.Err == nil {
			lastRTT = max(int64(time.Since(c.Sent)), 1)
		}
		c.node.lastRTT.Store(lastRTT)
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
	traits := d.backend.Traits()
	onlyApart := w.node.SingleSlotOnly.Load() || traits.UndeclaredKeys && w.node.DeclaredOnly.Load()
	if traits.MultiLockScripts && !onlyApart {
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

// Eval runs a script on the server, in this goroutine. If the server doesn't know the script, it is sent once more with its source.
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
		reply, acked, err = d.backend.EvalWait(c.ctx, call, c.Replicas, c.ReplicaTimeout)
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
