package lock_test

import (
	"context"
	"errors"
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
	"github.com/lockdog/lockdog/lock/internal/script"
	"github.com/lockdog/lockdog/telemetry"
)

// What a service answers with 503 matches ErrUnavailable, for every operation; what it answers with 409 or 500 doesn't.
func TestErrUnavailable(t *testing.T) {
	t.Parallel()
	quick := func(o *redis.Options) {
		o.MaxRetries = -1
		o.DialTimeout, o.ReadTimeout, o.WriteTimeout = time.Second, 300*time.Millisecond, 300*time.Millisecond
	}
	unavailable := func(t *testing.T, err error) {
		t.Helper()
		mustMatch(t, err, lock.ErrUnavailable)
		mustMention(t, err, "", "Redis is unavailable")
		if errors.Is(err, lock.ErrHeld) {
			t.Errorf("%v: it isn't held", err)
		}
	}
	t.Run("down", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			srv := redistest.StartFake(t)
			c := newScope(t).open(t, srv.Client(t, quick), lock.WithLease(2*time.Second))
			m := c.Mutex("job")
			l := try(t, m)
			err := c.Mutex("work").Do(t.Context(), func(context.Context, *lock.Lease) error {
				srv.Kill(t)
				return nil
			})
			if errors.Is(err, lock.ErrLost) {
				t.Fatalf("the lease of 2 s was lost: %v", err)
			}
			mustMatch(t, err, lock.ErrUnconfirmed)
			unavailable(t, err)
			_, err = m.TryLock(t.Context())
			unavailable(t, err)
			_, err = m.Inspect(t.Context())
			unavailable(t, err)
			if err := l.Release(t.Context()); !errors.Is(err, lock.ErrLost) {
				unavailable(t, err)
			}
		})
	})
	t.Run("too few replicas", func(t *testing.T) {
		t.Parallel()
		c := newScope(t).open(t, redistest.Start(t).Client(t))
		_, err := c.Mutex("job", lock.WithReplicas(1, 50*time.Millisecond)).TryLock(t.Context())
		mustMatch(t, err, lock.ErrUnavailable)
	})
	t.Run("not", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			srv := redistest.StartFake(t)
			c := newScope(t).open(t, srv.Client(t))
			l := try(t, c.Mutex("job"))
			must(t, "SET", srv.Client(t).Set(t.Context(), "text", "1", 0).Err())
			ended, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			defer cancel()
			<-ended.Done()
			for what, err := range map[string]error{
				"held":      errorOf(c.Mutex("job").TryLock(t.Context())),
				"wrong key": errorOf(c.Mutex("text").TryLock(t.Context())),
				"ctx ended": errorOf(c.Mutex("other").Lock(ended)),
				"bad name":  errorOf(c.Mutex("").Lock(t.Context())),
			} {
				if err == nil || errors.Is(err, lock.ErrUnavailable) {
					t.Errorf("%s: %v", what, err)
				}
			}
			free(t, l)
			must(t, "Close", c.Close(t.Context()))
			if err := errorOf(c.Mutex("job").TryLock(t.Context())); errors.Is(err, lock.ErrUnavailable) {
				t.Errorf("closed: %v", err)
			}
		})
	})
}

func errorOf[T any](_ T, err error) error { return err }

// Whoever finds a lock held by the very client that asks is told so: it is another part of the program, and no other pod.
func TestHeldByThisProcess(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sp := redistest.StartFake(t)
		open := func(id string) *lock.Client {
			return newScope(t).open(t, sp.Client(t), lock.WithKeyPrefix(sp.Prefix()), lock.WithClientID(id))
		}
		c, other := open("orders/1"), open("orders/1")
		l := try(t, c.Mutex("job"))
		mustMention(t, errorOf(c.Mutex("job").TryLock(t.Context())), "job", "held by this process, as")
		if err := errorOf(other.Mutex("job").TryLock(t.Context())); err == nil || strings.Contains(err.Error(), "this process") {
			t.Errorf("another client with the same id: %v", err)
		}
		free(t, l)
	})
}

// An error that is the cause of a ctx belongs to the call that returned it: others return it, and don't change it.
func TestHeldErrorAsCause(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		srv := redistest.StartFake(t)
		c, other := openTapped(t, srv, fakeredis.Tap{}), openTapped(t, srv, fakeredis.Tap{})
		l := try(t, c.Mutex("job"))
		held := errorOf(c.Mutex("job").TryLock(t.Context()))
		text := held.Error()
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(held)
		if err := errorOf(other.Mutex("report").TryLock(ctx)); !errors.Is(err, held) || held.Error() != text {
			t.Errorf("%v; %q was %q", err, held, text)
		}
		free(t, l)
	})
}

