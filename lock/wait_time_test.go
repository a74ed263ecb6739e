package lock_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/lock/locktest"
	"github.com/lockdog/lockdog/telemetry"
)

// wantWaited checks WaitTime. In a bubble it is exact.
func wantWaited(t *testing.T, ctx context.Context, want time.Duration) {
	t.Helper()
	if got := lock.WaitTime(ctx); got != want {
		t.Errorf("waited %v, want %v", got, want)
	}
}

// A wait counts while it lasts, and afterwards; calls that don't wait count as nothing.
func TestWaitTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		srv := locktest.New(t)
		c, other := srv.Client(), srv.NewClient()
		wantWaited(t, t.Context(), 0)
		ctx := lock.TrackWaitTime(t.Context())
		free(t, try(t, c.Mutex("job")))
		l, err := c.Mutex("job").Lock(ctx)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		free(t, l)
		held := try(t, other.Mutex("job"))
		if _, err := c.Mutex("job").TryLock(ctx); !errors.Is(err, lock.ErrHeld) {
			t.Fatal(err)
		}
		wantWaited(t, ctx, 0)

		waits := begin(context.WithoutCancel(ctx), c.Mutex("job"))
		time.Sleep(time.Second)
		wantWaited(t, ctx, time.Second)
		time.Sleep(2 * time.Second)
		free(t, held)
		l = granted(t, waits)
		time.Sleep(10 * time.Second)
		wantWaited(t, ctx, 3*time.Second)

		// A call that waits in vain has waited, and one below Lease.Context is below ctx.
		held = try(t, other.Mutex("report"))
		if _, err := c.Mutex("report", lock.WithWait(2*time.Second)).Lock(l.Context()); !errors.Is(err, lock.ErrHeld) {
			t.Fatal(err)
		}
		wantWaited(t, ctx, 5*time.Second)
		free(t, held)
		free(t, l)
	})
}

// Calls that wait at the same time add up, also of several clients. A TrackWaitTime within another one has a sum of its own.
func TestWaitTimeAddsUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		srv := locktest.New(t)
		a, b, other := srv.NewClient(), srv.NewClient(), srv.NewClient()
		held := []*lock.Lease{try(t, other.Mutex("one")), try(t, other.Mutex("two")), try(t, other.Mutex("three"))}
		outer := lock.TrackWaitTime(t.Context())
		first := begin(outer, a.Mutex("one"))
		time.Sleep(time.Second)
		inner := lock.TrackWaitTime(outer)
		second, third := begin(inner, a.Mutex("two")), begin(inner, b.Mutex("three"))
		time.Sleep(2 * time.Second)
		wantWaited(t, inner, 4*time.Second)
		wantWaited(t, outer, 7*time.Second)
		for _, l := range held {
			free(t, l)
		}
		for _, c := range []<-chan taken{first, second, third} {
			free(t, granted(t, c))
		}
		time.Sleep(time.Second)
		wantWaited(t, inner, 4*time.Second)
		wantWaited(t, outer, 7*time.Second)
		wantWaited(t, t.Context(), 0)
	})
}

// waitsOfEachKind has one call of each kind wait for three seconds, some of them twice: for two names of a Multi. each is told of the ctx that
// call was made with.
func waitsOfEachKind(t *testing.T, opts []lock.Option, request func(kind string) context.Context, each func(kind string, ctx context.Context)) {
	t.Helper()
	ctx := t.Context()
	srv := locktest.New(t)
	c, other := srv.NewClient(opts...), srv.NewClient()
	three := func(kind string, wait func(ctx context.Context) error, open func()) {
		t.Helper()
		failed := make(chan error, 1)
		ctx := request(kind)
		go func() { failed <- wait(ctx) }()
		time.Sleep(3 * time.Second)
		open()
		if err := <-failed; err != nil {
			t.Fatalf("%s: %v", kind, err)
		}
		time.Sleep(time.Second)
		each(kind, ctx)
	}
	locking := func(l lock.Locker) func(ctx context.Context) error {
		return func(ctx context.Context) error {
			lease, err := l.Lock(ctx)
			if err != nil {
				return err
			}
			return lease.Release(ctx)
		}
	}
	for kind, of := range map[string]func(c *lock.Client) lock.Locker{
		"mutex":      func(c *lock.Client) lock.Locker { return c.Mutex("a:mutex") },
		"fair_mutex": func(c *lock.Client) lock.Locker { return c.FairMutex("a:fair") },
		"writer":     func(c *lock.Client) lock.Locker { return c.RWMutex("a:rw") },
		"semaphore":  func(c *lock.Client) lock.Locker { return c.Semaphore("a:permits") },
		"multi":      func(c *lock.Client) lock.Locker { return c.Multi([]string{"a:1", "a:2"}) },
	} {
		if kind == "semaphore" {
			if err := c.Semaphore("a:permits").EnsurePermits(ctx, 1); err != nil {
				t.Fatal(err)
			}
		}
		held := try(t, of(other))
		three(kind, locking(of(c)), func() { free(t, held) })
	}

	writer := try(t, other.RWMutex("a:rw"))
	three("reader", locking(c.RWMutex("a:rw").RLocker()), func() { free(t, writer) })

	// Two names of a Multi that are held by two, one for longer.
	one, two := try(t, other.Mutex("b:1")), try(t, other.Mutex("b:2"))
	time.AfterFunc(time.Second, func() { _ = one.Release(context.Background()) })
	three("multi, name by name", locking(c.Multi([]string{"b:1", "b:2"})), func() { free(t, two) })

	gate := other.Latch("a:latch")
	if _, err := gate.TrySetCount(ctx, 1); err != nil {
		t.Fatal(err)
	}
	three("latch", c.Latch("a:latch").Wait, func() {
		if err := gate.CountDown(ctx); err != nil {
			t.Error(err)
		}
	})
	pool := other.UnleasedSemaphore("a:pool")
	if _, err := pool.TrySetPermits(ctx, 0); err != nil {
		t.Fatal(err)
	}
	three("unleased_semaphore", func(ctx context.Context) error { return c.UnleasedSemaphore("a:pool").Acquire(ctx, 1) }, func() {
		if err := pool.AddPermits(ctx, 1); err != nil {
			t.Error(err)
		}
	})

	servers := []*locktest.Server{locktest.New(t), locktest.New(t), locktest.New(t)}
	over := func(opts ...lock.Option) *lock.QuorumMutex {
		var clients []*lock.Client
		for _, s := range servers {
			clients = append(clients, s.NewClient(opts...))
		}
		q, err := lock.NewQuorum(clients...)
		if err != nil {
			t.Fatal(err)
		}
		return q.Mutex("a:quorum")
	}
	held := try(t, over())
	three("quorum", locking(over(opts...)), func() { free(t, held) })
}

