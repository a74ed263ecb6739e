package lock_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"

	"github.com/lockdog/lockdog/lock"
)

var doBehaviours = []behaviour{
	{name: "Do/result and error", test: doReturns},
	{name: "Do/ctx and lease", test: doGivesTheContext},
	{name: "TryDo", test: tryDo},
	{name: "Do/lost", test: doJoinsErrLost, timed: true},
	{name: "Do/panic", test: doPanics},
	{name: "Do/Goexit", test: doGoexit},
	{name: "Do/released by fn", test: doReleasedByFn},
	{name: "Do/ctx ends", test: doCtxEnds},
}

// mustBeFree fails the test if the lock is held.
func mustBeFree(t *testing.T, w *world, name string) {
	t.Helper()
	if ms := w.left(name); ms != -2 {
		t.Errorf("the lock %q is still held: PTTL %d", name, ms)
	}
}

func doReturns(t *testing.T, w *world) {
	c := w.client()
	failed := errors.New("failed")
	if err := w.lock(c, "a").Do(t.Context(), func(context.Context, *lock.Lease) error { return failed }); !errors.Is(err, failed) {
		t.Errorf("%v", err)
	}
	mustBeFree(t, w, "a")
	n, err := lock.Do(t.Context(), w.lock(c, "a"), func(context.Context, *lock.Lease) (int, error) { return 42, nil })
	if n != 42 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	s, err := lock.Do(t.Context(), w.lock(c, "a"), func(context.Context, *lock.Lease) (string, error) { return "half", failed })
	if s != "half" || !errors.Is(err, failed) {
		t.Errorf("%q, %v", s, err)
	}
	mustBeFree(t, w, "a")
}

func doGivesTheContext(t *testing.T, w *world) {
	m := w.lock(w.client(), "a")
	err := m.Do(t.Context(), func(ctx context.Context, l *lock.Lease) error {
		if ctx != l.Context() || ctx.Err() != nil || l.Err() != nil {
			t.Errorf("%v, %v", ctx.Err(), l.Err())
		}
		_, err := m.TryLock(ctx)
		return err
	})
	mustMatch(t, err, lock.ErrDeadlock)
}

func tryDo(t *testing.T, w *world) {
	c := w.client()
	m, ok := w.lock(c, "a").(interface {
		TryDo(context.Context, func(context.Context, *lock.Lease) error) error
	})
	if !ok {
		t.Fatalf("%T has no TryDo", w.lock(c, "a"))
	}
	failed := errors.New("failed")
	err := m.TryDo(t.Context(), func(ctx context.Context, l *lock.Lease) error {
		if ctx != l.Context() {
			t.Error("the ctx isn't the lease's")
		}
		return failed
	})
	mustMatch(t, err, failed)
	mustBeFree(t, w, "a")

	l := try(t, w.rival(w.client(), "a"))
	runs := 0
	held := w.lock(w.client(), "a", lock.WithWait(0))
	mustMatch(t, held.Do(t.Context(), func(context.Context, *lock.Lease) error { runs++; return nil }), lock.ErrHeld)
	mustMatch(t, m.TryDo(t.Context(), func(context.Context, *lock.Lease) error { runs++; return nil }), lock.ErrHeld)
	_, err = lock.TryDo(t.Context(), w.lock(c, "a"), func(context.Context, *lock.Lease) (int, error) { runs++; return 1, nil })
	mustMatch(t, err, lock.ErrHeld)
	free(t, l)
	if runs != 0 {
		t.Errorf("fn ran %d times under a lock that was held", runs)
	}
	n := 0
	eventually(t, patience, func() bool { // of a Quorum, a node may still have what it granted one of these too late: see takeFreed
		n, err = lock.TryDo(t.Context(), w.lock(c, "a"), func(context.Context, *lock.Lease) (int, error) { return 42, nil })
		return err == nil || !w.kind.quorum
	})
	if n != 42 || err != nil {
		t.Errorf("%d, %v", n, err)
	}
	mustBeFree(t, w, "a")
}

func doJoinsErrLost(t *testing.T, w *world) {
	c := w.client()
	failed := errors.New("failed")
	for _, result := range []func(context.Context) error{
		func(context.Context) error { return nil },
		func(context.Context) error { return failed },
		context.Cause, // the loss, which is said once
	} {
		var of error
		err := w.lock(c, "a").Do(context.Background(), func(ctx context.Context, l *lock.Lease) error {
			w.lose("a")
			await(t, "Context", ctx.Done())
			of = result(ctx)
			return of
		})
		mustMatch(t, err, lock.ErrLost)
		if of != nil && (!errors.Is(err, of) || strings.Count(err.Error(), of.Error()) != 1) {
			t.Errorf("the error is %q, of %q", err, of)
		}
		mustBeFree(t, w, "a")
	}
}

func doPanics(t *testing.T, w *world) {
	c := w.client()
	defer func() {
		if v := recover(); v != "boom" {
			t.Errorf("recovered %v", v)
		}
		mustBeFree(t, w, "a")
	}()
	_ = w.lock(c, "a").Do(t.Context(), func(context.Context, *lock.Lease) error { panic("boom") })
}

func doGoexit(t *testing.T, w *world) {
	c := w.client()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = w.lock(c, "a").Do(context.Background(), func(context.Context, *lock.Lease) error {
			runtime.Goexit()
			return nil
		})
		t.Error("Do returned")
	}()
	await(t, "Goexit", done)
	mustBeFree(t, w, "a")
}

func doReleasedByFn(t *testing.T, w *world) {
	err := w.lock(w.client(), "a").Do(t.Context(), func(ctx context.Context, l *lock.Lease) error { return l.Release(ctx) })
	if err != nil {
		t.Errorf("%v", err)
	}
}

func doCtxEnds(t *testing.T, w *world) {
	ctx, cancel := context.WithCancel(t.Context())
	err := w.lock(w.client(), "a").Do(ctx, func(ctx context.Context, _ *lock.Lease) error {
		cancel()
		await(t, "Context", ctx.Done())
		return context.Cause(ctx)
	})
	var canceled *lock.CanceledError
	if !errors.As(err, &canceled) || errors.Is(err, lock.ErrLost) {
		t.Errorf("%v", err)
	}
	mustBeFree(t, w, "a")
}
