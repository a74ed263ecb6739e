package fleet_test

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
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/lock/fleet"
)

func traced(t *testing.T) (ctx context.Context, tracer *sdktrace.TracerProvider, traceID string) {
	t.Helper()
	tracer = sdktrace.NewTracerProvider()
	t.Cleanup(func() { _ = tracer.Shutdown(context.Background()) })
	ctx, span := tracer.Tracer("test").Start(t.Context(), "job")
	t.Cleanup(func() { span.End() })
	return ctx, tracer, trace.SpanContextFromContext(ctx).TraceID().String()
}

func TestMutex(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newFakeRig(t)
		ctx, tracer, traceID := traced(t)
		before := time.UnixMilli(r.now())
		lease := r.takeCtx(ctx, r.client("holder", lock.WithTracerProvider(tracer)).Mutex("job", lock.WithLease(20*time.Second)))
		after := time.UnixMilli(r.now() + 1)

		l := r.look("job")
		if l.Name != "job" || l.Key != r.prefix+"job" || l.Kind != fleet.Mutex || l.Mode != "" || l.Held != 1 || len(l.Holders) != 1 || l.Waiting != 0 || len(l.Waiters) != 0 {
			t.Fatalf("%+v", l)
		}
		h := l.Holders[0]
		if h.Owner != lease.Owner() || h.ClientID != "holder" || h.Redisson || h.Count != 1 || h.Mode != "" || h.Token != lease.Token() || h.Token == 0 {
			t.Errorf("%+v, want owner %q and token %d", h, lease.Owner(), lease.Token())
		}
		if h.Since.Before(before) || h.Since.After(after) {
			t.Errorf("since %v, want between %v and %v", h.Since, before, after)
		}
		if h.TraceID != traceID || len(h.SpanID) != 16 {
			t.Errorf("trace %q, span %q; want trace %q", h.TraceID, h.SpanID, traceID)
		}
		if !within(h.Remaining, time.Second, 20*time.Second) || l.Remaining != h.Remaining {
			t.Errorf("remaining %v and %v", l.Remaining, h.Remaining)
		}

		// A client is in the set once, whoever of its goroutines waits.
		first := r.client("first", lock.WithTracerProvider(tracer))
		r.wait(ctx, first.Mutex("job"))
		r.lookUntil("job", "no waiter", func(l fleet.Lock) bool { return l.Waiting == 1 })
		r.wait(t.Context(), first.Mutex("job"))
		r.wait(t.Context(), r.client("second").Mutex("job"))
		l = r.lookUntil("job", "no second waiter", func(l fleet.Lock) bool { return l.Waiting == 2 })
		if len(l.Waiters) != 2 || l.Kind != fleet.Mutex {
			t.Fatalf("%+v", l)
		}
		for i, want := range []string{"first", "second"} {
			w := l.Waiters[i]
			if w.ClientID != "" && w.ClientID != want || w.Redisson || w.Since.Before(before) || w.Since.After(time.UnixMilli(r.now()+1)) {
				t.Errorf("%d: %+v", i, w)
			}
		}
		if w := l.Waiters[0]; w.ClientID != "" && w.TraceID != traceID {
			t.Errorf("%+v, want trace %s", w, traceID)
		}
		if l.Waiters[0].ClientID+l.Waiters[1].ClientID == "" {
			t.Errorf("no waiter is known by its client: %+v", l.Waiters)
		}
		listed := r.list("")
		if len(listed) != 1 || listed[0].Waiting != 2 || listed[0].Holders[0].Token != lease.Token() {
			t.Errorf("Locks: %+v", listed)
		}
	})
}

