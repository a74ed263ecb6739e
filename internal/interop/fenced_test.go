//go:build interop

package interop_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/lockdog/lockdog/lock"
)

// grants is how often the lock changes sides.
const grants = 1000

// testAlternates has a fenced lock change sides with every grant. With WithRedissonTokens both draw from one counter, and every
// token is larger than the one before, whoever drew it. Without, each side has a counter of its own: its tokens rise
// whatever the other does, but say nothing about the other's.
func testAlternates(t *testing.T, r *rig, shared bool) {
	o := ours{Locker: r.locks.Mutex(t.Name())}
	if shared {
		o = ours{Locker: r.locks.Mutex(t.Name(), lock.WithRedissonTokens())}
	}
	theirs := remote{r.java, "fenced", t.Name()}
	owner := theirs.owner(t, "a")
	var here, there int64 // the last token, of either side
	began := time.Now()
	for range grants / 2 {
		h := tryLock(t, o)
		if h.Token() <= here || shared && h.Token() <= there {
			t.Fatalf("lockdog's token is %d after its own %d and Redisson's %d", h.Token(), here, there)
		}
		here = h.Token()
		theirs.says(t, false, "a", "tryLock") // tryLockAndGetToken of 4.7.0 would wait
		release(t, h)

		answer := theirs.call(t, "a", "lockAndGetToken")
		token, err := strconv.ParseInt(answer, 10, 64)
		if err != nil || token <= there || shared && token <= here {
			t.Fatalf("Redisson's token is %s after its own %d and lockdog's %d", answer, there, here)
		}
		there = token
		theirs.says(t, token, "b", "getToken")
		if held := refused(t, o); held.Owner != owner {
			t.Fatalf("TryLock: %v, want held by %s", held, owner)
		}
		theirs.call(t, "a", "unlock")
	}
	t.Logf("%d grants in turn took %v; Redisson's last token is %d, lockdog's %d", grants, time.Since(began).Round(time.Millisecond), there, here)
}
