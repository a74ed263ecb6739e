package lock_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock"
)

// counting is one number in Redis, and a client that doesn't know the server's clock yet: but for receipts nothing keeps a
// delayed request of its from being done.
type counting struct {
	t    *testing.T
	rdb  *redis.Client // sound
	c    *lock.Client
	key  string
	trap *trap
	wire *ear
}

func (n *counting) value() int {
	v, err := n.rdb.Get(context.Background(), n.key).Int()
	if err != nil && !errors.Is(err, redis.Nil) {
		n.t.Error(err)
	}
	return v
}

// operations are those that change a number: each says by how much it should have, in the end.
var operations = []struct {
	name, script string
	run          func(n *counting, set func()) (want int)
}{
	{"acquire", "semaphore_acquire", func(n *counting, set func()) int {
		set()
		if n.c.Semaphore(n.key).Acquire(context.Background(), 3) != nil {
			return 10
		}
		return 7
	}},
	{"acquire that is left", "semaphore_acquire", func(n *counting, set func()) int {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Millisecond)
		defer cancel()
		set()
		if n.c.Semaphore(n.key).Acquire(ctx, 3) != nil {
			return 10
		}
		return 7
	}},
	{"acquire of a waiter", "semaphore_acquire", func(n *counting, set func()) int {
		n.rdb.Set(context.Background(), n.key, 2, 0)
		got := acquiring(context.Background(), n.c.Semaphore(n.key), 3)
		channel := "redisson_sc:{" + n.key + "}"
		for limit := time.Now().Add(patience); n.rdb.PubSubNumSub(context.Background(), channel).Val()[channel] == 0 && time.Now().Before(limit); {
			<-time.After(2 * time.Millisecond)
		}
		<-time.After(20 * time.Millisecond) // it has asked once more
		set()
		n.rdb.IncrBy(context.Background(), n.key, 8)
		n.rdb.Publish(context.Background(), channel, "10")
		if await(n.t, "the waiter", got) != nil {
			return 10
		}
		return 7
	}},
	{"release", "semaphore_add", func(n *counting, set func()) int {
		set()
		_ = n.c.Semaphore(n.key).Release(context.Background(), 3) // whatever it says, the client goes on
		return 13
	}},
	{"release that is left", "semaphore_add", func(n *counting, set func()) int {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Millisecond)
		defer cancel()
		set()
		_ = n.c.Semaphore(n.key).Release(ctx, 3)
		return 13
	}},
	{"resize", "semaphore_add", func(n *counting, set func()) int {
		set()
		_ = n.c.Permits(n.key).Resize(context.Background(), -3)
		return 7
	}},
	{"count down", "latch_count_down", func(n *counting, set func()) int {
		set()
		_ = n.c.Latch(n.key).CountDown(context.Background())
		return 9
	}},
	{"set permits", "semaphore_set", func(n *counting, set func()) int {
		n.rdb.Del(context.Background(), n.key)
		set()
		done, err := n.c.Semaphore(n.key).SetPermits(context.Background(), 5)
		return n.set(done, err)
	}},
	{"set", "latch_set", func(n *counting, set func()) int {
		n.rdb.Del(context.Background(), n.key)
		set()
		done, err := n.c.Latch(n.key).Set(context.Background(), 5)
		return n.set(done, err)
	}},
}

// set takes what an operation has set away again: no repetition may bring it back.
func (n *counting) set(done bool, err error) int {
	if err == nil && !done {
		n.t.Errorf("%s: nobody else set it, but we are told so", n.key)
	}
	if err == nil {
		if n.value() != 5 {
			n.t.Errorf("%s: set to %d", n.key, n.value())
		}
		n.rdb.Del(context.Background(), n.key)
		return 0
	}
	return nobodyKnows
}

const nobodyKnows = -1

// Whatever becomes of a request or its answer, the number is changed once, or not at all if the caller was told so.
func TestCountedOnce(t *testing.T) {
	t.Parallel()
	const seed, workers = 5, 16
	sp := redistest.Shared(t)
	rdb := sp.Client(t)
	work := make(chan int)
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			for i := range work {
				op, m := operations[i%len(operations)], mishaps[i/len(operations)%len(mishaps)]
				rng := rand.New(rand.NewPCG(seed, uint64(i)))
				times := [...]int{1, 1, 2, everyTime}[rng.IntN(4)]
				countOnce(t, sp, rdb, i, rng, func(n *counting) int {
					return op.run(n, func() { n.trap.set(m, times, n.wire.script(op.script, n.key)) })
				}, fmt.Sprintf("%s, %s %d times", op.name, m.name, times))
			}
		})
	}
	for i := range len(operations) * len(mishaps) * 2 {
		if !t.Failed() {
			work <- i
		}
	}
	close(work)
	all.Wait()
}