// callerAttribute is lockdog.wait on the span with that name, "" if it hasn't it.
func (s *scope) callerAttribute(t *testing.T, name string) string {
	t.Helper()
	spans := s.spansNamed(name)
	if len(spans) != 1 {
		t.Fatalf("%d spans %q", len(spans), name)
	}
	return attrsOf(spans[0])[telemetry.KeyWait]
}

// Every kind counts a wait once, however many members it has, and the caller's span has it. With a Multi it is the span of
// the caller, too, not that of the whole.
func TestWaitTimeOfEachKind(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScope(t)
		opts := []lock.Option{lock.WithTracerProvider(s.tracer), lock.WithCallerAttributes()}
		n := 0
		request := func(kind string) context.Context {
			ctx, _ := s.tracer.Tracer("test").Start(lock.TrackWaitTime(t.Context()), kind)
			return ctx
		}
		waitsOfEachKind(t, opts, request, func(kind string, ctx context.Context) {
			n++
			// A Quorum pauses before it asks, so that one of several is the first.
			if got := lock.WaitTime(ctx); got < 3*time.Second || got > 3*time.Second+250*time.Millisecond || kind != "quorum" && got != 3*time.Second {
				t.Errorf("%s: waited %v, want 3s", kind, got)
			}
			trace.SpanFromContext(ctx).End()
			if got := s.callerAttribute(t, kind); got != "3" && kind != "quorum" || got == "" {
				t.Errorf("%s: lockdog.wait is %q", kind, got)
			}
		})
		if n != 10 {
			t.Errorf("%d kinds waited", n)
		}
		for _, span := range s.spans.GetSpans() {
			if span.InstrumentationScope.Name == telemetry.ScopeName && attrsOf(span)[telemetry.KeyWait] != "" {
				t.Errorf("%s has it, too", span.Name)
			}
		}
	})
}

func TestCallerAttributesAddUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScope(t)
		srv := locktest.New(t, lock.WithTracerProvider(s.tracer))
		a, b, silent, other := srv.NewClient(lock.WithCallerAttributes()), srv.NewClient(lock.WithCallerAttributes()), srv.NewClient(), srv.NewClient()
		span := func(name string) (context.Context, trace.Span) {
			return s.tracer.Tracer("test").Start(t.Context(), name)
		}
		waitFor := func(ctx context.Context, c *lock.Client, name string, d time.Duration) {
			held := try(t, other.Mutex(name))
			waits := begin(ctx, c.Mutex(name))
			time.Sleep(d)
			free(t, held)
			free(t, granted(t, waits))
		}

		ctx, request := span("in turn")
		waitFor(ctx, a, "one", time.Second)
		waitFor(ctx, b, "one", 2*time.Second)
		waitFor(ctx, silent, "one", 4*time.Second) // not by an option of its client
		request.End()
		waitFor(ctx, a, "one", 8*time.Second) // after the end
		if got := s.callerAttribute(t, "in turn"); got != "3" {
			t.Errorf("lockdog.wait is %q, want 3", got)
		}

		ctx, request = span("at once")
		var all sync.WaitGroup
		for i, name := range []string{"one", "two", "three"} {
			all.Go(func() { waitFor(ctx, []*lock.Client{a, a, b}[i], name, 2*time.Second) })
		}
		all.Wait()
		request.End()
		if got := s.callerAttribute(t, "at once"); got != "6" {
			t.Errorf("lockdog.wait is %q, want 6", got)
		}

		ctx, request = span("no wait")
		l, err := a.Mutex("one").Lock(ctx)
		if err != nil {
			t.Fatal(err)
		}
		free(t, l)
		request.End()
		ctx, request = span("without the option")
		waitFor(ctx, silent, "one", time.Second)
		request.End()
		for _, name := range []string{"no wait", "without the option"} {
			if got := s.callerAttribute(t, name); got != "" {
				t.Errorf("%s: lockdog.wait is %q", name, got)
			}
		}
	})
}
