package lock

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock/internal/backend"
	"github.com/lockdog/lockdog/lock/internal/script"
)

// TestCleanup_ClockAhead checks the cleanup of a request whose not-after is too late, because the client took the
// server's clock from a slow reply. What the request writes late is removed, too.
func TestCleanup_ClockAhead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		srv := redistest.StartFake(t)
		proxy := redistest.NewProxy(t, srv.Addr())
		rdb := srv.Client(t)
		ctx := t.Context()
		for _, s := range []string{script.Acquire.Source, script.Release.Source} {
			rdb.ScriptLoad(ctx, s)
		}
		c := openFor(t, srv.Client(t, func(o *redis.Options) {
			o.Addr, o.ReadTimeout, o.WriteTimeout = proxy.Addr(), 500*time.Millisecond, 500*time.Millisecond
		}))
		late := redistest.When(redistest.Up, redistest.Hold, func(ch redistest.Chunk) bool {
			return bytes.Contains(ch.Data, []byte(script.Acquire.SHA)) && bytes.Contains(ch.Data, []byte("job:late"))
		})
		proxy.SetRule(redistest.FirstOf(redistest.When(redistest.Up, redistest.Delay(400*time.Millisecond), redistest.Nth(1)), late))
		l, err := c.Mutex("job").TryLock(ctx)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = l.Release(context.Background()) }()
		start := time.Now()
		soon, cancel := context.WithTimeout(ctx, 450*time.Millisecond)
		defer cancel()
		if _, err := c.Mutex("job:late").TryLock(soon); err == nil {
			t.Fatal("it got in")
		}
		time.Sleep(time.Until(start.Add(750 * time.Millisecond))) // by a clock that isn't ahead it is late now
		proxy.Release()
		time.Sleep(50 * time.Millisecond)
		for end := time.Now().Add(10 * time.Second); rdb.Exists(ctx, "job:late").Val() == 1; time.Sleep(10 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("it is held by nobody for another %v", rdb.PTTL(ctx, "job:late").Val())
			}
		}
	})
}

// A pending hand-over may take effect until its window is over. The window begins when it is sent, and not when it
// becomes pending.
func TestHandOver_Pending(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const answer = 2 * time.Second
		r := newBatchRigWithin(t, answer)
		ctx := t.Context()
		r.rdb.ScriptLoad(ctx, script.HandOver.Source)
		r.rdb.ScriptLoad(ctx, script.Batch.Source)
		l, err := r.c.Mutex("job").TryLock(ctx)
		if err != nil {
			t.Fatal(err)
		}
		leaving, leave := context.WithCancel(ctx)
		defer leave()
		waited := make(chan outcome, 1)
		go func() {
			l, err := r.c.Mutex("job").Lock(leaving)
			waited <- outcome{l, err}
		}()
		r.eventually(func() bool { return Asleep(r.c, 1) })
		handOvers := 0
		r.proxy.SetRule(func(c redistest.Chunk) redistest.Verdict {
			ours := func(s *backend.Script) bool {
				return c.Dir == redistest.Up && bytes.Contains(c.Data, []byte(s.SHA)) && bytes.Contains(c.Data, []byte(l.Owner()))
			}
			switch {
			case ours(script.HandOver.Script), ours(script.Batch): // with the waiter's cleanup
				if handOvers++; handOvers == 1 {
					return redistest.Hold
				}
				return redistest.Drop
			case ours(script.Release.Script):
				return redistest.Drop
			}
			return redistest.Pass
		})
		r.hold()
		rctx, giveUp := context.WithCancel(ctx)
		defer giveUp()
		released := make(chan error, 1)
		r.start(func() { released <- l.Release(rctx) })
		time.Sleep(answer + 100*time.Millisecond) // longer than its window
		leave()
		<-waited
		r.resume()
		r.proxy.AwaitHeld(t, 1)
		giveUp()
		if err := <-released; err == nil {
			t.Error("Release knows what became of it")
		}
		time.Sleep(200 * time.Millisecond)
		r.proxy.Release()
		r.eventually(func() bool { return !r.rdb.HExists(ctx, "job", l.Owner()).Val() })
		r.proxy.SetRule(nil)
		r.eventually(func() bool { return r.gone("job") })
	})
}

