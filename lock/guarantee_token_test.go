package lock_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock"
)

// Promise 6: tokens always. Promise 7: wire-compatible with Redisson.

// A hand-over draws its token from the same counter as a grant, so tokens rise also if the counter is ahead of the
// clock, as after a failover to a server whose clock is behind. (For grants: tokens/a server clock that is behind, in
// the conformance suite.)
func TestTokensRiseThoughTheClockDoesNot(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rdb := redistest.StartFake(t).Client(t)
		c := newScope(t).open(t, rdb)
		m := c.Mutex("job")
		free(t, try(t, m))
		ahead := time.Now().Add(24 * time.Hour).UnixMicro()
		must(t, "SET", rdb.Set(t.Context(), fences(t, rdb)[0], ahead, 0).Err())
		l := try(t, m)
		next := begin(t.Context(), m)
		asleep(t, c, 1) // it draws none by itself
		free(t, l)
		heir := granted(t, next)
		if l.Token() != ahead+1 || heir.Token() != ahead+2 {
			t.Errorf("tokens %d and %d after %d", l.Token(), heir.Token(), ahead)
		}
		free(t, heir)
	})
}

// A counter keeps the expiry that somebody has given it, whichever script draws from it or raises it.
func TestTokenCounterKeepsItsExpiry(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"Mutex", "Multi", "Quorum"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				servers := threeServers(t)
				m := minHolders(t, clientsOf(t, newScope(t), servers))[kind]
				l := try(t, m)
				synctest.Wait() // the third node of a Quorum
				free(t, l)
				if kind != "Quorum" {
					servers = servers[:1]
				}
				ahead := time.Now().Add(time.Hour).UnixMicro()
				for i, srv := range servers {
					rdb := srv.Client(t)
					for _, counter := range fences(t, rdb) { // a Quorum raises those of a majority to its largest one
						must(t, "SET", rdb.Set(t.Context(), counter, ahead-int64(i)*1e9, 2*time.Hour).Err())
					}
				}
				l = try(t, m)
				synctest.Wait()
				for _, srv := range servers {
					rdb := srv.Client(t)
					for _, counter := range fences(t, rdb) {
						if ttl := rdb.TTL(t.Context(), counter).Val(); ttl <= 0 {
							t.Errorf("%s has an expiry of %v", counter, ttl)
						}
					}
				}
				free(t, l)
			})
		})
	}
}

func fences(t *testing.T, rdb *redis.Client) []string {
	t.Helper()
	keys, err := rdb.Keys(t.Context(), "*lockdog:fence:*").Result()
	if err != nil || len(keys) == 0 {
		t.Fatalf("token counters: %v, %v", keys, err)
	}
	return keys
}

// redisson is a Java client: its scripts' commands, one after the other (WIRE.md).
type redisson struct {
	*redis.Client
	holder string
}

const (
	redissonLock = `if redis.call('exists', KEYS[1]) == 0 or redis.call('hexists', KEYS[1], ARGV[2]) == 1 then
redis.call('hincrby', KEYS[1], ARGV[2], 1) redis.call('pexpire', KEYS[1], ARGV[1]) return -1 end
return redis.call('pttl', KEYS[1])`
	redissonUnlock = `if redis.call('hexists', KEYS[1], ARGV[2]) == 0 then return -1 end
local left = redis.call('hincrby', KEYS[1], ARGV[2], -1)
if left > 0 then redis.call('pexpire', KEYS[1], ARGV[1]) return 0 end
redis.call('del', KEYS[1]) redis.call('publish', KEYS[2], '0') return 1`
)

func (r redisson) run(script, name string) int64 {
	n, err := r.Eval(context.Background(), script, []string{name, "redisson_lock__channel:{" + name + "}"}, 30_000, r.holder).Int64()
	if err != nil {
		return -99
	}
	return n
}

