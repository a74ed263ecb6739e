package lock

import (
	"bytes"
	"context"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock/internal/backend"
	"github.com/lockdog/lockdog/lock/internal/script"
)

// What a full Redis refuses to one call of a flight is that one's error: the others have run, and are told so.
func TestFlightOnAFullRedis(t *testing.T) {
	t.Parallel()
	j := newJam(t)
	ctx := t.Context()
	j.rdb.ScriptLoad(ctx, script.Batch.Source)
	held, err := j.c.Mutex("job:held").TryLock(ctx)
	if err != nil {
		t.Fatal(err)
	}
	j.rdb.HSet(ctx, "job:wanted", "other", 1, "@lockdog", "1")
	j.rdb.PExpire(ctx, "job:wanted", time.Minute)
	waited := make(chan outcome, 1)
	go func() {
		l, err := j.c.Mutex("job:wanted").Lock(ctx)
		waited <- outcome{l, err}
	}()
	j.eventually(func() bool { return Asleep(j.c, 1) })
	j.quiet()
	all := j.jammed(ctx, "job:new")
	released := make(chan error, 1)
	go func() { released <- held.Release(ctx) }()
	j.eventually(func() bool { return j.pending() == 2 })
	j.rdb.Del(ctx, "job:wanted")
	j.rdb.Publish(ctx, script.Channel("job:wanted"), "0")
	j.eventually(func() bool { return j.pending() == 3 })
	j.rdb.ConfigSet(ctx, "maxmemory", "1")
	j.off()
	if err := (<-all[0]).err; err == nil || !strings.Contains(err.Error(), "OOM") {
		t.Errorf("a new lock in a full Redis: %v", err)
	}
	if err := <-released; err != nil || !j.gone("job:held") {
		t.Errorf("Release: %v, and it is gone: %v", err, j.gone("job:held"))
	}
	// After a release, which frees memory, Redis goes on to the end of the script.
	o := <-waited
	if held := !j.gone("job:wanted"); held != (o.err == nil) {
		t.Errorf("the waiter: %v, and Redis has the lock: %v", o.err, held)
	}
	j.rdb.ConfigSet(ctx, "maxmemory", "0")
	if o.err == nil {
		j.release(o)
	}
}

// Workers are of no node: where addresses come and go, those of the ones that went would stay.
func TestWorkersAreOfNoNode(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	proxies := make([]*redistest.Proxy, 2*maxIdle)
	for i := range proxies {
		proxies[i] = redistest.NewProxy(t, srv.Addr())
	}
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"shard": proxies[0].Addr()}, Password: srv.Client(t).Options().Password})
	t.Cleanup(func() { _ = ring.Close() })
	c, err := New(ring)
	if err != nil {
		t.Fatal(err)
	}
	idle := func() int {
		c.transport.mu.Lock()
		defer c.transport.mu.Unlock()
		return len(c.transport.idle)
	}
	before := runtime.NumGoroutine()
	for _, p := range proxies {
		ring.SetAddrs(map[string]string{"shard": p.Addr()})
		all := make(chan error, 20)
		for i := range 20 {
			go func() {
				l, err := c.Mutex(fmt.Sprint("job:", i)).TryLock(t.Context())
				if err == nil {
					err = l.Release(t.Context())
				}
				all <- err
			}()
		}
		for range 20 {
			if err := <-all; err != nil {
				t.Error(err)
			}
		}
	}
	if n := idle(); n > maxIdle {
		t.Errorf("%d workers are idle (%d goroutines more than before)", n, runtime.NumGoroutine()-before)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if err := c.Close(ctx); err != nil {
		t.Error(err)
	}
}

// A clock that was learnt from a slow answer is ahead: a request that is late by it is swept until it can't come back.
func TestSweptForAsLongAsTheClockIsAhead(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
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
	proxy.SetRule(func(ch redistest.Chunk) redistest.Verdict {
		if ch.Dir == redistest.Up && ch.Conn == 1 && ch.Seq == 1 { // the handshake
			return redistest.Delay(400 * time.Millisecond)
		}
		return late(ch)
	})
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
	time.Sleep(time.Until(start.Add(750 * time.Millisecond))) // by a clock that isn't ahead it is too late by now
	proxy.Release()
	time.Sleep(50 * time.Millisecond)
	for end := time.Now().Add(10 * time.Second); rdb.Exists(ctx, "job:late").Val() == 1; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("nobody has it, for %v more", rdb.PTTL(ctx, "job:late").Val())
		}
	}
}

