package dispatch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock/internal/backend"
	"github.com/lockdog/lockdog/lock/internal/redisfail"
	"github.com/lockdog/lockdog/lock/internal/script"
	"github.com/lockdog/lockdog/telemetry"
)

// servers acts as several nodes on one fake: the part of a key before the colon is its node. Calls whose first key
// contains "hang" get their reply when answer is closed.
type servers struct {
	*backend.Redis
	answer chan struct{}
	rtt    time.Duration
	pool   int
	stream bool
	ask    func(ctx context.Context, key string) error // learns which nodes there are; nil: they are known

	asked atomic.Bool

	mu       sync.Mutex
	sent     []string // the keys of each call
	inFlight int
	most     int // in flight at a time
	streamed int // calls for the stream
	wanted   int // how often a stream was wanted
}

func (s *servers) Traits() backend.Traits {
	return backend.Traits{MultiLockScripts: true, Publish: "publish"}
}

func (s *servers) Prepare(ctx context.Context, key string) error {
	if s.ask == nil {
		return nil
	}
	err := s.ask(ctx, key)
	if err == nil {
		s.asked.Store(true)
	}
	return err
}

func (s *servers) Node(key string) string {
	if s.ask != nil && !s.asked.Load() {
		return ""
	}
	node, _, _ := strings.Cut(key, ":")
	return node
}

func (s *servers) PoolSize() int { return s.pool }

func (s *servers) OpenStream() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wanted++
}

func (s *servers) HasStream() bool { return s.stream }

func (s *servers) Eval(ctx context.Context, call backend.Call) (any, error) {
	s.mu.Lock()
	s.sent = append(s.sent, strings.Join(call.Keys, " "))
	s.inFlight++
	s.most = max(s.most, s.inFlight)
	if call.Stream {
		s.streamed++
	}
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		s.inFlight--
		s.mu.Unlock()
	}()
	time.Sleep(s.rtt)
	if strings.Contains(call.Keys[0], "hang") {
		<-s.answer
	}
	return s.Redis.Eval(context.WithoutCancel(ctx), call) // which is under way
}

func (s *servers) EvalWait(ctx context.Context, call backend.Call, replicas int, timeout time.Duration) (any, int, error) {
	time.Sleep(timeout)
	reply, err := s.Eval(ctx, call)
	return reply, replicas, err
}

// rig is a Dispatcher in a bubble.
type rig struct {
	t *testing.T
	s *servers
	d *Dispatcher
}

func bubble(t *testing.T, f func(t *testing.T, r *rig)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rec, err := telemetry.NewRecorder(telemetry.Config{})
		if err != nil {
			t.Fatal(err)
		}
		defer rec.Close()
		rdb := redistest.StartFake(t).Client(t)
		for _, s := range []*backend.Script{script.Acquire.Script, script.Batch, script.Inspect.Script} { // so that none has to be sent twice
			if err := rdb.ScriptLoad(t.Context(), s.Source).Err(); err != nil {
				t.Fatal(err)
			}
		}
		b, err := backend.NewRedis(rdb, nil)
		if err != nil {
			t.Fatal(err)
		}
		r := &rig{t: t, s: &servers{Redis: b, answer: make(chan struct{}), pool: 1000}}
		r.d = New(Config{Backend: r.s, Recorder: rec, Panicked: func(v any, _ []byte) { t.Errorf("panic: %v", v) }})
		f(t, r)
		if !r.d.isClosed() {
			r.d.Close() // waits for all goroutines
		}
	})
}

// acquire starts a call that may share a batch.
func (r *rig) acquire(ctx context.Context, key string, late LateHandler) <-chan error {
	return r.do(ctx, key, late, func(c *Call) {
		script.Acquire.Args(&c.Request, script.AcquireArgs{Lock: script.Lock{Key: key}, Owner: "me", Lease: int64(60_000)})
	})
}

