package lock_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockdog/lockdog/lock"
)

var closeBehaviours = []behaviour{
	{name: "Close/use after it", test: useAfterClose},
	{name: "Close/waiters", test: closeFailsWaiters},
	{name: "Close/holders wind down", test: closeLetsHoldersWindDown, timed: true},
	{name: "Close/ctx ends with leases left", test: closeGivesUp, timed: true},
	{name: "Close/twice", test: closeTwice},
}

func useAfterClose(t *testing.T, w *world) {
	c := w.client()
	if err := c.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	m := w.lock(c, "a")
	for what, err := range everyCall(t, m) {
		if !errors.Is(err, lock.ErrClosed) || !strings.Contains(err.Error(), `"a"`) && !strings.Contains(err.Error(), w.title("a")) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if keys := w.rest(); len(keys) != 0 {
		t.Errorf("left in Redis: %v", keys)
	}
}

// closing calls Close on another goroutine.
func closing(c *lock.Client, ctx context.Context) <-chan error {
	done := make(chan error, 1)
	go func() { done <- c.Close(ctx) }()
	return done
}

func closeFailsWaiters(t *testing.T, w *world) {
	l := try(t, w.rival(w.client(), "a", lock.WithLease(far)))
	c := w.client()
	var waiters []<-chan taken
	for i := range 3 {
		waiters = append(waiters, begin(context.Background(), w.lock(c, "a")))
		waiting(t, c, i+1)
	}
	if err := c.Close(t.Context()); err != nil {
		t.Errorf("Close: %v", err)
	}
	for _, next := range waiters {
		mustMatch(t, await(t, "Lock", next).err, lock.ErrClosed)
	}
	free(t, l)
	mustBeFree(t, w, "a")
}

func closeLetsHoldersWindDown(t *testing.T, w *world) {
	c := w.client()
	l := try(t, w.lock(c, "a"))
	done := closing(c, context.Background())
	mustMatch(t, mustBeCanceled(t, l, lock.ReasonClosed), lock.ErrClosed)
	_, err := w.lock(c, "b").TryLock(context.Background())
	mustMatch(t, err, lock.ErrClosed)
	// It is kept for as long as the holder needs.
	always(t, 3*ttl/2, calmly(true, func() bool { return l.Err() == nil && w.left("a") > 0 }))
	select {
	case err := <-done:
		t.Fatalf("Close returned before the holder had released: %v", err)
	default:
	}
	free(t, l)
	if err := await(t, "Close", done); err != nil {
		t.Errorf("Close: %v", err)
	}
	mustBeFree(t, w, "a")
	if recent := c.Recent(); len(recent) == 0 || slices.ContainsFunc(recent, func(e lock.EndedLease) bool { return e.End != "closed" }) {
		t.Errorf("%+v", recent)
	}
}

// abandoned is a client of its own, for no cleanup may demand that all its leases ended.
func abandoned(t *testing.T, w *world) *lock.Client {
	t.Helper()
	c, err := lock.New(w.dial(), lock.WithKeyPrefix(w.prefix), lock.WithLease(ttl), lock.WithLogger(silent))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func closeGivesUp(t *testing.T, w *world) {
	c := abandoned(t, w)
	l := try(t, w.lock(c, "a"))
	l2 := try(t, w.lock(c, "b"))
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	err := c.Close(ctx)
	mustMatch(t, err, context.DeadlineExceeded)
	if !strings.Contains(err.Error(), "2 locks") {
		t.Errorf("%v", err)
	}
	for _, l := range []*lock.Lease{l, l2} {
		await(t, "Done", l.Ended())
		mustMatch(t, l.Err(), lock.ErrClosed)
		mustMatch(t, context.Cause(l.Context()), lock.ErrClosed)
		mustMatch(t, l.Release(t.Context()), lock.ErrClosed)
	}
	// Redis lets it expire.
	free(t, granted(t, begin(context.Background(), w.lock(w.client(), "a"))))
}

func closeTwice(t *testing.T, w *world) {
	c := abandoned(t, w)
	l := try(t, w.lock(c, "a"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	first := c.Close(ctx)
	if first == nil {
		t.Error("Close left a lease and says nothing")
	}
	if again := c.Close(t.Context()); !errors.Is(again, first) {
		t.Errorf("%v, then %v", first, again)
	}
	await(t, "Done", l.Ended())
}