// A Java holder excludes a Go holder and wakes it, and the reverse.
func TestSharesLocksWithRedisson(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		srv := redistest.StartFake(t)
		java := redisson{srv.Client(t), somebodyElse}
		c := newScope(t).open(t, srv.Client(t))
		m := c.Mutex("job")
		for range 2 { // it has entered twice
			if got := java.run(redissonLock, "job"); got != -1 {
				t.Fatalf("Redisson's lock of a free lock: %d", got)
			}
		}
		var held *lock.HeldError
		if _, err := m.TryLock(t.Context()); !errors.As(err, &held) || held.Owner != somebodyElse {
			t.Errorf("TryLock beside Redisson: %v", err)
		}
		if h, err := m.Inspect(t.Context()); err != nil || h.Owner != somebodyElse || h.Count != 2 || h.Token != 0 {
			t.Errorf("Inspect: %+v, %v", h, err)
		}
		next := begin(t.Context(), m)
		subscribed(t, java.Client, 1)
		java.run(redissonUnlock, "job")
		if got := java.run(redissonUnlock, "job"); got != 1 {
			t.Fatalf("Redisson's unlock: %d", got)
		}
		l := granted(t, next) // its lease had half a minute yet

		if got := java.run(redissonLock, "job"); got < 1 || got > 30_000 {
			t.Errorf("Redisson's lock of our lock: %d, want what is left of our lease", got)
		}
		if got := java.run(redissonUnlock, "job"); got != -1 {
			t.Errorf("Redisson's unlock of our lock: %d", got)
		}
		ears := java.Subscribe(t.Context(), "redisson_lock__channel:{job}")
		defer func() { _ = ears.Close() }()
		if _, err := ears.Receive(t.Context()); err != nil {
			t.Fatal(err)
		}
		free(t, l)
		msg, err := ears.ReceiveTimeout(t.Context(), patience)
		if m, ok := msg.(*redis.Message); !ok || m.Payload != "0" {
			t.Errorf("our release told Redisson %v, %v; want 0", msg, err)
		}
		if got := java.run(redissonLock, "job"); got != -1 {
			t.Errorf("Redisson's lock after our release: %d", got)
		}
	})
}

// subscribed waits until n clients listen for the release of the lock "job".
func subscribed(t *testing.T, rdb *redis.Client, n int64) {
	t.Helper()
	const channel = "redisson_lock__channel:{job}"
	eventually(t, patience, func() bool { return rdb.PubSubNumSub(context.Background(), channel).Val()[channel] == n })
}

// With WithRedissonTokens the counter is that of Redisson's RFencedLock, and goes on from wherever it stands.
func TestTokensOfRedisson(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sp := redistest.StartFake(t)
		rdb := sp.Client(t)
		c := newScope(t).open(t, rdb, lock.WithKeyPrefix(sp.Prefix()), lock.WithRedissonTokens())
		counter := "redisson_lock_token:{" + sp.Prefix() + "job}"
		for _, m := range []lock.Locker{c.Mutex("job"), c.FairMutex("job")} {
			l := try(t, m)
			first := l.Token()
			free(t, l)
			java := rdb.Incr(t.Context(), counter).Val() // as Redisson draws one
			l = try(t, m)
			second := l.Token()
			free(t, l)
			if java != first+1 || second <= java {
				t.Errorf("%T: tokens %d, then %d of Java's, then %d", m, first, java, second)
			}
		}
		far := time.Now().Add(time.Hour).UnixMicro()
		if err := rdb.Set(t.Context(), counter, far, 0).Err(); err != nil {
			t.Fatal(err)
		}
		l := try(t, c.Mutex("job"))
		if l.Token() != far+1 {
			t.Errorf("after %d comes %d", far, l.Token())
		}
		free(t, l)
		if counters := rdb.Keys(t.Context(), sp.Prefix()+"lockdog:fence:*").Val(); len(counters) > 0 {
			t.Errorf("counters of our own: %v", counters)
		}
	})
}
