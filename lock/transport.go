package lock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockdog/lockdog/lock/internal/backend"
	"github.com/lockdog/lockdog/telemetry"
)

// maxWorkers bounds the calls that one client has under way to one node, renewals aside.
const maxWorkers = 64

// transport is the one way to Redis. It runs scripts on workers of its own, so that a caller can leave when its
// ctx ends although go-redis may sit on the call until ReadTimeout. It sends every call exactly once, and
// knows what a failed one may have left behind; whether to try again is decided by the operations above it
// (requests.go).
type transport struct {
	backend backend.Backend
	rec     *telemetry.Recorder
	orphan  func(*call) // takes the answer to a bid whose caller has left
	closed  chan struct{}
	workers sync.WaitGroup
	calls   sync.Pool

	prepared atomic.Bool // the backend knows its servers

	mu    sync.Mutex
	nodes map[string]*node
	only  atomic.Pointer[node] // the node, while there is just one
}

// node is one server: its queue of calls, and its clock. A node that hangs fills its own queue only.
type node struct {
	name  string
	queue chan *call
	clock serverClock

	calls   atomic.Int32 // submitted and not answered
	workers int          // guarded by transport.mu
}

// call is one script on its way.
type call struct {
	backend.Call
	node     *node
	purpose  telemetry.Purpose
	notAfter int           // index in Args of the not-after, -1: it has none
	window   time.Duration // from sending: the time in which the script may run
	bid      *bid          // of an acquire: what its answer must be swept for if its caller has left
	also     []*bid        // ... where it is for several locks
	replicas int           // how many must have the script's writes ...
	patience time.Duration // ... within this time

	state atomic.Int32 // callWaiting, then what came first
	done  chan struct{}
	timer *time.Timer

	ctx     context.Context
	sent    time.Time
	expires time.Time // sent + window
	reply   any
	acked   int // replicas
	err     error

	// What Keys, Boxed and Args are made in: a call is used again, and most have no more.
	keys  [2]string
	boxed [2]any
	args  [10]any
}

const (
	callWaiting = iota
	callAnswered
	callLeft
)

func newTransport(b backend.Backend, rec *telemetry.Recorder, orphan func(*call)) *transport {
	t := &transport{backend: b, rec: rec, orphan: orphan, closed: make(chan struct{}), nodes: make(map[string]*node)}
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
	t.workers.Wait()
}

// hire starts a worker with its first call, unless there are enough, or the transport is closed. There are never more
// than there were calls at a time.
func (t *transport) hire(c *call) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	select {
	case <-t.closed:
		return false
	default:
	}
	if c.node.workers == maxWorkers || c.node.workers >= int(c.node.calls.Load()) { // then one is about to be free
		return false
	}
	c.node.workers++
	t.workers.Add(1)
	go t.work(c.node, c)
	return true
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
		n = &node{name: name, queue: make(chan *call)}
		t.nodes[name] = n
	}
	if len(t.nodes) == 1 {
		t.only.Store(n)
	} else {
		t.only.Store(nil)
	}
	return n
}

// callTo returns a call to the node of a key, without Keys and Args yet. It goes back through recycle, unless its caller left.
func (t *transport) callTo(key string, purpose telemetry.Purpose, s *backend.Script) *call {
	c := t.calls.Get().(*call)
	c.Call = backend.Call{Script: s, Keys: c.keys[:0], Args: c.args[:0]}
	c.node, c.purpose = t.nodeOf(key), purpose
	c.notAfter, c.window, c.bid, c.also, c.replicas, c.acked = -1, 0, nil, nil, 0, 0
	c.sent, c.expires, c.reply, c.err = time.Time{}, time.Time{}, nil, nil
	c.state.Store(callWaiting)
	return c
}

// newCall is callTo with everything in it.
func (t *transport) newCall(purpose telemetry.Purpose, s *backend.Script, keys []string, args ...any) *call {
	c := t.callTo(keys[0], purpose, s)
	c.Keys, c.Args = keys, args
	return c
}

