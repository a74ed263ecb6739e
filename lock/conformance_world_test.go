package lock_test

import (
	"context"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock"
)

// ttl is the lease of locks in the suite. A busy machine that runs it over real servers renews it in time.
const ttl = 12 * time.Second

// world is one server, or one test's corner of it.
type world struct {
	t      *testing.T
	kind   kindOfLock
	raw    raw
	prefix string                         // of this test's keys
	fake   bool                           // it is a bubble's
	dials  []func() redis.UniversalClient // one; of a quorum, by node

	mu      sync.Mutex
	quorums map[*lock.Client]*lock.Quorum // by the client of the first node
}

// dial reaches the server.
func (w *world) dial() redis.UniversalClient { return w.dials[0]() }

// lock describes a lock of the kind that the test is for.
func (w *world) lock(c *lock.Client, name string, opts ...lock.LockOption) subject {
	if w.kind.quorum {
		w.mu.Lock()
		defer w.mu.Unlock()
		return atNodes{w.quorums[c].Mutex(name, opts...), c.Mutex(name, opts...)}
	}
	return w.kind.make(c, name, opts...)
}

// rival describes the lock of that name that can't be held at the same time.
func (w *world) rival(c *lock.Client, name string, opts ...lock.LockOption) subject {
	if w.kind.quorum {
		return w.lock(c, name, opts...)
	}
	return w.kind.against(c, name, opts...)
}

// raw looks at a server, and meddles with it, past the lock package. It takes whole keys.
type raw interface {
	del(key string)
	flush()
	hset(key, field, value string, lease time.Duration)
	hgetall(key string) map[string]string
	pttl(key string) int64 // ms; -2 without the key, -1 without an expiry
	setString(key, text string)
	eval(script string, keys []string, args ...any) any
	keys() []string // of this test, in any order
}

// client returns a client of the world; of a quorum, that of its first node. When the test ends every lease of it has to have ended.
func (w *world) client(opts ...lock.Option) *lock.Client {
	w.t.Helper()
	defaults := []lock.Option{lock.WithKeyPrefix(w.prefix), lock.WithLease(ttl), lock.WithLogger(silent)}
	clients := make([]*lock.Client, len(w.dials))
	for i, dial := range w.dials {
		c, err := lock.New(dial(), slices.Concat(defaults, opts)...)
		if err != nil {
			w.t.Fatal(err)
		}
		w.t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), stretched(patience))
			defer cancel()
			if err := c.Close(ctx); err != nil {
				w.t.Errorf("Close: %v", err)
			}
		})
		clients[i] = c
	}
	if w.kind.quorum {
		for _, c := range clients { // a node has a tenth of the lease to answer, and dialing takes a while
			if _, err := c.Mutex("warm-up").Inspect(w.t.Context()); err != nil {
				w.t.Fatal(err)
			}
		}
		q, err := lock.NewQuorum(clients...)
		if err != nil {
			w.t.Fatal(err)
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.quorums == nil {
			w.quorums = make(map[*lock.Client]*lock.Quorum)
		}
		w.quorums[clients[0]] = q
	}
	return clients[0]
}

