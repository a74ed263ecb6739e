//go:build interop

package interop_test

import (
	"testing"
	"time"
)

// testWatchdogs has each side keep a lock for longer than three leases, while the other tries to get it all the time.
func testWatchdogs(t *testing.T, r *rig) {
	goes, goesThere := r.named(t.Name() + "/go")
	java, javaThere := r.named(t.Name() + "/java")
	l := tryLock(t, goes)
	javaThere.call(t, "holder", "lock")

	least := map[string]time.Duration{"lockdog": lease, "Redisson": lease}
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for began := time.Now(); time.Since(began) < 3*lease+lease/3; <-ticker.C {
		goesThere.says(t, "false", "other", "tryLock")
		least["lockdog"] = min(least["lockdog"], goesThere.remaining(t))
		least["Redisson"] = min(least["Redisson"], refused(t, java).Remaining)
	}
	for side, left := range least {
		t.Logf("the watchdog of %s never let less than %v of %v remain", side, left.Round(time.Millisecond), lease)
		if left <= 0 {
			t.Errorf("the lock of %s had no lease", side)
		}
	}

	if err := l.Err(); err != nil {
		t.Errorf("lockdog's lease: %v", err)
	}
	javaThere.says(t, "true", "holder", "isHeldByCurrentThread")
	release(t, l)
	javaThere.call(t, "holder", "unlock")
	leavesNothing(t, r, goesThere.name)
	leavesNothing(t, r, javaThere.name)
}