// address gives the call the keys that its script takes: the lock's alone, or all.
func (c *call) address(lk *lock, owner string, alone bool) {
	switch {
	case lk.kind.keys != nil || lk.cfg.javaTokens:
		if c.Keys = lk.keys(owner); alone {
			c.Keys = c.Keys[:1]
		}
	case alone:
		c.Keys, c.Boxed = append(c.Keys, lk.key), append(c.boxed[:0], lk.place().keyArg)
	default:
		p := lk.place()
		c.Keys, c.Boxed = append(c.Keys, lk.key, p.counter.(string)), append(c.boxed[:0], p.keyArg, p.counter)
	}
}

func (t *transport) recycle(c *call) {
	c.Call, c.ctx = backend.Call{}, nil
	clear(c.keys[:])
	clear(c.boxed[:])
	clear(c.args[:])
	t.calls.Put(c)
}

// do runs a call on a worker and waits for its answer, for ctx, for patience, and for the transport's close, whichever is
// first. It reports false when it left before the answer: then the call belongs to the worker, and a bid that it carried must not be
// used again, for its answer is given to orphan.
func (t *transport) do(ctx context.Context, c *call, patience time.Duration) bool {
	c.ctx = ctx
	c.timer.Reset(patience)
	defer c.timer.Stop()

	n := c.node
	n.calls.Add(1)
	select {
	case n.queue <- c: // a worker is free
	default:
		if t.hire(c) {
			break
		}
		var err error // c itself is the worker's once it is in the queue
		select {
		case n.queue <- c:
		case <-ctx.Done():
			err = context.Cause(ctx)
		case <-c.timer.C:
			err = errBusyWorkers
		case <-t.closed:
			err = ErrClosed
		}
		if err != nil { // never sent
			c.err = err
			n.calls.Add(-1)
			return true
		}
	}

	select {
	case <-c.done:
		return true
	case <-ctx.Done():
	case <-c.timer.C:
	case <-t.closed:
	}
	if c.state.CompareAndSwap(callWaiting, callLeft) {
		return false
	}
	<-c.done
	return true
}

// errBusyWorkers is the outcome of a call that found every worker of its node waiting for Redis.
var errBusyWorkers = &timeoutError{"lockdog: timeout: every worker is waiting for an answer of Redis"}

// timeoutError is a net.Error, so that it is classified like go-redis's own.
type timeoutError struct{ text string }

func (e *timeoutError) Error() string { return e.text }
func (e *timeoutError) Timeout() bool { return true }

// Temporary implements net.Error.
func (e *timeoutError) Temporary() bool { return true }

// left says why do came back without an answer.
func (t *transport) left(ctx context.Context, late error) error {
	if err := context.Cause(ctx); err != nil {
		return err
	}
	select {
	case <-t.closed:
		return ErrClosed
	default:
		return late
	}
}

// work answers the calls of one node, starting with the one it was made for, until the transport closes.
func (t *transport) work(n *node, c *call) {
	defer t.workers.Done()
	for {
		if c.state.Load() == callWaiting { // else its caller left before it was sent
			t.send(c)
		}
		n.calls.Add(-1)
		if c.state.CompareAndSwap(callWaiting, callAnswered) {
			c.done <- struct{}{}
		} else if c.bid != nil && !c.sent.IsZero() {
			t.orphan(c)
		}
		select {
		case c = <-n.queue:
		case <-t.closed:
			return
		}
	}
}

// send runs the call, with a not-after reckoned from this moment.
func (t *transport) send(c *call) {
	if !t.prepared.Load() {
		if c.err = t.backend.Prepare(c.ctx, c.Keys[0]); c.err != nil {
			return
		}
		t.prepared.Store(true)
		c.node = t.nodeOf(c.Keys[0]) // for its clock
	}
	c.sent = time.Now()
	if c.notAfter >= 0 {
		c.expires = c.sent.Add(c.window)
		c.Args[c.notAfter] = c.node.clock.at(c.expires)
	}
	if c.replicas > 0 {
		c.reply, c.acked, c.err = t.evalWait(c)
	} else {
		c.reply, c.err = t.eval(c.ctx, c.purpose, c.Call)
	}
	if c.err != nil && elsewhere(c.err) {
		t.backend.Moved(c.ctx)
	}
}