// A hand-over that waited for a flight may happen until its time is over, which begins when it is sent.
func TestHandoverThatWaitedForAFlight(t *testing.T) {
	t.Parallel()
	const answer = 2 * time.Second
	j := newJamWithin(t, answer)
	ctx := t.Context()
	j.rdb.ScriptLoad(ctx, script.HandOver.Source)
	l, err := j.c.Mutex("job").TryLock(ctx)
	if err != nil {
		t.Fatal(err)
	}
	leaving, leave := context.WithCancel(ctx)
	defer leave()
	waited := make(chan outcome, 1)
	go func() {
		l, err := j.c.Mutex("job").Lock(leaving)
		waited <- outcome{l, err}
	}()
	j.eventually(func() bool { return Asleep(j.c, 1) })
	j.quiet()
	handOvers := 0
	j.proxy.SetRule(func(c redistest.Chunk) redistest.Verdict {
		ours := func(s *backend.Script) bool {
			return c.Dir == redistest.Up && bytes.Contains(c.Data, []byte(s.SHA)) && bytes.Contains(c.Data, []byte(l.Owner()))
		}
		switch {
		case ours(script.HandOver.Script):
			if handOvers++; handOvers == 1 {
				return redistest.Hold
			}
			return redistest.Drop
		case ours(script.Release.Script):
			return redistest.Drop
		}
		return redistest.Pass
	})
	j.fly(maxInFlight)
	rctx, giveUp := context.WithCancel(ctx)
	defer giveUp()
	released := make(chan error, 1)
	go func() { released <- l.Release(rctx) }()
	j.eventually(func() bool { return j.pending() == 1 })
	time.Sleep(answer + 100*time.Millisecond) // longer than the time that it has, once it is sent
	leave()
	<-waited
	j.off()
	j.proxy.AwaitHeld(t, 1)
	giveUp()
	if err := <-released; err == nil {
		t.Error("Release knows what became of it")
	}
	time.Sleep(200 * time.Millisecond)
	j.proxy.Release()
	j.eventually(func() bool { return !j.rdb.HExists(ctx, "job", l.Owner()).Val() })
	j.proxy.SetRule(nil)
	j.eventually(func() bool { return j.gone("job") })
}

// Whoever asks for a lock that was called to a client which doesn't come, and leaves, tells the others.
func TestUnclaimedCallIsPassedOn(t *testing.T) {
	t.Parallel()
	j := newJam(t)
	ctx := t.Context()
	other := openFor(t, j.srv.Client(t))
	const stopped = "1234567890" // a client that waits, and doesn't hear
	deaf := j.rdb.Subscribe(ctx, script.Channel("job"), script.Channel("job")+":"+stopped)
	defer func() { _ = deaf.Close() }()
	for range 2 {
		if _, err := deaf.Receive(ctx); err != nil {
			t.Fatal(err)
		}
	}
	ours, theirs := make(chan outcome, 1), make(chan outcome, 1)
	for asked := false; !asked; { // not so where one of them was quicker than the jam
		l, err := j.c.Mutex("job").TryLock(ctx)
		if err != nil {
			t.Fatal(err)
		}
		j.rdb.ZAdd(ctx, script.WaitersKey("job"), redis.Z{Score: 1, Member: stopped})
		leaving, leave := context.WithCancel(ctx)
		defer leave()
		go func() {
			l, err := j.c.Mutex("job").Lock(leaving)
			ours <- outcome{l, err}
		}()
		go func() {
			l, err := other.Mutex("job").Lock(ctx)
			theirs <- outcome{l, err}
		}()
		j.eventually(func() bool { return Asleep(j.c, 1) && Asleep(other, 1) })
		if err := l.Release(ctx); err != nil {
			t.Fatal(err)
		}
		j.quiet()
		j.fly(maxInFlight)
		j.eventually(func() bool {
			asked = j.pending() == 1
			return asked || len(ours)+len(theirs) > 0
		})
		leave()
		got := <-ours
		j.fly(-maxInFlight)
		if got.err == nil {
			j.release(got)
		}
		select {
		case o := <-theirs:
			j.release(o)
		case <-time.After(5 * time.Second):
			t.Fatalf("5 s later the lock is free: %v, and the other sleeps: %+v", j.gone("job"), other.Leases())
		}
	}
}

