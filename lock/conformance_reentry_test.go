package lock_test

import (
	"context"
	"testing"
	"time"

	"github.com/lockdog/lockdog/lock"
)

var reentryBehaviours = []behaviour{
	{name: "re-entry/ErrDeadlock", test: deadlockAtOnce},
	{name: "re-entry/not after the release", test: noDeadlockAfterRelease},
	{name: "re-entry/other locks and clients", test: noReentryElsewhere},
	{name: "re-entry/join", test: joins},
	{name: "re-entry/the inner ctx ends", test: innerCtxEnds, timed: true},
	{name: "re-entry/the outer ctx ends", test: outerCtxEnds},
	{name: "re-entry/the outer is released first", test: outerReleasedFirst, timed: true},
	{name: "re-entry/loss ends all", test: lossEndsAll, timed: true},
	{name: "re-entry/through another lock", test: joinsThroughAnother},
	{name: "re-entry/through WithLifetime", test: joinsThroughLeaseContext},
}

func deadlockAtOnce(t *testing.T, w *world) {
	c := w.client()
	l := try(t, w.lock(c, "a"))
	child := context.WithValue(l.Context(), valueKey{}, 1)
	for _, take := range []func(context.Context) (*lock.Lease, error){w.lock(c, "a").Lock, w.lock(c, "a").TryLock} {
		_, err := take(child)
		mustMatch(t, err, lock.ErrDeadlock)
	}
	if l.Err() != nil || l.Context().Err() != nil {
		t.Errorf("it harmed the lease: %v, %v", l.Err(), l.Context().Err())
	}
	free(t, l)
}

func noDeadlockAfterRelease(t *testing.T, w *world) {
	c := w.client()
	ctx := context.WithoutCancel(holdAndRelease(t, w, c))
	again, err := w.lock(c, "a").Lock(ctx)
	if err != nil {
		t.Fatalf("a ctx of a released lease: %v", err)
	}
	free(t, again)
}

// holdAndRelease returns the Context of a lease that was released.
func holdAndRelease(t *testing.T, w *world, c *lock.Client) context.Context {
	t.Helper()
	l := try(t, w.lock(c, "a"))
	ctx := l.Context()
	free(t, l)
	return ctx
}

func noReentryElsewhere(t *testing.T, w *world) {
	c, other := w.client(lock.WithReentrancy()), w.client(lock.WithReentrancy())
	l := try(t, w.lock(c, "a"))
	_, err := answered(l.Context(), w.rival(other, "a"))
	mustMatch(t, err, lock.ErrHeld)
	b, err := answered(l.Context(), w.lock(c, "b"))
	if err != nil {
		t.Fatal(err)
	}
	if b.Owner() == l.Owner() {
		t.Error("another name joined the lease")
	}
	free(t, b)
	free(t, l)
}

// enter takes a lock within a ctx of its lease.
func enter(t *testing.T, ctx context.Context, m lock.Locker) *lock.Lease {
	t.Helper()
	l, err := m.Lock(ctx)
	if err != nil {
		t.Fatalf("re-entry: %v", err)
	}
	return l
}

func joins(t *testing.T, w *world) {
	c := w.client(lock.WithReentrancy())
	m := w.lock(c, "a")
	outer := try(t, m)
	inner := enter(t, outer.Context(), m)
	innermost := enter(t, inner.Context(), m)
	if !w.joined(inner, outer) || !w.joined(innermost, outer) {
		t.Errorf("owner %q in %q, token %d in %d", inner.Owner(), outer.Owner(), innermost.Token(), outer.Token())
	}
	for owner, times := range w.holders("a") {
		if times != "1" {
			t.Errorf("in Redis %s holds it %s times", owner, times)
		}
	}
	free(t, innermost)
	mustMatch(t, innermost.Release(t.Context()), lock.ErrReleased)
	mustMatch(t, innermost.Err(), lock.ErrReleased)
	await(t, "Done", innermost.Ended())
	free(t, inner)
	if outer.Err() != nil || outer.Context().Err() != nil {
		t.Fatalf("the outer lease ended: %v", outer.Err())
	}
	_, err := answered(t.Context(), w.rival(w.client(), "a"))
	mustMatch(t, err, lock.ErrHeld)
	free(t, outer)
	free(t, w.takeFreed(w.lock(w.client(), "a").TryLock))
}

func innerCtxEnds(t *testing.T, w *world) {
	m := w.lock(w.client(lock.WithReentrancy()), "a")
	outer := try(t, m)
	ctx, cancel := context.WithCancel(outer.Context())
	inner := enter(t, ctx, m)
	cancel()
	_ = mustBeCanceled(t, inner, lock.ReasonContext)
	always(t, 3*ttl/2, func() bool { return outer.Context().Err() == nil && outer.Err() == nil })
	free(t, inner)
	always(t, 3*ttl/2, func() bool { return outer.Context().Err() == nil && outer.Err() == nil })
	free(t, outer)
}

