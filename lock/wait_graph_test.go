package lock_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/internal/fakeredis"
	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/lock/internal/backend"
	"github.com/lockdog/lockdog/lock/internal/deadlock"
	"github.com/lockdog/lockdog/lock/internal/redisfail"
	"github.com/lockdog/lockdog/lock/internal/script"
	"github.com/lockdog/lockdog/lock/internal/waitgraph"
	"github.com/lockdog/lockdog/telemetry"
)

// graphKeys are the keys of the wait graph that the world's server has.
func graphKeys(w *world) []string {
	return slices.DeleteFunc(w.raw.keys(), func(key string) bool { return !strings.Contains(key, "lockdog:wait") })
}

// graphHash is the hash of the world's only client with waits.
func graphHash(w *world) (hash map[string]string) {
	for _, key := range graphKeys(w) {
		if strings.HasSuffix(key, "}") {
			hash = w.raw.hgetall(key)
		}
	}
	return hash
}

// onFake runs a test in a world of its own, over a fake, in a bubble.
func onFake(t *testing.T, test func(t *testing.T, w *world)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { test(t, openFake(t, kindOfLock{})) })
}

// waitsKey is where the client of an owner writes its waits.
func waitsKey(owner string) string {
	_, random := script.ClientOf(owner)
	return script.WaitsKey("app:", random)
}

// notify tells the client of an owner that another one has seen a cycle.
func notify(w *world, owner string) {
	client := owner[:strings.LastIndex(owner, "-")]
	w.raw.eval("return redis.call('publish', ARGV[1], 'lockdog deadlock?')", nil, "app:lockdog:control:"+client)
}

// A wait that doesn't last leaves nothing in Redis and sends nothing; one that lasts is there, with what its ctx carries, as long as it lasts, and at most
// two commands a second are sent for it.
func TestWaitGraph_CostsNothingBeforeAWaitLasts(t *testing.T) {
	onFake(t, func(t *testing.T, w *world) {
		g := newTangle(t, w, 2)
		j := g.jobs[1]
		first := g.holds(0, g.jobs[0].Mutex("a"))
		g.holds(1, j.Mutex("b"))
		g.waits(1, j.Mutex("a"))
		sent := func(j *job) int { return j.sent(t, telemetry.PurposeOther) }
		time.Sleep(990 * time.Millisecond)
		if keys := graphKeys(w); len(keys) > 0 || sent(j) > 0 {
			t.Fatalf("%q, and %d commands", keys, sent(j))
		}
		time.Sleep(20 * time.Millisecond)
		owner := j.outer.Owner()
		hash := w.raw.hgetall(waitsKey(owner))
		waits, err := waitgraph.Decode(hash[owner])
		if err != nil || len(hash) != 1 || len(waits) != 1 || len(graphKeys(w)) != 2 {
			t.Fatalf("%v: %+v, %v", hash, waits, err)
		}
		got := waits[0]
		want := waitgraph.Wait{
			Waiter: got.Waiter, Name: "a", Kind: "mutex", Since: got.Since, Traceparent: got.Traceparent,
			Holds: []waitgraph.Hold{{Name: "b", Kind: "mutex", Owner: owner, Token: j.outer.Token()}},
		}
		since := time.Since(got.Since)
		if !reflect.DeepEqual(got, want) || waitsKey(got.Waiter) != waitsKey(owner) || len(got.Traceparent) != 55 || (since-1010*time.Millisecond).Abs() > 5*time.Millisecond {
			t.Errorf("%+v, want %+v", got, want)
		}

		const long = 60 * time.Second
		time.Sleep(long)
		if n := sent(j); n > 2*int(long.Seconds()) || n < int(long.Seconds()) || len(graphKeys(w)) != 2 {
			t.Errorf("%d commands in %v, keys %q", n, long, graphKeys(w))
		}
		if n := sent(g.jobs[0]); n > 0 {
			t.Errorf("%d commands of the client that doesn't wait", n)
		}

		free(t, first)
		l := granted(t, j.got)
		time.Sleep(2 * time.Second)
		if hash := w.raw.hgetall(waitsKey(owner)); len(hash) > 0 {
			t.Errorf("%v", hash)
		}
		time.Sleep(5 * time.Second)
		if keys := graphKeys(w); len(keys) > 0 {
			t.Errorf("%q", keys)
		}
		before := sent(j)
		free(t, l)
		time.Sleep(long)
		if n := sent(j) - before; n != 0 {
			t.Errorf("%d commands without a wait", n)
		}
	})
}

