package lock_test

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/lockdog/lockdog/internal/fakeredis"
	"github.com/lockdog/lockdog/lock"
)

var contextBehaviours = []behaviour{
	{name: "Context/the end of ctx ends it", test: ctxEndsTheContext},
	{name: "Context/the end of ctx stops renewal", test: ctxStopsRenewal, timed: true},
	{name: "Context/ended at once", test: ctxEndsAtOnce},
	{name: "Context/WithLifetime", test: leaseContextIsFollowed, timed: true},
	{name: "Context/WithLifetime ended", test: leaseContextEnded},
	{name: "Context/WithLifetime ends while it waits", test: leaseContextEndsTheWait},
	{name: "Context/values and deadline", test: valuesAndDeadline},
	{name: "Context/children", test: childrenEnd, timed: true},
	{name: "Context/asked for after the end", test: contextAfterTheEnd},
	{name: "foreign code/is called under no mutex", test: foreignCodeMayUseTheClient, timed: true},
}

func ctxEndsTheContext(t *testing.T, w *world) {
	why := errors.New("the request is over")
	ctx, cancel := context.WithCancelCause(t.Context())
	l, err := w.lock(w.client(), "a", lock.WithLease(far)).Lock(ctx)
	if err != nil {
		t.Fatal(err)
	}
	cancel(why)
	// Not a moment late, also for who doesn't wait for Done.
	if !errors.Is(l.Context().Err(), context.Canceled) {
		t.Errorf("Context().Err() is %v", l.Context().Err())
	}
	canceled := mustBeCanceled(t, l, lock.ReasonContext)
	mustMatch(t, canceled, why)
	for _, say := range []string{w.title("a"), "WithWait", "WithLifetime"} {
		if !strings.Contains(canceled.Error(), say) {
			t.Errorf("the cause %q doesn't say %s", canceled, say)
		}
	}
	if l.Err() != nil {
		t.Errorf("the lease itself ended, too: %v", l.Err())
	}
	select {
	case <-l.Ended():
		t.Error("Done is closed")
	default:
	}
	if err := l.Release(ctx); err != nil {
		t.Errorf("Release: %v", err)
	}
	if ms := w.left("a"); ms != -2 {
		t.Errorf("PTTL %d after Release", ms)
	}
}

func ctxStopsRenewal(t *testing.T, w *world) {
	c := w.client()
	ctx, cancel := context.WithCancel(t.Context())
	l, err := w.lock(c, "a").Lock(ctx)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	cutOff(t, w, c, l, lock.ReasonContext)
}

func ctxEndsAtOnce(t *testing.T, w *world) {
	c := w.client()
	for range 20 {
		ctx, cancel := context.WithCancel(t.Context())
		done := begin(ctx, w.lock(c, "a"))
		cancel()
		got := await(t, "Lock", done)
		if got.err != nil {
			mustMatch(t, got.err, context.Canceled)
			continue
		}
		_ = mustBeCanceled(t, got.Lease, lock.ReasonContext)
		if err := got.Release(ctx); err != nil {
			t.Errorf("Release: %v", err)
		}
	}
	// Whatever came of these, the lock is free, and soon.
	free(t, granted(t, begin(context.Background(), w.lock(c, "a"))))
}

func leaseContextIsFollowed(t *testing.T, w *world) {
	why := errors.New("shutting down")
	work, stop := context.WithCancelCause(t.Context())
	ctx, cancel := context.WithCancel(t.Context())
	l, err := w.lock(w.client(), "a", lock.WithLifetime(work)).Lock(ctx)
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	always(t, 3*ttl/2, func() bool { return l.Context().Err() == nil })
	stop(why)
	mustMatch(t, mustBeCanceled(t, l, lock.ReasonContext), why)
	free(t, l)
}

func leaseContextEnded(t *testing.T, w *world) {
	work, stop := context.WithCancel(t.Context())
	stop()
	_, err := w.lock(w.client(), "a", lock.WithLifetime(work)).Lock(t.Context())
	mustMatch(t, err, context.Canceled)
	if !strings.Contains(err.Error(), "WithLifetime") || !strings.Contains(err.Error(), w.title("a")) {
		t.Errorf("%v", err)
	}
	if keys := w.rest(); len(keys) != 0 {
		t.Errorf("left in Redis: %v", keys)
	}
}

func leaseContextEndsTheWait(t *testing.T, w *world) {
	c := w.client()
	l := try(t, w.rival(c, "a"))
	why := errors.New("shutting down")
	work, stop := context.WithCancelCause(t.Context())
	done := begin(context.Background(), w.lock(c, "a", lock.WithLifetime(work)))
	waiting(t, c, 1)
	stop(why)
	mustMatch(t, await(t, "Lock", done).err, why)
	free(t, l)
	free(t, granted(t, begin(context.Background(), w.lock(c, "a")))) // its place may yet be on its way out
}

type valueKey struct{}

func valuesAndDeadline(t *testing.T, w *world) {
	c := w.client()
	l := try(t, w.lock(c, "a"))
	if d, ok := l.Context().Deadline(); ok {
		t.Errorf("the Context shows a deadline, %v", d)
	}
	free(t, l)

	ctx, cancel := context.WithTimeout(context.WithValue(t.Context(), valueKey{}, "v"), far)
	defer cancel()
	l, err := w.lock(c, "a").Lock(ctx)
	if err != nil {
		t.Fatal(err)
	}
	want, _ := ctx.Deadline()
	if d, ok := l.Context().Deadline(); !ok || d != want || l.Context().Value(valueKey{}) != "v" {
		t.Errorf("deadline %v, value %v", d, l.Context().Value(valueKey{}))
	}
	free(t, l)
}

