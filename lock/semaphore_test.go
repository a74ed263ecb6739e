package lock_test

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/telemetry"
)

// permits gives a semaphore its permits.
func permits(t *testing.T, c *lock.Client, name string, n int) *lock.Semaphore {
	t.Helper()
	p := c.Semaphore(name)
	if done, err := p.TrySetPermits(t.Context(), n); !done || err != nil {
		t.Fatalf("TrySetPermits: %v, %v", done, err)
	}
	return p
}

// leases are the permits in Redis, by their ids, and when they run out.
func (d *desk) leases(name string) map[string]time.Time {
	d.t.Helper()
	all, err := d.rdb.ZRangeWithScores(context.Background(), "{"+d.key(name)+"}:timeout", 0, -1).Result()
	must(d.t, "ZRANGE", err)
	m := make(map[string]time.Time)
	for _, z := range all {
		m[hex.EncodeToString([]byte(z.Member.(string)))] = time.UnixMilli(int64(z.Score))
	}
	return m
}

// id is what Redisson would call a lease's permit.
func id(t *testing.T, l *lock.Lease) string {
	t.Helper()
	_, grant, _ := strings.Cut(l.Owner(), ":")
	random, seq, ok := strings.Cut(grant, "-")
	n, err := strconv.ParseUint(seq, 10, 64)
	if !ok || err != nil {
		t.Fatalf("owner %q", l.Owner())
	}
	return random + fmt.Sprintf("%016x", n)
}

func TestSemaphore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t)
		const lease = 2400 * time.Millisecond
		c, ctx := d.client(lock.WithLease(lease)), t.Context()
		p := permits(t, c, "pool", 2)
		heard := messages(t, d.rdb, "redisson_sc:{"+d.key("pool")+"}")
		if done, err := p.TrySetPermits(ctx, 3); done || err != nil {
			t.Fatalf("TrySetPermits again: %v, %v", done, err)
		}

		one := try(t, p)
		two, err := c.Semaphore("pool", lock.WithReentrancy(), lock.WithLifetime(ctx)).TryLock(one.Context()) // another one, though in the lease's ctx
		must(t, "the second", err)
		if two.Token() <= one.Token() || two.Owner() == one.Owner() {
			t.Errorf("two leases with tokens %d and %d, owners %q and %q", one.Token(), two.Token(), one.Owner(), two.Owner())
		}
		in := d.leases("pool")
		for _, l := range []*lock.Lease{one, two} {
			end, ok := in[id(t, l)]
			if left := time.Until(end); !ok || left > lease || left < lease/3 {
				t.Errorf("%s has %v in Redis, which has %v", l.Owner(), left, in)
			}
		}
		_, err = p.TryLock(ctx)
		var held *lock.HeldError
		if !errors.As(err, &held) || held.Owner != "" || held.Remaining <= 0 || held.Remaining > lease || !strings.Contains(err.Error(), "no permit left") {
			t.Fatalf("the third: %#v: %v", held, err)
		}
		mustBe(t, "left", available(t, p), 0)
		for _, l := range []*lock.Lease{one, two} { // both are kept alive
			eventually(t, patience, func() bool { return d.leases("pool")[id(t, l)].After(in[id(t, l)]) })
		}
		mustBe(t, "left", available(t, p), 0)

		free(t, one)
		mustBe(t, "message", await(t, "a message", heard).Payload, "1")
		mustMatch(t, one.Release(ctx), lock.ErrReleased)
		mustBe(t, "left", available(t, p), 1)
		must(t, "AddPermits", p.AddPermits(ctx, -2))
		free(t, two) // one is missing yet: no message
		mustBe(t, "left", available(t, p), 0)
		must(t, "AddPermits", p.AddPermits(ctx, 1))
		mustBe(t, "message", await(t, "a message", heard).Payload, "1")
		mustBe(t, "left", d.value("pool"), "1")
		if in := d.leases("pool"); len(in) != 0 {
			t.Errorf("left in Redis: %v", in)
		}

		if attrs := attrsOf(d.spansNamed("held default")[0]); attrs[telemetry.KeyKind] != "semaphore" {
			t.Errorf("the span has %v", attrs)
		}
		if n := d.rdb.PubSubChannels(ctx, d.sp.Prefix()+"lockdog:control:*").Val(); len(n) != 0 {
			t.Errorf("listening to %v, though nobody can force a permit", n)
		}
	})
}