// inspect starts a call that may not.
func (r *rig) inspect(key string) <-chan error {
	return r.do(r.t.Context(), key, nil, func(c *Call) { script.Inspect.Args(&c.Request, script.Lock{Key: key}) })
}

func (r *rig) do(ctx context.Context, key string, late LateHandler, args func(*Call)) <-chan error {
	done := make(chan error, 1)
	go func() {
		c := r.d.NewCall(telemetry.PurposeAcquire)
		args(c)
		c.MayWriteFor, c.LateHandler = time.Second, late
		_, err := r.d.Do(ctx, c, time.Minute)
		done <- err
	}()
	synctest.Wait()
	return done
}

// hang has calls in flight to a node.
func (r *rig) hang(node string, calls int) {
	for i := range calls {
		r.acquire(r.t.Context(), fmt.Sprint(node, ":hang-", i), nil)
	}
}

// wantSent checks which calls were sent last, in this order, each as its keys.
func (r *rig) wantSent(last ...string) {
	r.t.Helper()
	r.s.mu.Lock()
	defer r.s.mu.Unlock()
	if got := r.s.sent[max(len(r.s.sent)-len(last), 0):]; !slices.Equal(got, last) {
		r.t.Errorf("%q were sent, want %q last", r.s.sent, last)
	}
}

func (r *rig) want(what string, done <-chan error, want error) {
	r.t.Helper()
	if err := <-done; !errors.Is(err, want) {
		r.t.Errorf("%s: %v, want %v", what, err, want)
	}
}

// after lets d pass, and then waits until all goroutines of the bubble are blocked.
func after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// A call that shares no batch doesn't wait for those that do. Its worker then takes them.
func TestDispatcher_UnbatchableGoesFirst(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.hang("a", leastShared)
		first, second := r.acquire(t.Context(), "a:1", nil), r.acquire(t.Context(), "a:2", nil)
		r.wantSent("a:hang-0", "a:hang-1", "a:hang-2")
		single := r.inspect("a:single")
		r.wantSent("a:hang-2", "a:single", "a:1 a:2")
		r.want("the single call", single, nil)
		r.want("the first of the batch", first, nil)
		r.want("the second of the batch", second, nil)
		close(r.s.answer)
	})
}

// Three batches are in flight to all nodes together, but each node may have one in any case. A second one is sent when the first is slow, on a
// connection that has died in silence for instance.
func TestDispatcher_OtherNodes(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.hang("a", leastShared)
		r.want("the first call to a node", r.acquire(t.Context(), "b:1", nil), nil)
		r.hang("b", 1)
		second := r.acquire(t.Context(), "b:2", nil)
		after(slowBatch - 1)
		r.wantSent("b:1", "b:hang-0")
		after(1)
		r.wantSent("b:1", "b:hang-0", "b:2")
		r.want("the second call to it", second, nil)
		close(r.s.answer)
	})
}

// Calls that are made before the nodes are known wait until they are known, and then not for another node that hangs.
func TestDispatcher_UnknownNodes(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		known := make(chan struct{})
		r.s.ask = func(context.Context, string) error { <-known; return nil }
		r.hang("a", leastShared+1)
		batched, single := r.acquire(t.Context(), "b:1", nil), r.inspect("b:2")
		r.wantSent()
		close(known)
		synctest.Wait()
		r.want("a call to another node than that which hangs", batched, nil)
		r.want("one that shares no batch", single, nil)
		r.want("the next", r.acquire(t.Context(), "b:3", nil), nil)
		close(r.s.answer)
	})
}

// A server that hangs as it is asked which nodes there are delays nobody once another has answered.
func TestDispatcher_UnknownNodesAskedTwice(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.s.ask = func(_ context.Context, key string) error {
			if strings.HasPrefix(key, "a:") {
				<-r.s.answer
			}
			return nil
		}
		first, second := r.acquire(t.Context(), "a:1", nil), r.acquire(t.Context(), "a:2", nil)
		r.wantSent()
		r.want("the call that was answered", r.acquire(t.Context(), "b:1", nil), nil)
		r.want("the first that wasn't", first, nil)
		r.want("the second", second, nil)
		close(r.s.answer)
	})
}