func childrenEnd(t *testing.T, w *world) {
	l := try(t, w.lock(w.client(), "a"))
	child, cancel := context.WithTimeout(context.WithValue(l.Context(), valueKey{}, 1), far)
	defer cancel()
	called := make(chan struct{})
	stop := context.AfterFunc(child, func() { close(called) })
	defer stop()
	w.lose("a")
	await(t, "AfterFunc", called)
	await(t, "the child's Done", child.Done())
	mustMatch(t, context.Cause(child), lock.ErrLost)
	mustMatch(t, child.Err(), context.Canceled)
	mustBeLost(t, l, lock.CauseMissing)
}

func contextAfterTheEnd(t *testing.T, w *world) {
	l := try(t, w.lock(w.client(), "a"))
	free(t, l)
	ctx := l.Context()
	await(t, "Context", ctx.Done())
	mustMatch(t, context.Cause(ctx), lock.ErrReleased)
	if ctx != l.Context() {
		t.Error("Context is another one each time")
	}
	await(t, "Done", l.Ended())
}

// foreignCodeMayUseTheClient checks that lockdog holds no mutex while it calls the program's code, which may call the
// client: hooks, loggers, span processors, and the Err of a ctx. The Err of a lease's Context may even end a lease.
func foreignCodeMayUseTheClient(t *testing.T, w *world) {
	var c *lock.Client
	var within atomic.Bool
	calls := func(what func()) {
		if c == nil || !within.CompareAndSwap(false, true) {
			return
		}
		defer within.Store(false)
		var done atomic.Bool
		go func() {
			defer done.Store(true)
			what()
		}()
		// By the machine's clock: a bubble's stands still while a goroutine waits for a mutex.
		for began := machineTime(); !done.Load(); runtime.Gosched() {
			if machineTime()-began > patience {
				t.Errorf("under a mutex:\n%s", debug.Stack())
				return
			}
		}
	}
	lists := func() { calls(func() { c.Leases() }) }
	asks := func() {
		calls(func() {
			c.Leases()
			if l, err := w.lock(c, "other").TryLock(context.Background()); err == nil {
				_ = l.Release(context.Background())
			}
		})
	}
	for i, dial := range w.dials {
		w.dials[i] = func() redis.UniversalClient {
			rdb, listing := dial(), func(redis.Cmder) error { lists(); return nil }
			rdb.AddHook(fakeredis.Tap{Up: listing, Down: listing})
			return rdb
		}
	}
	tp := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(nosy{asks: asks}))
	c = w.client(lock.WithTracerProvider(tp), lock.WithLogger(slog.New(nosy{asks: asks})))
	ended, end := context.WithCancel(t.Context())
	end()
	for _, opts := range [][]lock.LockOption{nil, {lock.WithLifetime(nosyContext{t.Context(), asks})}} {
		m := w.lock(c, "a", opts...)
		holder := try(t, w.rival(c, "a"))
		if _, err := m.TryLock(nosyContext{t.Context(), asks}); err == nil {
			t.Error("TryLock of a held lock")
		}
		ctx, cancel := context.WithCancel(t.Context())
		left := begin(nosyContext{ctx, asks}, m)
		waiting(t, c, 1)
		cancel()
		mustMatch(t, await(t, "Lock", left).err, context.Canceled)
		next := begin(nosyContext{t.Context(), asks}, m)
		waiting(t, c, 1)
		free(t, holder)
		l := granted(t, next)
		if err := l.Context().Err(); err != nil {
			t.Errorf("Context().Err() = %v", err)
		}
		if err := l.Release(nosyContext{ended, asks}); err != nil {
			t.Errorf("Release: %v", err)
		}
	}
	l := try(t, w.lock(c, "a"))
	w.lose("a")
	await(t, "the loss", l.Ended())
	if err := l.Release(nosyContext{t.Context(), asks}); !errors.Is(err, lock.ErrLost) {
		t.Errorf("Release of a lost lock: %v", err)
	}
}

// nosyContext calls asks before it answers what the Context of a lease needs a mutex for.
type nosyContext struct {
	context.Context
	asks func()
}

func (c nosyContext) Deadline() (time.Time, bool) { c.asks(); return c.Context.Deadline() }
func (c nosyContext) Err() error                  { c.asks(); return c.Context.Err() }

// nosy is a slog.Handler and a SpanProcessor that calls asks for each record and span.
type nosy struct {
	asks func()
}

func (n nosy) Enabled(context.Context, slog.Level) bool        { return true }
func (n nosy) Handle(context.Context, slog.Record) error       { n.asks(); return nil }
func (n nosy) WithAttrs([]slog.Attr) slog.Handler              { return n }
func (n nosy) WithGroup(string) slog.Handler                   { return n }
func (n nosy) OnStart(context.Context, sdktrace.ReadWriteSpan) { n.asks() }
func (n nosy) OnEnd(sdktrace.ReadOnlySpan)                     { n.asks() }
func (n nosy) Shutdown(context.Context) error                  { return nil }
func (n nosy) ForceFlush(context.Context) error                { return nil }
