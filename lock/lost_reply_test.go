package lock_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/telemetry"
)

const (
	unclearSeed  = 3
	unclearLanes = 10
	unclearRuns  = 8 // of each lane: all steps with all mishaps twice
	unclearLease = 900 * time.Millisecond
	everyTime    = 1 << 20
)

// Whatever becomes of a request or its answer, at every step of a lock's life: never two holders, nothing left in Redis
// for longer than a lease, nobody left waiting, and one outcome of each operation.
func TestUnclearOutcomes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		srv := redistest.StartFake(t)
		s := [2]*scope{newScope(t), newScope(t)} // of the clients whose wire has a trap, and of the others
		var sum tally
		loadScripts(t, srv.Client(t), "acquire", "renew", "release", "hand_over")
		lanes := make([]*lane, unclearLanes)
		for i := range lanes {
			lanes[i] = newLane(t, srv, s, &sum, i)
		}
		before := srv.Commands(t)

		stop := make(chan struct{})
		var watch sync.WaitGroup
		watch.Go(func() {
			tick := time.NewTicker(2 * time.Millisecond)
			defer tick.Stop()
			for {
				select {
				case <-tick.C:
					for _, ln := range lanes {
						ln.tellTwice()
					}
				case <-stop:
					return
				}
			}
		})
		var runs atomic.Int64
		var work sync.WaitGroup
		for i, ln := range lanes {
			work.Go(func() {
				for r := range unclearRuns {
					if t.Failed() {
						return
					}
					n := i*unclearRuns + r
					ln.run(n%len(steps), n/len(steps)%len(mishaps))
					runs.Add(1)
				}
			})
		}
		work.Wait()
		close(stop)
		watch.Wait()
		t.Logf("%d runs with seed %d: %d calls of Lock, %d grants, %d released, %d lost, %d not confirmed, %d told so",
			runs.Load(), unclearSeed, sum.locks.Load(), sum.grants.Load(), sum.released.Load(), sum.lostReleases.Load(), sum.unreleased.Load(), sum.tellings.Load())
		if t.Failed() {
			return
		}
		sum.compare(t, s)

		// A script ran once at most for each time that we say we sent it: go-redis adds none.
		scripts := func(s *scope) (n int) {
			for _, p := range []telemetry.Purpose{telemetry.PurposeAcquire, telemetry.PurposeRenew, telemetry.PurposeRelease, telemetry.PurposeOther} { // the last: what long waits write
				n += s.sent(t, p)
			}
			return n
		}
		var said string
		defer func() { t.Log(said) }()
		eventually(t, patience, func() bool { // what is on its way is counted when it is answered
			heard := 0
			for _, ln := range lanes {
				for name := range ln.wire.sha {
					heard += ln.wire.heard(name, "")
				}
			}
			ran := srv.Commands(t).Since(before)
			trapped, sound := scripts(s[0]), scripts(s[1])
			said = fmt.Sprintf("%d scripts on the wire, we sent %d; %d in all, %d ran", heard, trapped, trapped+sound, ran["evalsha"]+ran["eval"])
			return heard <= trapped && int(ran["evalsha"]+ran["eval"]) <= trapped+sound
		})
		for _, ln := range lanes {
			if left := append(ln.a.Leases(), ln.b.Leases()...); len(left) > 0 {
				t.Errorf("left: %+v", left)
			}
		}
		eventually(t, patience, func() bool { // only the holders' control channels are listened to
			channels, err := lanes[0].rdb.PubSubChannels(t.Context(), "redisson*").Result()
			return err == nil && len(channels) == 0
		})
	})
}

func newLane(t *testing.T, srv *redistest.Fake, s [2]*scope, sum *tally, i int) *lane {
	rng := rand.New(rand.NewPCG(unclearSeed, uint64(i)))
	ln := &lane{
		tally: sum, t: t, name: fmt.Sprintf("unclear:%d", i), rng: rng, running: "warm-up",
		rdb: srv.Client(t), trap: &trap{rng: rng},
	}
	through, wire := throughProxy(t, srv, answerWithin(200*time.Millisecond), func(o *redis.Options) { o.MaxRetries = 3 })
	ln.wire = wire
	ln.a, ln.b = s[0].open(t, through, lock.WithWatchdog(unclearLease)), s[1].open(t, ln.rdb, lock.WithWatchdog(unclearLease))
	for _, c := range []*lock.Client{ln.a, ln.b} { // they know the clock from here on
		ln.told("Release", ln.release(ln.take(c)))
	}
	wire.set(ln.trap.rule)
	return ln
}

// steps are the steps of a lock's life at which something happens to the request or its answer.
var steps = []struct {
	name, script string
	run          func(ln *lane, set func())
}{
	{"acquire", "acquire", (*lane).acquire},
	{"acquire of a waiter", "acquire", (*lane).wait},
	{"renew", "renew", (*lane).renew},
	{"hand-over", "hand_over", (*lane).handOver},
	{"release", "release", (*lane).releases},
}

