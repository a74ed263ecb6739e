package lock_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock"
)

// rwRig is a server, or a test's corner of one, and one read-write lock on it.
type rwRig struct {
	t      *testing.T
	rdb    redis.UniversalClient
	dial   func() redis.UniversalClient
	prefix string
}

func newRWRig(t *testing.T) *rwRig {
	return rwRigOf(t, redistest.StartFake(t), "")
}

func rwRigOf(t *testing.T, s interface {
	Client(testing.TB, ...func(*redis.Options)) *redis.Client
}, prefix string,
) *rwRig {
	return &rwRig{t, s.Client(t), func() redis.UniversalClient { return s.Client(t) }, prefix}
}

// client returns a client, by default with leases so long that only messages wake its waiters in time.
func (r *rwRig) client(opts ...lock.Option) *lock.Client {
	r.t.Helper()
	opts = append([]lock.Option{lock.WithKeyPrefix(r.prefix), lock.WithLease(far)}, opts...)
	return newScope(r.t).open(r.t, r.dial(), opts...)
}

// clearly is a pause after which a call that was begun before it has reached Redis.
const clearly = 250 * time.Millisecond

func (r *rwRig) key() string          { return r.prefix + "job" }
func (r *rwRig) writers() string      { return "{" + r.key() + "}:lockdog_writers" }
func (r *rwRig) turn() string         { return "{" + r.key() + "}:lockdog_turn" }
func (r *rwRig) ctx() context.Context { return context.Background() }

// mark is the key that lives as long as a holder's lease.
func (r *rwRig) mark(holder string) string {
	return "{" + r.key() + "}:" + holder + ":rwlock_timeout:1"
}

// must fails the test if Redis didn't do as told.
func (r *rwRig) must(cmd redis.Cmder) {
	r.t.Helper()
	if err := cmd.Err(); err != nil {
		r.t.Fatalf("%v: %v", cmd.Args(), err)
	}
}

// entry is the lock's hash.
func (r *rwRig) entry() map[string]string {
	r.t.Helper()
	cmd := r.rdb.HGetAll(r.ctx(), r.key())
	r.must(cmd)
	return cmd.Val()
}

// holds checks who is in the hash: nothing but the mode and these, each once.
func (r *rwRig) holds(mode string, leases ...*lock.Lease) {
	r.t.Helper()
	entry := r.entry()
	ok := entry["mode"] == mode && len(entry) == len(leases)+1
	for _, l := range leases {
		ok = ok && entry[l.Owner()] == "1"
	}
	if !ok {
		r.t.Fatalf("the hash is %v; want mode %s and %d holders", entry, mode, len(leases))
	}
}

// pttl is a key's time: -1ms without end, -2ms without the key.
func (r *rwRig) pttl(key string) time.Duration {
	r.t.Helper()
	ms, err := r.rdb.Do(r.ctx(), "pttl", key).Int64()
	if err != nil {
		r.t.Fatal(err)
	}
	return time.Duration(ms) * time.Millisecond
}

// nothing checks that the lock has left nothing but its token counter and, for a minute, the turn.
func (r *rwRig) nothing() {
	r.t.Helper()
	eventually(r.t, patience, func() bool {
		keys := r.rdb.Keys(r.ctx(), "*"+r.key()+"*").Val()
		return len(slices.DeleteFunc(keys, func(k string) bool { return k == r.turn() })) == 0
	})
}

// enlisted waits until n writers keep new readers out.
func (r *rwRig) enlisted(n int64) {
	r.t.Helper()
	eventually(r.t, patience, func() bool { return r.rdb.ZCard(r.ctx(), r.writers()).Val() == n })
}

// heldBy checks that an attempt was refused because of a holder.
func heldBy(t *testing.T, err error, l *lock.Lease) {
	t.Helper()
	var held *lock.HeldError
	if !errors.As(err, &held) || held.Owner != l.Owner() {
		t.Fatalf("%v; want held by %s", err, l.Owner())
	}
}

func refused(t *testing.T, l lock.Locker) error {
	t.Helper()
	got, err := l.TryLock(context.Background())
	if err == nil {
		t.Fatalf("%s got the lock", got.Owner())
	}
	return err
}

