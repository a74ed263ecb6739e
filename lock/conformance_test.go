package lock_test

import (
	"context"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/lock/internal/backend"
	"github.com/lockdog/lockdog/lock/internal/memory"
)

// The conformance suite: one table of behaviours, run over every shape of server. Another shape is one line in
// shapes; another behaviour one line in the table of its theme (conformance_<theme>_test.go).

// shape is a kind of server.
type shape struct {
	name  string
	kinds []kindOfLock
	run   func(t *testing.T, test func(*testing.T))
	open  func(t *testing.T, alone bool) *world
}

var shapes = []shape{
	{"memory", allKinds, bubble, openMemory},
	{"redis-resp3", allKinds, plain, openRedis(3)},
	{"redis-resp2", []kindOfLock{mutexes}, plain, openRedis(2)},
}

// behaviour is something every lock does, whatever its server.
type behaviour struct {
	name  string
	test  func(t *testing.T, w *world)
	alone bool // it needs a server that nobody else uses
}

func TestConformance(t *testing.T) {
	table := slices.Concat(takeBehaviours, waitBehaviours, leaseBehaviours, contextBehaviours,
		reentryBehaviours, doBehaviours, closeBehaviours, inputBehaviours)
	for _, s := range shapes {
		for _, k := range s.kinds {
			t.Run(s.name+"/"+k.name, func(t *testing.T) {
				t.Parallel()
				for _, b := range table {
					if k.but[b.name] != "" {
						continue
					}
					t.Run(b.name, func(t *testing.T) {
						t.Parallel()
						s.run(t, func(t *testing.T) {
							w := s.open(t, b.alone)
							w.kind = k
							b.test(t, w)
						})
					})
				}
			})
		}
	}
}

func plain(t *testing.T, test func(*testing.T))  { test(t) }
func bubble(t *testing.T, test func(*testing.T)) { synctest.Test(t, test) }

// ttl is the lease of locks in this suite: short, for a real server's time is real; long enough for a busy machine.
const ttl = 900 * time.Millisecond

// world is one server, or one test's corner of it.
type world struct {
	t      *testing.T
	kind   kindOfLock
	raw    raw
	prefix string // of this test's keys
	dial   func() redis.UniversalClient
}

// lock describes a lock of the kind that the test is for.
func (w *world) lock(c *lock.Client, name string, opts ...lock.LockOption) subject {
	return w.kind.make(c, name, opts...)
}

// raw looks at a server, and meddles with it, past the lock package. It takes whole keys.
type raw interface {
	del(key string)
	flush()
	hset(key, field, value string, lease time.Duration)
	hgetall(key string) map[string]string
	pttl(key string) int64 // ms; -2 without the key, -1 without an expiry
	setString(key, text string)
	keys() []string // of this test, in any order
}

// client returns a client of the world. When the test ends every lease of it has to have ended.
func (w *world) client(opts ...lock.Option) *lock.Client {
	w.t.Helper()
	defaults := []lock.Option{lock.WithKeyPrefix(w.prefix), lock.WithWatchdog(ttl), lock.WithLogger(silent)}
	c, err := lock.New(w.dial(), slices.Concat(defaults, opts)...)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := c.Close(ctx); err != nil {
			w.t.Errorf("Close: %v", err)
		}
	})
	return c
}

// silent drops what clients log: their losses are meant.
var silent = slog.New(slog.DiscardHandler)

// hold has an owner that is no client of ours hold a lock, as Redisson writes it; for ever without a lease.
func (w *world) hold(name, owner, count string, lease time.Duration) {
	if w.kind.hold != nil {
		w.kind.hold(w.raw, w.key(name), w.owner(owner), count, lease)
		return
	}
	w.raw.hset(w.key(name), owner, count, lease)
}

// owner is who a holder is in Redis that hold was given.
func (w *world) owner(name string) string { return name + w.kind.ending }

// key is where the lock with a name lives.
func (w *world) key(name string) string { return w.prefix + name }

func openMemory(t *testing.T, _ bool) *world {
	s := memory.New()
	return &world{t: t, raw: memoryRaw{s}, prefix: "app:", dial: func() redis.UniversalClient {
		return memoryProvider{backend: s.Backend()}
	}}
}

// memoryProvider makes lock.New use the memory.
type memoryProvider struct {
	redis.UniversalClient
	backend backend.Backend
}

func (p memoryProvider) LockdogBackend() backend.Backend { return p.backend }

type memoryRaw struct{ *memory.Server }

func (r memoryRaw) del(key string)                           { r.Del(key) }
func (r memoryRaw) flush()                                   { r.Del() }
func (r memoryRaw) hset(key, f, v string, ttl time.Duration) { r.HSet(key, f, v, ttl) }
func (r memoryRaw) hgetall(key string) map[string]string     { return r.HGetAll(key) }
func (r memoryRaw) pttl(key string) int64                    { return r.PTTL(key) }
func (r memoryRaw) setString(key, text string)               { r.SetString(key, text) }
func (r memoryRaw) keys() []string                           { return r.Keys() }

func openRedis(protocol int) func(*testing.T, bool) *world {
	speak := func(o *redis.Options) { o.Protocol = protocol }
	return func(t *testing.T, alone bool) *world {
		if alone {
			s := redistest.Start(t)
			return &world{
				t: t, raw: redisRaw{t, s.Client(t), "app:"}, prefix: "app:",
				dial: func() redis.UniversalClient { return s.Client(t, speak) },
			}
		}
		sp := redistest.Shared(t)
		return &world{
			t: t, raw: redisRaw{t, sp.Client(t), sp.Prefix()}, prefix: sp.Prefix(),
			dial: func() redis.UniversalClient { return sp.Client(t, speak) },
		}
	}
}

// redisRaw is raw for whatever a universal client reaches.
type redisRaw struct {
	t      *testing.T
	rdb    redis.UniversalClient
	prefix string
}

func (r redisRaw) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Errorf("raw: %v", err)
	}
}

func (r redisRaw) del(key string) { r.must(r.rdb.Del(context.Background(), key).Err()) }
func (r redisRaw) flush()         { r.must(r.rdb.FlushAll(context.Background()).Err()) }

func (r redisRaw) hset(key, field, value string, lease time.Duration) {
	r.must(r.rdb.HSet(context.Background(), key, field, value).Err())
	if lease > 0 {
		r.must(r.rdb.PExpire(context.Background(), key, lease).Err())
	}
}

func (r redisRaw) hgetall(key string) map[string]string {
	all, err := r.rdb.HGetAll(context.Background(), key).Result()
	r.must(err)
	return all
}

func (r redisRaw) pttl(key string) int64 {
	n, err := r.rdb.Do(context.Background(), "pttl", key).Int64()
	r.must(err)
	return n
}

func (r redisRaw) setString(key, text string) {
	r.must(r.rdb.Set(context.Background(), key, text, 0).Err())
}

func (r redisRaw) keys() []string {
	var keys []string
	it := r.rdb.Scan(context.Background(), 0, r.prefix+"*", 1000).Iterator()
	for it.Next(context.Background()) {
		keys = append(keys, it.Val())
	}
	r.must(it.Err())
	return keys
}
