//go:build interop

package interop_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/lockdog/lockdog/lock"
)

const (
	wakeRounds = 20
	wakeWithin = 100 * time.Millisecond // what a waiter of the other side is promised
	// One waiter of those rounds may be later: the machine that runs this has other work, and stops a process now and then.
	wakeOutlier = time.Second
)

// names of locks differ in how the channel of their release is named.
var names = []string{"%s/plain-%d", "{%s}/tagged-%d", "%s/{größe}-%d"}

// testWakes measures the time from a release on one side to the grant on the other. The lease that the holder has left is far
// longer than what is allowed, so a waiter that heard nothing is told from one that was woken.
func testWakes(t *testing.T, r *rig) {
	const held = 20 * time.Second
	var java, golang []time.Duration
	for i := range len(names) + wakeRounds {
		name := fmt.Sprintf(names[i%len(names)], t.Name(), i)
		m, theirs := r.named(name)

		l, err := r.locks.Mutex(name, lock.WithFixedLease(held)).TryLock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		waiter := theirs.send(t, "waiter", "lock", held.Milliseconds())
		r.awaitSubscribers(t, name, 1)
		began := time.Now()
		release(t, l)
		waiter.result(t, callLimit)
		java = append(java, time.Since(began))

		// Now Java holds it.
		r.awaitSubscribers(t, name, 0)
		got := lockSoon(t, m)
		r.awaitSubscribers(t, name, 1)
		began = time.Now()
		theirs.call(t, "waiter", "unlock")
		g := awaitGrant(t, got)
		golang = append(golang, g.at.Sub(began))
		release(t, g.lease)
	}
	// The first of each form are left out: a JVM loads classes when it first needs them.
	java, golang = java[len(names):], golang[len(names):]
	judgeWakes(t, "Go releases, Java waits", java)
	judgeWakes(t, "Java releases, Go waits", golang)
}

func judgeWakes(t *testing.T, what string, took []time.Duration) {
	t.Helper()
	slices.Sort(took)
	worst := took[len(took)-1]
	t.Logf("%s: woken within %v (median of %d), %v (worst)", what, round(took[len(took)/2]), len(took), round(worst))
	if second := took[len(took)-2]; second > wakeWithin || worst > wakeOutlier {
		t.Errorf("%s: woken after %v, want all but one within %v and that within %v", what, took, wakeWithin, wakeOutlier)
	}
}

func round(d time.Duration) time.Duration { return d.Round(10 * time.Microsecond) }

// testExcludes has each side hold the lock while the other tries, and then waits for a time that is too short.
func testExcludes(t *testing.T, r *rig) {
	m, theirs := r.pair(t)

	l := tryLock(t, m)
	theirs.says(t, "false", "a", "tryLock")
	theirs.says(t, "false", "a", "tryLock", 100, -1)
	theirs.says(t, "true", "a", "isLocked")
	theirs.says(t, "false", "a", "isHeldByCurrentThread")
	release(t, l)
	theirs.says(t, "false", "a", "isLocked")

	theirs.says(t, "true", "a", "tryLock")
	owner := theirs.owner(t, "a")
	if held := refused(t, m); held.Owner != owner || held.Remaining <= 0 || held.Remaining > lease {
		t.Errorf("TryLock: %v, want held by %s for up to %v", held, owner, lease)
	}
	_, err := r.locks.Mutex(t.Name(), lock.WithWait(100*time.Millisecond)).Lock(t.Context())
	if !errors.Is(err, lock.ErrHeld) {
		t.Errorf("Lock: %v, want ErrHeld", err)
	}
	if h := inspect(t, m); !h.Held || h.Owner != owner || h.Count != 1 || h.Token != 0 {
		t.Errorf("Inspect: %+v, want held once by %s", h, owner)
	}
	theirs.call(t, "a", "unlock")
	if h := inspect(t, m); h.Held {
		t.Errorf("Inspect: %+v after the release", h)
	}

	release(t, tryLock(t, m))
	leavesNothing(t, r, t.Name())
}

// leavesNothing fails the test when the lock's key is still there.
func leavesNothing(t *testing.T, r *rig, name string) {
	t.Helper()
	n, err := r.rdb.Exists(context.Background(), prefix+name).Result()
	if err != nil || n != 0 {
		t.Errorf("EXISTS %s: %d, %v, want 0", prefix+name, n, err)
	}
}
