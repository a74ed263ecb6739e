package locktest_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/lock/locktest"
)

const (
	forbidden = locktest.ReplyError("NOPERM User app has no permissions to run the 'evalsha' command") // for good
)

var errReset = errors.New("connection reset by peer")

// rig is three servers with a client each. The first is that of the kinds other than a Quorum.
type rig [3]*locktest.Server

func newRig(t *testing.T) (r rig) {
	for i := range r {
		r[i] = locktest.New(t)
	}
	return r
}

func (r rig) each(do func(*locktest.Server)) {
	for _, srv := range r {
		do(srv)
	}
}

// uses are, for every kind of lock, an acquire and the release that belongs to it.
var uses = map[string]func(r rig) (acquire, release func(context.Context) error){
	"Mutex":     leased(func(r rig) lock.Locker { return r[0].Client().Mutex(name) }),
	"FairMutex": leased(func(r rig) lock.Locker { return r[0].Client().FairMutex(name) }),
	"writer":    leased(func(r rig) lock.Locker { return r[0].Client().RWMutex(name) }),
	"reader":    leased(func(r rig) lock.Locker { return r[0].Client().RWMutex(name).RLocker() }),
	"Multi":     leased(func(r rig) lock.Locker { return r[0].Client().Multi([]string{"a", "b"}) }),
	"Semaphore": leased(func(r rig) lock.Locker {
		p := r[0].Client().Semaphore(name)
		_ = p.EnsurePermits(context.Background(), 1)
		return p
	}),
	"Quorum": leased(func(r rig) lock.Locker {
		q, err := lock.NewQuorum(r[0].Client(), r[1].Client(), r[2].Client())
		if err != nil {
			panic(err)
		}
		return q.Mutex(name)
	}),
	"UnleasedSemaphore": func(r rig) (acquire, release func(context.Context) error) {
		s := r[0].Client().UnleasedSemaphore(name)
		_, _ = s.TrySetPermits(context.Background(), 1)
		return func(ctx context.Context) error { return s.TryAcquire(ctx, 1) }, func(ctx context.Context) error { return s.Release(ctx, 1) }
	},
	"Latch": func(r rig) (acquire, release func(context.Context) error) {
		l := r[0].Client().Latch(name)
		return l.Wait, l.CountDown
	},
}

func leased(locker func(rig) lock.Locker) func(rig) (acquire, release func(context.Context) error) {
	return func(r rig) (acquire, release func(context.Context) error) {
		l := locker(r)
		var lease *lock.Lease
		return func(ctx context.Context) (err error) {
			lease, err = l.TryLock(ctx)
			return err
		}, func(ctx context.Context) error { return lease.Release(ctx) }
	}
}

// forEachKind runs a test in a bubble for every kind of lock.
func forEachKind(t *testing.T, test func(t *testing.T, r rig, acquire, release func(context.Context) error)) {
	for kind, use := range uses {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				acquire, release := use(r)
				test(t, r, acquire, release)
			})
		})
	}
}

func TestFailAcquiresAndReleases(t *testing.T) {
	forEachKind(t, func(t *testing.T, r rig, acquire, release func(context.Context) error) {
		r.each(func(srv *locktest.Server) { srv.FailAcquires(forbidden) })
		start := time.Now()
		if err := acquire(t.Context()); !errors.Is(err, forbidden) || time.Since(start) > 0 {
			t.Fatalf("failing: %v, after %v", err, time.Since(start))
		}
		r.each(func(srv *locktest.Server) { srv.FailAcquires(nil) })
		if err := acquire(t.Context()); err != nil {
			t.Fatal(err)
		}
		r.each(func(srv *locktest.Server) { srv.FailAcquires(forbidden) })
		if err := release(t.Context()); err != nil {
			t.Errorf("releases failed, too: %v", err)
		}
		r.each(func(srv *locktest.Server) { srv.FailAcquires(nil); srv.FailReleases(forbidden) })
		if err := acquire(t.Context()); err != nil {
			t.Fatal(err)
		}
		start = time.Now()
		if err := release(t.Context()); !errors.Is(err, forbidden) || time.Since(start) > 0 {
			t.Errorf("release: %v, after %v", err, time.Since(start))
		}
	})
}