// If Redis loses a semaphore that somebody waits for, the client logs one warning that names EnsurePermits, and
// EnsurePermits lets the waiter in.
func TestSemaphoreLostWhileAwaited(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d, waiter := newDesk(t), newScope(t)
		try(t, permits(t, d.client(), "pool", 1))
		s := waiter.open(t, d.sp.Client(t)).Semaphore("pool")
		got := begin(t.Context(), s)
		time.Sleep(time.Minute)
		_, err := d.client().Semaphore("nobody set", lock.WithWait(time.Second)).Lock(t.Context())
		mustMatch(t, err, lock.ErrHeld)
		mustMention(t, err, "nobody set", "EnsurePermits")
		warnings := func() int { return strings.Count(waiter.said(), "EnsurePermits gives it some") }
		mustBe(t, "warnings while a permit is held", warnings(), 0)
		must(t, "FLUSHALL", d.rdb.FlushAll(t.Context()).Err())
		time.Sleep(time.Minute)
		if warnings() != 1 || !strings.Contains(waiter.said(), "pool") {
			t.Errorf("%d warnings:\n%s", warnings(), waiter.said())
		}
		must(t, "EnsurePermits", s.EnsurePermits(t.Context(), 1))
		free(t, granted(t, got))
	})
}

// The permit of a holder that has vanished goes to who waits, when its lease ends, and not before.
func TestSemaphorePermitOfTheVanished(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t)
		ctx := t.Context()
		c, waiter := d.client(lock.WithLease(far)), d.client(lock.WithLease(far)) // asking for nothing, it would take 20 minutes
		p := permits(t, c, "pool", 1)
		kept := try(t, p)
		end := time.Now().Add(2 * numberLease).Truncate(time.Millisecond)
		d.rdb.ZAdd(ctx, "{"+d.key("pool")+"}:timeout", redis.Z{Score: float64(end.UnixMilli()), Member: "another client's"})
		first := begin(ctx, waiter.Semaphore("pool"))
		waiting(t, waiter, 1)
		second := begin(ctx, waiter.Semaphore("pool"))
		waiting(t, waiter, 2)
		free(t, kept)
		kept = granted(t, first) // the next goes by the lease that runs out first, not by this one
		l := granted(t, second)
		if late := time.Since(end); late < 0 {
			t.Errorf("it came %v after the end of the lease", late)
		}
		if n := d.sum(t, telemetry.MetricTakeovers, "lockdog.reason=expired"); n != 1 {
			t.Errorf("takeovers: %v", d.series(t, telemetry.MetricTakeovers))
		}
		must(t, "kept", kept.Err())
		mustBe(t, "left", d.value("pool"), "0")
		free(t, l)
		free(t, kept)
		mustBe(t, "left", d.value("pool"), "2")
	})
}

