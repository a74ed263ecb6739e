package lock_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/internal/fakeredis"
	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock"
)

// Promise 11: nothing hangs, though Redis does, and go-redis with it: it ignores ctx until its ReadTimeout.

// sluggish is how long go-redis would hang.
const sluggish = 25 * time.Second

// within runs a call that must return within a ctx of 300 ms.
func within(t *testing.T, what string, call func(ctx context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 300*time.Millisecond)
	defer cancel()
	errs := make(chan error, 1)
	start := time.Now()
	go func() { errs <- call(ctx) }()
	if err := await(t, what, errs); err == nil {
		t.Errorf("%s succeeded though nobody answers", what)
	} else if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%s: %v, want the cause of its ctx", what, err)
	}
	if took := time.Since(start); took > 300*time.Millisecond {
		t.Errorf("%s took %v, its ctx 300 ms", what, took)
	}
}

func TestCallsReturnWhenTheirContextEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		srv := redistest.StartFake(t)
		rdb := srv.Client(t, answerWithin(sluggish))
		if rdb.Options().ContextTimeoutEnabled {
			t.Fatal("go-redis heeds ctx by default now: this test shows nothing")
		}
		c, err := lock.New(rdb)
		if err != nil {
			t.Fatal(err)
		}
		held := try(t, c.Mutex("held"))
		s := newScope(t)
		hooked := srv.Client(t, answerWithin(sluggish))
		var asked atomic.Int64
		hooked.AddHook(fakeredis.Tap{Up: func(redis.Cmder) error {
			asked.Add(1)
			return nil
		}})
		other := s.open(t, hooked)
		m := other.Mutex("held")
		waiter := begin(t.Context(), m)
		waiting(t, other, 1)
		srv.Pause(t)

		within(t, "TryLock", func(ctx context.Context) error { _, err := c.Mutex("a").TryLock(ctx); return err })
		within(t, "Lock", func(ctx context.Context) error { _, err := c.Mutex("b").Lock(ctx); return err })
		within(t, "Lock behind a waiter", func(ctx context.Context) error { _, err := m.Lock(ctx); return err })
		within(t, "Do", func(ctx context.Context) error {
			return c.Mutex("c").Do(ctx, func(context.Context, *lock.Lease) error { return nil })
		})
		within(t, "Inspect", func(ctx context.Context) error { _, err := c.Mutex("d").Inspect(ctx); return err })
		within(t, "ForceUnlock", func(ctx context.Context) error { _, err := c.Mutex("e").ForceUnlock(ctx); return err })
		within(t, "Release", held.Release)

		// More callers than workers: those that find none free leave in time too.
		crowd := make(chan error, 200)
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		for range cap(crowd) {
			go func() { _, err := c.Mutex("crowd").TryLock(ctx); crowd <- err }()
		}
		for range cap(crowd) {
			mustMatch(t, await(t, "TryLock in a crowd", crowd), context.DeadlineExceeded)
		}

		// Close is bounded by its ctx, though every worker hangs, and fails who waits for the lock or for Redis.
		before := asked.Load()
		stuck := begin(context.Background(), other.Mutex("stuck"))
		eventually(t, patience, func() bool { return asked.Load() > before })
		for name, c := range map[string]*lock.Client{"holder": c, "waiter": other} {
			start := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			_ = c.Close(ctx)
			cancel()
			if took := time.Since(start); took > 300*time.Millisecond {
				t.Errorf("Close of the %s took %v, its ctx 300 ms", name, took)
			}
		}
		mustMatch(t, await(t, "the waiter", waiter).err, lock.ErrClosed)
		mustMatch(t, await(t, "Lock in a call to Redis", stuck).err, lock.ErrClosed)
		srv.Resume(t)
	})
}