func TestFairMutex(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newFakeRig(t)
		holder := r.client("holder")
		lease := r.take(holder.FairMutex("job"))
		if l := r.look("job"); l.Kind != fleet.Mutex || l.Held != 1 { // nothing tells it from one as long as nobody waits
			t.Errorf("%+v", l)
		}
		var want []string
		for i := range 3 {
			id := fmt.Sprint("waiter", i)
			want = append(want, id)
			r.wait(t.Context(), r.client(id).FairMutex("job"))
			r.lookUntil("job", "not in the queue", func(l fleet.Lock) bool { return l.Waiting == i+1 })
		}
		for what, l := range map[string]fleet.Lock{"Look": r.look("job"), "Locks": r.list("job")[0]} {
			var got []string
			for _, w := range l.Waiters {
				got = append(got, w.ClientID)
			}
			if l.Kind != fleet.Fair || !slices.Equal(got, want) || l.Held != 1 || l.Holders[0].Owner != lease.Owner() {
				t.Errorf("%s: %+v", what, l)
			}
		}

		// Those whose place is kept no longer have stopped waiting, wherever they stand.
		dead := owner("dead", 1)
		r.do("rpush redisson_lock_queue:{@job} "+dead+" "+uuid+":7 "+uuid+":8",
			fmt.Sprintf("zadd redisson_lock_timeout:{@job} %d %s %d %s:7 %d %s:8", r.now()+60_000, dead, r.now()+60_000, uuid, r.now()-1, uuid),
			fmt.Sprintf("zadd lockdog_fair:{@job} %d %s", r.now()-1, dead))
		l := r.look("job")
		if l.Waiting != 4 || len(l.Waiters) != 4 || l.Waiters[3].Owner != uuid+":7" || !l.Waiters[3].Redisson || l.Waiters[3].ClientID != "" {
			t.Errorf("%+v", l)
		}
	})
}

func TestRWMutex(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newFakeRig(t)
		ctx, tracer, traceID := traced(t)
		c := r.client("reader", lock.WithTracerProvider(tracer))
		var owners []string
		for range 3 {
			owners = append(owners, r.takeCtx(ctx, c.RWMutex("job", lock.WithLease(20*time.Second)).RLocker()).Owner())
		}
		l := r.look("job")
		if l.Kind != fleet.RW || l.Mode != "read" || l.Held != 3 || len(l.Holders) != 3 || l.Waiting != 0 || !within(l.Remaining, time.Second, 20*time.Second) {
			t.Fatalf("%+v", l)
		}
		for _, h := range l.Holders {
			if !slices.Contains(owners, h.Owner) || h.ClientID != "reader" || h.Mode != "read" || h.Token == 0 || h.Since.IsZero() || h.TraceID != traceID || h.Count != 1 ||
				!within(h.Remaining, time.Second, 20*time.Second) {
				t.Errorf("%+v", h)
			}
		}

		r.wait(t.Context(), r.client("writer").RWMutex("job"))
		l = r.lookUntil("job", "no writer waits", func(l fleet.Lock) bool { return l.Waiting == 1 })
		if w := l.Waiters[0]; w.ClientID != "writer" || !strings.HasSuffix(w.Owner, ":write") {
			t.Errorf("%+v", w)
		}
		if listed := r.list("j*b"); len(listed) != 1 || listed[0].Held != 3 || listed[0].Waiting != 1 {
			t.Errorf("Locks: %+v", listed)
		}

		// The server's time decides which writers wait still.
		past, future := owner("past", 1)+":write", owner("future", 2)+":write"
		r.do(fmt.Sprintf("zadd {@job}:lockdog_writers %d %s %d %s", r.now()-1, past, r.now()+60_000, future))
		l = r.look("job")
		if l.Waiting != 2 || len(l.Waiters) != 2 || slices.ContainsFunc(l.Waiters, func(w fleet.Waiter) bool { return w.ClientID == "past" }) {
			t.Errorf("%+v", l)
		}

		written := r.take(r.client("w").RWMutex("other"))
		l = r.look("other")
		if l.Kind != fleet.RW || l.Mode != "write" || l.Held != 1 || l.Holders[0].Mode != "write" || l.Holders[0].ClientID != "w" || l.Holders[0].Token != written.Token() {
			t.Errorf("%+v", l)
		}
	})
}