// An error of the network is one to the caller, whatever it is made of.
func TestErrorsOfTheNetwork(t *testing.T) {
	for _, given := range []error{
		io.EOF, errReset, context.DeadlineExceeded, os.ErrDeadlineExceeded,
		locktest.ErrReplyLost, fmt.Errorf("the cable: %w", locktest.ErrReplyLost),
	} {
		t.Run(given.Error(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := locktest.New(t)
				srv.FailAcquires(given)
				_, err := srv.Client().Mutex("first").TryLock(t.Context())
				wantNetwork(t, "acquire", err, given)
				srv.FailAcquires(nil)
				srv.FailReleases(given)
				err = srv.Client().Mutex(name).Do(t.Context(), func(context.Context, *lock.Lease) error { return nil })
				if wantNetwork(t, "Do", err, given); !errors.Is(err, lock.ErrUnconfirmed) {
					t.Errorf("Do: %v", err)
				}
				srv.FailRenewals(given)
				l := takeNamed(t, srv, "second")
				if got := cause(t, l); got != lock.CauseUnreachable || !errors.Is(l.Err(), given) {
					t.Errorf("lost as %s: %v", got, l.Err())
				}
				var network net.Error
				if !errors.As(l.Err(), &network) && !errors.Is(given, io.EOF) {
					t.Errorf("the renewal didn't fail as one does over a network: %v", l.Err())
				}
			})
		})
	}
}

func TestReplyLost(t *testing.T) {
	forEachKind(t, func(t *testing.T, r rig, acquire, release func(context.Context) error) {
		r.each(func(srv *locktest.Server) { srv.FailAcquires(locktest.ErrReplyLost) })
		wantNetwork(t, "acquire", acquire(t.Context()), locktest.ErrReplyLost)
		r.each(func(srv *locktest.Server) { srv.FailAcquires(nil) })
		time.Sleep(5 * time.Second) // what was granted is given back
		if err := acquire(t.Context()); err != nil {
			t.Fatal(err)
		}
		r.each(func(srv *locktest.Server) { srv.FailReleases(locktest.ErrReplyLost) })
		wantNetwork(t, "release", release(t.Context()), locktest.ErrReplyLost)
	})
}

func wantNetwork(t *testing.T, what string, err, given error) {
	t.Helper()
	if !errors.Is(err, lock.ErrUnavailable) || !errors.Is(err, given) {
		t.Errorf("%s: %v", what, err)
	}
}

// FailReleases also applies to a release that keeps the lock taken for WithMinHold.
func TestFailReleases_MinHold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := locktest.New(t)
		srv.FailReleases(forbidden)
		kept := lock.WithMinHold(time.Hour)
		for _, l := range grab(t, srv.Client().Mutex("a", kept), srv.Client().FairMutex("b", kept)) {
			if err := l.Release(t.Context()); !errors.Is(err, forbidden) {
				t.Errorf("Release of %s: %v", l.Name(), err)
			}
		}
	})
}

func TestDelays(t *testing.T) {
	forEachKind(t, func(t *testing.T, r rig, acquire, release func(context.Context) error) {
		took := func(what string, call func(context.Context) error, want time.Duration) {
			start := time.Now()
			if err := call(t.Context()); err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			if d := time.Since(start); d != want {
				t.Errorf("%s took %v, the delay is %v", what, d, want)
			}
		}
		r.each(func(srv *locktest.Server) { srv.DelayAcquires(500 * time.Millisecond) })
		took("acquire", acquire, 500*time.Millisecond)
		r.each(func(srv *locktest.Server) { srv.DelayAcquires(0); srv.DelayReleases(700 * time.Millisecond) })
		took("release", release, 700*time.Millisecond)
		r.each(func(srv *locktest.Server) { srv.DelayReleases(0) })
		took("acquire without a delay", acquire, 0)
		took("release without a delay", release, 0)
	})
}

// FailAcquires also applies to a hand-over: the waiter gets the error, and the release succeeds.
func TestFailAcquires_HandOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := locktest.New(t)
		l := take(t, srv.Client())
		waited := make(chan error, 1)
		go func() {
			_, err := srv.Client().Mutex(name).Lock(t.Context())
			waited <- err
		}()
		synctest.Wait()
		srv.FailAcquires(forbidden)
		if err := l.Release(t.Context()); err != nil {
			t.Errorf("Release: %v", err)
		}
		if err := <-waited; !errors.Is(err, forbidden) {
			t.Errorf("the waiter got %v", err)
		}
	})
}

