package backend_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock/internal/backend"
	"github.com/lockdog/lockdog/lock/internal/redisfail"
)

// What a stream promises, and what it relies on in go-redis's full-duplex AutoPipeline, which is experimental.

var echo = backend.NewScript("echo", "redis.call('incr', KEYS[1]) return ARGV[1]")

// streamRig is a stream to a server behind a proxy.
type streamRig struct {
	*backend.Redis
	t     *testing.T
	proxy *redistest.Proxy
	rdb   *redis.Client
	apart *redis.Client // not through the proxy
}

// fakeStream is a rig in fake time.
func fakeStream(t *testing.T, f func(t *testing.T, r *streamRig, srv *redistest.Fake)) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		srv := redistest.StartFake(t)
		proxy := redistest.NewProxy(t, srv.Addr())
		r := &streamRig{t: t, proxy: proxy, apart: srv.Client(t)}
		r.rdb = srv.Client(t, func(o *redis.Options) { o.Addr = proxy.Addr() })
		r.make()
		f(t, r, srv)
		r.close()
	})
}

func (r *streamRig) close() {
	r.CloseStream()
	if err := r.Close(); err != nil {
		r.t.Error(err)
	}
}

func (r *streamRig) make() {
	b, err := backend.NewRedis(r.rdb, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	r.Redis = b
}

// open waits until there is a stream.
func (r *streamRig) open() {
	r.t.Helper()
	for began := time.Now(); !r.HasStream(); time.Sleep(time.Millisecond) {
		if r.OpenStream(); time.Since(began) > time.Minute {
			r.t.Fatal("there is no stream")
		}
	}
}

// send makes a call for which the server counts, and which it answers with text.
func (r *streamRig) send(text string) (any, error) {
	return r.Eval(context.Background(), backend.Call{
		Script: echo, SendSource: true, Stream: true, Keys: []string{"n"}, Args: []any{text},
	})
}

// sendMany makes n calls at once. It returns when they have ended, with their errors.
func (r *streamRig) sendMany(n int) []error {
	errs := make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			got, err := r.send(fmt.Sprint("call ", i))
			if errs[i] = err; err == nil && got != fmt.Sprint("call ", i) {
				r.t.Errorf("call %d has the reply %v", i, got)
			}
		})
	}
	all.Wait()
	return errs
}

// ran returns how many calls have run at the server.
func (r *streamRig) ran() int {
	r.t.Helper()
	n, err := r.apart.Get(r.t.Context(), "n").Int()
	if err != nil && !errors.Is(err, redis.Nil) {
		r.t.Fatal(err)
	}
	return n
}

// Calls run while the replies to others are on their way, all over one connection that isn't the pool's, and each gets its own reply.
func TestStream(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	r := &streamRig{t: t, proxy: redistest.NewProxy(t, srv.Addr()), apart: srv.Client(t)}
	r.rdb = srv.Client(t, func(o *redis.Options) { o.Addr = r.proxy.Addr() })
	r.make()
	r.open()
	const calls = 200
	r.proxy.SetRule(redistest.When(redistest.Down, redistest.Hold))
	done := make(chan []error)
	go func() { done <- r.sendMany(calls) }()
	for began := time.Now(); r.ran() < calls; time.Sleep(time.Millisecond) {
		if time.Since(began) > time.Minute {
			t.Fatalf("%d of %d calls have run; the others wait for replies", r.ran(), calls)
		}
	}
	if n := r.proxy.Conns(); n != 1 {
		t.Errorf("%d connections, want the stream's alone", n)
	}
	r.proxy.SetRule(nil)
	r.proxy.Release()
	if err := errors.Join(<-done...); err != nil {
		t.Error(err)
	}
	r.close()
	if _, err := r.send("after Close"); err != nil { // over the pool
		t.Error(err)
	}
}

