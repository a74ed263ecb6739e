package lock_test

import (
	"context"
	"errors"
	"strings"
	"testing"

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