func countOnce(t *testing.T, sp redistest.Space, rdb *redis.Client, i int, rng *rand.Rand, run func(*counting) int, what string) {
	n := &counting{t: t, rdb: rdb, key: sp.Prefix() + strconv.Itoa(i), trap: &trap{rng: rng}}
	p := redistest.NewProxy(t, sp.Addr())
	n.wire = listenOn(t, p)
	n.wire.set(n.trap.rule)
	through := sp.Client(t, answerWithin(100*time.Millisecond), func(o *redis.Options) { o.Addr, o.MaxRetries = p.Addr(), 3 })
	c, err := lock.New(through, lock.WithWatchdog(300*time.Millisecond), lock.WithLogger(silent))
	if err != nil {
		t.Error(err)
		return
	}
	n.c = c
	defer closeSoon(c)
	rdb.Set(context.Background(), n.key, 10, 0)
	want := run(n)
	n.trap.unset()
	for _, delta := range []int{1, -1} { // the next operations delete receipts: only those that nobody asks for any more
		_ = c.Semaphore(n.key).Resize(context.Background(), delta) // whatever it says, the client goes on
	}
	if rng.IntN(2) == 0 {
		<-time.After(250 * time.Millisecond) // then all have given up on it
	}
	p.Release() // what was held comes now
	right := 0  // for so many looks: what was left may be taken for a moment
	for limit := time.Now().Add(patience); right < 15; <-time.After(10 * time.Millisecond) {
		got := n.value()
		if right++; got != want && (want != nobodyKnows || got != 0 && got != 5) {
			right = 0
		}
		if time.Now().After(limit) {
			t.Errorf("%s: %d, want %d", what, got, want)
			return
		}
	}
}

// Redis is away for longer than a caller waits, and longer than the lease: what was given is there when it comes back.
func TestGivenAfterAnOutage(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	s := newScope(t)
	rdb := srv.Client(t, answerWithin(100*time.Millisecond))
	c := s.open(t, rdb, lock.WithWatchdog(200*time.Millisecond))
	ctx := t.Context()
	must(t, "Release", c.Semaphore("pool").Release(ctx, 1))
	must(t, "Acquire", c.Semaphore("pool").Acquire(ctx, 1))
	if _, err := c.Latch("gate").Set(ctx, 2); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second time on connections that are gone
		srv.Pause(t)
		dead, cancel := context.WithCancel(ctx)
		cancel()
		start := time.Now()
		if err := c.Semaphore("pool").Release(dead, 1); err == nil {
			t.Error("Release while Redis is away: no error")
		}
		if took := time.Since(start); took > 3*time.Second {
			t.Errorf("it took %v", took)
		}
		if err := c.Latch("gate").CountDown(ctx); err == nil {
			t.Error("CountDown while Redis is away: no error")
		}
		pass(t, 500*time.Millisecond)
		srv.Resume(t)
		eventually(t, patience, func() bool { return rdb.Get(ctx, "pool").Val() == "1" })
		must(t, "Acquire", c.Semaphore("pool").Acquire(ctx, 1))
	}
	must(t, "Wait", c.Latch("gate").Wait(ctx))
	always(t, 300*time.Millisecond, func() bool { return rdb.Get(ctx, "pool").Val() == "0" })
}

