//go:build interop

package interop_test

import (
	"testing"
	"time"

	"github.com/lockdog/lockdog/lock"
)

// testJavaReentry has a Java thread enter twice.
func testJavaReentry(t *testing.T, r *rig, k *kind) {
	o, theirs := r.pair(t, k)
	owner := theirs.owner(t, "a")

	theirs.call(t, "a", "lock")
	theirs.says(t, true, "a", "tryLock")
	if !k.javaShares() {
		theirs.says(t, false, "b", "tryLock")
	}
	theirs.says(t, 2, "a", "getHoldCount")
	theirs.says(t, 0, "b", "getHoldCount")
	if h := inspect(t, o); h.Owner != owner || h.Count != 2 {
		t.Errorf("Inspect: %+v, want %s twice", h, owner)
	}

	theirs.call(t, "a", "unlock")
	theirs.says(t, 1, "a", "getHoldCount")
	if h := inspect(t, o); h.Owner != owner || h.Count != 1 {
		t.Errorf("Inspect: %+v, want %s once", h, owner)
	}
	if held := refused(t, o); held.Owner != owner {
		t.Errorf("TryLock: %v, want held by %s", held, owner)
	}

	theirs.call(t, "a", "unlock")
	if k.name == "fair" { // Redisson's says so of every free lock, to whoever asks
		theirs.says(t, "unlocked", "a", "unlock")
	} else {
		theirs.throws(t, "IllegalMonitorStateException", "a", "unlock")
	}
	release(t, tryLock(t, o))
}

// testGoReentry has lockdog enter twice, which is one grant in Redis.
func testGoReentry(t *testing.T, r *rig, k *kind) {
	_, theirs := r.pair(t, k)
	o := k.open(r.locks, t.Name(), lock.WithReentrancy())

	outer := tryLock(t, o)
	inner, err := o.Lock(outer.Context())
	if err != nil {
		t.Fatal(err)
	}
	theirs.says(t, false, "a", "tryLock")
	if h := inspect(t, o); h.Owner != outer.Owner() || h.Count != 1 {
		t.Errorf("Inspect: %+v, want %s once", h, outer.Owner())
	}
	if err := inner.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	theirs.says(t, false, "a", "tryLock")
	release(t, outer)
	theirs.says(t, true, "a", "tryLock")
	theirs.call(t, "a", "unlock")
}

// testRemaining compares what both sides say of leases that are not renewed, of each other's and of none.
func testRemaining(t *testing.T, r *rig, k *kind) {
	const fixed = 30 * time.Second
	_, theirs := r.pair(t, k)
	o := k.open(r.locks, t.Name(), lock.WithFixedLease(fixed))
	agree := func(when string, low, high time.Duration) {
		t.Helper()
		here, there := inspect(t, o).Remaining, theirs.remaining(t)
		if here < low || here > high || there < low || there > high {
			t.Errorf("%s: Inspect says %v, remainTimeToLive %v, want both from %v to %v", when, here, there, low, high)
		}
	}

	h := tryLock(t, o)
	agree("lockdog holds", fixed-slack, fixed)
	release(t, h)
	theirs.call(t, "a", "lock", fixed.Milliseconds())
	agree("Redisson holds", fixed-slack, fixed)
	theirs.call(t, "a", "unlock")
	if h := inspect(t, o); h.Held {
		t.Errorf("Inspect: %+v of a free lock", h)
	}
	if left := theirs.remaining(t); left != -2*time.Millisecond { // Redis's answer for no key
		t.Errorf("remainTimeToLive of a free lock: %v, want -2ms", left)
	}

	// lockdog gives a lock back when it no longer trusts its lease, which is a margin earlier than Redis would.
	const (
		brief  = 300 * time.Millisecond
		margin = brief/100 + 2*time.Millisecond
	)
	began := time.Now()
	tryLock(t, k.open(r.locks, t.Name(), lock.WithFixedLease(brief)))
	theirs.call(t, "a", "lock")
	if took := time.Since(began); took < brief-margin-tick || took > brief+slack {
		t.Errorf("Redisson got it after %v, want it after the fixed lease of %v", took, brief)
	}
	theirs.call(t, "a", "unlock")
}
