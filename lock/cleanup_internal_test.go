package lock

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/internal/fakeredis"
	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock/internal/redisfail"
	"github.com/lockdog/lockdog/lock/internal/script"
)

// releaseTakes is how long Redis takes for a release that it doesn't refuse.
const releaseTakes = 20 * time.Millisecond

const (
	noPerm     = redisfail.ReplyError("NOPERM this user has no permissions to run the 'evalsha' command")
	masterDown = redisfail.ReplyError("MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'.")
)

// cleanupsRefused runs f in a bubble with a client whose releases of "bad" keys are answered so, and counted.
func cleanupsRefused(t *testing.T, answer error, f func(t *testing.T, rdb *redis.Client, c *Client, releases *atomic.Int64)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var releases atomic.Int64
		rdb := redistest.StartFake(t).Client(t)
		rdb.AddHook(fakeredis.Tap{Up: func(cmd redis.Cmder) error {
			release := script.Release.IsRunBy(cmd) || script.FairRelease.IsRunBy(cmd)
			switch {
			case release && cmd.Args()[3] == "bad":
				releases.Add(1)
				return answer
			case release:
				time.Sleep(releaseTakes)
			}
			return nil
		}})
		c, err := New(rdb)
		if err != nil {
			t.Fatal(err)
		}
		f(t, rdb, c, &releases)
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if err := c.Close(ctx); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
}

// A lock that can't be cleaned up isn't tried all the time, and after one lease not at all. A claim that was refused before it could leave anything
// is done with when its removal is refused, too.
func TestCleanup_LastsForOneLease(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		of          func(*Client) lock
		cleanUp     func(*claim)
		least, most int64 // calls in a lease
	}{
		{func(c *Client) lock { return c.Mutex("bad").lock }, (*claim).cleanUp, 3, 12},
		{func(c *Client) lock { return c.FairMutex("bad").lock }, (*claim).cleanUpRefused, 1, 1},
	} {
		cleanupsRefused(t, noPerm, func(t *testing.T, _ *redis.Client, c *Client, releases *atomic.Int64) {
			lk := tt.of(c)
			tt.cleanUp(&claim{lock: &lk, owner: c.newOwner()})
			time.Sleep(2 * DefaultLease)
			n := releases.Load()
			if n < tt.least || n > tt.most {
				t.Errorf("%d calls in a lease, want %d to %d", n, tt.least, tt.most)
			}
			time.Sleep(time.Hour)
			if more := releases.Load() - n; more > 0 {
				t.Errorf("%d calls after a lease", more)
			}
		})
	}
}

// What is refused holds up nothing else, and a Close waits for what isn't.
func TestCleanup_RefusedHoldsUpNoOthers(t *testing.T) {
	t.Parallel()
	for _, answer := range []error{noPerm, masterDown} {
		cleanupsRefused(t, answer, func(t *testing.T, rdb *redis.Client, c *Client, _ *atomic.Int64) {
			rdb.ScriptLoad(t.Context(), script.Release.Source) // else a release takes two calls
			for range 1000 {
				(&claim{lock: &c.Mutex("bad", WithLease(time.Hour)).lock, owner: c.newOwner()}).cleanUp()
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
			l.target.(*grant).claim.cleanUp()
			free("cleaned up", 2*releaseTakes)
			_ = l.Release(t.Context()) // is lost

			late, err := c.Mutex("good").TryLock(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			other, err := New(rdb)
			if err != nil {
				t.Fatal(err)
			}
			for range 10 {
				(&claim{lock: &other.Mutex("bad").lock, owner: other.newOwner()}).cleanUp()
			}
			time.Sleep(time.Second)
			(&claim{lock: &other.Mutex("good").lock, owner: late.Owner()}).cleanUp()
			if err := other.Close(t.Context()); err != nil {
				t.Errorf("Close: %v", err)
			}
			free("cleaned up before Close returned", 0)
			_ = late.Release(t.Context())
		})
	}
}

// The latest of the times that several goroutines note is kept.
func TestBid_NoteLateWrite(t *testing.T) {
	t.Parallel()
	cl := &claim{}
	if cl.noteLateWrite(time.Time{}); cl.hadLostReply() {
		t.Error("no time is none")
	}
	start := time.Now()
	var all sync.WaitGroup
	for i := range 100 {
		all.Go(func() { cl.noteLateWrite(start.Add(time.Duration(i*37%100) * time.Second)) })
	}
	all.Wait()
	if got := cl.lateWriteUntil().Sub(start); got != 99*time.Second || !cl.hadLostReply() {
		t.Errorf("%v, want 99s", got)
	}
}