// Readers share the lock, each with its own token; a writer has it alone.
func TestRWManyReadersOrOneWriter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRWRig(t)
		a, b := r.client(), r.client()
		var leases []*lock.Lease
		for _, c := range []*lock.Client{a, a, b} {
			leases = append(leases, try(t, c.RWMutex("job").RLocker()))
		}
		r.holds("read", leases...)
		for i, l := range leases[1:] {
			if l.Token() <= leases[i].Token() {
				t.Errorf("token %d after %d", l.Token(), leases[i].Token())
			}
		}
		var held *lock.HeldError
		err := refused(t, b.RWMutex("job"))
		one := func(l *lock.Lease) bool { return l.Owner() == held.Owner }
		if !errors.As(err, &held) || !slices.ContainsFunc(leases, one) || held.Remaining < far-time.Minute || held.Remaining > far {
			t.Errorf("%v; want held by a reader", err)
		}
		writer := begin(r.ctx(), a.RWMutex("job"))
		r.enlisted(1)
		freeAll(t, leases)
		w := granted(t, writer)
		r.holds("write", w)
		if !strings.HasSuffix(w.Owner(), ":write") || r.rdb.Exists(r.ctx(), r.writers()).Val() != 0 {
			t.Errorf("owner %s; the writer still waits in Redis", w.Owner())
		}
		free(t, w)
		r.nothing()
	})
}

// A waiting writer has the readers that come after it wait, of whatever client. When it gives up they get in at once.
func TestRWWaitingWriterKeepsReadersOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRWRig(t)
		a, b, c := r.client(), r.client(), r.client()
		reader := try(t, a.RWMutex("job").RLocker())
		ctx, giveUp := context.WithCancel(r.ctx())
		first := begin(ctx, b.RWMutex("job"))
		r.enlisted(1)
		second := begin(r.ctx(), c.RWMutex("job", lock.WithWait(2500*time.Millisecond)))
		r.enlisted(2)
		waiters := r.rdb.ZRange(r.ctx(), r.writers(), 0, -1).Val()

		var held *lock.HeldError
		err := refused(t, a.RWMutex("job").RLocker())
		if !errors.As(err, &held) || !slices.Contains(waiters, held.Owner) || held.Remaining <= 0 {
			t.Fatalf("%v; want one of the writers that wait, %q", err, waiters)
		}
		late := begin(r.ctx(), a.RWMutex("job").RLocker())
		waiting(t, a, 1)
		giveUp()
		mustMatch(t, await(t, "Lock", first).err, lock.ErrHeld, context.Canceled)
		r.enlisted(1)
		always(t, 100*time.Millisecond, func() bool { return len(late) == 0 })
		mustMatch(t, await(t, "Lock", second).err, lock.ErrHeld)
		r.enlisted(0)
		freeAll(t, []*lock.Lease{granted(t, late), reader})
		r.nothing()
	})
}

// A writer whose first answer is slow gets in line behind a reader of its client. It keeps out nobody until it is its turn to ask:
// else that reader would wait for a writer that doesn't ask, beside a free lock, for a lease.
func TestRWWriterBehindAReaderOfItsClient(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sp := redistest.StartFake(t)
		r := rwRigOf(t, sp, "")
		rdb, wire := throughProxy(t, sp)
		loadScripts(t, sp.Client(t), "read_acquire", "read_release", "write_acquire", "write_release")
		holder := r.client()
		c := newScope(t).open(t, rdb, lock.WithKeyPrefix(r.prefix), lock.WithLease(far))
		held := try(t, holder.RWMutex("job").RLocker())

		wire.set(redistest.ReplyTo(redistest.Hold, wire.script("write_acquire", r.key()), redistest.Nth(1)))
		writer := begin(r.ctx(), c.RWMutex("job"))
		wire.proxy.AwaitHeld(t, 1)
		reader := begin(r.ctx(), c.RWMutex("job").RLocker())
		eventually(t, patience, func() bool { return len(reader) == 1 || len(c.Leases()) == 1 }) // it is in, or waits
		wire.set(nil)
		wire.proxy.Release()
		r.enlisted(1)
		free(t, held)
		first := granted(t, reader)
		free(t, first)
		free(t, granted(t, writer))
		r.nothing()
	})
}

