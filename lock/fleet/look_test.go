package fleet_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
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
	onFake(t, func(t *testing.T, r *rig) {
		ctx, tracer, traceID := traced(t)
		before := time.UnixMilli(r.now())
		lease := r.takeCtx(ctx, r.client("holder", lock.WithTracerProvider(tracer)).Mutex("job", lock.WithLease(20*time.Second)))
		after := time.UnixMilli(r.now() + 1)

		l := r.wantLock("job", "mutex, held 1, waiting 0, available 0")
		h := l.Holders[0]
		want := fleet.Holder{
			Owner: lease.Owner(), ClientID: "holder", Count: 1, Token: lease.Token(), TraceID: traceID, SpanID: h.SpanID, Since: h.Since, Remaining: l.Remaining,
		}
		if h != want || len(h.SpanID) != 16 || h.Since.Before(before) || h.Since.After(after) || !within(h.Remaining, time.Second, 20*time.Second) {
			t.Errorf("between %v and %v: %+v, want %+v", before, after, h, want)
		}

		// A client is in the set once, whoever of its goroutines waits.
		first := r.client("first", lock.WithTracerProvider(tracer))
		r.wait(ctx, first.Mutex("job"))
		r.lookUntil("job", 1)
		time.Sleep(time.Millisecond) // those of one millisecond have no order
		r.wait(t.Context(), first.Mutex("job"))
		time.Sleep(time.Millisecond)
		r.wait(t.Context(), r.client("second").Mutex("job"))
		r.lookUntil("job", 2)
		l = r.wantLock("job", "mutex, held 1, waiting 2, available 0")
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
	onFake(t, func(t *testing.T, r *rig) {
		lease := r.take(r.client("holder").FairMutex("job"))
		r.wantLock("job", "mutex, held 1, waiting 0, available 0") // nothing tells it from one as long as nobody waits
		var want []string
		for i := range 3 {
			id := fmt.Sprint("waiter", i)
			want = append(want, id)
			r.wait(t.Context(), r.client(id).FairMutex("job"))
			r.lookUntil("job", i+1)
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
		l := r.wantLock("job", "fair mutex, held 1, waiting 4, available 0")
		if l.Waiters[3] != (fleet.Waiter{Owner: uuid + ":7", Redisson: true}) {
			t.Errorf("%+v", l)
		}
	})
}

func TestRWMutex(t *testing.T) {
	onFake(t, func(t *testing.T, r *rig) {
		ctx, tracer, traceID := traced(t)
		c := r.client("reader", lock.WithTracerProvider(tracer))
		var owners []string
		for range 3 {
			owners = append(owners, r.takeCtx(ctx, c.RWMutex("job", lock.WithLease(20*time.Second)).RLocker()).Owner())
		}
		l := r.wantLock("job", "rwmutex read, held 3, waiting 0, available 0")
		if !within(l.Remaining, time.Second, 20*time.Second) {
			t.Errorf("%v left", l.Remaining)
		}
		for _, h := range l.Holders {
			if !slices.Contains(owners, h.Owner) || h.ClientID != "reader" || h.Mode != "read" || h.Token == 0 || h.Since.IsZero() || h.TraceID != traceID || h.Count != 1 ||
				!within(h.Remaining, time.Second, 20*time.Second) {
				t.Errorf("%+v", h)
			}
		}

		r.wait(t.Context(), r.client("writer").RWMutex("job"))
		if w := r.lookUntil("job", 1).Waiters[0]; w.ClientID != "writer" || !strings.HasSuffix(w.Owner, ":write") {
			t.Errorf("%+v", w)
		}
		if listed := r.list("j*b"); len(listed) != 1 || listed[0].Held != 3 || listed[0].Waiting != 1 {
			t.Errorf("Locks: %+v", listed)
		}

		// The server's time decides which writers wait still.
		past, future := owner("past", 1)+":write", owner("future", 2)+":write"
		r.do(fmt.Sprintf("zadd {@job}:lockdog_writers %d %s %d %s", r.now()-1, past, r.now()+60_000, future))
		l = r.wantLock("job", "rwmutex read, held 3, waiting 2, available 0")
		if slices.ContainsFunc(l.Waiters, func(w fleet.Waiter) bool { return w.ClientID == "past" }) {
			t.Errorf("%+v", l)
		}

		written := r.take(r.client("w").RWMutex("other"))
		h := r.wantLock("other", "rwmutex write, held 1, waiting 0, available 0").Holders[0]
		if h.Mode != "write" || h.ClientID != "w" || h.Token != written.Token() {
			t.Errorf("%+v", h)
		}
	})
}

// A reader whose mark is gone has let its lease run out: it isn't counted. A lock that only such readers have is free.
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
	_, err := pipe.Exec(t.Context())
	must(t, err)
	r.do("hset @gone mode read "+owner("c", 1)+" 1", "pexpire @gone 3600000", "hset @turned mode write "+owner("c", 1)+":write 1 "+owner("c", 2)+" 1",
		"set {@turned}:"+owner("c", 2)+":rwlock_timeout:1 5 px 3600000", "pexpire @turned 3600000")
	var asked load
	r.rdb.(*redis.Client).AddHook(&asked)
	longest := time.Duration(600+alive-1) * time.Second
	if l := r.wantLock("job", "rwmutex read, held 150, waiting 0, available 0"); !within(l.Remaining, longest-9*time.Minute, longest) {
		t.Errorf("%v left; want at most %v", l.Remaining, longest)
	}
	if asked.most > 1000 { // of the marks of 700 readers
		t.Errorf("%d commands at a time", asked.most)
	}
	if l := r.wantLock("gone", "rwmutex, held 0, waiting 0, available 0"); l.Remaining != 0 {
		t.Errorf("%+v", l)
	}
	r.wantLock("turned", "rwmutex read, held 1, waiting 0, available 0") // the writer's lease ran out, that of its reader didn't
	r.wantList("", "job", "turned")
	r.do(fmt.Sprintf("zadd {@gone}:lockdog_writers %d %s:write", r.now()+3_600_000, owner("c", 3)))
	r.wantList("", "job", "turned", "gone") // awaited
}

func TestSemaphore(t *testing.T) {
	onFake(t, func(t *testing.T, r *rig) {
		s := r.client("c").Semaphore("job", lock.WithFixedLease(time.Minute))
		must(t, s.EnsurePermits(t.Context(), 5))
		r.wantLock("job", "number, held 0, waiting 0, available 5") // never taken
		r.take(s)
		r.take(s)
		const two = "semaphore, held 2, waiting 0, available 3"
		if l := r.wantLock("job", two); !within(l.Remaining, 20*time.Second, time.Minute) {
			t.Errorf("%v left", l.Remaining)
		}
		r.wantList("job", "job")

		// One that ran out is left again, though nobody has taken it back.
		r.do(fmt.Sprintf("zadd {@job}:timeout %d 0123456789abcdef", r.now()-1), "decr @job")
		if l := r.wantLock("job", two); !within(l.Remaining, 20*time.Second, time.Minute) {
			t.Errorf("with one that ran out: %v left", l.Remaining)
		}
		r.do("set @over 0", fmt.Sprintf("zadd {@over}:timeout %d 0123456789abcdef", r.now()-1))
		r.wantLock("over", "semaphore, held 0, waiting 0, available 1")
		r.wantList("", "job") // nobody holds the other
	})
}

// Semaphores are found and counted also if their names have braces, or end like the key of a semaphore's permits.
func TestSemaphoreWithBraces(t *testing.T) {
	t.Parallel()
	r := rigOf(t, redistest.Start(t).Client(t), "")
	want := []string{"plain", "{tag}s", "{a}:b", "a{b}c", "x:timeout", "{y}:timeout"}
	c := r.client("c")
	for _, name := range want {
		s := c.Semaphore(name)
		must(t, s.EnsurePermits(t.Context(), 3))
		r.take(s)
	}
	r.wantList("*", want...)
	for _, l := range append(r.list("*"), r.look("{tag}s")) {
		if got := r.summary(l); got != "semaphore, held 1, waiting 0, available 2" {
			t.Errorf("%s: %s", l.Name, got)
		}
	}
}

// What is free, and what nobody can hold, is in no list.
func TestFree(t *testing.T) {
	onFake(t, func(t *testing.T, r *rig) {
		c := r.client("c")
		_, err := c.UnleasedSemaphore("unleased").TrySetPermits(t.Context(), 7)
		must(t, err)
		must(t, c.UnleasedSemaphore("unleased").TryAcquire(t.Context(), 2))
		_, err = c.Latch("latch").TrySetCount(t.Context(), 3)
		must(t, err)
		must(t, r.take(c.Mutex("job")).Release(t.Context()))
		// Between two holders a lock is awaited, and nobody has it.
		r.do(fmt.Sprintf("zadd {@rw}:lockdog_writers %d %s:write %d %s:write", r.now()+60_000, owner("c", 1), r.now()-1, owner("c", 2)))
		for name, want := range map[string]string{
			"unleased": "number, held 0, waiting 0, available 5",
			"latch":    "number, held 0, waiting 0, available 3",
			"free":     "mutex, held 0, waiting 0, available 0",
			"job":      "mutex, held 0, waiting 0, available 0",
			"rw":       "rwmutex, held 0, waiting 1, available 0",
		} {
			if l := r.wantLock(name, want); l.Remaining != 0 {
				t.Errorf("%s: %v left", name, l.Remaining)
			}
		}
		r.wantList("")
	})
}

// What Redisson writes, by hand.
func TestRedisson(t *testing.T) {
	onFake(t, func(t *testing.T, r *rig) {
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
		const endless = -time.Millisecond
		type holders map[string]fleet.Holder
		for name, want := range map[string]struct {
			summary string
			left    time.Duration // at most; 10 s less at least
			holders holders
		}{
			"lock":    {"mutex, held 1, waiting 0, available 0", 30 * time.Second, holders{me: {Count: 2}}},
			"endless": {"mutex, held 1, waiting 0, available 0", endless, holders{me: {Count: 1, Remaining: endless}}},
			"fair":    {"fair mutex, held 1, waiting 2, available 0", 30 * time.Second, holders{me: {Count: 1}}},
			"read": {"rwmutex read, held 2, waiting 0, available 0", 20 * time.Second, holders{
				me: {Count: 2, Mode: "read"}, other: {Count: 1, Mode: "read", Remaining: 10 * time.Second},
			}},
			"write":   {"rwmutex write, held 1, waiting 0, available 0", 30 * time.Second, holders{me + ":write": {Count: 1, Mode: "write"}}},
			"permits": {"semaphore, held 1, waiting 0, available 4", time.Minute, nil},
			"forever": {"semaphore, held 1, waiting 0, available 0", endless, nil},
			"plain":   {"number, held 0, waiting 0, available 4", 0, nil},
		} {
			l := r.wantLock(name, want.summary)
			if !within(l.Remaining, want.left-10*time.Second, want.left) || want.left == endless && l.Remaining != endless {
				t.Errorf("%s: %v left, want %v", name, l.Remaining, want.left)
			}
			for _, got := range l.Holders {
				h := want.holders[got.Owner]
				if h.Owner, h.Redisson = got.Owner, true; h.Remaining == 0 {
					h.Remaining = want.left
				}
				if !within(got.Remaining, h.Remaining-10*time.Second, h.Remaining) {
					t.Errorf("%s: %v left of %s, want %v", name, got.Remaining, got.Owner, h.Remaining)
				}
				if h.Remaining = got.Remaining; got != h {
					t.Errorf("%s: %+v, want %+v", name, got, h)
				}
			}
		}
		for _, l := range []fleet.Lock{r.look("fair"), r.list("fair")[0]} {
			if l.Waiting != 2 || l.Waiters[0] != (fleet.Waiter{Owner: other, Redisson: true}) {
				t.Errorf("%+v", l.Waiters)
			}
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
	must(t, r.rdb.HSet(t.Context(), r.prefix+"big", big...).Err())
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
	if _, err := fleet.New(nil, ""); !errors.Is(err, fleet.ErrInvalid) {
		t.Error(err)
	}
	r.wantList("")
	// A queue or a set that is something else belongs to no lock.
	r.take(r.client("c").Mutex("job"))
	r.do("set lockdog_wait:{@job} x", "set redisson_lock_queue:{@job} x", "set {@job}:lockdog_writers x")
	defer r.do("del lockdog_wait:{@job} redisson_lock_queue:{@job} {@job}:lockdog_writers")
	r.wantLock("job", "mutex, held 1, waiting 0, available 0")
}

// A client that doesn't listen any more is no waiter, though its entry is in the wait set, as that of one that was killed is until the next release.
func TestWaiterThatGaveUp(t *testing.T) {
	t.Parallel()
	t.Run("single", func(t *testing.T) { testWaiterThatGaveUp(t, newRig(t)) })
	t.Run("cluster", func(t *testing.T) {
		testWaiterThatGaveUp(t, rigOf(t, redistest.Open(t, redistest.StartCluster(t, 0).Universal()), ""))
	})
}

func testWaiterThatGaveUp(t *testing.T, r *rig) {
	r.take(r.client("holder").Mutex("job"))
	ctx, giveUp := context.WithCancel(t.Context())
	defer giveUp()
	r.wait(ctx, r.client("patient").Mutex("job"))
	r.wait(t.Context(), r.client("other").Mutex("job"))
	r.lookUntil("job", 2)
	set := "lockdog_wait:{" + r.prefix + "job}"
	entries := r.rdb.ZRangeWithScores(t.Context(), set, 0, -1).Val()
	giveUp()
	eventually(t, func() error {
		if n := r.rdb.ZCard(t.Context(), set).Val(); n != 1 {
			return fmt.Errorf("%d wait", n)
		}
		return nil
	})
	r.lookUntil("job", 1)
	if n := r.rdb.ZAdd(t.Context(), set, entries...).Val(); n != 1 {
		t.Fatalf("%d entries had gone", n)
	}
	r.lookUntil("job", 1) // once it listens no longer
	if l := r.wantLock("job", "mutex, held 1, waiting 1, available 0"); l.Waiters[0].ClientID != "other" {
		t.Errorf("%+v", l)
	}
}

// Waiters that have no entry beside the lock are in the wait graph, once they have waited for a while: those of a Semaphore and of a Latch, readers, those in
// the holder's own process, and all of a client but one.
func TestWaitersInTheWaitGraph(t *testing.T) {
	t.Parallel()
	soon := lock.WithWaitGraph(100 * time.Millisecond)
	for kind, of := range map[string]func(c *lock.Client) lock.Locker{
		"Mutex":     func(c *lock.Client) lock.Locker { return c.Mutex("job") },
		"Multi":     func(c *lock.Client) lock.Locker { return c.Multi([]string{"job"}) },
		"Fair":      func(c *lock.Client) lock.Locker { return c.FairMutex("job") },
		"RW":        func(c *lock.Client) lock.Locker { return c.RWMutex("job") },
		"Semaphore": func(c *lock.Client) lock.Locker { return c.Semaphore("job") },
	} {
		t.Run(kind, func(t *testing.T) {
			onFake(t, func(t *testing.T, r *rig) {
				holder, other := r.client("holder", soon), r.client("other", soon)
				if kind == "Semaphore" {
					must(t, holder.Semaphore("job").EnsurePermits(t.Context(), 1))
				}
				r.take(of(holder))
				for range 2 {
					r.wait(t.Context(), of(holder))
					r.wait(t.Context(), of(other))
				}
				r.lookUntil("job", 4)
				for _, l := range []fleet.Lock{r.look("job"), r.list("job")[0]} {
					clients := map[string]int{}
					for _, w := range l.Waiters {
						clients[w.ClientID]++
					}
					if l.Waiting != 4 || !maps.Equal(clients, map[string]int{"holder": 2, "other": 2}) {
						t.Errorf("%+v", l)
					}
				}
			})
		})
	}
}

// An entry in the wait set that has only a client's tag may be any client's. A client that is in the wait graph, but
// has no entry with its owner, isn't counted in addition to such an entry.
func TestWaiterOfAnUnknownClient(t *testing.T) {
	onFake(t, func(t *testing.T, r *rig) {
		set := "lockdog_wait:{" + r.prefix + "job}"
		forgetOwner := func(client string) {
			for _, z := range r.rdb.ZRangeWithScores(t.Context(), set, 0, -1).Val() {
				member := z.Member.(string)
				if tag, owner, _ := strings.Cut(member, " "); strings.Contains(owner, client) {
					must(t, r.rdb.ZRem(t.Context(), set, member).Err())
					must(t, r.rdb.ZAdd(t.Context(), set, redis.Z{Score: z.Score, Member: tag}).Err())
				}
			}
		}
		wantClients := func(what string) {
			t.Helper()
			var got []string
			for _, w := range r.wantLock("job", "mutex, held 1, waiting 2, available 0").Waiters {
				got = append(got, w.ClientID)
			}
			if slices.Sort(got); !slices.Equal(got, []string{"", "seen"}) {
				t.Errorf("%s: %q", what, got)
			}
		}
		r.take(r.client("holder").Mutex("job"))
		r.wait(t.Context(), r.client("unseen", lock.WithWaitGraph(0)).Mutex("job"))
		r.wait(t.Context(), r.client("seen", lock.WithWaitGraph(100*time.Millisecond)).Mutex("job"))
		time.Sleep(300 * time.Millisecond)
		forgetOwner("unseen")
		wantClients("one entry has an owner")
		forgetOwner("seen")
		wantClients("no entry has an owner")
	})
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