func takeNamed(t *testing.T, srv *locktest.Server, name string) *lock.Lease {
	t.Helper()
	return grab(t, srv.Client().Mutex(name))[0]
}

// A call comes to the server at the end of its delay.
func TestDelay_IsOnTheWayThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := locktest.New(t)
		srv.DelayAcquires(time.Second)
		time.AfterFunc(time.Second/2, func() { srv.Hold(name, "java") })
		if _, err := srv.Client().Mutex(name).TryLock(t.Context()); !errors.Is(err, lock.ErrHeld) {
			t.Errorf("TryLock: %v", err)
		}

		l := takeNamed(t, srv, "second")
		srv.DelayReleases(time.Second)
		time.AfterFunc(time.Second/2, func() {
			if h, err := srv.Client().Mutex("second").Inspect(context.Background()); err != nil || !h.Held {
				t.Errorf("released before the delay was over: %+v, %v", h, err)
			}
		})
		if err := l.Release(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// Calls of one round trip have each their own fault.
func TestFaultsOfManyCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := locktest.New(t)
		var leases []*lock.Lease
		for i := range 20 {
			leases = append(leases, takeNamed(t, srv, "held:"+string(rune('a'+i))))
		}
		srv.FailAcquires(forbidden)
		srv.DelayAcquires(time.Second)
		start := time.Now()
		var all sync.WaitGroup
		for _, l := range leases {
			all.Go(func() {
				if _, err := srv.Client().Mutex("new:" + l.Name()).TryLock(t.Context()); !errors.Is(err, forbidden) {
					t.Errorf("TryLock: %v", err)
				}
			})
			all.Go(func() {
				if err := l.Release(t.Context()); err != nil {
					t.Errorf("Release: %v", err)
				}
			})
		}
		all.Wait()
		if d := time.Since(start); d < time.Second || d > 2*time.Second {
			t.Errorf("it took %v", d)
		}
	})
}

// FailAcquires and DelayAcquires also apply to calls with WithReplicas, which are sent differently.
func TestFailAcquires_WithReplicas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := locktest.New(t)
		srv.FailAcquires(forbidden)
		srv.DelayAcquires(time.Second)
		m, start := srv.Client().Mutex(name, lock.WithReplicas(1, 100*time.Millisecond)), time.Now()
		if _, err := m.TryLock(t.Context()); !errors.Is(err, forbidden) || time.Since(start) != time.Second {
			t.Errorf("TryLock: %v, after %v", err, time.Since(start))
		}
	})
}

// outputTB is a test whose end is known, and whose Output panics after it, as that of package testing does.
type outputTB struct {
	testing.TB
	bytes.Buffer
	cleanups []func()
	ended    bool
}

func (o *outputTB) Cleanup(f func())  { o.cleanups = append(o.cleanups, f) }
func (o *outputTB) Output() io.Writer { return writer{o} }
func (o *outputTB) end() {
	for _, f := range o.cleanups {
		f()
	}
	o.ended = true
}

type writer struct{ o *outputTB }

func (w writer) Write(p []byte) (int, error) {
	if w.o.ended {
		panic("Write called after the test has completed")
	}
	return w.o.Write(p)
}

// The clients of a test log to its output, unless they have a logger of their own.
func TestLogsToOutput(t *testing.T) {
	var own bytes.Buffer
	for where, opts := range map[string][]lock.Option{
		"output": nil, "own": {lock.WithLogger(slog.New(slog.NewTextHandler(&own, nil)))},
	} {
		synctest.Test(t, func(t *testing.T) {
			tb := &outputTB{TB: t}
			defer tb.end()
			srv := locktest.New(tb, opts...)
			l := take(t, srv.Client())
			srv.Lose(name, lock.CauseMissing)
			cause(t, l)
			logs := map[string]string{"output": tb.String(), "own": own.String()}
			if !strings.Contains(logs[where], `level=ERROR msg="lock lost" name=`+name) || where == "own" && tb.Len() > 0 {
				t.Errorf("%s: logged %q", where, logs)
			}
		})
	}
}

func TestLogsAfterTheEndAreDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb := &outputTB{TB: t}
		srv := locktest.New(tb)
		tb.end()
		tb.Reset()
		c := srv.NewClient()
		defer srv.Close()
		l := take(t, c)
		srv.Lose(name, lock.CauseMissing)
		cause(t, l)
		if tb.Len() > 0 {
			t.Errorf("logged %q", tb)
		}
	})
}
