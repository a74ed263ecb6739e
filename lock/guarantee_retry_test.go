package lock_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/internal/fakeredis"
	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/lock/internal/redisfail"
	"github.com/lockdog/lockdog/telemetry"
)

// Promise 5: retries are ours and harmless.

// fault is a client whose requests and answers can be lost, and the server behind it.
type fault struct {
	*scope
	srv  *redistest.Fake
	rdb  *redis.Client // not through the proxy
	wire *wireTap
	c    *lock.Client
	warm float64 // so many releases were counted before
}

// answerTime is how long go-redis waits for an answer.
const answerTime = 250 * time.Millisecond

// newFault gives a client that has learnt the server's clock, and the server the scripts.
func newFault(t *testing.T, opts ...lock.Option) *fault {
	t.Helper()
	srv := redistest.StartFake(t)
	// go-redis's own retries are what has to be kept out. By default there are three; a fake's clients make none.
	rdb, wire := throughProxy(t, srv, answerWithin(answerTime), func(o *redis.Options) { o.MaxRetries = 3 })
	f := &fault{scope: newScope(t), srv: srv, rdb: srv.Client(t), wire: wire}
	loadScripts(t, f.rdb, "acquire", "release", "hand_over")
	f.c = f.open(t, rdb, opts...)
	free(t, try(t, f.c.Mutex("warm-up")))
	f.warm = f.released(t)
	return f
}

func (f *fault) released(t *testing.T) float64 {
	t.Helper()
	return f.sum(t, telemetry.MetricReleases, "lockdog.outcome=released") - f.warm
}

// tries is how many requests of one script about a lock were on the wire.
func (f *fault) tries(script, about string) int { return f.wire.heard(script, about) }

// departures maps the ways in which a caller leaves its call that is on the wire to the server's delay. The call to a
// quick server is sent by its caller, which has to wait until go-redis returns. The call to a slow server is sent by a
// worker, so the caller leaves at once.
var departures = map[string]time.Duration{"of a quick server": 0, "of a slow server": 10 * time.Millisecond}

// away delays the server's answers by d from now on, and lets the client measure that.
func (f *fault) away(t *testing.T, d time.Duration) {
	t.Helper()
	f.wire.set(redistest.When(redistest.Down, redistest.Delay(d)))
	free(t, try(t, f.c.Mutex("warm-up")))
}

// givenUp asks for a lock by a script, and leaves when that is on the wire.
func (f *fault) givenUp(t *testing.T, m lock.Locker, script, about string) {
	t.Helper()
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	asked := f.tries(script, about)
	got := begin(ctx, m)
	eventually(t, patience, func() bool { return f.tries(script, about) > asked })
	leave()
	mustMatch(t, await(t, "Lock", got).err, context.Canceled)
}

func (f *fault) exists(name string) bool {
	return f.rdb.Exists(context.Background(), name).Val() == 1
}

// entry checks what Redis holds of a live lease: one field for its owner, entered once, and its token.
func (f *fault) entry(t *testing.T, l *lock.Lease) {
	t.Helper()
	entry := f.rdb.HGetAll(t.Context(), l.Name()).Val()
	if len(entry) != 2 || entry[l.Owner()] != "1" {
		t.Errorf("entry in Redis: %v, want %s entered once", entry, l.Owner())
	}
}

// go-redis re-sends what fails, up to three times, unseen. A script of ours is sent once per try.
func TestNobodySendsAScriptButUs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFault(t)
		ours := func() int { return f.sent(t, telemetry.PurposeAcquire) + f.sent(t, telemetry.PurposeRelease) }
		before := ours()
		f.wire.set(redistest.ReplyTo(redistest.Drop, f.wire.script("acquire", "job")))
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		if l, err := f.c.Mutex("job").TryLock(ctx); err == nil {
			t.Fatalf("%s got the lock though no answer came", l.Owner())
		}
		f.wire.set(nil)
		eventually(t, patience, func() bool { return !f.exists("job") }) // the client cleans up
		// Each that we count is one on the wire; none other is.
		eventually(t, patience, func() bool {
			return f.tries("acquire", "job")+f.tries("release", "job") == ours()-before
		})
		if n := f.tries("acquire", "job"); n != 4 {
			t.Errorf("%d tries to acquire, want 4", n)
		}
	})
}