// A call fails if it can't be known where it belongs, and the next asks again. A caller that leaves meanwhile leaves nothing.
func TestDispatcher_UnknownNodesNotTold(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		refused, tell := errors.New("refused"), make(chan error)
		r.s.ask = func(context.Context, string) error { return <-tell }
		failed := r.acquire(t.Context(), "a:1", nil)
		tell <- refused
		r.want("the call", failed, refused)

		ctx, leave := context.WithCancel(t.Context())
		var o lateCalls
		left := r.acquire(ctx, "a:2", &o)
		leave()
		r.want("one whose caller leaves", left, context.Canceled)
		next := r.acquire(t.Context(), "a:3", nil)
		tell <- refused
		tell <- nil
		r.want("the next", next, nil)
		if r.wantSent("a:3"); len(r.s.sent) != 1 || len(o.told) > 0 {
			t.Errorf("%q were sent, and the handler was told %v", r.s.sent, o.told)
		}
	})
}

// Workers are of no node: otherwise those of nodes that are gone would stay.
func TestDispatcher_IdleWorkers(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		idle := func() int {
			r.d.mu.Lock()
			defer r.d.mu.Unlock()
			return len(r.d.idle)
		}
		for round := range 3 {
			for i := range 2 * maxIdle {
				r.hang(fmt.Sprint("node-", round, "-", i), 1)
			}
			if n := idle(); n != 0 {
				t.Errorf("%d workers are idle while all are needed", n)
			}
			close(r.s.answer)
			synctest.Wait()
			if n := idle(); n != maxIdle {
				t.Errorf("%d workers are idle, want %d", n, maxIdle)
			}
			r.s.answer = make(chan struct{})
		}
		close(r.s.answer)
	})
}

// lateCalls records the calls that ended after their callers had left.
type lateCalls struct{ told []any }

func (o *lateCalls) HandleLate(r Reply, err error) { o.told = append(o.told, r.Value, err) }

// A call whose caller leaves before it is sent isn't sent. The reply to one that was sent goes to its LateHandler.
func TestDispatcher_CallerLeaves(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		ctx, leave := context.WithCancel(t.Context())
		var o lateCalls
		r.hang("a", leastShared-1)
		inFlight, pending := r.acquire(ctx, "a:hang", &o), r.acquire(ctx, "a:1", &o)
		closing := r.acquire(t.Context(), "a:2", &o)
		leave()
		r.want("the call in flight", inFlight, context.Canceled)
		r.want("the pending one", pending, context.Canceled)
		go r.d.Close()
		r.want("one of a Dispatcher that is closed", closing, redisfail.ErrClosed)
		if len(o.told) > 0 {
			t.Errorf("%v before the reply", o.told)
		}
		close(r.s.answer)
		synctest.Wait()
		if len(o.told) != 2 || o.told[1] != nil {
			t.Fatalf("the handler was told %v, want one reply", o.told)
		}
		if reply, err := script.ParseAcquire(o.told[0]); err != nil || !reply.Granted {
			t.Errorf("the reply is %+v, %v", reply, err)
		}
		r.wantSent("a:hang-0", "a:hang-1", "a:hang")
	})
}

// ... also to one of a batch, whose other calls don't notice.
func TestDispatcher_CallerLeavesABatch(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		early, leaveEarly := context.WithCancel(t.Context())
		late, leaveLate := context.WithCancel(t.Context())
		var notSent, sent lateCalls
		_, resume := r.d.Hold("a")
		first, second, stays := r.acquire(early, "a:early", &notSent), r.acquire(late, "a:hang", &sent), r.acquire(t.Context(), "a:stays", nil)
		leaveEarly()
		r.want("who leaves before it is sent", first, context.Canceled)
		resume()
		synctest.Wait()
		r.wantSent("a:hang a:stays")
		leaveLate()
		r.want("who leaves then", second, context.Canceled)
		close(r.s.answer)
		r.want("who stays", stays, nil)
		if len(notSent.told) > 0 || len(sent.told) != 2 || sent.told[1] != nil {
			t.Errorf("the handlers were told %v and %v, want one reply", notSent.told, sent.told)
		}
	})
}

