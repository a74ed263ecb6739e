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

// maxBatch bounds the calls of one batch, and so how long its script blocks Redis: 4 to 5 µs per call.
const maxBatch = 64

// worker sends batches, one after the other.
type worker struct {
	node        *Node
	calls       []*Call
	yields      bool          // it sends its next batch only within inFlightLimit
	ofPending   bool          // its batch has pending calls, which it takes when it begins
	stream      bool          // its batch goes over the connection that batches share
	undisturbed bool          // nothing else was in flight when the batch was sent, and it has one call
	took        time.Duration // for the last batch; 0: unknown
	start       chan struct{} // signals that node is set
	batch       script.BatchArgs
}

// addInFlight changes the number of batches and inline calls in flight to a node by more; a negative more means that
// they have ended. If limited is set, they count against inFlightLimit, too: all do, except the batch of a call that
// can't share one. mu must be held.
func (d *Dispatcher) addInFlight(n *Node, more int, limited bool) {
	n.inFlight += more
	if limited {
		d.limitedInFlight += more
	}
}

// mayStart reports whether a worker may take pending calls of a node. mu must be held.
func (d *Dispatcher) mayStart(n *Node) bool {
	return len(n.pending) > 0 && n.inFlight < maxInFlight && !d.isClosed()
}

// startIfRoom starts a batch of pending calls if inFlightLimit allows it, unless a worker is starting that will take
// them. mu must be held.
func (d *Dispatcher) startIfRoom(n *Node) {
	if n.starting == 0 && d.mayStart(n) && d.makeRoom(n) {
		d.startBatch(n, nil).yields = true
	}
}

// makeRoom reports whether one more batch of pending calls may be in flight to a node: nothing is in flight to it, or
// inFlightLimit allows it. Otherwise, if the server is far away, makeRoom asks for a stream. mu must be held.
func (d *Dispatcher) makeRoom(n *Node) bool {
	// Each node may have one batch in any case.
	if n.inFlight == 0 || d.limitedInFlight < n.rtt.inFlightLimit(d.backend.PoolSize(), d.streams(n)) {
		return true
	}
	if n.rtt.isFar() {
		d.backend.OpenStream()
	}
	return false
}

// streams reports whether batches of pending calls share a connection to a node. mu must be held.
func (d *Dispatcher) streams(n *Node) bool { return n.rtt.isFar() && d.backend.HasStream() }

// startBatch makes a worker send one call (only), or pending calls if only is nil. mu must be held.
func (d *Dispatcher) startBatch(n *Node, only *Call) (w *worker) {
	if last := len(d.idle) - 1; last >= 0 {
		w = d.idle[last]
		d.idle = d.idle[:last]
	} else {
		w = &worker{start: make(chan struct{}, 1)}
		d.running.Add(1)
		go d.work(w)
	}
	w.node, w.yields, w.ofPending, w.stream, w.undisturbed = n, false, only == nil, false, n.inFlight == 0
	if w.ofPending {
		n.starting++
	} else {
		w.calls = append(w.calls[:0], only)
	}
	d.addInFlight(n, 1, w.ofPending)
	w.start <- struct{}{}
	return w
}

// fillBatch moves pending calls into the worker's batch. mu must be held.
func (d *Dispatcher) fillBatch(w *worker) {
	n, count := w.node, 0
	if len(n.pending) > 0 {
		for count = 1; !n.pending[0].unbatchable && d.prepared.Load() &&
			count < min(len(n.pending), maxBatch) && !n.pending[count].unbatchable; {
			count++
		}
	}
	w.stream = d.streams(n)
	w.calls = append(w.calls[:0], n.pending[:count]...)
	left := copy(n.pending, n.pending[count:])
	clear(n.pending[left:])
	n.pending = n.pending[:left]
}

// finishInline notes that an inline call has ended.
func (d *Dispatcher) finishInline(n *Node) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.running.Done()
	n.rtt.learn(time.Duration(n.lastRTT.Load()), true)
	d.addInFlight(n, -1, true)
	d.startIfRoom(n)
}

// work sends batches until the Dispatcher closes, or until w has none to send and maxIdle other workers are idle.
func (d *Dispatcher) work(w *worker) {
	defer d.running.Done()
	for {
		select {
		case <-w.start:
		case <-d.closed:
			return // the callers whose calls are in its batch leave, too
		}
		if w.ofPending {
			runtime.Gosched() // callers that run now, such as those of the last batch, can still add their calls
		}
		for more := d.begin(w); more; more = d.end(w) {
			d.runBatch(w)
		}
		if !d.rest(w) {
			return
		}
	}
}

// begin fills the batch of a worker that was started for pending calls. It reports false if there is nothing to send,
// or the Dispatcher is closed.
func (d *Dispatcher) begin(w *worker) bool {
	if !w.ofPending {
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
	w.undisturbed = w.undisturbed && len(w.calls) == 1
	d.startIfRoom(w.node)
	return true
}

// end notes that the batch has ended, and fills the next one. It reports false if there is no next one, or the worker
// must not send it.
func (d *Dispatcher) end(w *worker) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	w.node.rtt.learn(w.took, w.undisturbed)
	d.addInFlight(w.node, -1, w.ofPending)
	if !d.mayStart(w.node) || w.yields && !d.makeRoom(w.node) {
		return false
	}
	undisturbed := w.node.inFlight == 0
	d.addInFlight(w.node, 1, true)
	d.fillBatch(w)
	w.ofPending, w.undisturbed = true, undisturbed && len(w.calls) == 1
	return true
}