// A call that gives up leaves nothing behind, though Redis may have granted the lock or grants it yet.
func TestGivenUpAcquireIsSwept(t *testing.T) {
	t.Parallel()
	for _, locker := range []struct {
		acquire string
		of      func(c *lock.Client) lock.Locker
	}{
		{"acquire", func(c *lock.Client) lock.Locker { return c.Mutex("a") }},
		{"multi_acquire", func(c *lock.Client) lock.Locker { return c.Multi(both) }},
	} {
		for name, verdict := range map[string]redistest.Verdict{"answer lost": redistest.Drop, "answer late": redistest.Hold} {
			for way, distance := range departures {
				t.Run(locker.acquire+" "+name+" "+way, func(t *testing.T) {
					t.Parallel()
					synctest.Test(t, func(t *testing.T) {
						f := newFault(t)
						loadScripts(t, f.rdb, "multi_acquire", "multi_release")
						f.away(t, distance)
						f.wire.set(redistest.ReplyTo(verdict, f.wire.script(locker.acquire, "a")))
						f.givenUp(t, locker.of(f.c), locker.acquire, "a")
						f.wire.proxy.Release()
						time.Sleep(answerTime) // for an answer that never comes
						synctest.Wait()
						if n := f.tries("release", "a"); n == 0 || f.exists("a") || f.exists("b") {
							t.Errorf("it is held: %v, %v, after %d calls to release it", f.exists("a"), f.exists("b"), n)
						}
					})
				})
			}
		}
	}
}

// An acquire is still on its way when its caller leaves, and the cleanup overtakes it. Nobody holds the lock then, also if the client closes meanwhile.
func TestAcquireThatOutlivesItsCall(t *testing.T) {
	t.Parallel()
	const leaves, arrives = 20 * time.Millisecond, 30 * time.Millisecond
	ways := map[string]func(context.Context) (context.Context, context.CancelFunc){
		"its deadline": endsAfter(leaves), "it is canceled": canceledAfter(leaves),
	}
	closes := map[string]time.Duration{"": 0, ", and Close": time.Minute, ", and a short Close": time.Millisecond}
	for script, of := range map[string]func(c *lock.Client) lock.Locker{
		"acquire":           func(c *lock.Client) lock.Locker { return c.Mutex("job") },
		"fair_acquire":      func(c *lock.Client) lock.Locker { return c.FairMutex("job") },
		"write_acquire":     func(c *lock.Client) lock.Locker { return c.RWMutex("job") },
		"semaphore_acquire": func(c *lock.Client) lock.Locker { return c.Semaphore("job") },
		"multi_acquire":     func(c *lock.Client) lock.Locker { return c.Multi([]string{"job", "other"}) },
	} {
		for way, leave := range ways {
			for also, closes := range closes {
				if script != "acquire" && (way == "its deadline") != (also == "") {
					continue // how it is cleaned up is of no kind
				}
				t.Run(script+" "+way+also, func(t *testing.T) {
					t.Parallel()
					synctest.Test(t, func(t *testing.T) {
						srv := redistest.StartFake(t)
						rdb, wire := throughProxy(t, srv, func(o *redis.Options) { o.ContextTimeoutEnabled = true })
						loadScripts(t, srv.Client(t), script, strings.Replace(script, "acquire", "release", 1))
						c, other := open(t, rdb), open(t, srv.Client(t))
						if pool, ok := of(other).(*lock.Semaphore); ok {
							must(t, "EnsurePermits", pool.EnsurePermits(t.Context(), 1))
						}
						wire.set(redistest.When(redistest.Down, redistest.Delay(10*time.Millisecond))) // too slow to be waited for by the caller itself
						free(t, try(t, c.Mutex("warm-up")))
						wire.set(redistest.When(redistest.Up, redistest.Hold, wire.script(script, "job")))
						start := time.Now()
						ctx, cancel := leave(t.Context())
						defer cancel()
						if _, err := of(c).TryLock(ctx); err == nil {
							t.Fatal("it got the lock")
						}
						wire.set(nil)
						closed := make(chan error, 1)
						go func() {
							defer close(closed)
							if closes > 0 {
								ctx, cancel := context.WithTimeout(context.Background(), closes)
								defer cancel()
								closed <- c.Close(ctx)
							}
						}()
						sleepUntil(start.Add(arrives))
						wire.proxy.Release()
						must(t, "Close", <-closed)
						sleepUntil(start.Add(arrives + idle))
						free(t, try(t, of(other)))
					})
				})
			}
		}
	}
}

