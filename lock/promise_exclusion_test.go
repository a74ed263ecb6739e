package lock_test

import (
	"context"
	"errors"
	"regexp"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock"
)

// Promise 1: mutual exclusion as far as Redis gives it. (That no two hold the lock at a time is in contention_test.go.)

// somebodyElse is a holder's entry as another program writes it.
const somebodyElse = "8f1b8d3e-5c6f-4f0c-9d8a-0c1f6f0a7b11:42"

// Every script but the forced unlock acts for its owner only: whoever else holds the lock is left alone.
func TestScriptsCheckTheOwner(t *testing.T) {
	t.Parallel()
	const key = "job"
	for name, test := range map[string]func(t *testing.T, c *lock.Client, usurp, untouched func()){
		"acquire": func(t *testing.T, c *lock.Client, usurp, _ func()) {
			usurp()
			_, err := c.Mutex(key).TryLock(t.Context())
			var held *lock.HeldError
			if !errors.As(err, &held) || held.Owner != somebodyElse || held.Remaining != time.Minute {
				t.Errorf("TryLock: %v", err)
			}
		},
		"renew": func(t *testing.T, c *lock.Client, usurp, _ func()) {
			l := try(t, c.Mutex(key))
			usurp()
			mustBeLost(t, l, lock.CauseTaken)
		},
		"release": func(t *testing.T, c *lock.Client, usurp, _ func()) {
			l := try(t, c.Mutex(key))
			usurp()
			mustMatch(t, l.Release(t.Context()), lock.ErrLost)
			mustMatch(t, l.Err(), lock.ErrLost)
		},
		"hand-over": func(t *testing.T, c *lock.Client, usurp, untouched func()) {
			l := try(t, c.Mutex(key))
			ctx, cancel := context.WithCancel(t.Context())
			waiter := begin(ctx, c.Mutex(key))
			waiting(t, c, 1)
			usurp()
			mustMatch(t, l.Release(t.Context()), lock.ErrLost)
			untouched()
			cancel()
			mustMatch(t, await(t, "Lock", waiter).err, lock.ErrHeld, context.Canceled)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, rdb := t.Context(), redistest.StartFake(t).Client(t)
				var end time.Time
				usurp := func() {
					t.Helper()
					pipe := rdb.TxPipeline()
					pipe.Del(ctx, key)
					pipe.HSet(ctx, key, somebodyElse, 1)
					pipe.PExpire(ctx, key, time.Minute)
					must(t, "the other holder", second(pipe.Exec(ctx)))
					end = time.Now().Add(time.Minute)
				}
				untouched := func() {
					t.Helper()
					entry, err := rdb.HGetAll(ctx, key).Result()
					if err != nil || len(entry) != 1 || entry[somebodyElse] != "1" {
						t.Errorf("the other holder's entry is now %v, %v", entry, err)
					}
					if ttl, left := rdb.PTTL(ctx, key).Val(), time.Until(end); ttl != left {
						t.Errorf("the other holder's lease is now %v, it had %v", ttl, left)
					}
				}
				test(t, newScope(t).open(t, rdb), usurp, untouched)
				untouched()
			})
		})
	}
}

// A program that was restarted under the same name, even with the same pid, is another owner.
func TestOwnersOfARestartedProgramDiffer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sp := redistest.StartFake(t)
		rdb := sp.Client(t)
		s := newScope(t)
		before := s.open(t, rdb, lock.WithKeyPrefix(sp.Prefix()), lock.WithClientID("pod-0"))
		after := s.open(t, rdb, lock.WithKeyPrefix(sp.Prefix()), lock.WithClientID("pod-0"))

		l := try(t, before.Mutex("job"))
		var held *lock.HeldError
		if _, err := after.Mutex("job").TryLock(t.Context()); !errors.As(err, &held) || held.Owner != l.Owner() {
			t.Errorf("the restarted program's TryLock: %v, want held by %s", err, l.Owner())
		}
		other := try(t, after.Mutex("other job"))
		form := regexp.MustCompile(`^(pod-0:[0-9a-f]{16})-\d+$`)
		a, b := form.FindStringSubmatch(l.Owner()), form.FindStringSubmatch(other.Owner())
		if a == nil || b == nil || a[1] == b[1] {
			t.Errorf("owners %q and %q, want pod-0:<64 random bits>-<number>, the bits different", l.Owner(), other.Owner())
		}
		free(t, l)
		free(t, other)
	})
}
