package lock

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/lock/internal/backend"
	"github.com/lockdog/lockdog/lock/internal/memory"
)

type memoryProvider struct {
	redis.UniversalClient
	backend backend.Backend
}

func (p memoryProvider) LockdogBackend() backend.Backend { return p.backend }

// twoNodes has the keys that begin with "hung" on a node that never answers.
type twoNodes struct {
	backend.Backend
	ran chan string
}

func (b *twoNodes) Node(key string) string {
	node, _, _ := strings.Cut(key, ":")
	return node
}

func (b *twoNodes) Eval(ctx context.Context, call backend.Call) (any, error) {
	if b.Node(call.Keys[0]) == "hung" {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	b.ran <- call.Keys[0]
	return b.Backend.Eval(ctx, call)
}

// What is to be removed from a node that hangs doesn't keep another node's locks from being freed.
func TestSweepsOfOneNodeDoNotWaitForAnother(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &twoNodes{Backend: memory.New().Backend(), ran: make(chan string, 1)}
		c, err := New(memoryProvider{backend: b})
		if err != nil {
			t.Fatal(err)
		}
		sweep := func(name string) {
			c.sweepers.add(&bid{lock: &c.Mutex(name).lock, owner: c.newOwner()}, time.Time{})
		}
		for range 10 {
			sweep("hung:1")
		}
		synctest.Wait()
		start := time.Now()
		sweep("fine:1")
		if key := <-b.ran; key != "fine:1" || time.Since(start) > 0 {
			t.Errorf("%s was swept after %v", key, time.Since(start))
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if err := c.Close(ctx); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
}