// A reader whose mark is gone let its lease run out: it is none, and neither is a lock that only such have.
func TestRWMutexLeasesThatRanOut(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	const readers, alive = 700, 150 // more than one HSCAN returns, and more than are named
	pipe := r.rdb.Pipeline()
	pipe.HSet(t.Context(), r.prefix+"job", "mode", "read")
	for i := range readers {
		o := owner("c", i)
		pipe.HSet(t.Context(), r.prefix+"job", o, 1)
		if i < alive {
			pipe.Set(t.Context(), "{"+r.prefix+"job}:"+o+":rwlock_timeout:1", fmt.Sprint(time.Now().UnixMicro()), time.Duration(600+i)*time.Second)
		}
	}
	pipe.PExpire(t.Context(), r.prefix+"job", time.Hour)
	if _, err := pipe.Exec(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.do("hset @gone mode read "+owner("c", 1)+" 1", "pexpire @gone 3600000", "hset @turned mode write "+owner("c", 1)+":write 1 "+owner("c", 2)+" 1",
		"set {@turned}:"+owner("c", 2)+":rwlock_timeout:1 5 px 3600000", "pexpire @turned 3600000")
	l := r.look("job")
	longest := time.Duration(600+alive-1) * time.Second
	if l.Held != alive || len(l.Holders) != fleet.Most || l.Mode != "read" || !within(l.Remaining, longest-9*time.Minute, longest) {
		t.Errorf("%d held, %d named, %v left; want %d, %d, at most %v", l.Held, len(l.Holders), l.Remaining, alive, fleet.Most, longest)
	}
	if l := r.look("gone"); l.Held != 0 || len(l.Holders) != 0 || l.Remaining != 0 {
		t.Errorf("%+v", l)
	}
	if l := r.look("turned"); l.Held != 1 || l.Mode != "read" { // the writer's lease ran out, that of its reader didn't
		t.Errorf("%+v", l)
	}
	r.wantList("", "job", "turned")
	r.do(fmt.Sprintf("zadd {@gone}:lockdog_writers %d %s:write", r.now()+3_600_000, owner("c", 3)))
	r.wantList("", "job", "turned", "gone") // awaited
}

func TestSemaphore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newFakeRig(t)
		c := r.client("c")
		s := c.Semaphore("job", lock.WithFixedLease(time.Minute))
		if err := s.EnsurePermits(t.Context(), 5); err != nil {
			t.Fatal(err)
		}
		if l := r.look("job"); l.Kind != fleet.Number || l.Available != 5 {
			t.Errorf("never taken: %+v", l)
		}
		r.take(s)
		r.take(s)
		l := r.look("job")
		if l.Kind != fleet.Semaphore || l.Held != 2 || l.Available != 3 || len(l.Holders) != 0 || !within(l.Remaining, 20*time.Second, time.Minute) {
			t.Errorf("%+v", l)
		}
		r.wantList("job", "job")

		// One that ran out is left again, though nobody has taken it back.
		r.do(fmt.Sprintf("zadd {@job}:timeout %d 0123456789abcdef", r.now()-1), "decr @job")
		if l := r.look("job"); l.Held != 2 || l.Available != 3 || !within(l.Remaining, 20*time.Second, time.Minute) {
			t.Errorf("with one that ran out: %+v", l)
		}
		r.do("set @over 0", fmt.Sprintf("zadd {@over}:timeout %d 0123456789abcdef", r.now()-1))
		if l := r.look("over"); l.Kind != fleet.Semaphore || l.Held != 0 || l.Available != 1 {
			t.Errorf("%+v", l)
		}
		r.wantList("", "job") // nobody holds the other
	})
}

// Names with braces: their permits are beside them, or where those of another name are.
func TestSemaphoreWithBraces(t *testing.T) {
	t.Parallel()
	r := rigOf(t, redistest.Start(t).Client(t), "")
	want := []string{"plain", "{tag}s", "{a}:b", "a{b}c", "x:timeout", "{y}:timeout"}
	c := r.client("c")
	for _, name := range want {
		s := c.Semaphore(name)
		if err := s.EnsurePermits(t.Context(), 3); err != nil {
			t.Fatal(err)
		}
		r.take(s)
	}
	locks := r.list("*")
	slices.Sort(want)
	if got := names(locks); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	for _, l := range append(locks, r.look("{tag}s")) {
		if l.Kind != fleet.Semaphore || l.Held != 1 || l.Available != 2 {
			t.Errorf("%+v", l)
		}
	}
}

