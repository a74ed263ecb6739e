//go:build interop

package interop_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockdog/lockdog/lock"
)

const (
	wakeRounds = 20
	wakeWithin = 100 * time.Millisecond // what a waiter of the other side is promised
	// Few of those rounds may be later: the machine that runs this has other work, and stops a process now and then.
	wakeOutliers = wakeRounds / 3
)

// names of locks differ in how the channel of their release is named.
var names = []string{"%s/plain-%d", "{%s}/tagged-%d", "%s/{größe}-%d"}

// testWakes measures the time from a release on one side to the grant on the other. The lease that the holder has left is far
// longer than what is allowed, so a waiter that heard nothing is told from one that was woken.
func testWakes(t *testing.T, r *rig, k *kind) {
	const lasts = 20 * time.Second
	var opts []lock.LockOption
	if !k.bare { // else it has no lease at all
		opts = append(opts, lock.WithFixedLease(lasts))
	}
	var java, golang []time.Duration
	for i := range len(names) + wakeRounds {
		name := fmt.Sprintf(names[i%len(names)], t.Name(), i)
		o, theirs := r.named(t, k, name)

		h := tryLock(t, k.open(r.locks, name, opts...))
		waiter := theirs.take(t, "waiter", lasts)
		r.awaitSubscribers(t, k, name, 1)
		fallAsleep(k)
		began := time.Now()
		release(t, h)
		receipt := waiter.result(t, callLimit)
		java = append(java, waiter.at.Sub(began))
		heard(t, waiter.at.Sub(began), lasts)

		// Now Java holds it.
		r.awaitSubscribers(t, k, name, 0)
		got := lockSoon(t, o)
		r.awaitSubscribers(t, k, name, 1)
		began = time.Now()
		theirs.free(t, "waiter", receipt)
		g := awaitGrant(t, got)
		golang = append(golang, g.at.Sub(began))
		heard(t, g.at.Sub(began), lasts)
		release(t, g.held)
	}
	// The first of each form are left out: a JVM loads classes when it first needs them.
	java, golang = java[len(names):], golang[len(names):]
	judgeWakes(t, "Go releases, Java waits", java)
	judgeWakes(t, "Java releases, Go waits", golang)
}

// toSleep is the time that a thread of Java's which has subscribed may take until it sleeps: the message of a writer that leaves wakes only
// those who do (Redisson counts them), and nothing shows from outside whether it does.
const toSleep = 100 * time.Millisecond

func fallAsleep(k *kind) {
	if strings.Contains(k.name, "write") {
		time.Sleep(toSleep)
	}
}

// heard ends the test when the waiter waited for the end of the lease: so would all others.
func heard(t *testing.T, took, lasts time.Duration) {
	t.Helper()
	if took > lasts/2 {
		t.Fatalf("nobody woke the waiter: it waited for %v", took)
	}
}

func judgeWakes(t *testing.T, what string, took []time.Duration) {
	t.Helper()
	slices.Sort(took)
	worst := took[len(took)-1]
	t.Logf("%s: woken within %v (median of %d), %v (worst)", what, round(took[len(took)/2]), len(took), round(worst))
	if took[len(took)-1-wakeOutliers] > wakeWithin {
		t.Errorf("%s: woken after %v, want all but %d within %v", what, took, wakeOutliers, wakeWithin)
	}
}

func round(d time.Duration) time.Duration { return d.Round(10 * time.Microsecond) }

// testExcludes has each side hold it while the other tries, and then waits for a time that is too short.
func testExcludes(t *testing.T, r *rig, k *kind) {
	const tooShort = 100 * time.Millisecond
	o, theirs := r.pair(t, k)
	same := theirs.as(k.same)

	h := tryLock(t, o)
	if _, ok := theirs.try(t, "a"); ok {
		t.Fatal("Java has it, too")
	}
	if theirs.tryFor(t, "a", tooShort) {
		t.Fatalf("Java has it, too, after %v", tooShort)
	}
	if k.isLock() {
		same.says(t, true, "a", "isLocked")
		same.says(t, false, "a", "isHeldByCurrentThread")
	}
	release(t, h)
	if k.isLock() {
		same.says(t, false, "a", "isLocked")
	}

	receipt, ok := theirs.try(t, "a")
	if !ok {
		t.Fatal("Java doesn't get what was released")
	}
	held := refused(t, o)
	_, err := k.open(r.locks, t.Name(), lock.WithWait(tooShort)).take(t.Context(), true)
	if !errors.Is(err, lock.ErrHeld) {
		t.Errorf("Lock: %v, want ErrHeld", err)
	}
	if k.isLock() {
		owner := theirs.owner(t, "a")
		if held.Owner != owner || held.Remaining <= 0 || held.Remaining > lease {
			t.Errorf("TryLock: %v, want held by %s for up to %v", held, owner, lease)
		}
		if is := inspect(t, o); !is.Held || is.Owner != owner || is.Count != 1 || is.Token != 0 {
			t.Errorf("Inspect: %+v, want held once by %s", is, owner)
		}
	}
	theirs.free(t, "a", receipt)
	if k.isLock() {
		if is := inspect(t, o); is.Held {
			t.Errorf("Inspect: %+v after the release", is)
		}
	}

	release(t, tryLock(t, o))
	r.leavesNothing(t, k, t.Name())
}
