package lock_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock"
)

// A lock whose key somebody deletes is free when its holder has noticed, at the next renewal. Then waiters of other processes are told, too:
// they don't sleep until the lease that they saw should have ended.
func TestDeletedKeyWakesWaiters(t *testing.T) {
	t.Parallel()
	const lease = 6 * time.Second // renewed every 2 s
	kinds := map[string]struct {
		held, awaited func(c *lock.Client) lock.Locker
	}{
		"mutex": {
			func(c *lock.Client) lock.Locker { return c.Mutex("job") },
			func(c *lock.Client) lock.Locker { return c.Mutex("job") },
		},
		"fair": {
			func(c *lock.Client) lock.Locker { return c.FairMutex("job") },
			func(c *lock.Client) lock.Locker { return c.FairMutex("job") },
		},
		"mutex beside fair": {
			func(c *lock.Client) lock.Locker { return c.FairMutex("job") },
			func(c *lock.Client) lock.Locker { return c.Mutex("job") },
		},
		"writer of a reader": {
			func(c *lock.Client) lock.Locker { return c.RWMutex("job").RLocker() },
			func(c *lock.Client) lock.Locker { return c.RWMutex("job") },
		},
		"reader of a writer": {
			func(c *lock.Client) lock.Locker { return c.RWMutex("job") },
			func(c *lock.Client) lock.Locker { return c.RWMutex("job").RLocker() },
		},
		"writer of a writer": {
			func(c *lock.Client) lock.Locker { return c.RWMutex("job") },
			func(c *lock.Client) lock.Locker { return c.RWMutex("job") },
		},
	}
	for name, kind := range kinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				srv := redistest.StartFake(t)
				ctx := t.Context()
				holder := newScope(t).open(t, srv.Client(t), lock.WithWatchdog(lease))
				waiter := newScope(t).open(t, srv.Client(t), lock.WithWatchdog(lease))
				held, err := kind.held(holder).Lock(ctx)
				if err != nil {
					t.Fatal(err)
				}
				got := make(chan error, 1)
				go func() {
					l, err := kind.awaited(waiter).Lock(ctx)
					if err == nil {
						err = l.Release(context.WithoutCancel(ctx))
					}
					got <- err
				}()
				admin := srv.Client(t)
				time.Sleep(100 * time.Millisecond) // until it has asked once more
				if n := admin.Del(ctx, "job").Val(); n != 1 {
					t.Fatalf("%d keys deleted", n)
				}
				<-held.Context().Done()
				if err := held.Err(); !errors.Is(err, lock.ErrLost) {
					t.Fatalf("the holder: %v", err)
				}
				select {
				case err := <-got:
					if err != nil {
						t.Fatal(err)
					}
				case <-time.After(100 * time.Millisecond): // after its lease, as it saw it, the waiter would ask anyway
					t.Fatal("the holder knows that its lock is gone, and the waiter isn't told")
				}
			})
		})
	}
}