// inEachQueue runs a test in a bubble for a Mutex and for a Quorum. ours and theirs describe the same lock, for two processes. While down is set, ours get
// failure in place of every answer.
func inEachQueue(t *testing.T, failure error, test func(t *testing.T, ours, theirs func(...lock.LockOption) lock.Locker, down *atomic.Bool)) {
	t.Helper()
	t.Parallel()
	for _, kind := range []string{"Mutex", "Quorum"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var down atomic.Bool
				tap := fakeredis.Tap{Up: func(cmd redis.Cmder) error {
					if isEval(cmd) && down.Load() {
						return failure
					}
					return nil
				}}
				var here, there []*lock.Client
				for range 3 {
					srv := redistest.StartFake(t)
					here, there = append(here, openTapped(t, srv, tap)), append(there, open(t, srv.Client(t)))
				}
				mutex := func(cs []*lock.Client) func(...lock.LockOption) lock.Locker {
					q, err := lock.NewQuorum(cs...)
					must(t, "NewQuorum", err)
					return func(opts ...lock.LockOption) lock.Locker {
						if kind == "Mutex" {
							return cs[0].Mutex("job", opts...)
						}
						return q.Mutex("job", opts...)
					}
				}
				test(t, mutex(here), mutex(there), &down)
			})
		})
	}
}

// A waiter doesn't say that the lock is held if Redis has answered the head of its queue with an error, or not at all.
func TestErrUnavailable_BehindAnother(t *testing.T) {
	inEachQueue(t, io.EOF, func(t *testing.T, ours, theirs func(...lock.LockOption) lock.Locker, down *atomic.Bool) {
		held := try(t, theirs())
		ctx, leave := context.WithCancel(t.Context())
		head := begin(ctx, ours())
		time.Sleep(time.Second)
		down.Store(true)
		time.Sleep(lock.DefaultLease + time.Second) // the head has asked again
		_, err := ours(lock.WithWait(time.Second)).Lock(t.Context())
		mustMatch(t, err, lock.ErrUnavailable)
		if errors.Is(err, lock.ErrHeld) {
			t.Errorf("%v", err)
		}
		down.Store(false)
		leave()
		<-head
		free(t, held)
	})
}

// The first calls of several waiters have failed. When the head of their queue has since been told that the lock is
// held, all of them fail with ErrHeld, and not with ErrUnavailable.
func TestErrUnavailable_OverByThen(t *testing.T) {
	const loading = redisfail.ReplyError("LOADING Redis is loading the dataset in memory")
	inEachQueue(t, loading, func(t *testing.T, ours, theirs func(...lock.LockOption) lock.Locker, down *atomic.Bool) {
		held := try(t, theirs())
		down.Store(true)
		var callers []<-chan taken
		for range 3 {
			callers = append(callers, begin(t.Context(), ours(lock.WithWait(20*time.Second))))
		}
		time.Sleep(5 * time.Second)
		down.Store(false)
		for _, caller := range callers {
			err := (<-caller).err
			mustMatch(t, err, lock.ErrHeld)
			if errors.Is(err, lock.ErrUnavailable) {
				t.Errorf("15 s after the last error: %v", err)
			}
		}
		free(t, held)
	})
}

// An error that the head has seen says nothing once the lock was handed over to it: then the lock is held.
func TestErrUnavailable_NotAfterAHandOver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var down atomic.Bool
		var failed atomic.Int64
		c := openTapped(t, redistest.StartFake(t), fakeredis.Tap{Up: func(cmd redis.Cmder) error {
			if script.Acquire.IsRunBy(cmd) && down.Load() {
				failed.Add(1)
				return io.EOF
			}
			return nil
		}})
		l := try(t, c.Mutex("job"))
		next := begin(t.Context(), c.Mutex("job"))
		waiting(t, c, 1)
		ctx, leave := context.WithCancel(t.Context())
		second := begin(ctx, c.Mutex("job"))
		waiting(t, c, 2)
		down.Store(true)
		eventually(t, 2*lock.DefaultLease, func() bool { return failed.Load() == 4 }) // all tries of a question
		free(t, l)
		l = granted(t, next)
		leave()
		got := <-second
		mustMatch(t, got.err, lock.ErrHeld)
		if errors.Is(got.err, lock.ErrUnavailable) {
			t.Errorf("%v", got.err)
		}
		free(t, l)
	})
}

