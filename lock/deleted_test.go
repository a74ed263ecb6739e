package lock_test

import (
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
	mutex := func(c *lock.Client) lock.Locker { return c.Mutex("job") }
	fair := func(c *lock.Client) lock.Locker { return c.FairMutex("job") }
	writer := func(c *lock.Client) lock.Locker { return c.RWMutex("job") }
	reader := func(c *lock.Client) lock.Locker { return c.RWMutex("job").RLocker() }
	kinds := map[string]struct {
		held, awaited func(c *lock.Client) lock.Locker
	}{
		"mutex": {mutex, mutex}, "fair": {fair, fair}, "mutex beside fair": {fair, mutex},
		"writer of a reader": {reader, writer}, "reader of a writer": {writer, reader}, "writer of a writer": {writer, writer},
	}
	for name, kind := range kinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				srv := redistest.StartFake(t)
				ctx := t.Context()
				holder := newScope(t).open(t, srv.Client(t), lock.WithLease(lease))
				waiter := newScope(t).open(t, srv.Client(t), lock.WithLease(lease))
				held := try(t, kind.held(holder))
				next := begin(ctx, kind.awaited(waiter))
				time.Sleep(100 * time.Millisecond) // until it has asked once more
				del(t, srv, "job")
				<-held.Context().Done()
				mustMatch(t, held.Err(), lock.ErrLost)
				told := time.Now()
				free(t, granted(t, next))
				if took := time.Since(told); took > 100*time.Millisecond { // after its lease, as it saw it, the waiter would ask anyway
					t.Errorf("the waiter got in %v after the holder knew that its lock is gone", took)
				}
			})
		})
	}
}