// lateWrite records until when a call may have written whose caller has left.
type lateWrite struct{ until time.Time }

func (o *lateWrite) HandleLate(r Reply, _ error) { o.until = r.LateWriteUntil }

// The time until which a call may still write whose caller has left is never earlier than what its not-after means. The server's
// clock was read from a reply that took 300 ms, so it may be behind by that.
func TestDispatcher_CallerLeaves_LateWrite(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.d.Node("a:hang").Clock.Learn(time.Now().UnixMicro(), time.Now().Add(-300*time.Millisecond), false)
		ctx, leave := context.WithTimeout(t.Context(), 10*time.Second)
		defer leave()
		until := time.Now().Add(time.Second + 300*time.Millisecond)
		var o lateWrite
		c := r.d.NewCall(telemetry.PurposeAcquire)
		script.Acquire.Args(&c.Request, script.AcquireArgs{Lock: script.Lock{Key: "a:hang"}, Owner: "me", Lease: int64(60_000)})
		c.MayWriteFor, c.LateHandler = time.Second, &o
		time.AfterFunc(time.Millisecond, leave)
		reply, err := r.d.Do(ctx, c, time.Minute)
		if !errors.Is(err, context.Canceled) {
			t.Fatalf("Do: %v, want that ctx was canceled", err)
		}
		close(r.s.answer)
		synctest.Wait()
		if !o.until.Equal(until) || reply.LateWriteUntil.Before(until) {
			t.Errorf("a late write ends at %v; the caller was told %v, the handler %v", until, reply.LateWriteUntil, o.until)
		}
	})
}

// What Hold holds up isn't sent when a call that was in flight before ends, nor when it takes long.
func TestDispatcher_Hold(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.hang("a", 1)
		pending, resume := r.d.Hold("a")
		first, second := r.acquire(t.Context(), "a:1", nil), r.acquire(t.Context(), "a:2", nil)
		close(r.s.answer)
		after(10 * slowBatch)
		if n := pending(); n != 2 {
			t.Errorf("%d calls are pending, want 2", n)
		}
		resume()
		r.want("the first", first, nil)
		r.want("the second", second, nil)
		r.wantSent("a:hang-0", "a:1 a:2")
	})
}

// elsewhere has a batch of two, of which the second is to be sent by itself, where its key is. That panics.
type elsewhere struct{ *servers }

func (elsewhere) Traits() backend.Traits {
	return backend.Traits{MultiLockScripts: true, KeysAsArguments: true, Publish: "publish"}
}

func (elsewhere) Eval(context.Context, backend.Call) (any, error) {
	return []any{int64(1), int64(5), int64(1), "ERR Script attempted to access a non local key in a cluster node"}, nil
}

func (elsewhere) EvalEach(context.Context, []backend.Call) []backend.Result { panic("boom") }

// A panic while one call of a batch is sent again leaves the others their replies.
func TestDispatcher_PanicInSecondPart(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		var told any
		r.d = New(Config{Backend: elsewhere{r.s}, Recorder: r.d.rec, Panicked: func(v any, _ []byte) { told = v }})
		_, resume := r.d.Hold("a")
		first, second := r.acquire(t.Context(), "a:1", nil), r.acquire(t.Context(), "a:2", nil)
		resume()
		r.want("the first", first, nil)
		var panicked *redisfail.PanicError
		if err := <-second; !errors.As(err, &panicked) || panicked.Value != "boom" || told != "boom" {
			t.Errorf("the call that was sent again: %v; told of %v", err, told)
		}
	})
}
