//go:build interop

package interop_test

import (
	"maps"
	"strings"
	"testing"
)

// metadata is the field that lockdog keeps beside the owner: the token and the holder's trace.
const metadata = "@lockdog"

func fields(t *testing.T, r *rig, name string) map[string]string {
	t.Helper()
	all, err := r.rdb.HGetAll(t.Context(), prefix+name).Result()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// testMetadata makes every call of Redisson's while lockdog holds the lock. None may be misled by the field that isn't an
// owner, and none may change it.
func testMetadata(t *testing.T, r *rig) {
	m, theirs := r.pair(t)
	l := tryLock(t, m)
	before := fields(t, r, t.Name())
	if len(before) != 2 || before[l.Owner()] != "1" || !strings.Contains(before[metadata], " 00-") {
		t.Fatalf("the lock is %v, want the owner %s and a token with a traceparent", before, l.Owner())
	}

	theirs.says(t, "true", "a", "isLocked")
	theirs.says(t, "0", "a", "getHoldCount")
	theirs.says(t, "false", "a", "isHeldByCurrentThread")
	theirs.says(t, "false", "a", "isHeldByThread", 1)
	theirs.says(t, "false", "a", "tryLock")
	theirs.says(t, "false", "a", "tryLock", 50, 1000)
	theirs.throws(t, "IllegalMonitorStateException", "a", "unlock")
	if left := theirs.remaining(t); left <= 0 || left > lease {
		t.Errorf("remainTimeToLive: %v, want up to %v", left, lease)
	}

	if after := fields(t, r, t.Name()); !maps.Equal(before, after) {
		t.Errorf("the lock was %v and is %v", before, after)
	}
	if h := inspect(t, m); h.Owner != l.Owner() || h.Token != l.Token() || h.TraceID == "" {
		t.Errorf("Inspect: %+v, want owner %s, token %d and a trace", h, l.Owner(), l.Token())
	}
	release(t, l)
	leavesNothing(t, r, t.Name())

	l = tryLock(t, m)
	theirs.says(t, "true", "a", "forceUnlock")
	leavesNothing(t, r, t.Name())
	theirs.says(t, "false", "a", "forceUnlock")
	awaitLost(t, l)
}

// testMetadataUnderJava puts the field into a lock that Java holds, where lockdog would never put it, and goes through
// a re-entry: the field must neither count as an owner nor keep the lock alive.
func testMetadataUnderJava(t *testing.T, r *rig) {
	m, theirs := r.pair(t)
	owner := theirs.owner(t, "a")
	theirs.call(t, "a", "lock")
	if err := r.rdb.HSet(t.Context(), prefix+t.Name(), metadata, "1").Err(); err != nil {
		t.Fatal(err)
	}
	theirs.says(t, "true", "a", "tryLock")
	theirs.says(t, "2", "a", "getHoldCount")
	if h := inspect(t, m); h.Owner != owner || h.Count != 2 {
		t.Errorf("Inspect: %+v, want %s twice", h, owner)
	}
	theirs.call(t, "a", "unlock")
	if held := refused(t, m); held.Owner != owner {
		t.Errorf("TryLock: %v, want held by %s", held, owner)
	}
	theirs.call(t, "a", "unlock")
	leavesNothing(t, r, t.Name())
}