// However many waits a client has, it keeps at most 1000 in Redis, those that carry leases first, and sends few
// commands for them.
func TestWaitGraph_IsBounded(t *testing.T) {
	onFake(t, func(t *testing.T, w *world) {
		g := newTangle(t, w, 2)
		j := g.jobs[1]
		first := try(t, g.jobs[0].Mutex("a"))
		ctx, stop := context.WithCancel(context.Background())
		var all sync.WaitGroup
		for range 1100 {
			all.Go(func() { _, _ = j.Mutex("a").Lock(ctx) })
		}
		waiting(t, j.Client, 1100)
		time.Sleep(500 * time.Millisecond)
		g.holds(1, j.Mutex("b"))
		g.waits(1, j.Mutex("a"))
		time.Sleep(5 * time.Second)
		if hash := graphHash(w); len(hash) != 1000 || hash[j.outer.Owner()] == "" {
			t.Errorf("%d fields", len(hash))
		}
		before := j.sent(t, telemetry.PurposeOther)
		const long = 20 * time.Second
		time.Sleep(long)
		if sent := j.sent(t, telemetry.PurposeOther) - before; sent > 2*int(long.Seconds()) {
			t.Errorf("%d commands in %v", sent, long)
		}
		stop()
		all.Wait()
		free(t, first)
	})
}

// However many waits carry one lease, each name that they wait for is in the graph: any of them may close a cycle. Of
// the waits for one name, one is in the graph, if possible one with WithDeadlockBreaking. The victim is once among the
// many waits (last == 0), and once the other job's wait.
func TestDeadlock_OfOneOfManyWaitsOfALease(t *testing.T) {
	t.Parallel()
	for last := range 2 {
		synctest.Test(t, func(t *testing.T) {
			g := newTangle(t, openFake(t, kindOfLock{}), 3)
			g.holdEach(1-last, last)
			for i := range 12 {
				g.holds(2, g.jobs[2].Mutex(fmt.Sprint("busy", i)))
			}
			for range 70 {
				g.waits(0, g.jobs[0].Mutex("busy0"))
			}
			for i := range 12 {
				g.waits(0, g.jobs[0].Mutex(fmt.Sprint("busy", i), lock.WithDeadlockBreaking()))
			}
			g.awaits(0, 1)
			time.Sleep(1500 * time.Millisecond)
			g.awaits(0, 1, lock.WithDeadlockBreaking())
			time.Sleep(1500 * time.Millisecond)
			g.awaits(1, 0, lock.WithDeadlockBreaking())
			mustMatch(t, await(t, "the victim's Lock", g.jobs[last].got).err, lock.ErrDeadlock)
			free(t, g.jobs[last].outer)
			if last == 0 { // otherwise it is the first of the many that gets the lock
				free(t, granted(t, g.jobs[1].got))
			}
		})
	}
}

// Waits are in the graph after the time that is given; with 0, never.
func TestWithWaitGraph(t *testing.T) {
	t.Parallel()
	for after, keys := range map[time.Duration]int{200 * time.Millisecond: 2, 0: 0} {
		synctest.Test(t, func(t *testing.T) {
			w := openFake(t, kindOfLock{})
			g := newTangle(t, w, 2, lock.WithWaitGraph(after))
			g.holdEach(0, 1)
			g.awaits(1, 0)
			time.Sleep(190 * time.Millisecond)
			if early := graphKeys(w); len(early) > 0 {
				t.Errorf("%v: %q", after, early)
			}
			time.Sleep(20 * time.Millisecond)
			if now := graphKeys(w); len(now) != keys {
				t.Errorf("%v: %q", after, now)
			}
			if after == 0 {
				g.awaits(0, 1)
				g.nobodyTells(5 * time.Second)
			}
		})
	}
}