// A call whose reply is lost with the connection has run once, its error says that it may have run, and the next calls go over the pool, until a
// new stream is opened.
func TestStreamRepeatsNothing(t *testing.T) {
	fakeStream(t, func(t *testing.T, r *streamRig, _ *redistest.Fake) {
		r.open()
		const calls = 50
		r.proxy.SetRule(redistest.When(redistest.Down, redistest.Hold))
		done := make(chan []error)
		go func() { done <- r.sendMany(calls) }()
		time.Sleep(100 * time.Millisecond)
		if n := r.ran(); n != calls {
			t.Fatalf("%d calls have run, want %d", n, calls)
		}
		r.proxy.SetRule(nil)
		r.proxy.CutAll()
		for i, err := range <-done {
			if err == nil || !redisfail.Classify(err).Unclear {
				t.Errorf("call %d, whose reply was lost: %v", i, err)
			}
		}
		if r.HasStream() {
			t.Error("a broken stream is used on")
		}
		if err := errors.Join(r.sendMany(calls)...); err != nil {
			t.Error(err)
		}
		time.Sleep(time.Minute)
		if n := r.ran(); n != 2*calls {
			t.Errorf("%d calls have run, want %d", n, 2*calls)
		}
		r.open()
		if err := errors.Join(r.sendMany(calls)...); err != nil {
			t.Error(err)
		}
	})
}

// watch sees commands, and stops those with an argument that is to be stopped.
type watch struct {
	redistest.Hook
	seen atomic.Int32
}

var errStopped = errors.New("stopped by a hook")

func (w *watch) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		w.seen.Add(1)
		if slices.Contains(cmd.Args(), any("stop")) {
			return errStopped
		}
		if err := next(ctx, cmd); err != nil {
			return err
		}
		return cmd.Err()
	}
}

// A hook of the program's client sees each call once, and one that it stops doesn't reach the server.
func TestStreamHooks(t *testing.T) {
	fakeStream(t, func(t *testing.T, r *streamRig, _ *redistest.Fake) {
		if _, err := r.send("warm up"); err != nil { // hooks see how a connection of the pool begins
			t.Fatal(err)
		}
		w := &watch{}
		r.rdb.AddHook(w)
		r.open()
		if got, err := r.send("go"); got != "go" || err != nil {
			t.Errorf("%v, %v", got, err)
		}
		if _, err := r.send("stop"); !errors.Is(err, errStopped) {
			t.Errorf("a call that a hook stops: %v", err)
		}
		const calls = 50
		if err := errors.Join(r.sendMany(calls)...); err != nil {
			t.Error(err)
		}
		if n := r.ran(); n != 1+1+calls {
			t.Errorf("%d calls have run, want %d", n, 1+1+calls)
		}
		if n := w.seen.Load(); n != 2+calls {
			t.Errorf("the hook has seen %d commands, want %d", n, 2+calls)
		}
		// The program's own commands are as before.
		if err := r.rdb.Ping(t.Context()).Err(); err != nil || w.seen.Load() != 3+calls {
			t.Errorf("a PING: %v, and the hook has seen %d commands", err, w.seen.Load())
		}
	})
}

// Over a connection to a server that was demoted, or that wants another password, nothing more is sent.
func TestStreamLeavesADemotedServer(t *testing.T) {
	for _, refusal := range []string{"READONLY You can't write against a read only replica.", "NOAUTH Authentication required."} {
		t.Run(refusal, func(t *testing.T) {
			fakeStream(t, func(t *testing.T, r *streamRig, srv *redistest.Fake) {
				r.open()
				if _, err := r.send("a"); err != nil || !r.HasStream() {
					t.Fatalf("%v, stream %v", err, r.HasStream())
				}
				srv.SetRefusal(func(cmd string, _ ...string) string {
					if cmd == "EVAL" {
						return refusal
					}
					return ""
				})
				if _, err := r.send("b"); err == nil {
					t.Error("it wasn't refused")
				}
				if r.HasStream() {
					t.Error("the connection is used on")
				}
			})
		})
	}
}

