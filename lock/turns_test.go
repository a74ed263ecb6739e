package lock_test

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockdog/lockdog/internal/redistest"
)

// Clients whose waiters come and go take turns, and no grant goes to a waiter who doesn't take it: that would cost the others as long as a message is
// trusted.
func TestTurnsGoToWhoeverTakesThem(t *testing.T) {
	t.Parallel()
	space := redistest.Shared(t)
	job := lockName(t)
	const clients, goroutines, turns = 4, 8, 150
	var (
		all     sync.WaitGroup
		longest atomic.Int64
	)
	for range clients {
		c := newScope(t).open(t, space.Client(t))
		for range goroutines {
			all.Go(func() {
				for range turns {
					time.Sleep(rand.N(10 * time.Millisecond))
					asked := time.Now()
					l, err := c.Mutex(job).Lock(t.Context())
					if err != nil {
						t.Error(err)
						return
					}
					took := int64(time.Since(asked))
					for old := longest.Load(); took > old && !longest.CompareAndSwap(old, took); old = longest.Load() {
					}
					if err := l.Release(t.Context()); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
	}
	all.Wait()
	t.Logf("the longest wait took %v", time.Duration(longest.Load()))
	if longest.Load() > int64(2*time.Second) {
		t.Errorf("the longest wait took %v", time.Duration(longest.Load()))
	}
}
