package lock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/lock/internal/script"
)

// What another program keeps in Redis is no lock, and no call changes it.

// store is a server whose keys a test can read and write.
type store struct {
	rdb    redis.UniversalClient
	prefix string
}

func newStore(t *testing.T, prefix string) *store {
	return &store{redistest.StartFake(t).Client(t), prefix}
}

// value is what a key may hold: the command that writes it, less the key.
type value []string

func (v value) String() string { return fmt.Sprintf("%q", []string(v)) }

// put has a key hold a value.
func (s *store) put(t *testing.T, key string, v value) {
	t.Helper()
	args := []any{v[0], key}
	for _, word := range v[1:] {
		args = append(args, word)
	}
	must(t, v[0], s.rdb.Do(t.Context(), args...).Err())
}

// content says what a key holds, and how long.
func (s *store) content(t *testing.T, key string) string {
	t.Helper()
	cmds, err := s.rdb.Pipelined(t.Context(), func(p redis.Pipeliner) error {
		for _, args := range [][]any{
			{"pttl", key},
			{"get", key},
			{"hgetall", key},
			{"lrange", key, 0, -1},
			{"zrange", key, 0, -1, "withscores"},
			{"smembers", key},
			{"xrange", key, "-", "+"},
		} {
			p.Do(t.Context(), args...)
		}
		return nil
	})
	if !redis.HasErrorPrefix(err, "WRONGTYPE") { // of those that are for other types
		t.Fatal(err)
	}
	var text strings.Builder
	for _, cmd := range cmds {
		fmt.Fprintf(&text, "%q ", cmd.(*redis.Cmd).Val())
	}
	return text.String()
}

// call is a call of the library, on a lock with a name.
type call struct {
	kind, op string
	run      func(ctx context.Context, c *lock.Client, name string) error
}

// taking returns the calls of a kind that has leases. What they take they give back.
func taking(kind string, of func(c *lock.Client, name string) lock.Locker) []call {
	take := func(do func(lk lock.Locker, ctx context.Context) (*lock.Lease, error)) func(context.Context, *lock.Client, string) error {
		return func(ctx context.Context, c *lock.Client, name string) error {
			l, err := do(of(c, name), ctx)
			if err != nil {
				return err
			}
			return l.Release(ctx)
		}
	}
	calls := []call{{kind, "TryLock", take(lock.Locker.TryLock)}, {kind, "Lock", take(lock.Locker.Lock)}}
	if _, ok := of(nil, "").(forcible); ok {
		calls = append(calls, forcing(kind, func(c *lock.Client, name string) forcible { return of(c, name).(forcible) })...)
	}
	return calls
}

// forcing are the calls of a kind that say who holds a lock and take it away.
func forcing[T forcibleBy[H], H any](kind string, of func(c *lock.Client, name string) T) []call {
	one := callsOf(kind, of)
	return []call{
		one("Inspect", func(m T, ctx context.Context) error { return second(m.Inspect(ctx)) }),
		one("ForceUnlock", func(m T, ctx context.Context) error { return second(m.ForceUnlock(ctx)) }),
	}
}

// forcibleBy is what can be inspected, which gives an H, and forced.
type forcibleBy[H any] interface {
	Inspect(ctx context.Context) (H, error)
	ForceUnlock(ctx context.Context) (bool, error)
}

type forcible = forcibleBy[lock.Holder]

// lockCalls are those whose key is a lock's hash, and numberCalls those whose key is a number.
func lockCalls() (calls []call) {
	calls = append(calls, taking("Mutex", func(c *lock.Client, name string) lock.Locker { return c.Mutex(name, hasty...) })...)
	calls = append(calls, taking("FairMutex", func(c *lock.Client, name string) lock.Locker { return c.FairMutex(name, hasty...) })...)
	calls = append(calls, taking("RWMutex", func(c *lock.Client, name string) lock.Locker { return c.RWMutex(name, hasty...) })...)
	calls = append(calls, taking("reader", func(c *lock.Client, name string) lock.Locker { return c.RWMutex(name, hasty...).RLocker() })...)
	several := func(c *lock.Client, name string) *lock.Multi {
		return c.Multi([]string{name + ":2", name, name + ":3"}, hasty...)
	}
	calls = append(calls, taking("Multi", func(c *lock.Client, name string) lock.Locker { return several(c, name) })...)
	return append(calls, forcing("Multi", several)...)
}

