package lock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock"
)

// Promise 1: mutual exclusion as far as Redis gives it. That no two hold the lock at a time is in contention_test.go, and that acquire, renew and
// release leave another's lock alone is in the conformance suite: TryLock/held, lost/taken and lost/Release finds out.

// somebodyElse is a holder's entry as another program writes it.
const somebodyElse = "8f1b8d3e-5c6f-4f0c-9d8a-0c1f6f0a7b11:42"

// A lock that somebody else has taken isn't handed over to a waiter.
func TestHandOverChecksTheOwner(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rdb := redistest.StartFake(t).Client(t)
		c := newScope(t).open(t, rdb)
		l := try(t, c.Mutex("job"))
		ctx, cancel := context.WithCancel(t.Context())
		waiter := begin(ctx, c.Mutex("job"))
		asleep(t, c, 1)
		transact(t, rdb, "DEL KEY; HSET KEY "+somebodyElse+" 1; PEXPIRE KEY 60000", "job")
		end := time.Now().Add(time.Minute)
		mustMatch(t, l.Release(t.Context()), lock.ErrLost)
		if entry := rdb.HGetAll(t.Context(), "job").Val(); len(entry) != 1 || entry[somebodyElse] != "1" {
			t.Errorf("the other holder's entry is now %v", entry)
		}
		if ttl, left := rdb.PTTL(t.Context(), "job").Val(), time.Until(end); ttl != left {
			t.Errorf("the other holder's lease is now %v, it had %v", ttl, left)
		}
		cancel()
		mustMatch(t, await(t, "Lock", waiter).err, lock.ErrHeld, context.Canceled)
	})
}