func endsAfter(d time.Duration) func(context.Context) (context.Context, context.CancelFunc) {
	return func(ctx context.Context) (context.Context, context.CancelFunc) { return context.WithTimeout(ctx, d) }
}

func canceledAfter(d time.Duration) func(context.Context) (context.Context, context.CancelFunc) {
	return func(ctx context.Context) (context.Context, context.CancelFunc) {
		ctx, cancel := context.WithCancel(ctx)
		time.AfterFunc(d, cancel)
		return ctx, cancel
	}
}

// A release that hands the lock to a waiter of its client arrives when Close has given up on both. The lock is free then.
func TestHandOverThatOutlivesItsClient(t *testing.T) {
	t.Parallel()
	for way, distance := range departures {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := newFault(t)
				f.away(t, distance)
				held := try(t, f.c.Mutex("job"))
				waiter := begin(t.Context(), f.c.Mutex("job"))
				time.Sleep(idle) // in which it asks, and learns that it has to wait
				f.wire.set(redistest.When(redistest.Up, redistest.Hold, f.wire.script("hand_over", "job")))
				released := make(chan error, 1)
				go func() { released <- held.Release(context.Background()) }()
				f.wire.proxy.AwaitHeld(t, 1)
				closeSoon(f.c)
				mustMatch(t, await(t, "Lock", waiter).err, lock.ErrClosed)
				f.wire.set(nil)
				f.wire.proxy.Release()
				_ = await(t, "Release", released)
				time.Sleep(idle)
				if owner := holderOf(f.rdb, "job"); owner != "" {
					t.Errorf("%s holds the lock, a waiter of a client that is closed", owner)
				}
			})
		})
	}
}

// An acquire that the network delays past its own release must not take the lock again, also if an earlier request was
// slow, so that the client believes the server's clock to be ahead.
func TestLateAcquireChangesNothing(t *testing.T) {
	t.Parallel()
	for name, delay := range map[string]time.Duration{"": 0, "after a slow request": answerTime - 50*time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := newFault(t)
				f.wire.set(redistest.When(redistest.Up, redistest.Delay(delay), f.wire.script("acquire", "slow")))
				slow := try(t, f.c.Mutex("slow"))
				f.wire.set(redistest.When(redistest.Up, redistest.Hold, f.wire.script("acquire", "job"), redistest.Nth(1)))
				l := try(t, f.c.Mutex("job")) // by the second try
				f.wire.proxy.AwaitHeld(t, 1)
				free(t, l)
				ran := f.srv.Commands(t)["evalsha"]
				f.wire.set(nil)
				time.Sleep(time.Millisecond) // it was answered for, or never, until just now
				f.wire.proxy.Release()
				eventually(t, patience, func() bool { return f.srv.Commands(t)["evalsha"] > ran })
				if f.exists("job") {
					t.Error("a late acquire has taken the lock for an owner who has released it")
				}
				free(t, slow)
			})
		})
	}
}