// A lock that is held for longer than a time.Duration can say is waited for as any other.
func TestExpiryOfAThousandYears(t *testing.T) {
	t.Parallel()
	j := newJam(t)
	ctx := t.Context()
	j.rdb.HSet(ctx, "job", "other", 1)
	if err := j.rdb.Do(ctx, "pexpire", "job", "9223000000000000000").Err(); err != nil {
		t.Fatal(err)
	}
	before := j.srv.Commands(t)["evalsha"]
	_, err := j.c.Mutex("job", WithWait(time.Second)).Lock(ctx)
	if sent := j.srv.Commands(t)["evalsha"] - before; sent > 10 {
		t.Errorf("%d scripts in a second for one waiter: %v", sent, err)
	}
}

// A counter that holds none of our tokens is begun anew, by every kind that draws from it.
func TestCounterOfOthers(t *testing.T) {
	t.Parallel()
	j := newJam(t)
	ctx := t.Context()
	for _, text := range []string{"abc", "", "-1", "9007199254740993", "9223372036854775807", "1e300", "nan"} {
		last := int64(0)
		for kind, take := range []func() (*Lease, error){
			func() (*Lease, error) { return j.c.Multi([]string{"job"}).TryLock(ctx) },
			func() (*Lease, error) { return j.c.Mutex("job").TryLock(ctx) },
			func() (*Lease, error) { return j.c.FairMutex("job").TryLock(ctx) },
		} {
			j.rdb.Set(ctx, script.FenceKey("", "job"), text, 0)
			l, err := take()
			if err != nil || l.Token() <= last || l.Token() >= 1<<53 {
				t.Errorf("%q, kind %d: %v, %v", text, kind, l, err)
				continue
			}
			last = l.Token()
			j.release(outcome{l, err})
		}
	}
}

// A replica refuses a flight as it refuses a call: at an error within a list go-redis would keep the connection, which leads to a primary no more.
func TestFlightToAReplica(t *testing.T) {
	t.Parallel()
	j := newJam(t)
	ctx := t.Context()
	held, err := j.c.Mutex("job:held").TryLock(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := j.rdb.ReplicaOf(ctx, "127.0.0.1", "1").Err(); err != nil { // nobody is there
		t.Fatal(err)
	}
	w := &worker{calls: []*call{{}, {}}}
	for i, name := range []string{"job:held", "job:new"} { // for the first nothing is written
		script.Acquire.Args(&w.calls[i].Request, script.AcquireArgs{Lock: script.Lock{Key: name, Counter: "fence"}, Owner: "me", Lease: int64(1000)})
	}
	script.Pack(&w.batch, w.calls)
	call := w.batch.Call(false)
	if got, err := j.rdb.Eval(ctx, script.Batch.Source, call.Keys, call.Args...).Result(); err == nil || !strings.HasPrefix(err.Error(), "READONLY ") {
		t.Errorf("a flight: %v, %v", got, err)
	}
	now, key := time.Now().Add(time.Hour).UnixMicro(), "job:held"
	args := []any{now, key, held.Owner(), "1000"}
	if got, err := j.rdb.Eval(ctx, script.Renew.Source, []string{key}, args...).Result(); err == nil || !strings.HasPrefix(err.Error(), "READONLY ") {
		t.Errorf("a renewal: %v, %v", got, err)
	}
	if got, err := j.rdb.Eval(ctx, script.MultiRelease.Source, []string{key}, "publish", held.Owner(), "channel").Result(); err == nil || !strings.HasPrefix(err.Error(), "READONLY ") {
		t.Errorf("a release of several: %v, %v", got, err)
	}
	if err := j.rdb.ReplicaOf(ctx, "NO", "ONE").Err(); err != nil {
		t.Fatal(err)
	}
	j.release(outcome{held, nil})
}