// run has one mishap happen at one step, and looks at what is left.
func (ln *lane) run(step, what int) {
	times := [...]int{1, 1, 1, 1, 1, 1, 2, 2, 3, everyTime}[ln.rng.IntN(10)]
	st, m := steps[step], mishaps[what]
	ln.running = fmt.Sprintf("%s: %s, %s %d times", ln.name, st.name, m.name, times)
	st.run(ln, func() { ln.trap.set(m, times, ln.wire.script(st.script, ln.name)) })
	ln.trap.unset()
	ln.wire.proxy.Release() // what was held comes now

	ended := time.Now()
	for limit := ended.Add(unclearLease + 5*time.Millisecond); ; {
		ttl, err := ln.rdb.PTTL(context.Background(), ln.name).Result()
		switch {
		case err != nil:
			ln.t.Errorf("%s: PTTL: %v", ln.running, err)
			return
		case ttl == -2:
			return
		case ttl < 0 || ttl > unclearLease:
			ln.t.Errorf("%s: what is left in Redis lives for %v", ln.running, ttl)
		case time.Now().After(limit):
			ln.t.Errorf("%s: %v after all are gone the lock is held, for %v more", ln.running, time.Since(ended), ttl)
			return
		}
		<-time.After(5 * time.Millisecond)
	}
}

// acquire: a lock that is free.
func (ln *lane) acquire(set func()) {
	set()
	l, err := ln.lock(context.Background(), ln.a)
	ln.told("Lock", err)
	if err == nil {
		ln.told("Release", ln.release(l))
	}
}

// wait: somebody else holds it, and there are two waiters, the first of whom may leave.
func (ln *lane) wait(set func()) {
	held := ln.take(ln.b)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	first := ln.begin(ctx, ln.a)
	ln.stand(ln.a, 1)
	second := ln.begin(context.Background(), ln.a)
	ln.stand(ln.a, 2)
	set()
	ln.told("Release", ln.release(held))
	ln.until(func() bool { return ln.trap.hits() > 0 || len(first) > 0 })
	if ln.rng.IntN(2) == 0 {
		cancel()
		got := <-first
		switch {
		case got.err == nil:
			ln.told("the first waiter's Release", ln.release(got.Lease))
		case !errors.Is(got.err, context.Canceled):
			ln.told("the first waiter", got.err)
		}
		ln.trap.unset()
		ln.served("the second waiter", ln.a, second)
		return
	}
	ln.until(func() bool { return ln.trap.spent() || ln.trap.hits() > 4 || len(first) > 0 })
	ln.trap.unset()
	var both sync.WaitGroup // whoever is told to ask again stands behind the other
	both.Go(func() { ln.served("the first waiter", ln.a, first) })
	both.Go(func() { ln.served("the second waiter", ln.a, second) })
	both.Wait()
}

// renew: the lease is kept, unless nothing goes through until its end.
func (ln *lane) renew(set func()) {
	l := ln.take(ln.a)
	next := ln.begin(context.Background(), ln.b)
	ln.stand(ln.b, 1)
	set()
	trusted := l.Deadline()
	ln.until(func() bool {
		return l.Err() != nil || ln.trap.hits() > 0 && l.Deadline().After(trusted.Add(unclearLease/2))
	})
	var lost *lock.LostError
	if errors.As(l.Err(), &lost) && lost.Cause != lock.CauseUnreachable && lost.Cause != lock.CauseStalled {
		ln.t.Errorf("%s: %v", ln.running, lost)
	}
	ln.told("Release", ln.release(l))
	ln.served("the waiter", ln.b, next)
}

// handOver: the lock goes to a waiter of the same client.
func (ln *lane) handOver(set func()) {
	l := ln.take(ln.a)
	asked := ln.wire.heard("acquire", ln.name)
	next := ln.begin(context.Background(), ln.a)
	ln.until(func() bool { return ln.wire.heard("acquire", ln.name) >= asked+2 }) // once more when it is subscribed
	set()
	ln.told("Release", ln.release(l))
	ln.trap.unset()
	ln.served("the heir", ln.a, next)
}

// releases: the lock is freed, for a waiter of another process.
func (ln *lane) releases(set func()) {
	l := ln.take(ln.a)
	next := ln.begin(context.Background(), ln.b)
	ln.stand(ln.b, 1)
	set()
	ln.told("Release", ln.release(l))
	ln.served("the waiter", ln.b, next)
}

// until waits for a condition that must come true.
func (ln *lane) until(cond func() bool) {
	limit := time.Now().Add(patience)
	for !cond() {
		if time.Now().After(limit) {
			ln.t.Errorf("%s: nothing came", ln.running)
			return
		}
		<-time.After(2 * time.Millisecond)
	}
}

// stand waits until n callers stand in the line of a client.
func (ln *lane) stand(c *lock.Client, n int) {
	ln.until(func() bool {
		have := 0
		for _, l := range c.Leases() {
			if l.State == lock.StateWaiting {
				have++
			}
		}
		return have == n
	})
}
