//go:build interop

package interop_test

import (
	"errors"
	"maps"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

// metadata is the field that lockdog keeps beside the owner: the token and the holder's trace. The hash of a read-write lock can't have
// it, as Redisson counts the fields there: it is the mark, the value of the key that has the owner's lease.
const (
	metadata = "@lockdog"
	mark     = "(mark)"
)

// fields are those of the lock's hash, and the mark if there is one.
func fields(t *testing.T, r *rig, k *kind, name, owner string) map[string]string {
	t.Helper()
	all, err := r.rdb.HGetAll(t.Context(), prefix+name).Result()
	if err != nil {
		t.Fatal(err)
	}
	if k.readWrite() {
		value, err := r.rdb.Get(t.Context(), timeoutKey(prefix+name, owner)).Result()
		switch {
		case err == nil:
			all[mark] = value
		case !errors.Is(err, redis.Nil):
			t.Fatal(err)
		}
	}
	return all
}

// timeoutKey is where Redisson has the lease of one reader.
func timeoutKey(key, owner string) string { return suffixName(key, owner) + ":rwlock_timeout:1" }

// testMetadata makes every call of Redisson's while lockdog holds the lock. None may be misled by what isn't an owner,
// and none may change it.
func testMetadata(t *testing.T, r *rig, k *kind) {
	o, theirs := r.pair(t, k)
	same := theirs.as(k.same)
	h := tryLock(t, o)
	before := fields(t, r, k, t.Name(), h.Owner())
	beside := metadata
	if k.readWrite() {
		beside = mark
	}
	want := map[string]string{h.Owner(): "1", beside: before[beside]}
	if k.readWrite() {
		want["mode"] = same.kind
	}
	if !maps.Equal(before, want) || !strings.Contains(before[beside], " 00-") {
		t.Fatalf("the lock is %v, want %v, with a token and a traceparent", before, want)
	}

	for _, there := range []remote{theirs, same} {
		there.says(t, 0, "a", "getHoldCount")
		there.says(t, false, "a", "isHeldByCurrentThread")
		there.says(t, false, "a", "isHeldByThread", 1)
		there.throws(t, "IllegalMonitorStateException", "a", "unlock")
		if left := there.remaining(t); left <= 0 || left > lease {
			t.Errorf("remainTimeToLive: %v, want up to %v", left, lease)
		}
	}
	same.says(t, true, "a", "isLocked")
	theirs.says(t, false, "a", "tryLock")
	theirs.says(t, false, "a", "tryLock", 50, 1000)

	if after := fields(t, r, k, t.Name(), h.Owner()); !maps.Equal(before, after) {
		t.Errorf("the lock was %v and is %v", before, after)
	}
	if is := inspect(t, o); is.Owner != h.Owner() || is.Token != h.Token() || is.TraceID == "" {
		t.Errorf("Inspect: %+v, want owner %s, token %d and a trace", is, h.Owner(), h.Token())
	}
	release(t, h)
	r.leavesNothing(t, k, t.Name())
	if left := fields(t, r, k, t.Name(), h.Owner()); len(left) > 0 {
		t.Errorf("after the release there is %v", left)
	}

	h = tryLock(t, o)
	same.says(t, true, "a", "forceUnlock")
	r.leavesNothing(t, k, t.Name())
	same.says(t, false, "a", "forceUnlock")
	awaitLost(t, h)
}

// testMetadataUnderJava puts the field into a lock that Java holds, where lockdog would never put it, and goes through
// a re-entry: the field must neither count as an owner nor keep the lock alive.
func testMetadataUnderJava(t *testing.T, r *rig, k *kind) {
	o, theirs := r.pair(t, k)
	owner := theirs.owner(t, "a")
	theirs.call(t, "a", "lock")
	if err := r.rdb.HSet(t.Context(), prefix+t.Name(), metadata, "1").Err(); err != nil {
		t.Fatal(err)
	}
	theirs.says(t, true, "a", "tryLock")
	theirs.says(t, 2, "a", "getHoldCount")
	if h := inspect(t, o); h.Owner != owner || h.Count != 2 {
		t.Errorf("Inspect: %+v, want %s twice", h, owner)
	}
	theirs.call(t, "a", "unlock")
	if held := refused(t, o); held.Owner != owner {
		t.Errorf("TryLock: %v, want held by %s", held, owner)
	}
	theirs.call(t, "a", "unlock")
	r.leavesNothing(t, k, t.Name())
}