// A client that dies with its waits in Redis, or stands still, is part of no deadlock: what it has written isn't refreshed.
func TestDeadlock_NotOfTheDead(t *testing.T) {
	onFake(t, func(t *testing.T, w *world) {
		g := newTangle(t, w, 1)
		const dead = "dead:0123456789abcdef-"
		g.holds(0, g.jobs[0].Mutex("a"))
		w.raw.hset("app:b", dead+"1", "1", time.Minute)
		defer w.raw.del("app:b")
		record := waitgraph.Encode([]waitgraph.Wait{{
			Waiter: dead + "2", Name: "a", Kind: "mutex", Since: time.Now(), Holds: []waitgraph.Hold{{Name: "b", Kind: "mutex", Owner: dead + "1", Token: 5}},
		}})
		w.raw.hset(waitsKey(dead+"1"), dead+"1", record, 5*time.Second)
		g.waits(0, g.jobs[0].Mutex("b"))
		g.nobodyTells(8 * time.Second)

		// The same is one as soon as somebody refreshes it.
		for range 20 {
			w.raw.hset(waitsKey(dead+"1"), dead+"1", record, 5*time.Second)
			time.Sleep(time.Second)
		}
		mustBe(t, "deadlocks", g.jobs[0].told(t), 1)
	})
}

// What somebody else may have written about leases that aren't its own proves nothing.
func TestDeadlock_NotOfForgedWaits(t *testing.T) {
	onFake(t, func(t *testing.T, w *world) {
		g := newTangle(t, w, 2)
		g.holdEach(0, 1) // and the second one doesn't wait
		g.awaits(0, 1)
		owner := g.jobs[1].outer.Owner()
		forged := waitgraph.Wait{Name: "lock-0", Kind: "mutex", Since: time.Now()}
		ofAnother, idle := forged, forged
		ofAnother.Waiter, ofAnother.Holds = "x:0123456789abcdef-9", []waitgraph.Hold{{Name: "lock-1", Kind: "mutex", Owner: owner, Token: 5}}
		idle.Waiter = owner + "9" // carries nothing
		for _, text := range []string{waitgraph.Encode([]waitgraph.Wait{ofAnother}), waitgraph.Encode([]waitgraph.Wait{idle}), "[", ""} {
			for range 40 {
				w.raw.hset(waitsKey(owner), owner, text, 5*time.Second)
				time.Sleep(100 * time.Millisecond)
			}
		}
		mustBe(t, "deadlocks", g.jobs[0].told(t), 0)
	})
}

// FLUSHALL takes the leases of a deadlock and the graph: then there is none.
func TestDeadlock_NotAfterFlush(t *testing.T) {
	onFake(t, func(t *testing.T, w *world) {
		g := ring(t, w, 2)
		time.Sleep(1300 * time.Millisecond)
		w.raw.flush()
		g.nobodyTells(5 * time.Second)
	})
}

// A user whose ACL doesn't allow the graph's keys or commands takes and waits for locks all the same. The refusal is logged once, and nothing of the graph is sent for a minute.
func TestWaitGraph_DeniedByACL(t *testing.T) {
	t.Parallel()
	for reply, refused := range map[string]func(arg string) bool{
		"NOPERM No permissions to access a key": func(arg string) bool { return strings.HasPrefix(arg, "lockdog:wait") },
		"ERR ACL failure in script: User app has no permissions to run the 'hget' command script: on @user_script:1.": func(arg string) bool {
			return arg == script.Holders.SHA || arg == script.Holders.Source
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			srv := redistest.StartFake(t)
			srv.SetRefusal(func(cmd string, args ...string) string {
				if strings.HasPrefix(cmd, "EVAL") && slices.ContainsFunc(args, refused) {
					return reply
				}
				return ""
			})
			s := newScope(t)
			const lasts = 100 * time.Millisecond
			c := s.open(t, srv.Client(t), lock.WithWaitGraph(lasts))
			a := try(t, newScope(t).open(t, srv.Client(t)).Mutex("job:a"))
			b := try(t, c.Mutex("job:b"))
			got := begin(b.Context(), c.Mutex("job:a"))
			time.Sleep(2 * lasts)
			before := s.sent(t, telemetry.PurposeOther)
			if n := s.denials(); n != 1 || before == 0 {
				t.Errorf("%s: told %d times, %d commands", reply, n, before)
			}
			time.Sleep(59 * time.Second)
			if n, sent := s.denials(), s.sent(t, telemetry.PurposeOther)-before; n != 1 || sent != 0 {
				t.Errorf("%s: told %d times, %d commands in the minute after the refusal", reply, n, sent)
			}
			free(t, a)
			free(t, granted(t, got))
			free(t, b)
			if n := s.sum(t, telemetry.MetricErrors); n > 0 {
				t.Errorf("%v errors counted: %v", n, s.series(t, telemetry.MetricErrors))
			}
		})
	}
}

