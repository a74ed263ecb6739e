package lock_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/internal/fakeredis"
	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/lock/internal/redisfail"
)

// Releases of permits and CountDowns take effect in the end, whatever happens to Redis.

// Redis is away for longer than a caller waits, and longer than the lease: what was given is there when it comes back.
func TestGivenAfterAnOutage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		srv := redistest.StartFake(t)
		s := newScope(t)
		rdb := srv.Client(t, answerWithin(100*time.Millisecond))
		c := s.open(t, rdb, lock.WithLease(600*time.Millisecond))
		ctx := t.Context()
		must(t, "Release", c.UnleasedSemaphore("pool").Release(ctx, 1))
		must(t, "Acquire", c.UnleasedSemaphore("pool").Acquire(ctx, 1))
		if _, err := c.Latch("gate").TrySetCount(ctx, 2); err != nil {
			t.Fatal(err)
		}
		for range 2 { // the second time on connections that are gone
			srv.Pause(t)
			dead, cancel := context.WithCancel(ctx)
			cancel()
			start := time.Now()
			if err := c.UnleasedSemaphore("pool").Release(dead, 1); err == nil {
				t.Error("Release while Redis is away: no error")
			}
			if took := time.Since(start); took > 600*time.Millisecond {
				t.Errorf("it took %v", took)
			}
			if err := c.Latch("gate").CountDown(ctx); err == nil {
				t.Error("CountDown while Redis is away: no error")
			}
			pass(t, 700*time.Millisecond)
			srv.Resume(t)
			eventually(t, patience, func() bool { return rdb.Get(ctx, "pool").Val() == "1" })
			must(t, "Acquire", c.UnleasedSemaphore("pool").Acquire(ctx, 1))
		}
		must(t, "Wait", c.Latch("gate").Wait(ctx))
		always(t, 300*time.Millisecond, func() bool { return rdb.Get(ctx, "pool").Val() == "0" })
	})
}

// endingContext is a ctx whose Err changes when ended is set. Its Done stays open, so a call waits for its answer all the same.
type endingContext struct {
	context.Context
	ended atomic.Bool
}

func (c *endingContext) Err() error {
	if c.ended.Load() {
		return context.Canceled
	}
	return nil
}

// What Redis has refused for good wasn't done and isn't repeated, also if ctx ends at that moment: the caller may repeat it.
func TestRefusedAsTheContextEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		srv := redistest.StartFake(t)
		ctx := &endingContext{Context: context.Background()}
		var refuse atomic.Bool
		c := openTapped(t, srv, fakeredis.Tap{Up: func(cmd redis.Cmder) error {
			if !isEval(cmd) || !refuse.Swap(false) {
				return nil
			}
			ctx.ended.Store(true)
			return redisfail.ReplyError("OOM command not allowed when used memory > 'maxmemory'.")
		}})
		pool := c.UnleasedSemaphore("pool")
		must(t, "Release", pool.Release(ctx, 1))
		refuse.Store(true)
		if err := pool.Release(ctx, 1); !errors.Is(err, context.Canceled) || !strings.Contains(err.Error(), "OOM") {
			t.Errorf("%v", err)
		}
		time.Sleep(time.Minute)
		if n, err := pool.Available(t.Context()); n != 1 || err != nil {
			t.Errorf("%d permits, %v: what was refused was done later", n, err)
		}
	})
}