// If a client doesn't know the server's clock yet, an acquire that arrives after its own release takes the lock for one
// lease at most.
func TestLateFirstAcquireLastsOneLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		srv := redistest.StartFake(t)
		direct := srv.Client(t)
		free(t, try(t, newScope(t).open(t, direct).Mutex("warm-up"))) // gives the server the scripts
		rdb, wire := throughProxy(t, srv, answerWithin(answerTime))
		const lease = 1500 * time.Millisecond
		c := newScope(t).open(t, rdb, lock.WithLease(lease))
		wire.set(redistest.When(redistest.Up, redistest.Hold, wire.script("acquire", "job"), redistest.Nth(1)))
		l := try(t, c.Mutex("job"))
		wire.proxy.AwaitHeld(t, 1)
		free(t, l)
		wire.set(nil)
		wire.proxy.Release()
		eventually(t, patience, func() bool { return direct.Exists(t.Context(), "job").Val() == 1 })
		if ttl := direct.PTTL(t.Context(), "job").Val(); ttl > lease {
			t.Errorf("the ghost lasts %v, longer than its lease", ttl)
		}
		free(t, granted(t, begin(t.Context(), c.Mutex("job"))))
	})
}

// A call that fails takes nothing, also if its first request is lost on the way, the repeated one finds the lock held, and the first arrives after
// the lock was released.
func TestLateAcquireOfARefusedCall(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"mutex", "permits"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				srv := redistest.StartFake(t)
				holder, direct, ctx := open(t, srv.Client(t)), srv.Client(t), t.Context()
				var lose atomic.Bool
				var late []any
				c := openTapped(t, srv, fakeredis.Tap{Up: func(cmd redis.Cmder) error {
					if isEval(cmd) && lose.Swap(false) {
						late = cmd.Args()
						return io.EOF
					}
					return nil
				}})
				var tryIt, give func() error
				if kind == "mutex" {
					free(t, try(t, c.Mutex("warm-up"))) // c knows the server's clock then
					l := try(t, holder.Mutex("job"))
					give = func() error { return l.Release(ctx) }
					tryIt = func() error { _, err := c.Mutex("job").TryLock(ctx); return err }
				} else {
					pool := holder.UnleasedSemaphore("job")
					must(t, "Release", pool.Release(ctx, 1))
					must(t, "Acquire", pool.Acquire(ctx, 1))
					give = func() error { return pool.Release(ctx, 1) }
					tryIt = func() error { return c.UnleasedSemaphore("job").TryAcquire(ctx, 1) }
				}
				lose.Store(true)
				if err := tryIt(); !errors.Is(err, lock.ErrHeld) {
					t.Fatalf("%v, want ErrHeld", err)
				}
				time.Sleep(100 * time.Millisecond)
				must(t, "release", give())
				if err := direct.Do(ctx, late...).Err(); err != nil {
					t.Fatal(err)
				}
				time.Sleep(lock.DefaultLease / 2)
				if kind == "mutex" {
					free(t, try(t, holder.Mutex("job")))
				} else if n, err := holder.UnleasedSemaphore("job").Available(ctx); n != 1 || err != nil {
					t.Errorf("%d permits are left, %v; want 1", n, err)
				}
			})
		})
	}
}

// The answer to an acquire or a release is lost: it is tried again. The lock is held once, counted once, and free when it was given back, though on
// our own retry of the release the entry is gone.
func TestLostAnswers(t *testing.T) {
	t.Parallel()
	for _, k := range append([]kindOfLock{several}, allKinds...) {
		of := k.name + "_"
		switch k.name {
		case "multi": // of one name, it is taken as a Mutex is
			continue
		case "mutex":
			of = ""
		case several.name:
			of = "multi_"
		}
		for how, verdict := range map[string]redistest.Verdict{"silence": redistest.Drop, "reset": redistest.Cut} {
			t.Run(k.name+" "+how, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) { lostAnswers(t, k, of+"acquire", of+"release", verdict) })
			})
		}
	}
}