// denials is how often a client has said that the ACL refuses it the wait graph.
func (s *scope) denials() int { return strings.Count(s.said(), "wait graph") }

// said is all that a client has logged so far.
func (s *scope) said() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// Close takes the client's waits out of Redis, and doesn't wait for a Redis that is silent.
func TestWaitGraph_Close(t *testing.T) {
	t.Parallel()
	for _, silent := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			srv := redistest.StartFake(t)
			rdb := srv.Client(t)
			try(t, newScope(t).open(t, rdb).Mutex("a"))
			proxied, tap := throughProxy(t, srv)
			c := newScope(t).open(t, proxied, lock.WithWaitGraph(100*time.Millisecond))
			got := begin(t.Context(), c.Mutex("a"))
			left := func() int { return len(rdb.Keys(t.Context(), "lockdog:waits:*").Val()) }
			eventually(t, patience, func() bool { return left() == 1 })
			if silent {
				tap.set(func(redistest.Chunk) redistest.Verdict { return redistest.Hold })
			}
			began := time.Now()
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			must(t, "Close", c.Close(ctx))
			if took := time.Since(began); took > 2*time.Second {
				t.Errorf("Close took %v, silent: %v", took, silent)
			}
			mustMatch(t, await(t, "Lock", got).err, lock.ErrClosed)
			if n := left(); !silent && n > 0 {
				t.Errorf("%d keys are left", n)
			}
			tap.set(nil)
			tap.proxy.Release()
		})
	}
}

// Waits that come and go by the hundred, in every order, are no deadlock while locks are taken in one order, and none is left hanging where they aren't.
func TestDeadlock_Storm(t *testing.T) {
	t.Parallel()
	for _, ordered := range []bool{true, false} {
		t.Run(fmt.Sprint("ordered: ", ordered), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { storm(t, ordered) })
		})
	}
}

func storm(t *testing.T, ordered bool) {
	g := newTangle(t, openFake(t, kindOfLock{}), 5, lock.WithWaitGraph(100*time.Millisecond))
	lasts := 30 * time.Second
	if lock.Full {
		lasts *= 10
	}
	end := time.Now().Add(lasts)
	var all sync.WaitGroup
	var broken, done atomic.Int64
	for i, j := range g.jobs {
		for k := range 3 {
			all.Go(func() {
				for n := 0; time.Now().Before(end); n++ {
					x, y := (i+k+n)%4, (i*k+3*n+1)%4
					if x == y {
						y = (y + 1) % 4
					}
					if ordered && x > y {
						x, y = y, x
					}
					err := j.Mutex(fmt.Sprint("m", x)).Do(context.Background(), func(ctx context.Context, _ *lock.Lease) error {
						time.Sleep(time.Duration(1+n%7) * 50 * time.Millisecond)
						return j.Mutex(fmt.Sprint("m", y), lock.WithDeadlockBreaking()).Do(ctx, func(context.Context, *lock.Lease) error {
							time.Sleep(time.Duration(1+n%5) * 100 * time.Millisecond)
							return nil
						})
					})
					switch {
					case err == nil:
						done.Add(1)
					case errors.Is(err, lock.ErrDeadlock):
						broken.Add(1)
					default:
						t.Error(err)
					}
				}
			})
		}
	}
	all.Wait()
	if done.Load() < int64(10*lasts.Minutes()) || ordered != (broken.Load() == 0) {
		t.Errorf("%d done, %d broken", done.Load(), broken.Load())
	}
}

