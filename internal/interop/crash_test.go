//go:build interop

package interop_test

import (
	"testing"
	"time"
)

const (
	slack = 10 * time.Second     // how long after its lease a waiter has the lock of a crashed holder at the latest
	tick  = 2 * time.Millisecond // Redis counts leases in whole milliseconds
)

// crashed is one of a kind that a process held when it was killed.
type crashed struct {
	*kind
	o      ours
	theirs remote
	got    <-chan grant // a waiter of lockdog's
	waiter *call        // a waiter of Java's
	left   time.Duration
}

// ofEach has the process take one of each kind that has a lease. Redisson doesn't renew permits.
func ofEach(t *testing.T, r *rig, doomed *peer, called func(*kind) string) []*crashed {
	t.Helper()
	var all []*crashed
	for i := range kinds {
		k := &kinds[i]
		if k.bare {
			continue
		}
		c := &crashed{kind: k}
		c.o, c.theirs = r.named(t, k, t.Name()+"/"+k.name)
		fixed := time.Duration(0)
		if called(k) == "permits" {
			fixed = lease
		}
		remote{doomed, called(k), c.theirs.name}.taken(t, "holder", fixed)
		all = append(all, c)
	}
	return all
}

// testJavaCrash kills a JVM that holds locks which lockdog waits for.
func testJavaCrash(t *testing.T, r *rig) {
	doomed := launchJava(t, r.universal.Addrs, prefix, lease).ready(t)
	all := ofEach(t, r, doomed, func(k *kind) string { return k.java })
	for _, c := range all {
		c.got = lockSoon(t, c.o)
		r.awaitSubscribers(t, c.kind, c.theirs.name, 1)
	}

	killed := time.Now()
	doomed.kill(t)
	for _, c := range all {
		c.left = time.Since(killed) + refused(t, c.rival(r, c.theirs.name)).Remaining
	}
	for _, c := range all {
		g := awaitGrant(t, c.got)
		c.judge(t, g.at.Sub(killed))
		release(t, g.held)
	}
}

// testGoCrash kills a process with lockdog that holds locks which Java waits for.
func testGoCrash(t *testing.T, r *rig) {
	doomed := launchGo(t, r.universal.Addrs, lease).ready(t)
	all := ofEach(t, r, doomed, func(k *kind) string { return k.name })
	for _, c := range all {
		c.waiter = c.theirs.take(t, "waiter", 0)
		r.awaitSubscribers(t, c.kind, c.theirs.name, 1)
	}

	killed := time.Now()
	doomed.kill(t)
	for _, c := range all {
		c.left = time.Since(killed) + refused(t, c.rival(r, c.theirs.name)).Remaining
	}
	for _, c := range all {
		receipt := c.waiter.result(t, callLimit)
		c.judge(t, c.waiter.at.Sub(killed))
		c.theirs.free(t, "waiter", receipt)
	}
}

// judge looks at the time from the crash to the grant. left is what the lease had when the holder was dead.
func (c *crashed) judge(t *testing.T, took time.Duration) {
	t.Helper()
	t.Logf("%s: granted %v after the crash, when %v of the lease were left", c.name, took.Round(time.Millisecond), c.left.Round(time.Millisecond))
	if took > lease+slack {
		t.Errorf("%s: granted %v after the crash, want at most %v", c.name, took, lease+slack)
	}
	if c.left <= 0 || took < c.left-tick {
		t.Errorf("%s: granted %v after the crash, while the lease had %v left", c.name, took, c.left)
	}
}