// On a ctx that has ended, permits are given back and latches counted down.
func TestGivenOnADeadContext(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	c := d.client()
	dead, cancel := context.WithCancel(t.Context())
	cancel()
	must(t, "Release", c.Semaphore("pool").Release(dead, 1))
	mustBe(t, "permits", d.value("pool"), "1")
	if _, err := c.Latch("gate").Set(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	must(t, "CountDown", c.Latch("gate").CountDown(dead))
	mustBe(t, "count", d.value("gate"), "")
}

// A Redis that is full grants nothing, but takes what is given back.
func TestFullRedis(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	rdb := srv.Client(t)
	s := newScope(t)
	c, ctx := s.open(t, rdb, lock.WithWatchdog(numberLease)), t.Context()
	must(t, "Release", c.Semaphore("pool").Release(ctx, 1))
	must(t, "Acquire", c.Semaphore("pool").Acquire(ctx, 1))
	if done, err := c.Latch("gate").Set(ctx, 1); !done || err != nil {
		t.Fatal(done, err)
	}
	if done, err := c.Permits("leases").SetPermits(ctx, 2); !done || err != nil {
		t.Fatal(done, err)
	}
	l, err := c.Permits("leases").Lock(ctx)
	must(t, "Lock", err)
	must(t, "maxmemory", rdb.ConfigSet(ctx, "maxmemory", "1").Err())

	other := newScope(t).open(t, srv.Client(t))
	if err := other.Semaphore("pool").Release(ctx, 1); err != nil { // nobody's receipts are there to be deleted
		t.Errorf("Release: %v", err)
	}
	if err := c.Latch("gate").CountDown(ctx); err != nil {
		t.Errorf("CountDown: %v", err)
	}
	if err := other.Semaphore("pool").TryAcquire(ctx, 1); err == nil || !strings.Contains(err.Error(), "OOM") {
		t.Errorf("TryAcquire: %v", err)
	}
	if _, err := other.Permits("leases").TryLock(ctx); err == nil || !strings.Contains(err.Error(), "OOM") {
		t.Errorf("TryLock: %v", err)
	}
	always(t, 3*numberLease, func() bool { return l.Err() == nil })
	if err := l.Release(ctx); err != nil {
		t.Errorf("Release of a permit: %v", err)
	}
	must(t, "maxmemory", rdb.ConfigSet(ctx, "maxmemory", "0").Err())
	mustBe(t, "permits", available(t, c.Semaphore("pool")), 1)
	mustBe(t, "permits with leases", available(t, c.Permits("leases")), 2)
	must(t, "Wait", c.Latch("gate").Wait(ctx))
}

// A receipt is deleted by the client's next operation, else by Redis, five minutes later.
func TestReceiptsAreFew(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	c, ctx := d.client(), t.Context()
	s := c.Semaphore("pool")
	must(t, "Release", s.Release(ctx, 4))
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range 100 {
				if err := s.Acquire(ctx, 1); err != nil {
					t.Error(err)
				}
				if err := s.Release(ctx, 1); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	for i := range 300 {
		if err := c.Semaphore(fmt.Sprint("many:", i)).Release(ctx, 1); err != nil {
			t.Fatal(err)
		}
	}
	count := 0
	for it := d.rdb.Scan(ctx, 0, "{"+d.sp.Prefix()+"*:lockdog_receipt:*", 10000).Iterator(); it.Next(ctx); {
		key := it.Val()
		if strings.HasPrefix(key, "{"+d.key("pool")+"}:") {
			count++
		}
		if ttl := d.rdb.PTTL(ctx, key).Val(); ttl <= 0 || ttl > 5*time.Minute {
			t.Errorf("%s lives for %v", key, ttl)
		}
	}
	if count < 1 || count > 16 {
		t.Errorf("%d receipts are left of 801 operations", count)
	}
}

// A request that comes when its receipt may be gone already changes nothing: it is too late.
func TestTooLateToCount(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	rdb, wire := throughProxy(t, d.sp, answerWithin(100*time.Millisecond))
	c, ctx := d.open(t, rdb, lock.WithKeyPrefix(d.sp.Prefix()), lock.WithWatchdog(300*time.Millisecond)), t.Context()
	s := c.Semaphore("pool")
	must(t, "Release", s.Release(ctx, 1)) // it knows the clock now
	gone := func() {
		for it := d.rdb.Scan(ctx, 0, "{"+d.sp.Prefix()+"*:lockdog_receipt:*", 10000).Iterator(); it.Next(ctx); {
			d.rdb.Del(ctx, it.Val())
		}
	}
	for script, op := range map[string]func() error{
		"semaphore_add":     func() error { return s.Release(ctx, 1) },
		"semaphore_acquire": func() error { return s.Acquire(ctx, 1) },
	} {
		before := available(t, s)
		wire.set(redistest.When(redistest.Up, redistest.Hold, wire.script(script, "pool"), redistest.Nth(1)))
		must(t, script, op()) // by another request
		after := available(t, s)
		if after == before {
			t.Errorf("%s: %d permits before and after", script, after)
		}
		pass(t, 250*time.Millisecond)
		gone()
		wire.set(nil)
		wire.proxy.Release()
		always(t, 100*time.Millisecond, func() bool { return available(t, s) == after })
	}
	latch := closed(t, c, "gate", 5)
	wire.set(redistest.When(redistest.Up, redistest.Hold, wire.script("latch_count_down", "gate"), redistest.Nth(1)))
	must(t, "CountDown", latch.CountDown(ctx))
	wire.set(redistest.When(redistest.Up, redistest.Hold, wire.script("semaphore_set", "other"), redistest.Nth(1)))
	if done, err := c.Semaphore("other").SetPermits(ctx, 2); !done || err != nil {
		t.Errorf("SetPermits: %v, %v", done, err)
	}
	pass(t, 250*time.Millisecond)
	gone()
	d.rdb.Del(ctx, d.key("other"))
	wire.set(nil)
	wire.proxy.Release()
	always(t, 100*time.Millisecond, func() bool { return count(t, latch) == 4 && d.value("other") == "" })
}

// Who is told that somebody else had set it can rely on that, also when the first answer was lost.
func TestSetBySomebodyElse(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	rdb, wire := throughProxy(t, d.sp, answerWithin(100*time.Millisecond))
	c, ctx := d.open(t, rdb, lock.WithKeyPrefix(d.sp.Prefix())), t.Context()
	d.rdb.Set(ctx, d.key("pool"), 3, 0)
	wire.set(redistest.ReplyTo(redistest.Drop, wire.script("semaphore_set", "pool"), redistest.Nth(1)))
	if done, err := c.Semaphore("pool").SetPermits(ctx, 5); done || err != nil {
		t.Errorf("SetPermits: %v, %v", done, err)
	}
	wire.set(redistest.ReplyTo(redistest.Drop, wire.script("latch_set", "pool"), redistest.Nth(1)))
	if done, err := c.Latch("pool").Set(ctx, 5); done || err != nil {
		t.Errorf("Set: %v, %v", done, err)
	}
	mustBe(t, "number", d.value("pool"), "3")
}

// Permits that come while the client closes go back: their taker could not give them back any more.
func TestAcquireWhileClosing(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	rdb, wire := throughProxy(t, d.sp)
	c, ctx := d.open(t, rdb, lock.WithKeyPrefix(d.sp.Prefix())), t.Context()
	must(t, "Release", c.Semaphore("pool").Release(ctx, 3))
	must(t, "Acquire", c.Semaphore("pool").Acquire(ctx, 1)) // the server knows the script
	wire.set(redistest.ReplyTo(redistest.Hold, wire.script("semaphore_acquire", "pool")))
	got := acquiring(ctx, c.Semaphore("pool"), 2)
	wire.proxy.AwaitHeld(t, 1)
	mustBe(t, "permits", d.value("pool"), "0")
	closed := make(chan error, 1)
	go func() { closed <- c.Close(ctx) }()
	eventually(t, patience, func() bool { return errors.Is(second(c.Semaphore("pool").Available(ctx)), lock.ErrClosed) })
	wire.set(nil)
	wire.proxy.Release()
	mustMatch(t, await(t, "Acquire", got), lock.ErrClosed)
	must(t, "Close", await(t, "Close", closed))
	mustBe(t, "permits", d.value("pool"), "2")
}

// Permits that were taken for somebody who had left wake who waits for them.
func TestPermitsOfWhoLeft(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	rdb, wire := throughProxy(t, d.sp)
	c, ctx := d.open(t, rdb, lock.WithKeyPrefix(d.sp.Prefix())), t.Context()
	waiter := d.client(lock.WithWatchdog(time.Hour))
	must(t, "Release", waiter.Semaphore("pool").Release(ctx, 2))
	must(t, "Acquire", c.Semaphore("pool").Acquire(ctx, 1)) // the server knows the script
	wire.set(redistest.ReplyTo(redistest.Hold, wire.script("semaphore_acquire", "pool")))
	leaver, leave := context.WithCancel(ctx)
	left := acquiring(leaver, c.Semaphore("pool"), 1)
	wire.proxy.AwaitHeld(t, 1)
	next := acquiring(ctx, waiter.Semaphore("pool"), 1)
	waiting(t, waiter, 1)
	channel := "redisson_sc:{" + d.key("pool") + "}"
	eventually(t, patience, func() bool { return d.rdb.PubSubNumSub(ctx, channel).Val()[channel] == 1 })
	pass(t, 20*time.Millisecond) // it asks once more when subscribed
	start := time.Now()
	leave()
	mustMatch(t, await(t, "who left", left), context.Canceled)
	wire.set(nil)
	wire.proxy.Release()
	must(t, "the next", await(t, "the next", next))
	if took := time.Since(start); took > 5*time.Second { // else it was the net
		t.Errorf("it took %v", took)
	}
}