func lostAnswers(t *testing.T, k kindOfLock, acquire, release string, verdict redistest.Verdict) {
	f := newFault(t)
	w := &world{t: t, kind: k, raw: redisRaw{t, f.rdb, ""}}
	loadScripts(t, f.rdb, acquire, release)
	m := k.make(f.c, "job")
	f.wire.set(redistest.ReplyTo(verdict, f.wire.script(acquire, "job"), redistest.Nth(1)))
	l := try(t, m)
	if held := w.holders("job"); len(held) != 1 || held[w.member(l)] != "1" {
		t.Errorf("in Redis: %v; owner %q", held, l.Owner())
	}
	// The first try had a token too; ours is the later one, which is what Redis knows.
	if h, err := m.Inspect(t.Context()); err != nil || !k.silent && h.Token != l.Tokens()["job"] {
		t.Errorf("Inspect: %+v, %v; the tokens are %v", h, err, l.Tokens())
	}
	f.wire.set(redistest.ReplyTo(verdict, f.wire.script(release, "job"), redistest.Nth(1)))
	free(t, l)
	// Beside the caller, the cleanup may release already what the first try to acquire could still take.
	if a, r := f.tries(acquire, "job"), f.tries(release, "job"); a != 2 || r < 2 {
		t.Errorf("%d tries to acquire, %d to release, want 2, and 2 at least", a, r)
	}
	if a, r := f.sum(t, telemetry.MetricAcquisitions)-1, f.released(t); a != 1 || r != 1 { // less the warm-up
		t.Errorf("%v acquisitions and %v releases counted, want 1", a, r)
	}
	spans := f.spansNamed("release default")
	unconfirmed := map[bool]string{true: "true"}[k.name != several.name] // of several names it isn't said
	if last := attrsOf(spans[len(spans)-1]); last["lockdog.release.unconfirmed"] != unconfirmed || last["lockdog.outcome"] != "released" {
		t.Errorf("the release span says %v, want unconfirmed %q", last, unconfirmed)
	}
	if left := w.left("job"); left != -2 {
		t.Errorf("held for another %d ms", left)
	}
	free(t, try(t, m))
	l = try(t, k.against(f.c, "job"))
	mustMatch(t, second(m.TryLock(t.Context())), lock.ErrHeld) // no permit has come up
	free(t, l)
}

// If the request of a hand-over is late, or its answer is lost, the waiter gets the lock all the same, with one entry
// in Redis.
func TestLostHandOver(t *testing.T) {
	t.Parallel()
	for name, rule := range map[string]func(f *fault) redistest.Rule{
		"answer lost": func(f *fault) redistest.Rule {
			return redistest.ReplyTo(redistest.Drop, f.wire.script("hand_over", "job"), redistest.Nth(1))
		},
		"request late": func(f *fault) redistest.Rule {
			return redistest.When(redistest.Up, redistest.Hold, f.wire.script("hand_over", "job"), redistest.Nth(1))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := newFault(t)
				m := f.c.Mutex("job")
				l := try(t, m)
				next := begin(t.Context(), m)
				asleep(t, f.c, 1)
				f.wire.set(rule(f))
				free(t, l)
				heir := granted(t, next)
				if heir.Token() <= l.Token() {
					t.Errorf("token %d after %d", heir.Token(), l.Token())
				}
				f.entry(t, heir)
				f.wire.set(nil)
				f.wire.proxy.Release()
				free(t, heir)
				eventually(t, patience, func() bool { return !f.exists("job") })
				last := try(t, m)
				f.entry(t, last)
				free(t, last)
			})
		})
	}
}

// The waiter leaves while the lock is handed over to it, and the answer that says so is lost: nobody is left to release it
// but the client.
func TestLostHandOverToWhoHasLeft(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := newFault(t)
		m := f.c.Mutex("job")
		l := try(t, m)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		next := begin(ctx, m)
		asleep(t, f.c, 1)
		f.wire.set(redistest.ReplyTo(redistest.Hold, f.wire.script("hand_over", "job"), redistest.Nth(1)))
		released := make(chan error, 1)
		go func() { released <- l.Release(context.Background()) }()
		f.wire.proxy.AwaitHeld(t, 1)
		cancel()
		mustMatch(t, await(t, "Lock", next).err, context.Canceled)
		must(t, "Release", await(t, "Release", released))
		eventually(t, patience, func() bool { return !f.exists("job") })
	})
}

