package lock

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/internal/redistest"
)

// jam is a client whose calls wait until they are let off together.
type jam struct {
	t     *testing.T
	srv   *redistest.Server
	proxy *redistest.Proxy
	rdb   *redis.Client // of the server, without lockdog
	c     *Client
	n     *node
}

// newJam is one whose answers may take their time: what is counted exactly isn't tried again.
func newJam(t *testing.T, opts ...redistest.Option) *jam {
	t.Helper()
	return newJamWithin(t, 5*time.Second, opts...)
}

// newJamWithin is one that waits so long for an answer.
func newJamWithin(t *testing.T, answer time.Duration, opts ...redistest.Option) *jam {
	t.Helper()
	j := &jam{t: t, srv: redistest.Start(t, opts...)}
	j.proxy = redistest.NewProxy(t, j.srv.Addr())
	j.rdb = j.srv.Client(t)
	rdb := j.srv.Client(t, func(o *redis.Options) {
		o.Addr, o.ReadTimeout, o.WriteTimeout, o.ContextTimeoutEnabled = j.proxy.Addr(), answer, answer, true
		if len(opts) > 0 {
			o.Username, o.Password = "app", "secret"
		}
	})
	c := openFor(t, rdb)
	l, err := c.Mutex("job:warm-up").TryLock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	j.c, j.n = c, c.transport.nodeOf("job")
	j.quiet()
	return j
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

// quiet waits until no flight is under way: its worker would take along who waits.
func (j *jam) quiet() {
	j.t.Helper()
	j.eventually(func() bool {
		j.c.transport.mu.Lock()
		defer j.c.transport.mu.Unlock()
		return j.n.inFlight == 0
	})
}

type outcome struct {
	l   *Lease
	err error
}

// jammed starts calls of TryLock, and returns when all of them wait for a flight; go lets them off.
func (j *jam) jammed(ctx context.Context, names ...string) (all []chan outcome) {
	j.t.Helper()
	before := j.pending()
	j.fly(maxInFlight)
	for i, name := range names {
		ch := make(chan outcome, 1)
		all = append(all, ch)
		go func() {
			l, err := j.c.Mutex(name).TryLock(ctx)
			ch <- outcome{l, err}
		}()
		j.eventually(func() bool { return j.pending() == before+i+1 })
	}
	return all
}

func (j *jam) off() {
	j.fly(-maxInFlight)
	tr := j.c.transport
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.startBatch(j.n)
}

// fly has so many more flights under way, which never land.
func (j *jam) fly(more int) {
	tr := j.c.transport
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.addInFlight(j.n, more, true)
}

func (j *jam) pending() int {
	tr := j.c.transport
	tr.mu.Lock()
	defer tr.mu.Unlock()
	return len(j.n.pending)
}

func (j *jam) eventually(f func() bool) {
	j.t.Helper()
	for end := time.Now().Add(10 * time.Second); !f(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			j.t.Fatal("not so within 10s")
		}
	}
}

func (j *jam) gone(name string) bool {
	return j.rdb.Exists(context.Background(), name).Val() == 0
}

func (j *jam) release(o outcome) {
	j.t.Helper()
	if o.err != nil {
		j.t.Errorf("TryLock: %v", o.err)
	} else if err := o.l.Release(context.Background()); err != nil {
		j.t.Errorf("Release: %v", err)
	}
}