// rest makes the worker idle. It reports false if the worker isn't needed any more.
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
	began := time.Now()
	if w.node != &d.unprepared {
		for _, c := range w.calls {
			c.stamp(began)
		}
	}
	// Calls whose callers have left needn't be sent. A caller that leaves later finds its call stamped: see Do.
	w.calls = slices.DeleteFunc(w.calls, func(c *Call) bool { return c.state.Load() != waiting })
	d.dispatch(w)
	w.took = 0 // neither a failure nor a wait for replicas says anything about the round-trip time
	if len(w.calls) > 0 && w.calls[0].err == nil && w.calls[0].Replicas == 0 {
		w.took = time.Since(began)
	}
	for _, c := range w.calls {
		if c.state.CompareAndSwap(waiting, answered) {
			c.done <- struct{}{}
		} else if !c.sent.IsZero() {
			c.handleLate()
		}
	}
	clear(w.calls)
}

func (d *Dispatcher) dispatch(w *worker) {
	defer d.recoverPanic(w.calls...)
	switch {
	case len(w.calls) == 0:
	case w.node == &d.unprepared:
		d.sendPreparation(w.calls[0])
	case len(w.calls) == 1:
		w.calls[0].Stream = w.stream
		d.send(w.calls[0])
	default:
		d.sendAll(w)
	}
}

// sendInline sends a call in the goroutine of its caller.
func (d *Dispatcher) sendInline(c *Call) {
	defer d.recoverPanic(c)
	c.stamp(time.Now())
	d.send(c)
}

// recoverPanic must be deferred. It makes a panic, for example in a hook of the program's client, the outcome of the
// calls. The callers of a worker's batch run in other goroutines and couldn't recover from the panic.
func (d *Dispatcher) recoverPanic(calls ...*Call) {
	if v := recover(); v != nil {
		d.panicked(v, debug.Stack())
		for _, c := range calls {
			if c.value == nil && c.err == nil { // otherwise it was answered before another call's retry panicked
				c.err = &redisfail.PanicError{Value: v}
			}
		}
	}
}

// sendPreparation makes the backend learn its servers, unless it already knows them.
func (d *Dispatcher) sendPreparation(c *Call) {
	if d.prepared.Load() {
		return
	}
	if c.err = d.backend.Prepare(c.ctx, c.Keys[0]); c.err == nil && !d.prepared.Swap(true) {
		close(d.ready)
	}
}

// send sends one call.
func (d *Dispatcher) send(c *Call) {
	if c.Replicas > 0 {
		c.value, c.acked, c.err = d.evalWait(c)
	} else {
		c.value, c.err = d.Eval(c.ctx, c.purpose, c.Call)
		lastRTT := int64(0) // a failure says nothing about how long the next call takes
		if c.err == nil {
			lastRTT = max(int64(time.Since(c.sent)), 1)
		}
		c.node.lastRTT.Store(lastRTT)
	}
	if c.err != nil && redisfail.MayHaveMoved(c.err) {
		d.backend.Moved(c.ctx)
	}
}

// sendAll sends several calls in one script if the server allows that. Otherwise it runs one script per call, all in
// one round trip. It does the same with the calls that the server refuses in the shared script.
func (d *Dispatcher) sendAll(w *worker) {
	ctx := context.WithoutCancel(w.calls[0].ctx) // the end of one caller's ctx must not end the others' calls
	each := w.calls
	traits := d.backend.Traits()
	onlyApart := w.node.SingleSlotOnly.Load() || traits.KeysAsArguments && w.node.DeclaredOnly.Load()
	if traits.MultiLockScripts && !onlyApart {
		each = d.sendBatch(ctx, w, traits.KeysAsArguments)
	}
	if len(each) > 0 {
		calls := make([]backend.Call, len(each))
		for i, c := range each {
			calls[i] = c.Call
		}
		for i, r := range d.evalEach(ctx, calls, func(i int) telemetry.Purpose { return each[i].purpose }) {
			each[i].value, each[i].err = r.Reply, r.Err
		}
	}
	for _, c := range w.calls {
		if c.err != nil && redisfail.MayHaveMoved(c.err) {
			d.backend.Moved(ctx)
			break
		}
	}
}

// count counts a command, unless err says that it wasn't sent.
func (d *Dispatcher) count(purpose telemetry.Purpose, err error) {
	if !redisfail.IsUnsent(err) {
		d.rec.Command(purpose)
	}
}

// Eval runs a script in the caller's goroutine, with the script's source if the server doesn't know the script.
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

func (d *Dispatcher) evalEach(
	ctx context.Context, calls []backend.Call, purpose func(i int) telemetry.Purpose,
) []backend.Result {
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