// If a release wakes a client that doesn't react, a waiter that asks for the lock and leaves wakes the others.
func TestNotifyOne_UnclaimedWakeUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newBatchRig(t)
		ctx := t.Context()
		other := openFor(t, r.srv.Client(t))
		const stopped = "1234567890" // a client that waits, and doesn't react
		deaf := r.rdb.Subscribe(ctx, script.Channel("job"), script.Channel("job")+":"+stopped)
		defer func() { _ = deaf.Close() }()
		for range 2 {
			if _, err := deaf.Receive(ctx); err != nil {
				t.Fatal(err)
			}
		}
		ours, theirs := make(chan outcome, 1), make(chan outcome, 1)
		for asked := false; !asked; { // not if one of them asked before the hold
			l, err := r.c.Mutex("job").TryLock(ctx)
			if err != nil {
				t.Fatal(err)
			}
			r.rdb.ZAdd(ctx, script.WaitSetKey("job"), redis.Z{Score: 1, Member: stopped})
			leaving, leave := context.WithCancel(ctx)
			defer leave()
			go func() {
				l, err := r.c.Mutex("job").Lock(leaving)
				ours <- outcome{l, err}
			}()
			go func() {
				l, err := other.Mutex("job").Lock(ctx)
				theirs <- outcome{l, err}
			}()
			r.eventually(func() bool { return Asleep(r.c, 1) && Asleep(other, 1) })
			if err := l.Release(ctx); err != nil {
				t.Fatal(err)
			}
			r.hold()
			r.eventually(func() bool {
				asked = r.pending() == 1
				return asked || len(ours)+len(theirs) > 0
			})
			leave()
			got := <-ours
			r.resume()
			if got.err == nil {
				r.release(got)
			}
			select {
			case o := <-theirs:
				r.release(o)
			case <-time.After(5 * time.Second):
				t.Fatalf("5 s later the lock is free: %v, and the other sleeps: %+v", r.gone("job"), other.Leases())
			}
		}
	})
}

// A lock whose lease is longer than a time.Duration can hold is waited for like any other.
func TestExpiryOfAThousandYears(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newBatchRig(t)
		ctx := t.Context()
		r.rdb.HSet(ctx, "job", "other:1", 1)
		if err := r.rdb.Do(ctx, "pexpire", "job", "9223000000000000000").Err(); err != nil {
			t.Fatal(err)
		}
		before := r.srv.Commands(t)["evalsha"]
		_, err := r.c.Mutex("job", WithWait(time.Second)).Lock(ctx)
		if sent := r.srv.Commands(t)["evalsha"] - before; sent > 10 {
			t.Errorf("%d scripts in a second for one waiter: %v", sent, err)
		}
	})
}

// TestCounterOfOthers checks that a token counter whose number is too large starts again at the time, with every kind
// that draws from it. Text with anything but digits is another program's: the call fails, and the text stays.
func TestCounterOfOthers(t *testing.T) {
	t.Parallel()
	sp := redistest.Shared(t)
	rdb, ctx := sp.Client(t), t.Context()
	c := openFor(t, sp.Client(t), WithKeyPrefix(sp.Prefix()))
	counter := script.FenceKey(sp.Prefix(), sp.Prefix()+"job")
	for text, foreign := range map[string]bool{"abc": true, "": true, "-1": true, "9007199254740993": false, "9223372036854775807": false, "1e300": true, "nan": true} {
		last := int64(0)
		for kind, take := range []func() (*Lease, error){
			func() (*Lease, error) { return c.Multi([]string{"job"}).TryLock(ctx) },
			func() (*Lease, error) { return c.Mutex("job").TryLock(ctx) },
			func() (*Lease, error) { return c.FairMutex("job").TryLock(ctx) },
		} {
			rdb.Set(ctx, counter, text, 0)
			l, err := take()
			if foreign {
				if now := rdb.Get(ctx, counter).Val(); !errors.Is(err, ErrInvalid) || now != text {
					t.Errorf("%q, kind %d: %v, and it is %q", text, kind, err, now)
				}
				continue
			}
			if err != nil || l.Token() <= last || l.Token() >= 1<<53 {
				t.Errorf("%q, kind %d: %v, %v", text, kind, l, err)
				continue
			}
			last = l.Token()
			if err := l.Release(ctx); err != nil {
				t.Error(err)
			}
		}
	}
}
