package lock_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/telemetry"
)

// A Mutex and a Multi recognize that a lease in ctx holds a name, be it a Mutex's or a Multi's.
func TestMultiReentry(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newCorner(t)
		a, s := c.client(lock.WithLease(far))
		b, _ := c.client(lock.WithLease(far))
		multi := func(names ...string) *lock.Multi { return a.Multi(names, lock.WithReentrancy()) }
		both := try(t, a.Multi([]string{"a", "b"}))
		for _, l := range []lock.Locker{a.Mutex("a"), a.Mutex("b"), a.Multi([]string{"a", "b"}), a.Multi([]string{"b", "c"}), a.FairMutex("b")} {
			mustMatch(t, second(l.Lock(both.Context())), lock.ErrDeadlock)
		}
		free(t, try(t, b.Mutex("c")))
		mustMatch(t, second(b.Multi([]string{"a"}).TryLock(both.Context())), lock.ErrHeld)

		sent := s.sent(t, telemetry.PurposeAcquire)
		same := enter(t, both.Context(), multi("a", "b"))
		one := enter(t, same.Context(), a.Mutex("b", lock.WithReentrancy()))
		if n := s.sent(t, telemetry.PurposeAcquire); n != sent {
			t.Errorf("joining took %d calls", n-sent)
		}
		more := enter(t, one.Context(), multi("a", "b", "c", "d"))
		if same.Token() != both.Token() || one.Token() != both.Tokens()["b"] || more.Tokens()["a"] != both.Tokens()["a"] {
			t.Errorf("tokens: %v, then %v, %d, %v", both.Tokens(), same.Tokens(), one.Token(), more.Tokens())
		}
		free(t, both)
		if !c.exists("a") || !c.exists("b") {
			t.Error("the first of several handles has freed the lock")
		}
		if same.Err() != nil || one.Err() != nil || more.Err() != nil {
			t.Errorf("%v, %v, %v", same.Err(), one.Err(), more.Err())
		}
		await(t, "the Context of what was taken in it", more.Context().Done())
		free(t, same)
		free(t, more)
		if c.exists("a") || c.exists("c") || !c.exists("b") {
			t.Error("the last handle frees a lock, and none before it")
		}
		free(t, one)
		if c.exists("b") {
			t.Error("b is still held")
		}

		// What a Multi joined is given back as what it was taken as.
		fair := try(t, a.FairMutex("a"))
		inner := enter(t, context.WithoutCancel(fair.Context()), multi("a", "b"))
		free(t, fair)
		next := begin(t.Context(), a.FairMutex("a"))
		waiting(t, a, 1)
		free(t, inner)
		free(t, granted(t, next)) // who wasn't woken would wait for the end of the lease

		// A Multi that joined a Mutex and lost another name leaves the Mutex alone.
		a, _ = c.client()
		outer := try(t, a.Mutex("a"))
		inner = enter(t, outer.Context(), multi("a", "b"))
		c.rdb.Del(t.Context(), c.key("b"))
		mustBeLost(t, inner, lock.CauseMissing)
		renewedPast(t, outer, outer.Deadline())
		if outer.Err() != nil || outer.Context().Err() != nil {
			t.Errorf("the outer lease: %v, %v", outer.Err(), outer.Context().Err())
		}
		mustMatch(t, inner.Release(t.Context()), lock.ErrLost)
		free(t, outer)

		// What joined a lease that others have beside it wouldn't be alone.
		rd := try(t, a.RWMutex("shared").RLocker())
		mustMatch(t, second(multi("b", "shared").TryLock(rd.Context())), lock.ErrDeadlock)
		free(t, rd)
	})
}
