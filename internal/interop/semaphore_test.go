//go:build interop

package interop_test

import (
	"encoding/hex"
	"errors"
	"testing"
	"time"

	"github.com/lockdog/lockdog/lock"
)

// testPermitsAgree has both sides take, give back, add and remove permits, and compares what they say are left. It is for both semaphores.
func testPermitsAgree(t *testing.T, r *rig, k *kind) {
	o := k.open(r.locks, t.Name())
	c := o.counted(t)
	theirs := remote{r.java, k.java, t.Name()}
	agree := func(when string, want int) {
		t.Helper()
		if n, err := c.Available(t.Context()); n != want || err != nil {
			t.Fatalf("%s: Available: %d, %v, want %d", when, n, err, want)
		}
		theirs.says(t, want, "asker", "availablePermits")
	}
	resize := func(delta int) {
		t.Helper()
		if err := c.AddPermits(t.Context(), delta); err != nil {
			t.Fatal(err)
		}
	}

	agree("before it was set", 0)
	set(t, o, 4)
	theirs.says(t, false, "a", "trySetPermits", 9)
	agree("lockdog set it", 4)
	mine := []held{tryLock(t, o), tryLock(t, o)}
	agree("lockdog took two", 2)
	first, second := theirs.taken(t, "a", 0), theirs.taken(t, "b", 0)
	agree("Java took two", 0)
	_ = refused(t, o)
	if _, ok := theirs.try(t, "c"); ok {
		t.Fatal("Java got a fifth permit")
	}

	resize(-1)
	agree("lockdog took one away", -1)
	theirs.free(t, "b", second)
	agree("Java gave one back", 0)
	_ = refused(t, o)
	waiter := theirs.take(t, "waiter", 0)
	r.awaitSubscribers(t, k, t.Name(), 1)
	began := time.Now()
	resize(1)
	third := waiter.result(t, callLimit)
	judgeWoken(t, waiter.at.Sub(began))
	r.awaitSubscribers(t, k, t.Name(), 0)

	got := lockSoon(t, o)
	r.awaitSubscribers(t, k, t.Name(), 1)
	began = time.Now()
	theirs.call(t, "a", "addPermits", 1)
	g := awaitGrant(t, got)
	judgeWoken(t, g.at.Sub(began))
	theirs.call(t, "a", "addPermits", -2)
	agree("Java took two away", -2)

	for _, h := range append(mine, g.held) {
		release(t, h)
	}
	theirs.free(t, "waiter", third)
	theirs.free(t, "a", first)
	agree("all gave theirs back", 3) // of 4 - 1 + 1 + 1 - 2

	// A semaphore that Java set up.
	o = k.open(r.locks, t.Name()+"/java")
	theirs.name += "/java"
	theirs.says(t, true, "a", "trySetPermits", 2)
	if done, err := o.counted(t).TrySetPermits(t.Context(), 9); done || err != nil {
		t.Errorf("TrySetPermits: %v, %v, want false", done, err)
	}
	release(t, tryLock(t, o))
	r.has(t, theirs.name, 2)
}

// testManyPermits has callers on both sides that take several permits at once. All of them or none: those who want many aren't given some.
func testManyPermits(t *testing.T, r *rig) {
	k := kindNamed("semaphore")
	s := r.locks.UnleasedSemaphore(t.Name())
	theirs := remote{r.java, "semaphore", t.Name()}
	set(t, ours{bare: s}, 5)
	step := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}

	theirs.call(t, "a", "acquire", 2)
	step(s.Acquire(t.Context(), 3))
	theirs.says(t, false, "a", "tryAcquire", 1)
	waiter := theirs.send(t, "waiter", "acquire", 2)
	r.awaitSubscribers(t, k, t.Name(), 1)
	step(s.Release(t.Context(), 1)) // not enough
	theirs.says(t, 1, "a", "availablePermits")
	if err := s.TryAcquire(t.Context(), 2); !errors.Is(err, lock.ErrHeld) {
		t.Fatalf("TryAcquire: %v, want ErrHeld", err)
	}
	step(s.Release(t.Context(), 1))
	waiter.result(t, callLimit)
	r.awaitSubscribers(t, k, t.Name(), 0)

	got := make(chan error, 1)
	go func() { got <- s.Acquire(t.Context(), 4) }()
	r.awaitSubscribers(t, k, t.Name(), 1)
	theirs.call(t, "a", "release", 3)
	select {
	case err := <-got:
		t.Fatalf("4 permits were taken of 3: %v", err)
	case <-time.After(lease / 3):
	}
	theirs.call(t, "a", "release", 1)
	select {
	case err := <-got:
		step(err)
	case <-time.After(callLimit):
		t.Fatal("nobody took the permits that Java gave back")
	}
	r.has(t, t.Name(), 0)
	theirs.says(t, 0, "a", "drainPermits")
	step(s.Release(t.Context(), 5))
	theirs.says(t, 5, "a", "drainPermits")
	r.has(t, t.Name(), 0)
}

// testLeasedPermits looks at permits with leases from the other side: Redisson must take lockdog's for its own, and lockdog reclaim
// Redisson's that have run out.
func testLeasedPermits(t *testing.T, r *rig) {
	k := kindNamed("permits")
	o := k.open(r.locks, t.Name())
	theirs := remote{r.java, "permits", t.Name()}
	set(t, o, 2)
	h := tryLock(t, o)
	theirs.says(t, 1, "a", "acquiredPermits")
	s := r.locks.Semaphore(t.Name())
	for _, n := range []int{2, 5, 1, 2} { // both sides count the permits that are held
		if err := s.EnsurePermits(t.Context(), n); err != nil {
			t.Fatalf("EnsurePermits(%d): %v", n, err)
		}
		theirs.says(t, n, "a", "getPermits")
		theirs.says(t, n-1, "a", "availablePermits")
		if total, err := s.Total(t.Context()); err != nil || total != n {
			t.Errorf("Total: %d, %v, want %d", total, err, n)
		}
	}
	members, err := r.rdb.ZRange(t.Context(), permitsKey(prefix+t.Name()), 0, -1).Result()
	if err != nil || len(members) != 1 || len(members[0]) != 16 {
		t.Fatalf("the permits taken are %q, %v; want one of 16 bytes", members, err)
	}
	id := hex.EncodeToString([]byte(members[0]))

	// Java's runs out, and lockdog, which waits, has it.
	const brief = 300 * time.Millisecond
	began := time.Now()
	gone := theirs.taken(t, "a", brief)
	got := lockSoon(t, o)
	g := awaitGrant(t, got)
	if took := g.at.Sub(began); took < brief-tick || took > brief+slack {
		t.Errorf("lockdog has the permit after %v, want it after Java's lease of %v", took, brief)
	}
	theirs.says(t, false, "a", "tryRelease", gone)
	theirs.says(t, 2, "a", "acquiredPermits")
	r.has(t, t.Name(), 0)
	release(t, g.held)

	// Java gives lockdog's back, under its id: there is no owner.
	theirs.says(t, true, "a", "tryRelease", id)
	awaitLost(t, h)
	r.has(t, t.Name(), 2)
	receipts := []string{theirs.taken(t, "a", 0), theirs.taken(t, "b", 0)}
	if err := h.Release(t.Context()); !errors.Is(err, lock.ErrLost) {
		t.Errorf("release: %v, want ErrLost", err)
	}
	r.has(t, t.Name(), 0) // Java's two are untouched
	for _, receipt := range receipts {
		theirs.free(t, "a", receipt)
	}
	r.has(t, t.Name(), 2)
}