func TestNumbers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newFakeRig(t)
		c := r.client("c")
		if _, err := c.UnleasedSemaphore("unleased").TrySetPermits(t.Context(), 7); err != nil {
			t.Fatal(err)
		}
		if err := c.UnleasedSemaphore("unleased").TryAcquire(t.Context(), 2); err != nil {
			t.Fatal(err)
		}
		if _, err := c.Latch("latch").TrySetCount(t.Context(), 3); err != nil {
			t.Fatal(err)
		}
		for name, want := range map[string]int{"unleased": 5, "latch": 3} {
			if l := r.look(name); l.Kind != fleet.Number || l.Available != want || l.Held != 0 || l.Name != name {
				t.Errorf("%+v, want %d", l, want)
			}
		}
		r.wantList("")
	})
}

func TestFree(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newFakeRig(t)
		if l := r.look("free"); l.Name != "free" || l.Key != r.prefix+"free" || l.Held != 0 || l.Waiting != 0 || len(l.Holders)+len(l.Waiters) != 0 || l.Remaining != 0 {
			t.Errorf("%+v", l)
		}
		lease := r.take(r.client("c").Mutex("job"))
		if err := lease.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		if l := r.look("job"); l.Held != 0 {
			t.Errorf("%+v", l)
		}
		// Between two holders a lock is awaited, and nobody has it.
		r.do(fmt.Sprintf("zadd {@rw}:lockdog_writers %d %s:write %d %s:write", r.now()+60_000, owner("c", 1), r.now()-1, owner("c", 2)))
		if l := r.look("rw"); l.Kind != fleet.RW || l.Held != 0 || l.Waiting != 1 {
			t.Errorf("%+v", l)
		}
		r.wantList("")
	})
}

// What Redisson writes, by hand.
func TestRedisson(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newFakeRig(t)
		me, other := uuid+":42", uuid+":43"
		at := func(d time.Duration) int64 { return r.now() + d.Milliseconds() }
		r.do("hset @lock "+me+" 2", "pexpire @lock 30000",
			"hset @endless "+me+" 1",
			"hset @fair "+me+" 1", "pexpire @fair 30000", "rpush redisson_lock_queue:{@fair} "+other+" "+uuid+":44",
			fmt.Sprintf("zadd redisson_lock_timeout:{@fair} %d %s %d %s:44", at(time.Minute), other, at(2*time.Minute), uuid),
			"hset @read mode read "+me+" 2 "+other+" 1 "+uuid+":45 1", "pexpire @read 30000", // the last has no mark
			"set {@read}:"+me+":rwlock_timeout:2 1 px 20000", "set {@read}:"+other+":rwlock_timeout:1 1 px 10000",
			"hset @write mode write "+me+":write 1", "pexpire @write 30000",
			"set @permits 3", fmt.Sprintf("zadd {@permits}:timeout %d 0123456789abcdef %d 0123456789abcdeg", at(time.Minute), at(-time.Minute)),
			"set @forever 0", "zadd {@forever}:timeout 92233720368547758 0123456789abcdef",
			"set @plain 4")
		holder := func(l fleet.Lock, owner string) fleet.Holder {
			t.Helper()
			for _, h := range l.Holders {
				if h.Owner == owner {
					if !h.Redisson || h.ClientID != "" || h.Token != 0 || !h.Since.IsZero() || h.TraceID != "" {
						t.Errorf("%s: %+v", l.Name, h)
					}
					return h
				}
			}
			t.Errorf("%s: %q isn't among %+v", l.Name, owner, l.Holders)
			return fleet.Holder{}
		}
		if l := r.look("lock"); l.Kind != fleet.Mutex || l.Held != 1 || holder(l, me).Count != 2 || !within(l.Remaining, time.Second, 30*time.Second) {
			t.Errorf("%+v", l)
		}
		if l := r.look("endless"); l.Held != 1 || l.Remaining >= 0 || holder(l, me).Remaining >= 0 {
			t.Errorf("%+v", l)
		}
		for _, l := range []fleet.Lock{r.look("fair"), r.list("fair")[0]} {
			if l.Kind != fleet.Fair || l.Held != 1 || l.Waiting != 2 || l.Waiters[0].Owner != other || !l.Waiters[0].Redisson || holder(l, me).Count != 1 {
				t.Errorf("%+v", l)
			}
		}
		l := r.look("read")
		if l.Kind != fleet.RW || l.Mode != "read" || l.Held != 2 || len(l.Holders) != 2 || !within(l.Remaining, 10*time.Second, 20*time.Second) {
			t.Errorf("%+v", l)
		}
		if h := holder(l, me); h.Count != 2 || h.Mode != "read" || !within(h.Remaining, 10*time.Second, 20*time.Second) {
			t.Errorf("%+v", h)
		}
		if h := holder(l, other); h.Count != 1 || !within(h.Remaining, time.Millisecond, 10*time.Second) {
			t.Errorf("%+v", h)
		}
		if l := r.look("write"); l.Mode != "write" || l.Held != 1 || holder(l, me+":write").Mode != "write" || !within(l.Remaining, time.Second, 30*time.Second) {
			t.Errorf("%+v", l)
		}
		if l := r.look("permits"); l.Kind != fleet.Semaphore || l.Held != 1 || l.Available != 4 || !within(l.Remaining, 20*time.Second, time.Minute) {
			t.Errorf("%+v", l)
		}
		if l := r.look("forever"); l.Kind != fleet.Semaphore || l.Held != 1 || l.Remaining >= 0 {
			t.Errorf("%+v", l)
		}
		if l := r.look("plain"); l.Kind != fleet.Number || l.Available != 4 {
			t.Errorf("%+v", l)
		}
		r.wantList("", "lock", "endless", "fair", "read", "write", "permits", "forever")
	})
}