// An acquire gives back permits whose leases ran out, up to 100 at a time, and publishes how many are free.
func TestSemaphorePermitsThatRanOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t)
		c, ctx := d.client(lock.WithLease(far)), t.Context()
		p := permits(t, c, "pool", 0)
		key := "{" + d.key("pool") + "}:timeout"
		const old = 250
		for i := range old {
			d.rdb.ZAdd(ctx, key, redis.Z{Score: float64(1000 + i), Member: fmt.Sprintf("old %012d", i)})
		}
		d.rdb.ZAdd(ctx, key, redis.Z{Score: 922337203685477, Member: "java, no lease.."}) // as Redisson has it
		mustBe(t, "available", available(t, p), old)
		mustBe(t, "number", d.value("pool"), "0")
		heard := messages(t, d.rdb, "redisson_sc:{"+d.key("pool")+"}")
		one := try(t, p)
		mustBe(t, "message", await(t, "a message", heard).Payload, "99")
		two := try(t, p)
		three := try(t, p)
		mustBe(t, "available", available(t, p), old-3)
		mustBe(t, "number", d.value("pool"), strconv.Itoa(old-3))
		for _, l := range []*lock.Lease{one, two, three} {
			free(t, l)
		}

		must(t, "AddPermits", p.AddPermits(ctx, -old))
		_, err := p.TryLock(ctx)
		var held *lock.HeldError
		if !errors.As(err, &held) || held.Remaining >= 0 {
			t.Fatalf("with one permit that never runs out: %#v", err)
		}
		d.rdb.ZAddXX(ctx, key, redis.Z{Score: 1000, Member: "java, no lease.."})
		free(t, try(t, p))

		// With fewer than none a hundred are not enough to serve anybody; but then the next ask at once.
		for i := range old {
			d.rdb.ZAdd(ctx, key, redis.Z{Score: float64(1000 + i), Member: fmt.Sprintf("old %012d", i)})
		}
		must(t, "AddPermits", p.AddPermits(ctx, -old))
		start := time.Now()
		free(t, granted(t, begin(ctx, d.client(lock.WithLease(time.Hour)).Semaphore("pool"))))
		if took := time.Since(start); took > 10*time.Millisecond {
			t.Errorf("it took %v", took)
		}
	})
}

// A permit that is gone from Redis is lost, and one that was lost is not given back.
func TestSemaphorePermitLost(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t)
		c := d.client(lock.WithLease(steady))
		p := permits(t, c, "pool", 3)
		key := "{" + d.key("pool") + "}:timeout"
		one, two, three := try(t, p), try(t, p), try(t, p)
		raw, _ := hex.DecodeString(id(t, one))
		d.rdb.ZRem(t.Context(), key, string(raw))
		mustMatch(t, one.Release(t.Context()), lock.ErrLost)
		mustBe(t, "left", d.value("pool"), "0")

		raw, _ = hex.DecodeString(id(t, two))
		d.rdb.ZRem(t.Context(), key, string(raw))
		mustBeLost(t, two, lock.CauseMissing)

		raw, _ = hex.DecodeString(id(t, three)) // it has run out, though nobody has noticed
		d.rdb.ZAddXX(t.Context(), key, redis.Z{Score: 1000, Member: string(raw)})
		mustBeLost(t, three, lock.CauseMissing)
		mustBe(t, "available", available(t, p), 1)
	})
}

// If Redisson set an expiry on a semaphore, its permits get one, too.
func TestSemaphoreWithAnEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t)
		d.rdb.Set(t.Context(), d.key("pool"), 2, time.Minute)
		p := d.client(lock.WithLease(far)).Semaphore("pool")
		l := try(t, p)
		must(t, "AddPermits", p.AddPermits(t.Context(), 1))
		for _, key := range []string{d.key("pool"), "{" + d.key("pool") + "}:timeout"} {
			if ttl := d.rdb.PTTL(t.Context(), key).Val(); ttl <= 0 || ttl > time.Minute {
				t.Errorf("%s lives for %v", key, ttl)
			}
		}
		free(t, l)
		mustBe(t, "left", available(t, p), 3)
	})
}

