package lock_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/internal/fakeredis"
	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/lock/internal/redisfail"
	"github.com/lockdog/lockdog/lock/internal/script"
	"github.com/lockdog/lockdog/telemetry"
)

// Clients that take turns ask about once for each, not all of them.
func TestOneAsksPerRelease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const clients, turns = 6, 25
		s, srv := newScope(t), redistest.StartFake(t)
		var all sync.WaitGroup
		for range clients {
			rdb, wire := throughProxy(t, srv)
			wire.set(func(redistest.Chunk) redistest.Verdict { return redistest.Delay(100 * time.Microsecond) })
			c := s.open(t, rdb)
			for range 2 {
				all.Go(func() { cycles(t, c.Mutex("job"), turns) })
			}
		}
		all.Wait()
		asked := float64(s.sent(t, telemetry.PurposeAcquire)) / (clients * 2 * turns)
		t.Logf("%.2f asked per turn", asked)
		if asked > 1 { // with all of them more than 4
			t.Errorf("%.2f asked per turn", asked)
		}
	})
}

// A client whose user was forbidden everything for a while uses the wait sets again.
func TestForbiddenForAWhileRegistersAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const job = "job"
		srv := redistest.StartFake(t)
		h, c := open(t, srv.Client(t)), open(t, srv.Client(t))
		l := try(t, h.Mutex(job, lock.WithFixedLease(time.Hour)))
		next := begin(t.Context(), c.Mutex(job))
		inSet(t, srv, job, 1)
		srv.SetRefusal(refuseAny([]string{"EVALSHA"}, "NOPERM No permissions to access a key"))
		must(t, "PUBLISH", srv.Client(t).Publish(t.Context(), "redisson_lock__channel:{job}", "0").Err())
		if got := <-next; !errors.As(got.err, new(redis.Error)) {
			t.Fatal(got.err)
		}
		srv.SetRefusal(nil)
		time.Sleep(time.Minute) // its entry has been removed
		inSet(t, srv, job, 0)
		next = begin(t.Context(), c.Mutex(job))
		inSet(t, srv, job, 1)
		free(t, l)
		free(t, granted(t, next))
	})
}

// A waiter that is woken, or granted the lock by a message, but is dead, stopped or deaf keeps the others waiting for some 20 ms, or for as long as
// a message is trusted, no longer.
func TestCalledInVain(t *testing.T) {
	t.Parallel()
	for name, trouble := range map[string]func(e *wireTap){
		"deaf": func(e *wireTap) { e.set(redistest.When(redistest.Down, redistest.Drop, redistest.Contains("message"))) },
		"dead": func(e *wireTap) { e.set(func(redistest.Chunk) redistest.Verdict { return redistest.Drop }) },
		"mute": func(e *wireTap) { e.set(redistest.When(redistest.Up, redistest.Drop)) },
	} {
		for how, opts := range map[string][]lock.LockOption{"woken": {lock.WithFixedLease(lock.DefaultLease)}, "granted": nil} {
			t.Run(name+" "+how, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					const job = "job"
					srv := redistest.StartFake(t)
					rdb, wire := throughProxy(t, srv, answerWithin(200*time.Millisecond))
					h, s := newScope(t).open(t, srv.Client(t)), newScope(t)
					l := try(t, h.Mutex(job))
					ctx, cancel := context.WithCancel(t.Context())
					first := begin(ctx, newScope(t).open(t, rdb).Mutex(job, opts...))
					inSet(t, srv, job, 1)
					second := begin(t.Context(), s.open(t, srv.Client(t)).Mutex(job, opts...))
					inSet(t, srv, job, 2)
					trouble(wire)
					freed := time.Now()
					free(t, l)
					l = granted(t, second)
					took := time.Since(freed)
					if limit := map[string]time.Duration{"woken": 50 * time.Millisecond, "granted": 3100 * time.Millisecond}[how]; took > limit {
						t.Errorf("the next got the lock after %v", took)
					}
					if n := s.sum(t, telemetry.MetricTakeovers); n != 0 {
						t.Errorf("%v takeovers; nobody's lease ran out, and no message was missed", n)
					}
					cancel()
					switch got := await(t, "Lock", first); {
					case got.err == nil && how == "granted" && name == "mute": // it heard of the grant, and couldn't renew it
						mustBeLost(t, got.Lease, lock.CauseUnreachable)
					case !errors.Is(got.err, context.Canceled):
						t.Errorf("Lock: %v", got.err)
					}
					free(t, l)
				})
			})
		}
	}
}

