package lock_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock"
)

// Who looks at the client's leases, or closes it, while locks are taken meets no grant that is half made. (The race
// detector tells.)
func TestGrantsAreVisibleWhole(t *testing.T) {
	t.Parallel()
	sp := redistest.Shared(t)
	s := newScope(t)
	c := s.open(t, sp.Client(t), lock.WithKeyPrefix(sp.Prefix()))
	var all sync.WaitGroup
	stop := make(chan struct{})
	all.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			for _, l := range c.Leases() {
				if l.State == lock.StateHeld && (l.TraceID == "" || l.Token == 0) {
					t.Errorf("a lease without trace or token: %+v", l)
				}
			}
		}
	})
	taken := make(chan struct{}, 1)
	for _, name := range []string{"a", "b", "c", "d"} {
		all.Go(func() {
			for range 200 {
				l, err := c.Mutex(name).TryLock(context.Background())
				if err == nil {
					err = l.Release(context.Background())
				}
				if err != nil {
					if !errors.Is(err, lock.ErrClosed) {
						t.Error(err)
					}
					return
				}
				select {
				case taken <- struct{}{}:
				default:
				}
			}
		})
	}
	await(t, "a lock", taken)
	await(t, "another", taken)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := c.Close(ctx); err != nil {
		t.Errorf("Close: %v", err)
	}
	close(stop)
	all.Wait()
}
