//go:build interop

package interop_test

import (
	"strconv"
	"testing"
	"time"
)

// grants is how often the lock changes sides.
const grants = 1000

// testAlternates has a fenced lock change sides with every grant. Each side has a counter of its own in Redis, so its tokens
// rise whatever the other does; they say nothing about each other: Redisson's count grants, lockdog's are larger than any.
func testAlternates(t *testing.T, r *rig) {
	m, theirs := r.pair(t)
	theirs.kind = "fenced"
	owner := theirs.owner(t, "a")
	var ours, last int64
	began := time.Now()
	for range grants / 2 {
		l := tryLock(t, m)
		if l.Token() <= ours {
			t.Fatalf("lockdog's token is %d after %d", l.Token(), ours)
		}
		ours = l.Token()
		theirs.says(t, "false", "a", "tryLock") // tryLockAndGetToken of 4.7.0 would wait
		release(t, l)

		answer := theirs.call(t, "a", "lockAndGetToken")
		token, err := strconv.ParseInt(answer, 10, 64)
		if err != nil || token <= last {
			t.Fatalf("Redisson's token is %s after %d", answer, last)
		}
		last = token
		if held := refused(t, m); held.Owner != owner {
			t.Fatalf("TryLock: %v, want held by %s", held, owner)
		}
		theirs.call(t, "a", "unlock")
	}
	t.Logf("%d grants in turn took %v; Redisson's last token is %d, lockdog's %d", grants, time.Since(began).Round(time.Millisecond), last, ours)
}