func numberCalls() []call {
	permits := func(c *lock.Client, name string) *lock.Semaphore { return c.Semaphore(name, hasty...) }
	leased := callsOf("Semaphore", permits)
	unleased := callsOf("UnleasedSemaphore", func(c *lock.Client, name string) *lock.UnleasedSemaphore { return c.UnleasedSemaphore(name, hasty...) })
	latch := callsOf("Latch", func(c *lock.Client, name string) *lock.Latch { return c.Latch(name, hasty...) })
	return append(taking("Semaphore", func(c *lock.Client, name string) lock.Locker { return permits(c, name) }),
		leased("EnsurePermits", func(s *lock.Semaphore, ctx context.Context) error { return s.EnsurePermits(ctx, 3) }),
		leased("TrySetPermits", func(s *lock.Semaphore, ctx context.Context) error { return second(s.TrySetPermits(ctx, 3)) }),
		leased("AddPermits", func(s *lock.Semaphore, ctx context.Context) error { return s.AddPermits(ctx, 1) }),
		leased("Total", func(s *lock.Semaphore, ctx context.Context) error { return second(s.Total(ctx)) }),
		leased("Available", func(s *lock.Semaphore, ctx context.Context) error { return second(s.Available(ctx)) }),
		unleased("TrySetPermits", func(s *lock.UnleasedSemaphore, ctx context.Context) error { return second(s.TrySetPermits(ctx, 3)) }),
		unleased("TryAcquire", func(s *lock.UnleasedSemaphore, ctx context.Context) error { return s.TryAcquire(ctx, 1) }),
		unleased("Acquire", func(s *lock.UnleasedSemaphore, ctx context.Context) error { return s.Acquire(ctx, 1) }),
		unleased("Release", func(s *lock.UnleasedSemaphore, ctx context.Context) error { return s.Release(ctx, 1) }),
		unleased("AddPermits", func(s *lock.UnleasedSemaphore, ctx context.Context) error { return s.AddPermits(ctx, -1) }),
		unleased("Available", func(s *lock.UnleasedSemaphore, ctx context.Context) error { return second(s.Available(ctx)) }),
		latch("TrySetCount", func(l *lock.Latch, ctx context.Context) error { return second(l.TrySetCount(ctx, 3)) }),
		latch("CountDown", (*lock.Latch).CountDown),
		latch("Wait", (*lock.Latch).Wait),
		latch("Count", func(l *lock.Latch, ctx context.Context) error { return second(l.Count(ctx)) }),
	)
}

// callsOf makes calls of a kind.
func callsOf[T any](kind string, of func(*lock.Client, string) T) func(op string, do func(T, context.Context) error) call {
	return func(op string, do func(T, context.Context) error) call {
		return call{kind, op, func(ctx context.Context, c *lock.Client, name string) error { return do(of(c, name), ctx) }}
	}
}

// hasty bounds how long a call waits that should fail at once.
var hasty = []lock.LockOption{lock.WithWait(patience)}

// Hashes that are no lock, each for a reason.
var foreignHashes = []value{
	{"hset", "email", "a@example.com"},
	{"hset", "email", "a@example.com", "mode", "dark", "volume", "7"}, // the issue's
	{"hset", "mode", "read"},
	{"hset", "mode", "write", "volume", "7"},
	{"hset", "mode", "read", "host:1", "x"},
	{"hset", "mode", "Read", "host:1", "1"},
	{"hset", "mode", "read", "host:1", "1", "@lockdog", "7"},
	{"hset", "mode", "read", "host:1", "1", "email", "1"},
	{"hset", "count", "1"},
	{"hset", "host:1", "0"},
	{"hset", "host:1", "-1"},
	{"hset", "host:1", "1.5"},
	{"hset", "host:1", "1e3"},
	{"hset", "host:1", "99999999999"},
	{"hset", "host:1", "1", "host:2", "1"},
	{"hset", ":1", "1"},
	{"hset", "host:", "1"},
	{"hset", "@lockdog", "7"},
	{"hset", "@lockdog", "7", "email", "a@example.com"},
	{"hset", "", ""},
}

// Texts that are no number, as a semaphore has one.
var foreignTexts = []value{
	{"set", ""},
	{"set", "a string"},
	{"set", "3.5"},
	{"set", "1e3"},
	{"set", " 3"},
	{"set", "03"},
	{"set", "-0"},
	{"set", "+3"},
	{"set", "3\n"},
	{"set", "0x10"},
	{"set", "9223372036854775807"},
	{"set", "-9223372036854775808"},
	{"set", "99999999999999999999"},
}

var others = []value{{"rpush", "a", "b"}, {"zadd", "1", "a", "2", "b", "99999999999999", "c"}}

