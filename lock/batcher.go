package lock

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
	node   *node
	calls  []*call
	shared bool          // the batch may take more calls
	start  chan struct{} // calls has been filled
	batch  script.BatchArgs
}

// addInFlight counts batches to a node that begin or, if more is negative, end. It is called with mu held.
func (t *transport) addInFlight(n *node, more int, shared bool) {
	n.inFlight += more
	if shared {
		t.sharedInFlight += more
	}
}

// startBatch gives pending calls to a worker. It is called with mu held.
func (t *transport) startBatch(n *node) {
	if last := len(t.idle) - 1; last >= 0 {
		w := t.idle[last]
		t.idle = t.idle[:last]
		t.fillBatch(n, w)
		w.start <- struct{}{}
		return
	}
	w := &worker{start: make(chan struct{}, 1)}
	t.fillBatch(n, w)
	t.running.Add(1)
	go t.work(w)
}

// fillBatch moves pending calls into the worker's batch. It is called with mu held.
func (t *transport) fillBatch(n *node, w *worker) {
	w.node, w.shared = n, !n.pending[0].unbatchable
	t.addInFlight(n, 1, w.shared)
	count := 1
	if w.shared && t.prepared.Load() {
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
func (t *transport) finishInline(n *node) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.running.Done()
	t.addInFlight(n, -1, true)
	if len(n.pending) > 0 && !t.isClosed() {
		t.startBatch(n)
	}
}

// work sends batches until the transport closes. A worker beyond maxIdle stays only while calls are pending.
func (t *transport) work(w *worker) {
	defer t.running.Done()
	for {
		t.runBatch(w)
		t.mu.Lock()
		if t.isClosed() {
			t.mu.Unlock()
			return
		}
		t.addInFlight(w.node, -1, w.shared)
		if len(w.node.pending) > 0 {
			t.fillBatch(w.node, w)
			t.mu.Unlock()
			continue
		}
		if len(t.idle) == maxIdle {
			t.mu.Unlock()
			return
		}
		t.idle = append(t.idle, w)
		t.mu.Unlock()
		select {
		case <-w.start:
		case <-t.closed:
			return // the callers of what is in its batch leave, too
		}
	}
}

// runBatch sends the batch and answers its callers.
func (t *transport) runBatch(w *worker) {
	w.calls = slices.DeleteFunc(w.calls, func(c *call) bool { return c.state.Load() != callWaiting }) // their callers have left
	t.dispatch(w)
	for _, c := range w.calls {
		if c.state.CompareAndSwap(callWaiting, callAnswered) {
			c.done <- struct{}{}
		} else if c.claim != nil && !c.sent.IsZero() {
			t.abandoned(c)
		}
	}
	clear(w.calls)
}

// dispatch sends the batch.
func (t *transport) dispatch(w *worker) {
	defer t.recoverPanic(w.calls...)
	switch len(w.calls) {
	case 0:
	case 1:
		t.send(w.calls[0])
	default:
		t.sendAll(w)
	}
}

// sendInline is dispatch for a caller that sends its own call.
func (t *transport) sendInline(c *call) {
	defer t.recoverPanic(c)
	t.send(c)
}

// recoverPanic, deferred, makes a panic, in a hook of the program's client for example, the outcome of the calls. Their callers run in other
// goroutines and could not recover from it.
func (t *transport) recoverPanic(calls ...*call) {
	if v := recover(); v != nil {
		t.panicked(v, debug.Stack())
		for _, c := range calls {
			if c.reply == nil && c.err == nil { // otherwise it was answered, and the panic came with another call's retry
				c.err = &redisfail.PanicError{Value: v}
			}
		}
	}
}

// send runs one call.
func (t *transport) send(c *call) {
	if !t.prepared.Load() {
		if c.err = t.backend.Prepare(c.ctx, c.Keys[0]); c.err != nil {
			return
		}
		t.prepared.Store(true)
		c.node = t.nodeOf(c.Keys[0]) // for its clock
	}
	c.stamp(time.Now())
	if c.replicas > 0 {
		c.reply, c.acked, c.err = t.evalWait(c)
	} else {
		c.reply, c.err = t.eval(c.ctx, c.purpose, c.Call)
		lately := int64(0) // a failure doesn't tell how long the next call takes
		if c.err == nil {
			lately = max(int64(time.Since(c.sent)), 1)
		}
		c.node.lately.Store(lately)
	}
	if c.err != nil && redisfail.MovedElsewhere(c.err) {
		t.backend.Moved(c.ctx)
	}
}

// stamp notes that the call is sent now, and counts its not-after from now.
func (c *call) stamp(now time.Time) {
	c.sent = now
	if c.Expires() {
		c.expires = now.Add(c.window)
		c.SetNotAfter(c.node.clock.at(c.expires))
		c.expires = c.expires.Add(c.node.clock.ahead()) // what is cleaned up then can't come back
	}
}

// sendAll sends several calls in one round trip: in one script or, where the server doesn't allow that, each in its own. Each call gets its
// own answer, which may be an error.
func (t *transport) sendAll(w *worker) {
	ctx := context.WithoutCancel(w.calls[0].ctx) // one caller's ctx doesn't end the others' calls
	now := time.Now()
	for _, c := range w.calls {
		c.stamp(now)
	}
	each := w.calls
	if traits := t.backend.Traits(); traits.MultiLockScripts && !w.node.singleSlotOnly.Load() {
		each = t.sendBatch(ctx, w, traits.UndeclaredKeys)
	}
	if len(each) > 0 {
		calls := make([]backend.Call, len(each))
		for i, c := range each {
			calls[i] = c.Call
		}
		for i, r := range t.evalEach(ctx, calls, func(i int) telemetry.Purpose { return each[i].purpose }) {
			each[i].reply, each[i].err = r.Reply, r.Err
		}
	}
	for _, c := range w.calls {
		if c.err != nil && redisfail.MovedElsewhere(c.err) {
			t.backend.Moved(ctx)
			break
		}
	}
}

// count counts a command with the outcome err, if it was sent.
func (t *transport) count(purpose telemetry.Purpose, err error) {
	if !redisfail.IsUnsent(err) {
		t.rec.Command(purpose)
	}
}

// eval runs a script on the server, once.
func (t *transport) eval(ctx context.Context, purpose telemetry.Purpose, call backend.Call) (any, error) {
	reply, err := t.backend.Eval(ctx, call)
	t.count(purpose, err)
	if redisfail.IsNoScript(err) {
		call.SendSource = true
		reply, err = t.backend.Eval(ctx, call)
		t.count(purpose, err)
	}
	return reply, err
}

// evalWait runs a script once and waits for replicas.
func (t *transport) evalWait(c *call) (reply any, acked int, err error) {
	call := c.Call
	for range 2 {
		reply, acked, err = t.backend.EvalWait(c.ctx, call, c.replicas, c.patience)
		t.count(c.purpose, err)
		t.count(telemetry.PurposeOther, err) // the WAIT
		if !redisfail.IsNoScript(err) {
			break
		}
		call.SendSource = true
	}
	return reply, acked, err
}

// evalEach runs scripts in one round trip to each node.
func (t *transport) evalEach(ctx context.Context, calls []backend.Call, purpose func(i int) telemetry.Purpose) []backend.Result {
	results := t.backend.EvalEach(ctx, calls)
	for i := range results {
		t.count(purpose(i), results[i].Err)
		if redisfail.IsNoScript(results[i].Err) {
			calls[i].SendSource = true
			results[i].Reply, results[i].Err = t.backend.Eval(ctx, calls[i])
			t.count(purpose(i), results[i].Err)
		}
	}
	return results
}
