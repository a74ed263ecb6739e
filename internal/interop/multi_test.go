//go:build interop

package interop_test

import (
	"errors"
	"testing"
	"time"

	"github.com/lockdog/lockdog/lock"
)

// testMulti has lockdog hold two names at once, which are two locks to Redisson, and wait for one that Java has. In a cluster the
// first pair is in two slots.
func testMulti(t *testing.T, r *rig) {
	for _, format := range []string{"", "{tag}"} {
		first, second := t.Name()+format+"/1", t.Name()+format+"/2"
		m := r.locks.Multi([]string{first, second})
		one, two := remote{r.java, "lock", first}, remote{r.java, "lock", second}
		l, err := m.TryLock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		one.says(t, false, "a", "tryLock")
		two.says(t, false, "a", "tryLock")
		if err := l.Release(t.Context()); err != nil {
			t.Fatal(err)
		}

		two.says(t, true, "a", "tryLock")
		_, err = m.TryLock(t.Context())
		var held *lock.HeldError
		if !errors.As(err, &held) || held.Name != second || held.Owner != two.owner(t, "a") {
			t.Fatalf("TryLock: %v, want a HeldError that names %s and its owner", err, second)
		}
		one.says(t, true, "a", "tryLock") // nothing of it is held
		one.call(t, "a", "unlock")

		got := lockSoon(t, ours{Locker: m})
		r.awaitSubscribers(t, kindNamed("lock"), second, 1)
		began := time.Now()
		two.call(t, "a", "unlock")
		g := awaitGrant(t, got)
		judgeWoken(t, g.at.Sub(began))
		waiters := []*call{one.send(t, "waiter", "lock"), two.send(t, "waiter", "lock")}
		r.awaitSubscribers(t, kindNamed("lock"), first, 1)
		r.awaitSubscribers(t, kindNamed("lock"), second, 1)
		began = time.Now()
		release(t, g.held)
		for _, w := range waiters {
			w.result(t, callLimit)
			judgeWoken(t, w.at.Sub(began))
		}
		one.call(t, "waiter", "unlock")
		two.call(t, "waiter", "unlock")
		r.leavesNothing(t, kindNamed("lock"), first)
		r.leavesNothing(t, kindNamed("lock"), second)
	}
}