// A writer that dies while it waits keeps readers out until its place has run out.
func TestRWDeadWaiterIsForgotten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRWRig(t)
		now := r.rdb.Time(r.ctx()).Val()
		r.must(r.rdb.ZAdd(r.ctx(), r.writers(), redis.Z{Score: float64(now.Add(1200 * time.Millisecond).UnixMilli()), Member: "dead:0123456789abcdef-1:write"}))
		c := r.client()
		_ = refused(t, c.RWMutex("job").RLocker())
		free(t, granted(t, begin(r.ctx(), c.RWMutex("job").RLocker())))
		if now := r.rdb.Time(r.ctx()).Val().Sub(now); now < 1200*time.Millisecond || now > 1300*time.Millisecond {
			t.Errorf("it took %v", now)
		}
	})
}

// When a writer gives up, a waiting reader learns when the place of a dead writer ends.
func TestRWReaderBehindADeadWriter(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRWRig(t)
		held := try(t, r.client().RWMutex("job").RLocker())
		const left = 5 * time.Second
		ends := time.Now().Add(left)
		r.must(r.rdb.ZAdd(r.ctx(), r.writers(), redis.Z{Score: float64(ends.UnixMilli()), Member: "dead:0123456789abcdef-1:write"}))
		ctx, giveUp := context.WithTimeout(r.ctx(), 2*time.Second)
		defer giveUp()
		writer := begin(ctx, r.client().RWMutex("job"))
		r.enlisted(2)
		reader := begin(r.ctx(), r.client().RWMutex("job").RLocker())
		mustMatch(t, (<-writer).err, lock.ErrHeld)
		l := granted(t, reader)
		if idle := time.Since(ends); idle < 0 || idle > time.Second {
			t.Errorf("granted %v after the place of the dead writer", idle)
		}
		freeAll(t, []*lock.Lease{l, held})
	})
}

// When the last live reader leaves, a waiting writer learns when the lease of a dead one ends.
func TestRWWriterBehindADeadReader(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRWRig(t)
		reader := try(t, r.client(lock.WithLease(lock.DefaultLease)).RWMutex("job").RLocker())
		const dead, left = "dead:0123456789abcdef-1", 22 * time.Second
		r.must(r.rdb.HSet(r.ctx(), r.key(), dead, 1))
		r.must(r.rdb.Set(r.ctx(), r.mark(dead), "1", left))
		began := time.Now()
		writer := begin(r.ctx(), r.client(lock.WithLease(lock.DefaultLease)).RWMutex("job"))
		time.Sleep(left - time.Second) // it asks every 10 s, and has just been told of the live reader's 30 s
		free(t, reader)
		l := granted(t, writer)
		if idle := time.Since(began) - left; idle < 0 || idle > time.Second {
			t.Errorf("the lock was free for %v", idle)
		}
		free(t, l)
	})
}

// Readers that wait when a writer leaves get in together, past a writer that waits; a new reader doesn't.
func TestRWReadersGetInTogether(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRWRig(t)
		a, b, c := r.client(), r.client(), r.client()
		w := try(t, a.RWMutex("job"))
		var readers []<-chan taken
		for _, client := range []*lock.Client{b, b, b, c, c} {
			readers = append(readers, begin(r.ctx(), client.RWMutex("job").RLocker()))
		}
		waiting(t, b, 3)
		waiting(t, c, 2)
		// A writer that never asks again, as if it lost the race for the free lock.
		next := float64(r.rdb.Time(r.ctx()).Val().Add(far).UnixMilli())
		r.must(r.rdb.ZAdd(r.ctx(), r.writers(), redis.Z{Score: next, Member: "slow:0123456789abcdef-1:write"}))
		pass(t, clearly)
		free(t, w)
		var leases []*lock.Lease
		for _, next := range readers {
			leases = append(leases, granted(t, next))
		}
		r.holds("read", leases...)
		_ = refused(t, a.RWMutex("job").RLocker())
		freeAll(t, leases)
		_ = refused(t, a.RWMutex("job").RLocker()) // the lock is free, and the writer's
		free(t, try(t, a.RWMutex("job")))
		r.must(r.rdb.Del(r.ctx(), r.writers()))
		free(t, try(t, a.RWMutex("job").RLocker()))
	})
}