// While no connection can be opened for the stream, calls use those that the pool has. It tries again, but not at once.
func TestStreamWithoutConnection(t *testing.T) {
	fakeStream(t, func(t *testing.T, r *streamRig, _ *redistest.Fake) {
		if _, err := r.send("a"); err != nil { // the pool has a connection now
			t.Fatal(err)
		}
		r.proxy.Refuse(t)
		r.OpenStream()
		time.Sleep(time.Second)
		if _, err := r.send("b"); err != nil || r.HasStream() {
			t.Errorf("%v, stream %v", err, r.HasStream())
		}
		r.proxy.Accept(t)
		r.OpenStream()
		time.Sleep(time.Second)
		if r.HasStream() {
			t.Error("it was opened at once")
		}
		r.open()
	})
}

// A pipe's connection is never replaced by another, which the server might refuse: the calls that find it gone go over the pool.
func TestStreamConnectsOnce(t *testing.T) {
	fakeStream(t, func(t *testing.T, r *streamRig, _ *redistest.Fake) {
		r.rdb.Options().ConnMaxLifetime = 3 * time.Second // also of the pipe's
		r.open()
		time.Sleep(10 * time.Second) // go-redis closes it when it looks at it
		if err := errors.Join(r.sendMany(3)...); err != nil {
			t.Error(err)
		}
		if n := r.ran(); n != 3 || r.HasStream() {
			t.Errorf("%d calls have run; stream %v", n, r.HasStream())
		}
	})
}

// A silent server keeps CloseStream no longer than ReadTimeout: while the stream connects, while it is used, and after it was dropped. A dial ends
// at once.
func TestStreamToASilentServer(t *testing.T) {
	for name, silence := range map[string]func(r *streamRig, srv *redistest.Fake){
		"dialing": func(r *streamRig, _ *redistest.Fake) {
			r.rdb.Options().Dialer = func(ctx context.Context, _, _ string) (net.Conn, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			r.OpenStream()
		},
		"connecting": func(r *streamRig, srv *redistest.Fake) {
			srv.Pause(r.t)
			r.OpenStream()
		},
		"used": func(r *streamRig, srv *redistest.Fake) {
			r.open()
			srv.Pause(r.t)
			go func() { _ = r.sendMany(10) }()
		},
		"dropped": func(r *streamRig, srv *redistest.Fake) {
			r.open()
			srv.SetRefusal(func(cmd string, _ ...string) string {
				if cmd == "EVAL" {
					return "READONLY You can't write against a read only replica."
				}
				return ""
			})
			r.proxy.SetRule(redistest.FirstOf(
				redistest.When(redistest.Up, redistest.Drop, redistest.Contains("silence")),
				redistest.When(redistest.Down, redistest.Delay(50*time.Millisecond)),
			))
			go func() { _, _ = r.send("a") }()
			time.Sleep(time.Millisecond)
			go func() { _, _ = r.send("silence") }()
			time.Sleep(time.Second)
			if r.HasStream() {
				r.t.Error("it wasn't dropped")
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			fakeStream(t, func(t *testing.T, r *streamRig, srv *redistest.Fake) {
				silence(r, srv)
				time.Sleep(100 * time.Millisecond)
				began, most := time.Now(), r.Timeout()
				if name == "dialing" {
					most = 0
				}
				r.CloseStream()
				if took := time.Since(began); took > most {
					t.Errorf("CloseStream took %v", took)
				}
				srv.Resume(t)
			})
		})
	}
}

// A connection that hangs keeps its own calls waiting, for ReadTimeout, but no later ones: those go over the pool.
func TestStreamStalls(t *testing.T) {
	fakeStream(t, func(t *testing.T, r *streamRig, _ *redistest.Fake) {
		r.open()
		r.proxy.SetRule(redistest.When(redistest.Up, redistest.Drop, redistest.Contains("lost")))
		done := make(chan error)
		began := time.Now()
		go func() {
			_, err := r.send("lost")
			done <- err
		}()
		time.Sleep(time.Second)
		if err := errors.Join(r.sendMany(3)...); err != nil || time.Since(began) != time.Second {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		if err := <-done; err == nil || time.Since(began) > r.Timeout()+time.Second {
			t.Errorf("the call whose request was lost: %v after %v", err, time.Since(began))
		}
	})
}
