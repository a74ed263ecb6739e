package lock

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/internal/redistest"
)

// batchRig is a client whose calls can be held up, and then share a batch.
type batchRig struct {
	t     *testing.T
	srv   *redistest.Fake
	node  *redistest.Server // in the place of srv, of a Cluster
	proxy *redistest.Proxy
	rdb   *redis.Client // of the server, without lockdog
	c     *Client
	key   string // of the node

	pending func() int // calls that are held up
	resume  func()     // sends them
}

// newBatchRig has a long ReadTimeout: a call whose commands are counted must not be repeated.
func newBatchRig(t *testing.T) *batchRig {
	t.Helper()
	return newBatchRigWithin(t, 5*time.Second)
}

// newBatchRigWithin has this ReadTimeout.
func newBatchRigWithin(t *testing.T, answer time.Duration) *batchRig {
	t.Helper()
	r := &batchRig{t: t, srv: redistest.StartFake(t), key: "job"}
	r.proxy = redistest.NewProxy(t, r.srv.Addr())
	r.rdb = r.srv.Client(t)
	r.c = openFor(t, r.srv.Client(t, func(o *redis.Options) {
		o.Addr, o.ReadTimeout, o.WriteTimeout, o.ContextTimeoutEnabled = r.proxy.Addr(), answer, answer, true
	}))
	r.release(tried(t.Context(), r.c.Mutex("job:warm-up")))
	return r
}

// openFor makes a client that is closed with the test.
func openFor(t testing.TB, rdb redis.UniversalClient, opts ...Option) *Client {
	t.Helper()
	c, err := New(rdb, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = c.Close(ctx)
	})
	return c
}

type outcome struct {
	l   *Lease
	err error
}

// hold holds up all calls from now on.
func (r *batchRig) hold() { r.pending, r.resume = r.c.dispatcher.Hold(r.key) }

// begin makes a call, and reports whether it is held up. It isn't if a worker that was started for an earlier call begins only now: on a busy machine
// a call has more than one started.
func (r *batchRig) begin(call func()) (held bool) {
	r.t.Helper()
	want, ended := r.pending()+1, make(chan struct{})
	go func() {
		defer close(ended)
		call()
	}()
	r.eventually(func() bool {
		select {
		case <-ended:
			return true
		default:
			held = r.pending() >= want
			return held
		}
	})
	return held
}

// start makes a call, and returns when it is held up.
func (r *batchRig) start(call func()) {
	r.t.Helper()
	if !r.begin(call) {
		r.t.Fatalf("a call has ended, and wasn't held up; %d are", r.pending())
	}
}

// begun starts a TryLock, and returns when it is held up.
func (r *batchRig) begun(ctx context.Context, m *Mutex) chan outcome {
	r.t.Helper()
	ch := make(chan outcome, 1)
	r.start(func() { ch <- tried(ctx, m) })
	return ch
}

func tried(ctx context.Context, m *Mutex) outcome {
	l, err := m.TryLock(ctx)
	return outcome{l, err}
}

// holdTryLock holds up a TryLock of each name, one begun after the other.
func (r *batchRig) holdTryLock(ctx context.Context, names ...string) []chan outcome {
	r.t.Helper()
	for {
		r.hold()
		var all []chan outcome
		held := true
		for i := 0; held && i < len(names); i++ {
			ch := make(chan outcome, 1)
			all = append(all, ch)
			held = r.begin(func() { ch <- tried(ctx, r.c.Mutex(names[i])) })
		}
		if held {
			return all
		}
		r.resume()
		for _, o := range r.all(all) {
			if o.err == nil {
				r.release(o)
			}
		}
	}
}

// all waits for what calls come to.
func (r *batchRig) all(calls []chan outcome) (out []outcome) {
	for _, ch := range calls {
		out = append(out, <-ch)
	}
	return out
}

// wantHeld fails the test unless Redis has the lock for this lease.
func (r *batchRig) wantHeld(name string, o outcome) {
	r.t.Helper()
	if o.err != nil {
		r.t.Fatalf("%s: %v", name, o.err)
	}
	if h, err := r.c.Mutex(name).Inspect(r.t.Context()); err != nil || h.Owner != o.l.Owner() || h.Token != o.l.Token() {
		r.t.Errorf("%s: %+v, %v; want %s and token %d", name, h, err, o.l.Owner(), o.l.Token())
	}
}

func (r *batchRig) eventually(f func() bool) {
	r.t.Helper()
	const long = time.Minute // also for a busy machine and a real server
	for end := time.Now().Add(long); !f(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			r.t.Fatalf("not so within %v", long)
		}
	}
}

func (r *batchRig) gone(name string) bool {
	return r.rdb.Exists(context.Background(), name).Val() == 0
}

func (r *batchRig) release(o outcome) {
	r.t.Helper()
	if o.err != nil {
		r.t.Errorf("TryLock: %v", o.err)
	} else if err := o.l.Release(context.Background()); err != nil {
		r.t.Errorf("Release: %v", err)
	}
}
