package leader_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/lock/leader"
)

// Over a network: one leader is cut off from it, the next closes its client, and the third leads.
func TestTakeover(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const lease, limit = 30 * time.Second, time.Minute
		srv := redistest.StartFake(t)
		proxy := redistest.NewProxy(t, srv.Addr())
		elected := make(chan string, 10)
		told := make(chan string, 100)
		type candidate struct {
			*started
			c     *lock.Client
			ended chan error // the cause of the end of its first term
		}
		join := func(id, addr string) candidate {
			c, err := lock.New(srv.Client(t, func(o *redis.Options) { o.Addr = addr }), lock.WithClientID(id), quietly())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = c.Close(context.Background()) })
			ended := make(chan error, 1)
			s := start(t, c.Mutex(name, lock.WithLease(lease)), func(ctx context.Context) error {
				elected <- id
				<-ctx.Done()
				select {
				case ended <- context.Cause(ctx):
				default:
				}
				return nil
			}, leader.OnNewLeader(func(leader string) { told <- id + " hears of " + leader }))
			return candidate{s, c, ended}
		}
		hear := func(ch <-chan string, want string) {
			t.Helper()
			for deadline := time.After(limit); ; {
				select {
				case got := <-ch:
					if got == want {
						return
					}
					if ch == elected {
						t.Fatalf("%s was elected, want %s", got, want)
					}
				case <-deadline:
					t.Fatalf("waited %v for %q", limit, want)
				}
			}
		}
		north := join("north", proxy.Addr())
		hear(elected, "north")
		south := join("south", srv.Addr())
		hear(told, "south hears of north") // and waits

		proxy.Refuse(t)
		proxy.CutAll()
		hear(elected, "south")
		if err := <-north.ended; !errors.Is(err, lock.ErrLost) {
			t.Errorf("north was deposed by %v", err)
		}
		if north.IsLeader() || !south.IsLeader() {
			t.Errorf("north leads: %v; south: %v", north.IsLeader(), south.IsLeader())
		}
		hear(told, "south hears of south")

		east := join("east", srv.Addr())
		hear(told, "east hears of south")
		closed := time.Now()
		if err := south.c.Close(t.Context()); err != nil {
			t.Error(err)
		}
		hear(elected, "east")
		if took := time.Since(closed); took > time.Second {
			t.Errorf("the successor of a leader that closed had to wait for %v", took)
		}
		if err := south.end(t, limit); !errors.Is(err, lock.ErrClosed) {
			t.Errorf("south's Run: %v", err)
		}
		if err := <-south.ended; !errors.Is(err, lock.ErrClosed) {
			t.Errorf("south was deposed by %v", err)
		}
		east.cancel(context.Canceled)
		if err := east.end(t, limit); !errors.Is(err, context.Canceled) {
			t.Errorf("east's Run: %v", err)
		}
		proxy.Accept(t)
		time.Sleep(2 * time.Second) // for go-redis, which dials each second until it gets through
	})
}