// A key of a lock that holds something else is left alone by every call of every kind, and each says so at once.
func TestForeignKeyIsNoLock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		callsRefuse(t, newStore(t, "app:"), slices.Concat([]value{{"set", "7"}}, foreignHashes, foreignTexts, others))
	})
}

// The same on a real server, with some of these values: it must tell foreign keys from locks as the fake does.
func TestForeignKeyIsNoLock_Redis(t *testing.T) {
	t.Parallel()
	sp := redistest.Shared(t)
	callsRefuse(t, &store{sp.Client(t), sp.Prefix()}, []value{
		{"hset", "email", "a@example.com", "mode", "dark", "volume", "7"},
		{"hset", "mode", "read", "volume", "7"},
		{"hset", "mode", "write", "volume", "7"},
		{"set", "a string"},
		{"set", "9223372036854775807"},
		{"rpush", "a"},
		{"zadd", "1", "a"},
		{"sadd", "a"},
		{"xadd", "1-1", "a", "b"},
	})
}

// callsRefuse has all calls meet each of the values.
func callsRefuse(t *testing.T, w *store, values []value) {
	t.Helper()
	c := openedBy(t, w)
	key := w.prefix + "settings"
	for i, v := range values {
		calls := lockCalls()
		if v[0] != "set" || v[1] != "7" {
			calls = append(calls, numberCalls()...)
		}
		w.put(t, key, v)
		before := w.content(t, key)
		for _, call := range calls {
			if call.op == "Lock" && i%8 > 0 {
				continue // it asks by the script that TryLock has, and fails as that does
			}
			what := fmt.Sprintf("%s.%s with %v", call.kind, call.op, v)
			start := time.Now()
			err := call.run(t.Context(), c, "settings")
			if !errors.Is(err, lock.ErrInvalid) || !strings.Contains(err.Error(), `"settings"`) {
				t.Errorf("%s: %v", what, err)
			}
			if took := time.Since(start); took >= patience {
				t.Errorf("%s failed after %v", what, took)
			}
			if now := w.content(t, key); now != before {
				t.Fatalf("%s: the key holds %s, it held %s", what, now, before)
			}
			keys := w.rdb.Keys(t.Context(), "*"+w.prefix+"*").Val()
			if isForeign := func(k string) bool { return k != key && !strings.Contains(k, "lockdog:fence:") }; slices.ContainsFunc(keys, isForeign) {
				t.Fatalf("%s left behind %q", what, keys)
			}
		}
		must(t, "DEL", w.rdb.Del(t.Context(), key).Err())
	}
}

// openedBy returns a client of a world.
func openedBy(t *testing.T, w *store) *lock.Client {
	t.Helper()
	c, err := lock.New(w.rdb, lock.WithKeyPrefix(w.prefix), lock.WithLogger(silent), lock.WithWaitGraph(0))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeSoon(c) })
	return c
}

// anyValue is any value of any type, but for what a lock or its keys may hold.
func anyValue(t *rapid.T) value {
	word := rapid.OneOf(rapid.String(), rapid.StringMatching(`[a-z ]{0,20}`), rapid.SampledFrom([]string{"", "mode", "read", "email", "1", "x:1"}))
	words := func(least, most int) []string { return rapid.SliceOfN(word, least, most).Draw(t, "words") }
	switch rapid.IntRange(0, 4).Draw(t, "type") {
	case 0:
		return value{"set", rapid.OneOf(word, rapid.StringMatching(`-?[0-9]{16,25}`)).Filter(func(s string) bool { return !script.IsNumber(s) }).Draw(t, "text")}
	case 1:
		return append(value{"rpush", "of another program"}, words(0, 5)...)
	case 2:
		v := value{"zadd", "0", "of another program"}
		for i, w := range words(0, 5) {
			v = append(v, fmt.Sprint(rapid.Int64Range(0, 1<<50).Draw(t, "score")), fmt.Sprint(w, " of another program ", i))
		}
		return v
	case 3:
		return rapid.SampledFrom(foreignHashes).Draw(t, "hash")
	}
	v := value{"hset", "of another program", "x"}
	for _, w := range words(0, 5) {
		v = append(v, w, rapid.OneOf(word, rapid.StringMatching(`[0-9]{1,12}`)).Draw(t, "value"))
	}
	return v
}