// A server that was restarted, or whose scripts were flushed, is given them again. That is no error.
func TestScriptsAreSentAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		srv := redistest.StartFake(t)
		rdb := srv.Client(t)
		s := newScope(t)
		c := s.open(t, rdb, lock.WithLease(1500*time.Millisecond))
		flush := func() {
			t.Helper()
			if err := rdb.ScriptFlush(t.Context()).Err(); err != nil {
				t.Fatal(err)
			}
		}
		m := c.Mutex("job")
		flush()
		l := try(t, m)
		heir := begin(t.Context(), m)
		asleep(t, c, 1)
		flush()
		free(t, l) // hands it over
		l = granted(t, heir)
		flush()
		before := l.Deadline()
		eventually(t, patience, func() bool { return l.Deadline().After(before) })
		flush()
		if h, err := m.Inspect(t.Context()); err != nil || h.Owner != l.Owner() {
			t.Errorf("Inspect: %+v, %v", h, err)
		}
		flush()
		free(t, l)
		l = try(t, m)
		flush()
		if was, err := m.ForceUnlock(t.Context()); err != nil || !was {
			t.Errorf("ForceUnlock: %v, %v", was, err)
		}
		mustBeLost(t, l, lock.CauseForced)
		if n := s.sum(t, telemetry.MetricErrors); n != 0 {
			t.Errorf("%v errors: %v", n, s.series(t, telemetry.MetricErrors))
		}
	})
}

// If the waiter that a release has woken leaves while it asks, the next in line must ask instead. Otherwise it would
// sleep until the end of the lease that was released.
func TestWakeUpOfALeavingWaiterIsPassedOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		srv := redistest.StartFake(t)
		rdb, wire := throughProxy(t, srv)
		c, other := newScope(t).open(t, rdb), newScope(t).open(t, srv.Client(t))
		free(t, try(t, c.Mutex("warm-up")))

		held := try(t, other.Mutex("job")) // for DefaultLease, longer than this test has patience
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		first := begin(ctx, c.Mutex("job", lock.WithFixedLease(lock.DefaultLease))) // it is woken, not granted the lock
		asleep(t, c, 1)
		second := begin(t.Context(), c.Mutex("job"))
		waiting(t, c, 2)
		asked := make(chan bool, 1)
		wire.set(redistest.When(redistest.Up, redistest.Drop, wire.script("acquire", "job"), redistest.Nth(1), func(redistest.Chunk) bool {
			asked <- true
			return true
		}))
		free(t, held)
		await(t, "the first waiter's question", asked)
		cancel()
		mustMatch(t, await(t, "the first waiter", first).err, context.Canceled)
		free(t, granted(t, second))
	})
}

// A try without an answer isn't a refusal, also if the try before was refused: the call may still take the lock, so its claim isn't used again.
// Otherwise the cleanup of that call would release what the same claim was granted later.
func TestNoAnswerAfterARefusal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		srv := redistest.StartFake(t)
		const lease = 2 * time.Second
		var asked atomic.Int32
		c := openTapped(t, srv, fakeredis.Tap{Up: func(cmd redis.Cmder) error {
			if !isEval(cmd) || cmd.Args()[3] != "job" {
				return nil
			}
			switch asked.Add(1) {
			case 1:
				return redisfail.ReplyError("READONLY You can't write against a read only replica.")
			case 2:
				time.Sleep(lease + time.Second) // without an answer for the lease, go-redis's timeout is longer
			}
			return nil
		}}, lock.WithLease(lease))
		l, err := c.Mutex("job").Lock(t.Context())
		for errors.Is(err, lock.ErrUnavailable) {
			l, err = c.Mutex("job").Lock(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * lease)
		if owner := holderOf(srv.Client(t), "job"); owner != l.Owner() || l.Err() != nil {
			t.Errorf("held by %q, not by %q: %v", owner, l.Owner(), l.Err())
		}
		free(t, l)
	})
}