// count counts a command that came to err, if it was sent.
func (t *transport) count(purpose telemetry.Purpose, err error) {
	if !unsent(err) {
		t.rec.Command(purpose)
	}
}

// noScript says that a server lacks a script. It ran nothing, so it gets the source.
func noScript(err error) bool { return err != nil && strings.Contains(err.Error(), "NOSCRIPT") }

// eval runs a script on the server, once.
func (t *transport) eval(ctx context.Context, purpose telemetry.Purpose, call backend.Call) (any, error) {
	reply, err := t.backend.Eval(ctx, call)
	t.count(purpose, err)
	if noScript(err) {
		call.Full = true
		reply, err = t.backend.Eval(ctx, call)
		t.count(purpose, err)
	}
	return reply, err
}

// evalWait runs a script, once, and waits for replicas.
func (t *transport) evalWait(c *call) (reply any, acked int, err error) {
	call := c.Call
	for range 2 {
		reply, acked, err = t.backend.EvalWait(c.ctx, call, c.replicas, c.patience)
		t.count(c.purpose, err)
		t.count(telemetry.PurposeOther, err) // the WAIT
		if !noScript(err) {
			break
		}
		call.Full = true
	}
	return reply, acked, err
}

// evalEach runs scripts in one round trip to each node.
func (t *transport) evalEach(ctx context.Context, purpose telemetry.Purpose, calls []backend.Call) []backend.Result {
	results := t.backend.EvalEach(ctx, calls)
	for i := range results {
		t.count(purpose, results[i].Err)
		if noScript(results[i].Err) {
			calls[i].Full = true
			results[i].Reply, results[i].Err = t.backend.Eval(ctx, calls[i])
			t.count(purpose, results[i].Err)
		}
	}
	return results
}

// serverClock is what is known of a server's clock: it showed seen, in µs, at or after the local time at.
type serverClock struct {
	mu   sync.Mutex
	seen int64
	when time.Time
}

// maxDrift is how far clocks run apart: what NTP slews at most.
const maxDrift = 500e-6

// learn notes the time that a server put into its answer to a request sent at when. A request that was long on its way
// (for want of a connection, say) makes the clock look ahead: the tightest answer counts, unless wrong says that a call
// came too late by it.
func (c *serverClock) learn(seen int64, when time.Time, wrong bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.seen != 0 && !wrong {
		age := float64(when.Sub(c.when).Microseconds())
		if float64(seen-c.seen) > age+max(age, 0)*maxDrift {
			return
		}
	}
	c.seen, c.when = seen, when
}

// at is the latest time that the server's clock can show at a local time, 0 when nothing is known of it.
func (c *serverClock) at(local time.Time) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.seen == 0 {
		return 0
	}
	return c.seen + local.Sub(c.when).Microseconds()
}

// errReply is an answer that no script of ours gives.
var errReply = errors.New("lockdog: unreadable answer of Redis")

// ints reads the numbers that a script's answer starts with. It is small enough to be inlined, and the numbers then stay on
// the caller's stack.
func ints(reply any, n int) ([]any, []int64, error) {
	nums := make([]int64, n)
	list, err := readInts(nums, reply)
	return list, nums, err
}

func readInts(nums []int64, reply any) ([]any, error) {
	list, ok := reply.([]any)
	if !ok || len(list) < len(nums) {
		return nil, fmt.Errorf("%w: %.80v", errReply, reply)
	}
	for i := range nums {
		if nums[i], ok = list[i].(int64); !ok {
			return nil, fmt.Errorf("%w: %.80v", errReply, reply)
		}
	}
	return list, nil
}