// No call changes what another program keeps at a key of a lock, or at one that a lock has beside it: of whatever type and content. More of them:
// go test -run ForeignValues -rapid.checks=10000.
func TestForeignValuesStay(t *testing.T) {
	t.Parallel()
	calls := append(lockCalls(), numberCalls()...)
	rapid.Check(t, func(rt *rapid.T) {
		v := anyValue(rt)
		picked := rapid.SliceOfN(rapid.SampledFrom(calls), 1, 6).Draw(rt, "calls")
		rival, beside := rapid.SampledFrom(calls).Draw(rt, "rival"), rapid.IntRange(-1, 40).Draw(rt, "beside")
		synctest.Test(t, func(t *testing.T) {
			w := newStore(t, "")
			a, b := openedBy(t, w), openedBy(t, w)
			key := "settings"
			if keys := lock.KeysBeside(a, key); beside >= 0 {
				key = keys[beside%len(keys)]
				if v[0] == "set" {
					v[1] += "." // so long a number may be a token
				}
			}
			w.put(t, key, v)
			before := w.content(t, key)
			done := make(chan struct{})
			go func() { // somebody else at work: then the lock isn't free
				defer close(done)
				_ = b.Mutex("settings").Do(t.Context(), func(ctx context.Context, _ *lock.Lease) error {
					<-time.After(time.Second)
					return rival.run(ctx, b, "settings")
				})
				_ = rival.run(t.Context(), b, "settings")
			}()
			for _, call := range picked {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				if err := call.run(ctx, a, "settings"); beside < 0 && !errors.Is(err, lock.ErrInvalid) {
					rt.Errorf("%s.%s with %v at its key: %v", call.kind, call.op, v, err)
				}
				cancel()
				if now := w.content(t, key); now != before {
					rt.Errorf("%s.%s, or %s.%s: %s holds %s, it held %s", call.kind, call.op, rival.kind, rival.op, key, now, before)
					break
				}
			}
			<-done
			if now := w.content(t, key); now != before {
				rt.Errorf("%s.%s: %s holds %s, it held %s", rival.kind, rival.op, key, now, before)
			}
		})
	})
}

// No sum of permits is one that Redisson couldn't read.
func TestPermitsStayInRange(t *testing.T) {
	t.Parallel()
	const most = 1<<31 - 1
	synctest.Test(t, func(t *testing.T) {
		c := openedBy(t, newStore(t, "app:"))
		for _, pool := range []interface {
			TrySetPermits(ctx context.Context, n int) (bool, error)
			AddPermits(ctx context.Context, delta int) error
			Available(ctx context.Context) (int, error)
		}{c.Semaphore("leased"), c.UnleasedSemaphore("unleased")} {
			must(t, "TrySetPermits", second(pool.TrySetPermits(t.Context(), most-1)))
			must(t, "AddPermits", pool.AddPermits(t.Context(), 1))
			mustMatch(t, pool.AddPermits(t.Context(), 1), lock.ErrInvalid)
			if n, err := pool.Available(t.Context()); n != most || err != nil {
				t.Errorf("%d permits, %v", n, err)
			}
			for range 2 {
				must(t, "AddPermits", pool.AddPermits(t.Context(), -most))
			}
			mustMatch(t, pool.AddPermits(t.Context(), -1), lock.ErrInvalid)
			if n, err := pool.Available(t.Context()); n != -most || err != nil {
				t.Errorf("%d permits, %v", n, err)
			}
			must(t, "AddPermits", pool.AddPermits(t.Context(), most))
		}
	})
}

// If a lock's key holds something else by now, Release returns ErrInvalid, and so does the Lock to which it would hand
// the lock over. The key isn't changed. (Renewals: behaviour bad input/a key of another type.)
func TestReleaseOfWhatIsNoLockAnyMore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newStore(t, "app:")
		c, key, v := openedBy(t, w), w.prefix+"job", value{"set", "a string"}
		for _, awaited := range []bool{false, true} {
			l := try(t, c.Mutex("job"))
			var heir <-chan taken
			if awaited {
				heir = begin(t.Context(), c.Mutex("job"))
				asleep(t, c, 1)
			}
			w.put(t, key, v)
			before := w.content(t, key)
			err := l.Release(t.Context())
			mustMatch(t, err, lock.ErrInvalid)
			mustMention(t, err, "job", "WRONGTYPE")
			if awaited {
				mustMatch(t, await(t, "the heir", heir).err, lock.ErrInvalid)
			}
			if now := w.content(t, key); now != before {
				t.Errorf("the key holds %s, it held %s", now, before)
			}
			must(t, "DEL", w.rdb.Del(t.Context(), key).Err())
		}
	})
}