// A call that waits for a failing Redis says so, too, if the lease that its ctx carries is lost meanwhile, whatever the cause.
func TestErrUnavailable_LossMeanwhile(t *testing.T) {
	t.Parallel()
	jobAndOther := func(c *lock.Client) lock.Locker { return c.Multi([]string{"job", "other"}) }
	for name, tt := range map[string]struct {
		cause  lock.Cause
		nested bool // in a lease that follows the one that is lost
		kind   func(*lock.Client) lock.Locker
	}{
		"missing":               {lock.CauseMissing, false, mutexOf},
		"unreachable":           {lock.CauseUnreachable, false, mutexOf},
		"missing, nested":       {lock.CauseMissing, true, mutexOf},
		"missing, Multi":        {lock.CauseMissing, false, jobAndOther},
		"missing, Multi nested": {lock.CauseMissing, true, jobAndOther},
	} {
		cause := tt.cause
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				srv, s := redistest.StartFake(t), newScope(t)
				var down atomic.Bool
				var failed atomic.Int64
				rdb := srv.Client(t)
				rdb.AddHook(fakeredis.Tap{Up: func(cmd redis.Cmder) error {
					acquires := script.Acquire.IsRunBy(cmd)
					if !down.Load() || !acquires && (cause == lock.CauseMissing || !isEval(cmd)) {
						return nil
					}
					if acquires {
						failed.Add(1)
					}
					return io.EOF
				}})
				c := s.open(t, rdb, lock.WithRenewalClient(rdb))
				held := try(t, open(t, srv.Client(t)).Mutex("job"))
				outer := try(t, c.Mutex("outer"))
				ctx := outer.Context()
				if tt.nested {
					middle, err := c.Mutex("middle").TryLock(ctx)
					must(t, "TryLock", err)
					defer func() { _ = middle.Release(t.Context()) }()
					ctx = middle.Context()
				}
				waiter := begin(ctx, tt.kind(c))
				waiting(t, c, 1)
				down.Store(true)
				eventually(t, 2*lock.DefaultLease, func() bool { return failed.Load() > 0 })
				if cause == lock.CauseMissing {
					del(t, srv, "outer")
				}
				err := (<-waiter).err
				var lost *lock.LostError
				if !errors.As(err, &lost) || lost.Cause != cause || !errors.Is(err, lock.ErrUnavailable) {
					t.Errorf("%v, want %s and ErrUnavailable", err, cause)
				}
				mustBe(t, "acquires with the outcome error", s.sum(t, telemetry.MetricAcquisitions, "lockdog.outcome=error"), 1.0)
				down.Store(false)
				free(t, held)
				_ = outer.Release(t.Context())
			})
		})
	}
}

// Work whose release isn't confirmed is done, also if the ctx of Do ends meanwhile because another lease is lost.
func TestDo_ReleaseFailsAndOuterLeaseIsLost(t *testing.T) {
	inEachQueue(t, io.EOF, func(t *testing.T, ours, _ func(...lock.LockOption) lock.Locker, down *atomic.Bool) {
		doAsOuterIsLost(t, ours(), func() { down.Store(true) }, lock.ErrUnavailable, io.EOF)
		down.Store(false)
	})
}

// The same if Redis is silent.
func TestDo_ReleaseHangsAndOuterLeaseIsLost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		srv := redistest.StartFake(t)
		doAsOuterIsLost(t, open(t, srv.Client(t)).Mutex("job"), func() { srv.Pause(t) })
		srv.Resume(t)
	})
}

// doAsOuterIsLost runs Do under a lock of a Redis that fails before the release, with the ctx of a lease that is lost then.
func doAsOuterIsLost(t *testing.T, inner lock.Locker, fail func(), want ...error) {
	t.Helper()
	srv := redistest.StartFake(t)
	outer := try(t, open(t, srv.Client(t)).Mutex("outer"))
	_, err := lock.Do(outer.Context(), inner, func(context.Context, *lock.Lease) (struct{}, error) {
		fail()
		del(t, srv, "outer")
		return struct{}{}, nil
	})
	mustMatch(t, err, append(want, lock.ErrUnconfirmed)...)
	mustMention(t, err, "job", "release")
	var lost *lock.LostError
	if errors.Is(err, lock.ErrLost) || errors.As(err, &lost) || outer.Err() == nil {
		t.Errorf("%v; the outer lease: %v", err, outer.Err())
	}
}
