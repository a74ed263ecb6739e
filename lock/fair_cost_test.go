package lock_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock"
)

// A turn of a FairMutex that was waited for costs six commands, as docs/KINDS.md says, also if several clients wait.
func TestFairTurnCostsSixCommands(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		srv := redistest.StartFake(t)
		const clients, turns = 4, 25
		var open []*lock.Client
		for range clients {
			c := newScope(t).open(t, srv.Client(t))
			free(t, try(t, c.FairMutex("warm-up")))
			open = append(open, c)
		}
		before := srv.Commands(t)
		var all sync.WaitGroup
		for _, c := range open {
			all.Go(func() {
				for range turns {
					l, err := c.FairMutex("job").Lock(t.Context())
					if err != nil {
						t.Errorf("Lock: %v", err)
						return
					}
					time.Sleep(time.Millisecond) // so that all the others wait
					if err := l.Release(t.Context()); err != nil {
						t.Errorf("Release: %v", err)
					}
				}
			})
		}
		all.Wait()
		ran := srv.Commands(t).Since(before)
		scripts := float64(ran["evalsha"]+ran["eval"]) / (clients * turns)
		subscription := float64(ran["subscribe"]+ran["unsubscribe"]+ran["ping"]) / (clients * turns)
		t.Logf("%.2f scripts and %.2f commands of the subscription per turn", scripts, subscription)
		if scripts > 4.2 || subscription > 2.2 { // a client's first has a source to send, and its control channel
			t.Errorf("%.2f scripts and %.2f commands of the subscription per turn, want 4 and 2", scripts, subscription)
		}
	})
}
