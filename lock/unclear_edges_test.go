package lock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock"
)

// Unclear outcomes at moments that a storm (unclear_test.go) rarely hits.

// Who leaves the line while it asks, called by a release, takes the call along: the next in line must ask too, and not
// sleep until the end of the lease that was released.
func TestWakeUpOfALeavingWaiterIsPassedOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		srv := redistest.StartFake(t)
		rdb, wire := throughProxy(t, srv)
		c, other := newScope(t).open(t, rdb), newScope(t).open(t, srv.Client(t))
		free(t, try(t, c.Mutex("warm-up")))

		held := try(t, other.Mutex("job")) // for DefaultLease, longer than this test has patience
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		first := begin(ctx, c.Mutex("job", lock.WithFixedLease(lock.DefaultLease))) // it is woken, not granted the lock
		asleep(t, c, 1)
		second := begin(t.Context(), c.Mutex("job"))
		waiting(t, c, 2)
		asked := make(chan bool, 1)
		wire.set(redistest.When(redistest.Up, redistest.Drop, wire.script("acquire", "job"), redistest.Nth(1), func(redistest.Chunk) bool {
			asked <- true
			return true
		}))
		free(t, held)
		await(t, "the first waiter's question", asked)
		cancel()
		mustMatch(t, await(t, "the first waiter", first).err, context.Canceled)
		free(t, granted(t, second))
	})
}

// A request that was long on its way to Redis makes the server's clock look ahead. What is reckoned from that must not let
// a late acquire resurrect a released lock.
func TestSlowRequestsDoNotSpoilTheClock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		srv := redistest.StartFake(t)
		const timeout = 800 * time.Millisecond
		rdb, wire := throughProxy(t, srv, answerWithin(timeout))
		c := newScope(t).open(t, rdb, lock.WithWatchdog(10*time.Second))
		free(t, try(t, c.Mutex("warm-up")))
		wire.set(redistest.When(redistest.Up, redistest.Delay(timeout-200*time.Millisecond), wire.script("acquire", "slow")))
		slow := try(t, c.Mutex("slow"))

		wire.set(redistest.When(redistest.Up, redistest.Hold, wire.script("acquire", "job"), redistest.Nth(1)))
		l := try(t, c.Mutex("job")) // by the second try, when the first has timed out
		wire.proxy.AwaitHeld(t, 1)
		free(t, l)
		ran := srv.Commands(t)["evalsha"]
		wire.set(nil)
		time.Sleep(time.Millisecond)
		wire.proxy.Release()
		eventually(t, patience, func() bool { return srv.Commands(t)["evalsha"] > ran })
		if n := srv.Client(t).Exists(t.Context(), "job").Val(); n != 0 {
			t.Error("a late acquire has taken the lock for an owner who has released it")
		}
		free(t, slow)
	})
}
