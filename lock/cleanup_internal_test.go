package lock

import (
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

// A cleanup that Redis refuses is retried with pauses, for one lease. The cleanup of a claim that Redis had refused
// before ends with the first refusal.
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
		synctest.Test(t, func(t *testing.T) {
			var releases atomic.Int64
			rdb := redistest.StartFake(t).Client(t)
			rdb.AddHook(fakeredis.Tap{Up: func(cmd redis.Cmder) error {
				if !script.Release.IsRunBy(cmd) && !script.FairRelease.IsRunBy(cmd) {
					return nil
				}
				releases.Add(1)
				return redisfail.ReplyError("NOPERM this user has no permissions to run the 'evalsha' command")
			}})
			c := openFor(t, rdb)
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