// A client that releases a lock for which it has a waiter, too, sees to it that somebody takes the lock, even if the
// client that was woken hears nothing: its own waiter asks or, if that one leaves, all clients are woken and ask.
func TestCalledInVainByOneWhoWaits(t *testing.T) {
	t.Parallel()
	for name, leaves := range map[string]bool{"asks": false, "leaves": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				const job = "job"
				srv := redistest.StartFake(t)
				rdb, wire := throughProxy(t, srv, answerWithin(200*time.Millisecond))
				h := newScope(t).open(t, srv.Client(t))
				l := try(t, h.Mutex(job))
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				deaf := begin(ctx, newScope(t).open(t, rdb).Mutex(job))
				inSet(t, srv, job, 1)
				watching, leave := context.WithCancel(ctx)
				defer leave()
				watcher := begin(watching, h.Mutex(job, lock.WithLifetime(t.Context())))
				inSet(t, srv, job, 2)
				third := begin(ctx, newScope(t).open(t, srv.Client(t)).Mutex(job))
				inSet(t, srv, job, 3)
				wire.set(func(redistest.Chunk) redistest.Verdict { return redistest.Drop })
				freed := time.Now()
				free(t, l)
				if leaves {
					leave()
				}
				for range 2 { // in either order: one release of many wakes all
					select {
					case got := <-watcher:
						if got.err == nil { // it was quick
							free(t, got.Lease)
						} else if !leaves {
							t.Error(got.err)
						}
					case got := <-third:
						took := time.Since(freed)
						if got.err != nil || took > 3100*time.Millisecond {
							t.Fatalf("the third got the lock after %v: %v", took, got.err)
						}
						free(t, got.Lease)
					case <-time.After(patience):
						t.Fatal("nobody gets the lock")
					}
				}
				cancel()
				await(t, "Lock", deaf)
			})
		})
	}
}

// TryLock waits for nobody, so nobody calls it. Who asks again keeps its place. Who gives up waiting is gone when the set expires.
func TestWhoIsInTheSet(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rdb, job := redistest.StartFake(t).Client(t), "job"
		set := "lockdog_wait:{" + job + "}"
		h, c := newScope(t).open(t, rdb), newScope(t).open(t, rdb)
		l := try(t, h.Mutex(job))
		if _, err := c.Mutex(job).TryLock(t.Context()); !errors.Is(err, lock.ErrHeld) {
			t.Fatal(err)
		}
		if n := rdb.Exists(t.Context(), set).Val(); n != 0 {
			t.Error("TryLock is in the set")
		}
		ctx, cancel := context.WithCancel(t.Context())
		gone := begin(ctx, c.Mutex(job, lock.WithLease(3*time.Second)))
		inSet := func() (who []redis.Z) {
			t.Helper()
			eventually(t, patience, func() bool {
				who = rdb.ZRangeWithScores(ctx, set, 0, -1).Val()
				return len(who) == 1
			})
			return who
		}
		place := inSet()
		rdb.Del(ctx, set)
		rdb.Publish(ctx, "redisson_lock__channel:{"+job+"}", "0")
		if again := inSet(); again[0] != place[0] {
			t.Errorf("its place was %v, is %v", place, again)
		}
		cancel()
		await(t, "Lock", gone)
		eventually(t, patience, func() bool { return rdb.Exists(t.Context(), set).Val() == 0 })
		free(t, l)
	})
}

// If the ACL forbids the wait set, a waiter has no entry in it. Once the rule is added, it has one after its first
// question that is at least a minute later.
func TestWaitSetIsTriedAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const job, set = "job", "lockdog_wait:{job}"
		srv := redistest.StartFake(t)
		var forbidden atomic.Bool
		var asked atomic.Int64
		forbidden.Store(true)
		c := openTapped(t, srv, fakeredis.Tap{Up: func(cmd redis.Cmder) error {
			if !forbidden.Load() || !script.Acquire.IsRunBy(cmd) || !slices.Contains(cmd.Args(), any(set)) {
				return nil
			}
			asked.Add(1)
			return redisfail.ReplyError("NOPERM No permissions to access a key")
		}})
		l := try(t, newScope(t).open(t, srv.Client(t)).Mutex(job))
		next := begin(t.Context(), c.Mutex(job))
		time.Sleep(59 * time.Second)
		if n := asked.Load(); n != 1 {
			t.Errorf("asked with the wait set %d times in a minute", n)
		}
		forbidden.Store(false)
		inSet(t, srv, job, 1)
		free(t, l)
		free(t, granted(t, next))
	})
}