// A change may have been made by a call whose reply is lost. If Redis then refuses the repeated call for good, the error names both, and the
// client goes on until Redis has confirmed the change, which is made once.
func TestRefusedAfterALostReply(t *testing.T) {
	t.Parallel()
	for _, arrives := range []bool{true, false} {
		t.Run(fmt.Sprint(arrives), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				srv := redistest.StartFake(t)
				var calls atomic.Int64
				var refuse atomic.Bool
				lost := func(cmd redis.Cmder) error {
					if isEval(cmd) && calls.Add(1) == 1 {
						refuse.Store(true)
						return io.EOF
					}
					return nil
				}
				tap := fakeredis.Tap{Up: func(cmd redis.Cmder) error {
					if isEval(cmd) && refuse.Load() {
						return redisfail.ReplyError("NOPERM this user has no permissions to run the 'evalsha' command")
					}
					if !arrives {
						return lost(cmd)
					}
					return nil
				}}
				if arrives {
					tap.Down = lost
				}
				warm := open(t, srv.Client(t)).Latch("gate")
				if _, err := warm.TrySetCount(t.Context(), 2); err != nil {
					t.Fatal(err)
				}
				must(t, "CountDown", open(t, srv.Client(t)).Latch("warm-up").CountDown(t.Context())) // gives the server the script
				err := openTapped(t, srv, tap).Latch("gate").CountDown(t.Context())
				if err == nil || !strings.Contains(err.Error(), "NOPERM") || !strings.Contains(err.Error(), "EOF") {
					t.Errorf("%v, want both errors", err)
				}
				time.Sleep(30 * time.Second)
				refuse.Store(false)
				time.Sleep(time.Minute)
				if n, err := warm.Count(t.Context()); n != 1 || err != nil {
					t.Errorf("the count is %d, %v; want 1", n, err)
				}
			})
		})
	}
}

// On a ctx that has ended, permits are given back and latches counted down.
func TestGivenOnADeadContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t)
		c := d.client()
		dead, cancel := context.WithCancel(t.Context())
		cancel()
		must(t, "Release", c.UnleasedSemaphore("pool").Release(dead, 1))
		mustBe(t, "permits", d.value("pool"), "1")
		if _, err := c.Latch("gate").TrySetCount(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		must(t, "CountDown", c.Latch("gate").CountDown(dead))
		mustBe(t, "count", d.value("gate"), "")
	})
}

// A request that comes when its receipt may be gone already changes nothing: it is too late.
func TestTooLateToCount(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t)
		rdb, wire := throughProxy(t, d.sp, answerWithin(100*time.Millisecond))
		c, ctx := d.open(t, rdb, lock.WithKeyPrefix(d.sp.Prefix()), lock.WithLease(steady)), t.Context()
		s := c.UnleasedSemaphore("pool")
		must(t, "Release", s.Release(ctx, 1)) // it knows the clock now
		gone := func() {
			for it := d.rdb.Scan(ctx, 0, "{"+d.sp.Prefix()+"*:lockdog_receipt:*", 10000).Iterator(); it.Next(ctx); {
				d.rdb.Del(ctx, it.Val())
			}
		}
		for script, op := range map[string]func() error{
			"semaphore_add":    func() error { return s.Release(ctx, 1) },
			"unleased_acquire": func() error { return s.Acquire(ctx, 1) },
		} {
			before := available(t, s)
			wire.set(redistest.When(redistest.Up, redistest.Hold, wire.script(script, "pool"), redistest.Nth(1)))
			must(t, script, op()) // by another request
			after := available(t, s)
			if after == before {
				t.Errorf("%s: %d permits before and after", script, after)
			}
			pass(t, 250*time.Millisecond)
			gone()
			wire.set(nil)
			wire.proxy.Release()
			always(t, 100*time.Millisecond, func() bool { return available(t, s) == after })
		}
		latch := closed(t, c, "gate", 5)
		wire.set(redistest.When(redistest.Up, redistest.Hold, wire.script("latch_count_down", "gate"), redistest.Nth(1)))
		must(t, "CountDown", latch.CountDown(ctx))
		wire.set(redistest.When(redistest.Up, redistest.Hold, wire.script("semaphore_set", "other"), redistest.Nth(1)))
		if done, err := c.UnleasedSemaphore("other").TrySetPermits(ctx, 2); !done || err != nil {
			t.Errorf("TrySetPermits: %v, %v", done, err)
		}
		wire.set(redistest.When(redistest.Up, redistest.Hold, wire.script("semaphore_ensure", "leased"), redistest.Nth(1)))
		must(t, "EnsurePermits", c.Semaphore("leased").EnsurePermits(ctx, 2))
		pass(t, 250*time.Millisecond)
		gone()
		d.rdb.Del(ctx, d.key("other"), d.key("leased"))
		wire.set(nil)
		wire.proxy.Release()
		always(t, 100*time.Millisecond, func() bool { return count(t, latch) == 4 && d.value("other") == "" && d.value("leased") == "" })
	})
}

