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
	"github.com/lockdog/lockdog/lock/internal/script"
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

// refusing answers the releases of keys that begin with "bad" with an error, and counts them.
type refusing struct {
	backend.Backend
	answer   error
	releases atomic.Int64
}

func (b *refusing) Eval(ctx context.Context, call backend.Call) (any, error) {
	release := call.Script == script.Release.Script || call.Script == script.FairRelease.Script
	if release && strings.HasPrefix(call.Keys[0], "bad") {
		b.releases.Add(1)
		return nil, b.answer
	}
	return b.Backend.Eval(ctx, call)
}

const (
	noPerm     = script.Error("NOPERM this user has no permissions to run the 'evalsha' command")
	masterDown = script.Error("MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.")
	wrongKind  = script.Error("WRONGTYPE Operation against a key holding the wrong kind of value")
)

// sweepsRefused runs f in a bubble with a client whose sweeps of "bad" keys are answered so.
func sweepsRefused(t *testing.T, answer error, f func(t *testing.T, c *Client, b *refusing)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &refusing{Backend: memory.New().Backend(), answer: answer}
		c, err := New(memoryProvider{backend: b})
		if err != nil {
			t.Fatal(err)
		}
		f(t, c, b)
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if err := c.Close(ctx); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
}

// However many locks are to be swept, a Redis that refuses isn't asked all the time; and after a lease they are done with.
func TestRefusedSweepsArePaced(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		answer error
		sweeps int
		most   int64 // in a lease
	}{
		{noPerm, 1, 12},
		{noPerm, 1000, 8000},
		{masterDown, 1000, 20_000},
		{wrongKind, 1000, 1000}, // nothing of ours is there: that is all
	} {
		sweepsRefused(t, test.answer, func(t *testing.T, c *Client, b *refusing) {
			for range test.sweeps {
				c.sweepers.add(&bid{lock: &c.Mutex("bad").lock, owner: c.newOwner()}, time.Time{})
			}
			time.Sleep(2 * DefaultLease)
			if n := b.releases.Load(); n > test.most || n < test.most/4 {
				t.Errorf("%d sweeps answered %v: %d calls in a lease, want %d at most", test.sweeps, test.answer, n, test.most)
			}
			if c.sweepers.pending(time.Now().Add(time.Hour)) {
				t.Errorf("%v: it goes on for longer than a lease", test.answer)
			}
		})
	}
}

// What is refused holds up nothing else, and a Close waits for what isn't.
func TestRefusedSweepsHoldUpNoOthers(t *testing.T) {
	t.Parallel()
	for _, answer := range []error{noPerm, masterDown} {
		sweepsRefused(t, answer, func(t *testing.T, c *Client, _ *refusing) {
			for range 1000 {
				c.sweepers.add(&bid{lock: &c.Mutex("bad", WithWatchdog(time.Hour)).lock, owner: c.newOwner()}, time.Time{})
			}
			time.Sleep(5 * time.Second)
			free := func(what string, within time.Duration) {
				t.Helper()
				time.Sleep(within)
				if h, err := c.Mutex("good").Inspect(t.Context()); err != nil || h.Held {
					t.Errorf("%v, %s: %+v, %v", answer, what, h, err)
				}
			}
			l, err := c.Mutex("good").TryLock(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			c.sweepers.add(l.g.bid, time.Time{})
			free("swept", 10*time.Millisecond)
			_ = l.Release(t.Context()) // is lost

			late, err := c.Mutex("good").TryLock(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			other, err := New(memoryProvider{backend: c.backend})
			if err != nil {
				t.Fatal(err)
			}
			for range 10 {
				other.sweepers.add(&bid{lock: &other.Mutex("bad").lock, owner: other.newOwner()}, time.Time{})
			}
			time.Sleep(time.Second)
			other.sweepers.add(late.g.bid, time.Time{})
			if err := other.Close(t.Context()); err != nil {
				t.Errorf("Close: %v", err)
			}
			free("swept before Close returned", 0)
			_ = late.Release(t.Context())
		})
	}
}

// A bid that was refused before it could leave anything, and whose removal is refused, too, is done with.
func TestRefusedBidIsSweptOnce(t *testing.T) {
	t.Parallel()
	sweepsRefused(t, noPerm, func(t *testing.T, c *Client, b *refusing) {
		c.sweepers.try(&bid{lock: &c.FairMutex("bad").lock, owner: c.newOwner()})
		time.Sleep(2 * DefaultLease)
		if n := b.releases.Load(); n != 1 {
			t.Errorf("%d calls, want 1", n)
		}
	})
}