// What programs have in Redis beside locks is none.
func TestOtherKeys(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	big := make([]any, 0, 20_000)
	for i := range 10_000 {
		big = append(big, fmt.Sprint("field", i), i)
	}
	if err := r.rdb.HSet(t.Context(), r.prefix+"big", big...).Err(); err != nil {
		t.Fatal(err)
	}
	r.do("hset @user name Ann age 7", "hset @one count 1", "hset @mode mode read", "hset @modes mode write size 7 color red", "hset @twice "+owner("c", 1)+" 1 "+owner("c", 2)+" 1",
		"hset @text "+owner("c", 1)+" text", "hset @meta @lockdog 7 x y", "hset @id user:abcdefghijklmnop-12 1",
		"set @string text", "rpush @list a b", "zadd @set:timeout 9999999999999 0123456789abcdef",
		"zadd {@sessions}:timeout 9999999999999 alice", "set @sessions 7", "rpush @queue:timeout a", "sadd @s a")
	for _, name := range []string{"big", "user", "one", "mode", "modes", "twice", "text", "meta", "id", "string", "list", "set:timeout", "queue:timeout", "sessions", "s"} {
		if l, err := r.reader.Look(t.Context(), name); !errors.Is(err, fleet.ErrNotALock) || !strings.Contains(err.Error(), name) {
			t.Errorf("Look(%q): %+v, %v", name, l, err)
		}
	}
	if l, err := r.reader.Look(t.Context(), ""); !errors.Is(err, fleet.ErrInvalid) {
		t.Errorf("no name: %+v, %v", l, err)
	}
	r.wantList("")
	// A queue or a set that is something else belongs to no lock.
	r.take(r.client("c").Mutex("job"))
	r.do("set lockdog_wait:{@job} x", "set redisson_lock_queue:{@job} x", "set {@job}:lockdog_writers x")
	defer r.do("del lockdog_wait:{@job} redisson_lock_queue:{@job} {@job}:lockdog_writers")
	if l := r.look("job"); l.Held != 1 || l.Waiting != 0 {
		t.Errorf("%+v", l)
	}
}

func TestNewRefusesOtherClients(t *testing.T) {
	t.Parallel()
	if _, err := fleet.New(nil, ""); !errors.Is(err, fleet.ErrInvalid) {
		t.Error(err)
	}
}

