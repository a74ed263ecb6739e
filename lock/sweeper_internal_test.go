package lock

import (
	"context"
	"strings"
	"sync/atomic"
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

// refusing answers releases with an error, and counts them.
type refusing struct {
	backend.Backend
	answer   error
	releases atomic.Int64
}

func (b *refusing) Eval(ctx context.Context, call backend.Call) (any, error) {
	if call.Script == releaseScript || call.Script == fairReleaseScript {
		b.releases.Add(1)
		return nil, b.answer
	}
	return b.Backend.Eval(ctx, call)
}

// What Redis refuses to one sweep it mostly refuses to all: thousands of them ask no more often than one.
func TestSweepsThatAreRefusedRest(t *testing.T) {
	t.Parallel()
	const noPerm = scriptError("NOPERM this user has no permissions to run the 'evalsha' command")
	for _, test := range []struct {
		what   string
		answer error
		sweep  func(*sweepers, *bid)
		most   int64
	}{
		{"releases that failed", noPerm, func(ss *sweepers, b *bid) { ss.add(b, time.Time{}) }, 120},
		{"bids that were refused", noPerm, (*sweepers).try, 120},
		{"keys of another type", scriptError("WRONGTYPE Operation against a key holding the wrong kind of value"), func(ss *sweepers, b *bid) { ss.add(b, time.Time{}) }, 1000},
	} {
		synctest.Test(t, func(t *testing.T) {
			b := &refusing{Backend: memory.New().Backend(), answer: test.answer}
			c, err := New(memoryProvider{backend: b})
			if err != nil {
				t.Fatal(err)
			}
			for range 1000 {
				test.sweep(c.sweepers, &bid{lock: &c.Mutex("job").lock, owner: c.newOwner()})
			}
			time.Sleep(2 * DefaultLease)
			if n := b.releases.Load(); n > test.most || n < test.most/4 {
				t.Errorf("%s: %d calls in a lease, want %d at most", test.what, n, test.most)
			}
			if c.sweepers.pending(time.Now().Add(time.Hour)) {
				t.Errorf("%s: it goes on for longer than a lease", test.what)
			}
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			if err := c.Close(ctx); err != nil {
				t.Errorf("Close: %v", err)
			}
		})
	}
}

// A bid that was refused before it could leave anything, and whose removal is refused, too, is done with.
func TestRefusedBidIsSweptOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &refusing{Backend: memory.New().Backend(), answer: scriptError("NOPERM this user has no permissions to run the 'evalsha' command")}
		c, err := New(memoryProvider{backend: b})
		if err != nil {
			t.Fatal(err)
		}
		c.sweepers.try(&bid{lock: &c.FairMutex("job").lock, owner: c.newOwner()})
		time.Sleep(2 * DefaultLease)
		if n := b.releases.Load(); n != 1 {
			t.Errorf("%d calls, want 1", n)
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if err := c.Close(ctx); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
}
