//go:build interop

package interop_test

import (
	"testing"
	"time"
)

const (
	slack = time.Second          // how long after its lease a waiter has the lock of a crashed holder at the latest
	tick  = 2 * time.Millisecond // Redis counts leases in whole milliseconds
)

// testJavaCrash kills a JVM that holds a lock which lockdog waits for.
func testJavaCrash(t *testing.T, r *rig) {
	doomed := launchJava(t, r.universal.Addrs, prefix, lease).ready(t)
	m, _ := r.pair(t)
	remote{doomed, "lock", t.Name()}.call(t, "holder", "lock")
	got := lockSoon(t, m)
	r.awaitSubscribers(t, t.Name(), 1)

	killed := time.Now()
	doomed.kill(t)
	left := inspect(t, m).Remaining
	g := awaitGrant(t, got)
	judgeCrash(t, g.at.Sub(killed), left)
	release(t, g.lease)
}

// testGoCrash kills a process with lockdog that holds a lock which Java waits for.
func testGoCrash(t *testing.T, r *rig) {
	doomed := launchGo(t, r.universal.Addrs, lease).ready(t)
	m, theirs := r.pair(t)
	remote{doomed, "lock", t.Name()}.call(t, "holder", "lock")
	waiter := theirs.send(t, "waiter", "lock")
	r.awaitSubscribers(t, t.Name(), 1)

	killed := time.Now()
	doomed.kill(t)
	left := inspect(t, m).Remaining
	waiter.result(t, callLimit)
	judgeCrash(t, time.Since(killed), left)
	theirs.call(t, "waiter", "unlock")
}

// judgeCrash looks at the time from the crash to the grant. left is what the lease had when the holder was dead.
func judgeCrash(t *testing.T, took, left time.Duration) {
	t.Helper()
	t.Logf("granted %v after the crash, when %v of the lease were left", took.Round(time.Millisecond), left.Round(time.Millisecond))
	if took > lease+slack {
		t.Errorf("granted %v after the crash, want at most %v", took, lease+slack)
	}
	if left <= 0 || took < left-tick {
		t.Errorf("granted %v after the crash, while the lease had %v left", took, left)
	}
}