// newTangleThrough is newTangle with one more job before the others, whose client reaches the server through the tap.
func newTangleThrough(t *testing.T, w *world, up func(redis.Cmder) error, others int, opts ...lock.Option) *tangle {
	direct := w.dials[0]
	w.dials[0] = func() redis.UniversalClient {
		rdb := direct()
		rdb.AddHook(fakeredis.Tap{Up: up})
		return rdb
	}
	g := newTangle(t, w, 1, opts...)
	w.dials[0] = direct
	g.jobs = append(g.jobs, newTangle(t, w, others, opts...).jobs...)
	return g
}

// A wait of another client may lead to a lock that isn't for this client to read. That is no reason to leave the graph: others still see its waits.
func TestWaitGraph_AnothersLockIsForbidden(t *testing.T) {
	onFake(t, func(t *testing.T, w *world) {
		var asked atomic.Int64
		g := newTangleThrough(t, w, func(cmd redis.Cmder) error {
			if script.Holders.IsRunBy(cmd) && cmd.Args()[3] == "app:lock-2" {
				asked.Add(1)
				return redisfail.ReplyError("NOPERM this user has no permissions to access one of the keys used as arguments")
			}
			return nil
		}, 2)
		g.holdEach(0, 1, 2)
		g.awaits(0, 1)
		g.awaits(1, 2)
		time.Sleep(3 * time.Second)
		mustBe(t, "refused calls", int(asked.Load()), 1)
		g.awaits(2, 0)
		g.allTold(1, 2)
		time.Sleep(deadlock.DeniedPause + 20*time.Second)
		mustBe(t, "refused calls", int(asked.Load()), 2)
		if told, warned := g.jobs[0].told(t), g.jobs[0].denials(); told > 0 || warned > 0 {
			t.Errorf("told %d times, warned %d times", told, warned)
		}
	})
}

// If many waits end at once, no call refreshes the client's records while some of the ended ones are still there: a
// wait that is read lasted at the last refresh.
func TestWaitGraph_ManyEndAtOnce(t *testing.T) {
	onFake(t, func(t *testing.T, w *world) {
		var ended atomic.Bool
		var writes atomic.Int64
		g := newTangleThrough(t, w, func(cmd redis.Cmder) error {
			if script.WaitsWrite.IsRunBy(cmd) && ended.Load() && writes.Add(1) > 1 {
				return errors.New("i/o timeout")
			}
			return nil
		}, 1)
		j := g.jobs[0]
		first := try(t, g.jobs[1].Mutex("a"))
		ctx, stop := context.WithCancel(t.Context())
		var all sync.WaitGroup
		for range 150 {
			all.Go(func() { _, _ = j.Mutex("a").Lock(ctx) })
		}
		last := begin(t.Context(), j.Mutex("a"))
		waiting(t, j.Client, 151)
		time.Sleep(5 * time.Second)
		ended.Store(true)
		stop()
		all.Wait()
		eventually(t, patience, func() bool { return writes.Load() > 1 || len(graphHash(w)) == 1 })
		mustBe(t, "waits in Redis, refreshed after all but one had ended", len(graphHash(w)), 1)
		free(t, first)
		free(t, granted(t, last))
	})
}

// Locks at a server that hangs don't keep the client from refreshing its waits, which others see only as long as they are fresh.
func TestWaitGraph_RefreshedWhileAServerHangs(t *testing.T) {
	onFake(t, func(t *testing.T, w *world) {
		var mu sync.Mutex
		var last time.Time
		var longest time.Duration
		g := newTangleThrough(t, w, func(cmd redis.Cmder) error {
			switch {
			case script.WaitsWrite.IsRunBy(cmd):
				mu.Lock()
				defer mu.Unlock()
				if !last.IsZero() {
					longest = max(longest, time.Since(last))
				}
				last = time.Now()
			case script.Holders.IsRunBy(cmd) && strings.HasPrefix(cmd.Args()[3].(string), "app:hung"):
				time.Sleep(900 * time.Millisecond)
				return errors.New("i/o timeout")
			}
			return nil
		}, 1)
		j := g.jobs[0]
		g.holds(0, j.Mutex("a"))
		for i := range 60 {
			g.holds(1, g.jobs[1].Mutex(fmt.Sprint("hung", i)))
			g.waits(0, j.Mutex(fmt.Sprint("hung", i)))
		}
		time.Sleep(time.Minute)
		mu.Lock()
		defer mu.Unlock()
		if longest > 3*time.Second {
			t.Errorf("%v between two refreshes", longest)
		}
	})
}

