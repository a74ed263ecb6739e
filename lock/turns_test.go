package lock_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock"
)

// Clients whose waiters come, go and give up take turns, and no grant goes to a waiter who doesn't take it: that would cost the others as long as a
// message is trusted. With a tenth of a millisecond each way, and with one.
func TestTurnsGoToWhoeverTakesThem(t *testing.T) {
	t.Parallel()
	const (
		clients, goroutines = 4, 5
		lasts               = 500 * time.Millisecond
		longest             = 2 * time.Second // a message is trusted for 3 s
	)
	for name, delay := range map[string]time.Duration{"near": 100 * time.Microsecond, "far": time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				srv := redistest.StartFake(t)
				ctx, stop := context.WithTimeout(t.Context(), lasts)
				defer stop()
				var all sync.WaitGroup
				for range clients {
					rdb, wire := throughProxy(t, srv)
					wire.set(func(redistest.Chunk) redistest.Verdict { return redistest.Delay(delay) })
					m := newScope(t).open(t, rdb).Mutex(name, lock.WithLeaseContext(t.Context()))
					for i := range goroutines {
						all.Go(func() {
							for ctx.Err() == nil {
								<-time.After(rand.N(5 * time.Millisecond))
								patience, cancel := context.WithTimeout(t.Context(), rand.N(40*time.Millisecond))
								if i == 0 { // it always waits
									cancel()
									patience, cancel = context.WithCancel(t.Context())
								}
								asked := time.Now()
								l, err := m.Lock(patience)
								cancel()
								if took := time.Since(asked); took > longest {
									t.Errorf("a wait took %v", took)
								}
								switch {
								case err == nil:
									if err := l.Release(t.Context()); err != nil {
										t.Errorf("Release: %v", err)
									}
								case !errors.Is(err, context.DeadlineExceeded):
									t.Errorf("Lock: %v", err)
								}
							}
						})
					}
				}
				all.Wait()
			})
		})
	}
}