// What EnsurePermits tells Redis: the number less those held, one message if there are more than before, and an expiry stays.
func TestSemaphoreEnsurePermits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t)
		c, ctx := d.client(lock.WithLease(far)), t.Context()
		s := c.Semaphore("pool")
		heard := messages(t, d.rdb, "redisson_sc:{"+d.key("pool")+"}")
		must(t, "EnsurePermits", s.EnsurePermits(ctx, 3))
		mustBe(t, "message", await(t, "a message", heard).Payload, "3")
		mustBe(t, "number", d.value("pool"), "3")
		l := try(t, s)
		for _, step := range []struct {
			n       int
			number  string
			message string // "" for none: Redisson's waiters can't do with a negative one
		}{{3, "2", ""}, {1, "0", ""}, {0, "-1", ""}, {1, "0", ""}, {5, "4", "4"}, {4, "3", ""}} {
			must(t, "EnsurePermits", s.EnsurePermits(ctx, step.n))
			mustBe(t, "number", d.value("pool"), step.number)
			if step.message != "" {
				mustBe(t, "message", await(t, "a message", heard).Payload, step.message)
			}
		}
		// The permit of a holder that died is available, though it isn't in the number.
		d.rdb.ZAdd(ctx, "{"+d.key("pool")+"}:timeout", redis.Z{Score: 1000, Member: "of the dead....."})
		must(t, "EnsurePermits", s.EnsurePermits(ctx, 6))
		mustBe(t, "number", d.value("pool"), "4")
		mustBe(t, "message", await(t, "a message", heard).Payload, "5")
		mustHave(t, s, 6, 5)
		d.rdb.ZAddXX(ctx, "{"+d.key("pool")+"}:timeout", redis.Z{Score: 922337203685477, Member: "of the dead....."}) // Redisson's mark of a permit without a lease
		mustHave(t, s, 6, 4)

		d.rdb.PExpire(ctx, d.key("pool"), time.Minute)
		must(t, "EnsurePermits", s.EnsurePermits(ctx, 7))
		mustBe(t, "message", await(t, "a message", heard).Payload, "5")
		if ttl := d.rdb.PTTL(ctx, d.key("pool")).Val(); ttl <= 0 || ttl > time.Minute {
			t.Errorf("it lives for %v", ttl)
		}
		receipts := d.rdb.Keys(ctx, "*{"+d.key("pool")+"}:lockdog_receipt:*").Val()
		if len(receipts) != 1 {
			t.Errorf("receipts: %q", receipts)
		}
		free(t, l)
		mustBe(t, "message", await(t, "a message", heard).Payload, "6")
		select {
		case m := <-heard:
			t.Errorf("another message: %q", m.Payload)
		default:
		}
	})
}

// Waiters of one client get the shares of a lock together, not in one round trip each. No more of them ask than there
// are shares.
func TestSharesAreTakenTogether(t *testing.T) {
	t.Parallel()
	const waiters, distance = 150, 10 * time.Millisecond
	for kind, tt := range map[string]struct {
		of   func(c *lock.Client) lock.Locker
		hold func(t *testing.T, c *lock.Client) (end func())
	}{
		"readers": {
			of: func(c *lock.Client) lock.Locker { return c.RWMutex("job").RLocker() },
			hold: func(t *testing.T, c *lock.Client) func() {
				l := try(t, c.RWMutex("job"))
				return func() { free(t, l) }
			},
		},
		"permits": {
			of: func(c *lock.Client) lock.Locker { return c.Semaphore("job") },
			hold: func(t *testing.T, c *lock.Client) func() {
				p := permits(t, c, "job", 1)
				l := try(t, p)
				return func() {
					must(t, "AddPermits", p.AddPermits(t.Context(), waiters-1))
					free(t, l)
				}
			},
		},
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				srv, s := redistest.StartFake(t), newScope(t)
				rdb, wire := throughProxy(t, srv)
				c, other := s.open(t, rdb), open(t, srv.Client(t))
				end := tt.hold(t, other)
				var all []<-chan taken
				for range waiters {
					all = append(all, begin(t.Context(), tt.of(c)))
					waiting(t, c, len(all)) // the first has asked, the others don't
				}
				pass(t, clearly)
				wire.set(redistest.When(redistest.Up, redistest.Delay(distance)))
				began := time.Now()
				end()
				var leases []*lock.Lease
				for _, w := range all {
					leases = append(leases, granted(t, w))
				}
				if took := time.Since(began); took > 20*distance {
					t.Errorf("%d waiters %v away have it after %v", waiters, distance, took)
				}
				attempts := int64(0)
				for _, span := range s.spans.GetSpans() {
					for _, a := range span.Attributes {
						if a.Key == telemetry.KeyAttempts {
							attempts += a.Value.AsInt64()
						}
					}
				}
				if attempts < waiters || attempts > waiters+10 {
					t.Errorf("%d attempts of %d waiters", attempts, waiters)
				}
				wire.set(nil)
				freeAll(t, leases)
			})
		})
	}
}