// The client that can't write itself into the set of clients finds deadlocks all the same.
func TestWaitGraph_NotInTheSet(t *testing.T) {
	t.Parallel()
	for _, refusal := range []error{errors.New("i/o timeout"), redisfail.ReplyError("NOPERM this user has no permissions to access one of the keys")} {
		synctest.Test(t, func(t *testing.T) {
			g := newTangleThrough(t, openFake(t, kindOfLock{}), func(cmd redis.Cmder) error {
				if script.WaitsEnlist.IsRunBy(cmd) {
					return refusal
				}
				return nil
			}, 1)
			g.holdEach(0, 1)
			g.awaits(0, 1)
			g.awaits(1, 0)
			g.allTold(0, 1)
		})
	}
}

// newCountedPair has two jobs hold a lock each, and counts the calls of a script that the first one's client makes.
func newCountedPair(t *testing.T, w *world, counted *backend.Script) (g *tangle, calls *atomic.Int64) {
	calls = new(atomic.Int64)
	g = newTangleThrough(t, w, func(cmd redis.Cmder) error {
		if counted.IsRunBy(cmd) {
			calls.Add(1)
		}
		return nil
	}, 1)
	g.holdEach(0, 1)
	return g, calls
}

// A notification that comes right after a search has an effect a little later.
func TestWaitGraph_NotifiedAfterASearch(t *testing.T) {
	onFake(t, func(t *testing.T, w *world) {
		g, looks := newCountedPair(t, w, script.Holders)
		g.awaits(0, 1)
		time.Sleep(30 * time.Second)
		before := looks.Load()
		for range 2 {
			notify(w, g.jobs[0].outer.Owner())
			time.Sleep(130 * time.Millisecond)
		}
		time.Sleep(200 * time.Millisecond)
		mustBe(t, "looks", int(looks.Load()-before), 2)
	})
}

// Another client hears once of a cycle that many waits of one lease are part of.
func TestWaitGraph_NotifiesOnce(t *testing.T) {
	onFake(t, func(t *testing.T, w *world) {
		g, notifications := newCountedPair(t, w, script.WaitsNotify)
		g.awaits(1, 0)
		time.Sleep(5 * time.Second)
		for range 20 {
			g.asks(0, g.jobs[0].Mutex("lock-1")) // all at one time
		}
		g.allTold(0, 1)
		if n := notifications.Load(); n < 1 || n > 2 {
			t.Errorf("%d notifications", n)
		}
	})
}

// panickyContext panics when it is asked for a value while it is told to.
type panickyContext struct {
	context.Context
	panics *atomic.Bool
}

func (c panickyContext) Value(key any) any {
	if c.panics.Load() {
		panic("Value")
	}
	return c.Context.Value(key)
}

// The program's code that the graph runs may panic. The graph goes on after a while.
func TestWaitGraph_SurvivesAPanic(t *testing.T) {
	onFake(t, func(t *testing.T, w *world) {
		g := newTangle(t, w, 2)
		first := try(t, g.jobs[0].Mutex("a"))
		var panics atomic.Bool
		j := g.jobs[1]
		got := begin(panickyContext{context.Background(), &panics}, j.Mutex("a"))
		waiting(t, j.Client, 1)
		panics.Store(true)
		time.Sleep(5 * time.Second)
		panics.Store(false)
		survived := strings.Count(j.said(), "survived a panic")
		if keys := graphKeys(w); len(keys) > 0 || survived < 2 || survived > 5 {
			t.Errorf("%q, survived %d panics", keys, survived)
		}
		time.Sleep(2 * time.Second)
		mustBe(t, "keys", len(graphKeys(w)), 2)
		free(t, first)
		free(t, granted(t, got))
	})
}
