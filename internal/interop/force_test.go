//go:build interop

package interop_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/lockdog/lockdog/lock"
)

// awaitLost waits until the lease is lost, by its next renewal at the latest.
func awaitLost(t *testing.T, h held) {
	t.Helper()
	select {
	case <-h.Ended():
	case <-time.After(lease/3 + slack):
		t.Fatalf("lockdog's lease is still trusted, %v after it was taken away", lease/3+slack)
	}
	if err := h.Err(); !errors.Is(err, lock.ErrLost) {
		t.Errorf("the lease ended with %v, want ErrLost", err)
	}
}

// testJavaForces has Java take locks away from lockdog: with a waiter of lockdog's, which gets it, and with one of Java's.
func testJavaForces(t *testing.T, r *rig, k *kind) {
	o, theirs := r.pair(t, k)
	same := theirs.as(k.same)
	h := tryLock(t, o)
	if !k.goShares() {
		// A second client: in the holder's own this would be a local waiter.
		got := lockSoon(t, k.open(newLocks(t, r.rdb), t.Name()))
		r.awaitSubscribers(t, k, t.Name(), 1)
		began := time.Now()
		same.says(t, true, "forcer", "forceUnlock")
		next := awaitGrant(t, got)
		judgeWoken(t, next.at.Sub(began))
		if next.Token() <= h.Token() {
			t.Errorf("token %d after %d", next.Token(), h.Token())
		}
		awaitLost(t, h)
		h = next.held
	}

	waiter := theirs.send(t, "waiter", "lock")
	r.awaitSubscribers(t, k, t.Name(), 1)
	fallAsleep(k)
	began := time.Now()
	same.says(t, true, "forcer", "forceUnlock")
	waiter.result(t, callLimit)
	judgeWoken(t, waiter.at.Sub(began))
	awaitLost(t, h)
	theirs.call(t, "waiter", "unlock")

	// Released before lockdog can know that the lock is Java's by now.
	h = tryLock(t, o)
	same.says(t, true, "forcer", "forceUnlock")
	theirs.says(t, true, "a", "tryLock")
	if err := h.Release(t.Context()); !errors.Is(err, lock.ErrLost) {
		t.Errorf("release: %v, want ErrLost", err)
	}
	theirs.says(t, true, "a", "isHeldByCurrentThread")
	theirs.call(t, "a", "unlock")
	r.leavesNothing(t, k, t.Name())
}

// judgeWoken tells a waiter that was woken from one that waited for the end of a watched lease, of which never less than two
// thirds are left.
func judgeWoken(t *testing.T, took time.Duration) {
	t.Helper()
	if took > lease/2 {
		t.Errorf("the waiter had the lock %v after it was free, want within %v", took, lease/2)
	}
}

// testGoForces has lockdog take locks away from Java: with a waiter of Java's and with one of lockdog's.
func testGoForces(t *testing.T, r *rig, k *kind) {
	o, theirs := r.pair(t, k)
	theirs.call(t, "a", "lock")
	theirs.call(t, "a", "lock") // the count doesn't matter
	if k.javaShares() {
		theirs.call(t, "b", "lock")
		force(t, o, true)
	} else {
		waiter := theirs.send(t, "b", "lock")
		r.awaitSubscribers(t, k, t.Name(), 1)
		fallAsleep(k)
		began := time.Now()
		force(t, o, true)
		waiter.result(t, callLimit)
		judgeWoken(t, waiter.at.Sub(began))
		theirs.says(t, true, "b", "isHeldByCurrentThread")
	}
	theirs.says(t, false, "a", "isHeldByCurrentThread")
	theirs.throws(t, "IllegalMonitorStateException", "a", "unlock")

	// Java waits no more, and its subscription ends.
	r.awaitSubscribers(t, k, t.Name(), 0)
	if k.javaShares() {
		theirs.call(t, "b", "lock")
	}
	const fixed = lease / 2 // longer than Java's watchdog, which still thinks that b holds it, takes to come by
	got := lockSoon(t, k.open(r.locks, t.Name(), lock.WithFixedLease(fixed)))
	r.awaitSubscribers(t, k, t.Name(), 1)
	began := time.Now()
	force(t, o, true)
	g := awaitGrant(t, got)
	judgeWoken(t, g.at.Sub(began))

	// Java's watchdog must not renew what isn't Java's.
	until(t, "the fixed lease ends", func(ctx context.Context) error {
		h, err := o.inspected(t).Inspect(ctx)
		if err == nil && h.Held {
			err = errors.New("still held")
		}
		return err
	})
	if took := time.Since(g.at); took > fixed+slack {
		t.Errorf("a fixed lease of %v lasted %v", fixed, took)
	}
	force(t, o, false)
}

func force(t *testing.T, o ours, want bool) {
	t.Helper()
	if was, err := o.inspected(t).ForceUnlock(t.Context()); was != want || err != nil {
		t.Fatalf("ForceUnlock: %v, %v, want %v", was, err, want)
	}
}