func outerCtxEnds(t *testing.T, w *world) {
	c := w.client(lock.WithReentrancy())
	ctx, cancel := context.WithCancel(t.Context())
	outer := enter(t, ctx, w.lock(c, "a"))
	inner := enter(t, outer.Context(), w.lock(c, "a"))
	cancel()
	_ = mustBeCanceled(t, outer, lock.ReasonContext)
	_ = mustBeCanceled(t, inner, lock.ReasonContext)
	free(t, inner)
	free(t, outer)
	if ms := w.left("a"); ms != -2 {
		t.Errorf("PTTL %d", ms)
	}
}

func outerReleasedFirst(t *testing.T, w *world) {
	m := w.lock(w.client(lock.WithReentrancy()), "a")
	outer := try(t, m)
	inner := enter(t, context.WithoutCancel(outer.Context()), m)
	free(t, outer)
	mustMatch(t, outer.Err(), lock.ErrReleased)
	always(t, 3*ttl/2, func() bool { return inner.Context().Err() == nil && w.left("a") > 0 })
	free(t, inner)
	if ms := w.left("a"); ms != -2 {
		t.Errorf("PTTL %d", ms)
	}
}

func lossEndsAll(t *testing.T, w *world) {
	m := w.lock(w.client(lock.WithReentrancy()), "a")
	outer := try(t, m)
	inner := enter(t, outer.Context(), m)
	w.lose("a")
	mustBeLost(t, inner, lock.CauseMissing)
	mustBeLost(t, outer, lock.CauseMissing)
	next := try(t, m) // before either was released
	mustMatch(t, inner.Release(t.Context()), lock.ErrLost)
	mustMatch(t, outer.Release(t.Context()), lock.ErrLost)
	always(t, 3*ttl/2, func() bool { return next.Err() == nil })
	free(t, next)
}

func joinsThroughAnother(t *testing.T, w *world) {
	c := w.client(lock.WithReentrancy())
	a := try(t, w.lock(c, "a"))
	b := enter(t, a.Context(), w.lock(c, "b"))
	again := enter(t, b.Context(), w.lock(c, "a"))
	if !w.joined(again, a) {
		t.Error("it didn't join")
	}
	free(t, again)
	free(t, b)
	other := w.rival(w.client(), "a")
	err := outwaited(100*time.Millisecond, func(d time.Duration) error {
		ctx, cancel := context.WithTimeout(a.Context(), d)
		defer cancel()
		return second(other.Lock(ctx))
	})
	mustMatch(t, err, lock.ErrHeld)
	free(t, a)
}

// A lease that was taken with one ctx and follows another was taken within the leases of both.
func joinsThroughLeaseContext(t *testing.T, w *world) {
	c := w.client()
	x, y := try(t, w.lock(c, "x")), try(t, w.lock(c, "y"))
	z := enter(t, x.Context(), w.lock(c, "z", lock.WithLifetime(y.Context())))
	within := enter(t, z.Context(), w.lock(c, "within"))
	apart := enter(t, context.Background(), w.lock(c, "apart"))
	twice := enter(t, apart.Context(), w.lock(c, "twice", lock.WithLifetime(within.Context())))
	deadlocks := func(ctx context.Context, name string, opts ...lock.LockOption) {
		t.Helper()
		ctx, cancel := context.WithTimeout(ctx, ttl/3) // Lock would wait for itself
		defer cancel()
		_, err := w.lock(c, name, opts...).Lock(ctx)
		mustMatch(t, err, lock.ErrDeadlock)
		_, err = w.lock(c, name, opts...).TryLock(ctx)
		mustMatch(t, err, lock.ErrDeadlock)
	}
	for _, l := range []*lock.Lease{z, within, twice} {
		deadlocks(l.Context(), "x")
		deadlocks(l.Context(), "y")
	}
	deadlocks(twice.Context(), "apart")
	deadlocks(x.Context(), "y", lock.WithLifetime(y.Context())) // it would end with the lease it waits for
	deadlocks(context.Background(), "y", lock.WithLifetime(z.Context()))

	for outer, name := range map[*lock.Lease]string{x: "x", y: "y", within: "within", apart: "apart"} {
		again := enter(t, twice.Context(), w.lock(c, name, lock.WithReentrancy()))
		if !w.joined(again, outer) {
			t.Errorf("%s: it didn't join", name)
		}
		free(t, again)
	}
	freeAll(t, []*lock.Lease{twice, apart, within, z, y, x})
}
