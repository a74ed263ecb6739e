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
func awaitLost(t *testing.T, l *lock.Lease) {
	t.Helper()
	select {
	case <-l.Done():
	case <-time.After(lease/3 + slack):
		t.Fatalf("lockdog's lease is still trusted, %v after it was taken away", lease/3+slack)
	}
	if err := l.Err(); !errors.Is(err, lock.ErrLost) {
		t.Errorf("the lease ended with %v, want ErrLost", err)
	}
}

// testJavaForces has Java take locks away from lockdog: with a waiter of lockdog's, which gets it, and with one of Java's.
func testJavaForces(t *testing.T, r *rig) {
	m, theirs := r.pair(t)
	l := tryLock(t, m)
	// A second client: in the holder's own this would be a local waiter.
	got := lockSoon(t, newLocks(t, r.rdb).Mutex(t.Name()))
	r.awaitSubscribers(t, t.Name(), 1)
	began := time.Now()
	theirs.says(t, "true", "forcer", "forceUnlock")
	next := awaitGrant(t, got)
	judgeWoken(t, next.at.Sub(began))
	if next.lease.Token() <= l.Token() {
		t.Errorf("token %d after %d", next.lease.Token(), l.Token())
	}
	awaitLost(t, l)

	waiter := theirs.send(t, "waiter", "lock")
	r.awaitSubscribers(t, t.Name(), 1)
	began = time.Now()
	theirs.says(t, "true", "forcer", "forceUnlock")
	waiter.result(t, callLimit)
	judgeWoken(t, time.Since(began))
	awaitLost(t, next.lease)
	theirs.call(t, "waiter", "unlock")

	// Released before lockdog can know that the lock is Java's by now.
	l = tryLock(t, m)
	theirs.says(t, "true", "forcer", "forceUnlock")
	theirs.says(t, "true", "a", "tryLock")
	if err := l.Release(t.Context()); !errors.Is(err, lock.ErrLost) {
		t.Errorf("release: %v, want ErrLost", err)
	}
	theirs.says(t, "true", "a", "isHeldByCurrentThread")
	theirs.call(t, "a", "unlock")
	leavesNothing(t, r, t.Name())
}

// judgeWoken tells a waiter that was woken from one that waited for the end of a watched lease, of which never less than two
// thirds are left.
func judgeWoken(t *testing.T, took time.Duration) {
	t.Helper()
	if took > lease/3 {
		t.Errorf("the waiter had the lock %v after it was forced, want within %v", took, lease/3)
	}
}

// testGoForces has lockdog take locks away from Java: with a waiter of Java's and with one of lockdog's.
func testGoForces(t *testing.T, r *rig) {
	m, theirs := r.pair(t)
	theirs.call(t, "a", "lock")
	theirs.call(t, "a", "lock") // the count doesn't matter
	waiter := theirs.send(t, "b", "lock")
	r.awaitSubscribers(t, t.Name(), 1)
	began := time.Now()
	force(t, m, true)
	waiter.result(t, callLimit)
	judgeWoken(t, time.Since(began))
	theirs.says(t, "false", "a", "isHeldByCurrentThread")
	theirs.throws(t, "IllegalMonitorStateException", "a", "unlock")
	theirs.says(t, "true", "b", "isHeldByCurrentThread")

	// Java waits no more, and its subscription ends.
	r.awaitSubscribers(t, t.Name(), 0)
	const fixed = 2 * time.Second // longer than Java's watchdog, which still thinks that b holds it, takes to come by
	got := lockSoon(t, r.locks.Mutex(t.Name(), lock.WithFixedLease(fixed)))
	r.awaitSubscribers(t, t.Name(), 1)
	began = time.Now()
	force(t, m, true)
	g := awaitGrant(t, got)
	judgeWoken(t, g.at.Sub(began))

	// Java's watchdog must not renew what isn't Java's.
	until(t, "the fixed lease ends", func(ctx context.Context) error {
		h, err := m.Inspect(ctx)
		if err == nil && h.Held {
			err = errors.New("still held")
		}
		return err
	})
	if took := time.Since(g.at); took > fixed+slack/2 {
		t.Errorf("a fixed lease of %v lasted %v", fixed, took)
	}
	force(t, m, false)
}

func force(t *testing.T, m *lock.Mutex, want bool) {
	t.Helper()
	if was, err := m.ForceUnlock(t.Context()); was != want || err != nil {
		t.Fatalf("ForceUnlock: %v, %v, want %v", was, err, want)
	}
}