// A client that doesn't listen any more is no waiter, though its entry is in the wait set, as that of one that was killed is until the next release.
func TestWaiterThatGaveUp(t *testing.T) {
	t.Parallel()
	for shape, rdb := range map[string]func(t *testing.T) redis.UniversalClient{
		"single": func(t *testing.T) redis.UniversalClient { return redistest.Start(t).Client(t) },
		"cluster": func(t *testing.T) redis.UniversalClient {
			return redistest.Open(t, redistest.StartCluster(t, 0).Universal())
		},
	} {
		t.Run(shape, func(t *testing.T) {
			t.Parallel()
			r := rigOf(t, rdb(t), "")
			r.take(r.client("holder").Mutex("job"))
			ctx, giveUp := context.WithCancel(t.Context())
			defer giveUp()
			r.wait(ctx, r.client("patient").Mutex("job"))
			r.wait(t.Context(), r.client("other").Mutex("job"))
			r.lookUntil("job", "awaited by two", func(l fleet.Lock) bool { return l.Waiting == 2 && len(l.Waiters) == 2 })
			const set = "lockdog_wait:{job}"
			entries := r.rdb.ZRangeWithScores(t.Context(), set, 0, -1).Val()
			giveUp()
			r.lookUntil("job", "awaited by one", func(l fleet.Lock) bool { return l.Waiting == 1 && r.rdb.ZCard(t.Context(), set).Val() == 1 })
			if n := r.rdb.ZAdd(t.Context(), set, entries...).Val(); n != 1 {
				t.Fatalf("%d entries had gone", n)
			}
			if l := r.look("job"); l.Waiting != 1 || len(l.Waiters) != 1 || l.Waiters[0].ClientID != "other" {
				t.Errorf("%+v", l)
			}
		})
	}
}

// Waiters that have no entry beside the lock are in the wait graph, once they have waited for a while: those of a Semaphore and of a Latch, readers, those in
// the holder's own process, and all of a client but one.
func TestWaitersInTheWaitGraph(t *testing.T) {
	t.Parallel()
	soon := lock.WithWaitGraph(100 * time.Millisecond)
	for kind, scene := range map[string]struct {
		prepare func(r *rig, c *lock.Client)
		take    func(c *lock.Client) lock.Locker
	}{
		"Mutex": {take: func(c *lock.Client) lock.Locker { return c.Mutex("job") }},
		"Multi": {take: func(c *lock.Client) lock.Locker { return c.Multi([]string{"job"}) }},
		"Fair":  {take: func(c *lock.Client) lock.Locker { return c.FairMutex("job") }},
		"RW":    {take: func(c *lock.Client) lock.Locker { return c.RWMutex("job") }},
		"Semaphore": {
			prepare: func(r *rig, c *lock.Client) {
				if err := c.Semaphore("job").EnsurePermits(r.t.Context(), 1); err != nil {
					r.t.Fatal(err)
				}
			},
			take: func(c *lock.Client) lock.Locker { return c.Semaphore("job") },
		},
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := newFakeRig(t)
				holder, other := r.client("holder", soon), r.client("other", soon)
				if scene.prepare != nil {
					scene.prepare(r, holder)
				}
				r.take(scene.take(holder))
				for range 2 {
					r.wait(t.Context(), scene.take(holder))
					r.wait(t.Context(), scene.take(other))
				}
				all := func(l fleet.Lock) bool {
					if l.Waiting != 4 || len(l.Waiters) != 4 {
						return false
					}
					of := map[string]int{}
					for _, w := range l.Waiters {
						of[w.ClientID]++
					}
					return of["holder"] == 2 && of["other"] == 2
				}
				r.lookUntil("job", "awaited by four", all)
				if l := r.list("job"); len(l) != 1 || !all(l[0]) {
					t.Errorf("%+v", l)
				}
			})
		})
	}
}

// A lease may be longer than a Duration: then the longest is shown.
func TestHugeTimes(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	me := owner("c", 1)
	for _, ms := range []string{"9223372036855", "13835058055283", "18446744073710", "4000000000000000000"} {
		r.do("del @lock @read {@permits}:timeout", "hset @lock "+me+" 1", "pexpire @lock "+ms,
			"hset @read mode read "+me+" 1", "set {@read}:"+me+":rwlock_timeout:1 1 px "+ms,
			"set @permits 3", "zadd {@permits}:timeout 99000000000000 0123456789abcdef")
		for _, name := range []string{"lock", "read", "permits"} {
			if l := r.look(name); l.Held != 1 || l.Remaining < 100*365*24*time.Hour {
				t.Errorf("%s of %s ms: %+v", name, ms, l)
			}
		}
	}
}