// takeFreed takes a lock that its holder has released. At a node of a Quorum, an earlier call that failed may have been
// granted the lock too late, and still hold it for a moment: then takeFreed tries again.
func (w *world) takeFreed(take func(context.Context) (*lock.Lease, error)) (l *lock.Lease) {
	w.t.Helper()
	var err error
	eventually(w.t, patience, func() bool {
		l, err = take(context.Background())
		return err == nil || !w.kind.quorum
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return l
}

// silent drops what clients log: their losses are meant.
var silent = slog.New(slog.DiscardHandler)

// hold has an owner that is no client of ours hold a lock, as Redisson writes it; for ever without a lease.
func (w *world) hold(name, owner, count string, lease time.Duration) {
	w.holdAs(name, w.owner(owner), count, lease)
}

// holdAs is hold for an owner with the kind's suffix (see owner).
func (w *world) holdAs(name, owner, count string, lease time.Duration) {
	if w.kind.hold != nil {
		w.kind.hold(w.raw, w.key(name), owner, count, lease)
		return
	}
	w.raw.hset(w.key(name), owner, count, lease)
}

// title is what a lock is called, in quotes.
func (w *world) title(name string) string {
	if w.kind.title != nil {
		name = w.kind.title(name)
	}
	return strconv.Quote(name)
}

// owner returns the owner that hold writes to Redis for a name.
func (w *world) owner(name string) string { return name + w.kind.theirs }

// shown returns the owner as a HeldError names it: "" if the kind tells nobody.
func (w *world) shown(owner string) string {
	if w.kind.silent {
		return ""
	}
	return owner
}

// tells reports whether owner is what others should be told of the holder of l. At the nodes of a quorum a lease has
// different owners, so any name will do.
func (w *world) tells(owner string, l *lock.Lease) bool {
	if w.kind.quorum {
		return owner != ""
	}
	return owner == w.shown(l.Owner())
}

// joined reports whether one lease joined the other.
func (w *world) joined(inner, outer *lock.Lease) bool {
	return inner.Token() == outer.Token() && (w.kind.quorum || inner.Owner() == outer.Owner())
}

// member is what stands for a lease's owner in Redis.
func (w *world) member(l *lock.Lease) string {
	if w.kind.member != nil {
		return w.kind.member(l.Owner())
	}
	return l.Owner()
}

// holders says who holds a lock in Redis, and how often.
func (w *world) holders(name string) map[string]string {
	if w.kind.holders != nil {
		return w.kind.holders(w.raw, w.key(name))
	}
	hash := w.raw.hgetall(w.key(name))
	delete(hash, "@lockdog")
	delete(hash, "mode")
	return hash
}

// left is what is left of a lock's lease, ms; -2 if it is free.
func (w *world) left(name string) int64 {
	if w.kind.left != nil {
		return w.kind.left(w.raw, w.key(name))
	}
	return w.raw.pttl(w.key(name))
}

// lose takes a lock from whoever holds it.
func (w *world) lose(name string) {
	if w.kind.lose != nil {
		w.kind.lose(w.raw, w.key(name))
		return
	}
	w.raw.del(w.key(name))
}

// rest returns the keys that must be gone if nobody holds or awaits a lock.
func (w *world) rest() []string {
	keys := w.raw.keys()
	if w.kind.keeps != nil {
		keys = slices.DeleteFunc(keys, w.kind.keeps)
	}
	return keys
}

// key is where the lock with a name lives.
func (w *world) key(name string) string { return w.prefix + name }

// openFake is a world of fake servers, for a bubble. Each dial is another client.
func openFake(t *testing.T, k kindOfLock) *world {
	w := &world{t: t, kind: k, prefix: "app:", fake: true}
	nodes := 1
	if k.quorum {
		nodes = 3
	}
	var raws severalRaw
	for range nodes {
		srv := redistest.StartFake(t)
		raws = append(raws, redisRaw{t, srv.Client(t), ""})
		w.dials = append(w.dials, func() redis.UniversalClient { return srv.Client(t) })
	}
	w.raw = raws.raw()
	return w
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

func (r redisRaw) eval(script string, keys []string, args ...any) any {
	reply, err := r.rdb.Eval(context.Background(), script, keys, args...).Result()
	r.must(err)
	return reply
}

func (r redisRaw) keys() []string {
	keys, err := r.rdb.Keys(context.Background(), r.prefix+"*").Result()
	r.must(err)
	return keys
}

// severalRaw is raw for the nodes of a quorum. It makes a change at all of them. What it returns is said at each
// method.
type severalRaw []raw

// raw returns s, or its only element.
func (s severalRaw) raw() raw {
	if len(s) == 1 {
		return s[0]
	}
	return s
}

func (s severalRaw) each(do func(raw)) {
	for _, r := range s {
		do(r)
	}
}

func (s severalRaw) del(key string)             { s.each(func(r raw) { r.del(key) }) }
func (s severalRaw) flush()                     { s.each(raw.flush) }
func (s severalRaw) setString(key, text string) { s.each(func(r raw) { r.setString(key, text) }) }

func (s severalRaw) hset(key, field, value string, lease time.Duration) {
	s.each(func(r raw) { r.hset(key, field, value, lease) })
}

func (s severalRaw) eval(script string, keys []string, args ...any) (reply any) {
	s.each(func(r raw) { reply = r.eval(script, keys, args...) })
	return reply
}

// hgetall has the fields that any node has.
func (s severalRaw) hgetall(key string) map[string]string {
	all := make(map[string]string)
	s.each(func(r raw) {
		for field, value := range r.hgetall(key) {
			all[field] = value
		}
	})
	return all
}

// pttl returns the median of the nodes' PTTLs: a majority has this one or a longer one.
func (s severalRaw) pttl(key string) int64 {
	var each []int64
	s.each(func(r raw) { each = append(each, r.pttl(key)) })
	slices.Sort(each)
	return each[len(each)/2]
}

func (s severalRaw) keys() (keys []string) {
	s.each(func(r raw) { keys = append(keys, r.keys()...) })
	slices.Sort(keys)
	return slices.Compact(keys)
}