// TestSetBySomebodyElse checks that TrySetPermits and TrySetCount return false if somebody else had set the number
// before, even if the reply to their first try was lost.
func TestSetBySomebodyElse(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t)
		rdb, wire := throughProxy(t, d.sp, answerWithin(100*time.Millisecond))
		c, ctx := d.open(t, rdb, lock.WithKeyPrefix(d.sp.Prefix())), t.Context()
		d.rdb.Set(ctx, d.key("pool"), 3, 0)
		wire.set(redistest.ReplyTo(redistest.Drop, wire.script("semaphore_set", "pool"), redistest.Nth(1)))
		if done, err := c.UnleasedSemaphore("pool").TrySetPermits(ctx, 5); done || err != nil {
			t.Errorf("TrySetPermits: %v, %v", done, err)
		}
		wire.set(redistest.ReplyTo(redistest.Drop, wire.script("latch_set", "pool"), redistest.Nth(1)))
		if done, err := c.Latch("pool").TrySetCount(ctx, 5); done || err != nil {
			t.Errorf("TrySetCount: %v, %v", done, err)
		}
		mustBe(t, "number", d.value("pool"), "3")
	})
}

// Permits that come while the client closes go back: their taker could not give them back any more.
func TestAcquireWhileClosing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t)
		rdb, wire := throughProxy(t, d.sp)
		c, ctx := d.open(t, rdb, lock.WithKeyPrefix(d.sp.Prefix())), t.Context()
		must(t, "Release", c.UnleasedSemaphore("pool").Release(ctx, 3))
		must(t, "Acquire", c.UnleasedSemaphore("pool").Acquire(ctx, 1)) // the server knows the script
		wire.set(redistest.ReplyTo(redistest.Hold, wire.script("unleased_acquire", "pool")))
		got := acquiring(ctx, c.UnleasedSemaphore("pool"), 2)
		wire.proxy.AwaitHeld(t, 1)
		mustBe(t, "permits", d.value("pool"), "0")
		closed := make(chan error, 1)
		go func() { closed <- c.Close(ctx) }()
		eventually(t, patience, func() bool { return errors.Is(second(c.UnleasedSemaphore("pool").Available(ctx)), lock.ErrClosed) })
		wire.set(nil)
		wire.proxy.Release()
		mustMatch(t, await(t, "Acquire", got), lock.ErrClosed)
		must(t, "Close", await(t, "Close", closed))
		mustBe(t, "permits", d.value("pool"), "2")
	})
}

// Permits that are granted to a caller that has left are given back at once, and that wakes a waiter.
func TestPermitsOfWhoLeft(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t)
		rdb, wire := throughProxy(t, d.sp)
		c, ctx := d.open(t, rdb, lock.WithKeyPrefix(d.sp.Prefix())), t.Context()
		waiter := d.client(lock.WithLease(time.Hour))
		must(t, "Release", waiter.UnleasedSemaphore("pool").Release(ctx, 2))
		must(t, "Acquire", c.UnleasedSemaphore("pool").Acquire(ctx, 1)) // the server knows the script
		wire.set(redistest.ReplyTo(redistest.Hold, wire.script("unleased_acquire", "pool")))
		leaver, leave := context.WithCancel(ctx)
		left := acquiring(leaver, c.UnleasedSemaphore("pool"), 1)
		wire.proxy.AwaitHeld(t, 1)
		next := acquiring(ctx, waiter.UnleasedSemaphore("pool"), 1)
		waiting(t, waiter, 1)
		channel := "redisson_sc:{" + d.key("pool") + "}"
		eventually(t, patience, func() bool { return d.rdb.PubSubNumSub(ctx, channel).Val()[channel] == 1 })
		pass(t, 20*time.Millisecond) // it asks once more when subscribed
		start := time.Now()
		leave()
		mustMatch(t, await(t, "who left", left), context.Canceled)
		wire.set(nil)
		wire.proxy.Release()
		must(t, "the next", await(t, "the next", next))
		if took := time.Since(start); took > 10*time.Millisecond { // else it was the net
			t.Errorf("it took %v", took)
		}
	})
}
