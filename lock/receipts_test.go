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
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock"
)

// mishap is what becomes of a request or of its answer.
type mishap struct {
	name    string
	dir     redistest.Direction
	verdict func(rng *rand.Rand, size int) redistest.Verdict
}

func fixed(v redistest.Verdict) func(*rand.Rand, int) redistest.Verdict {
	return func(*rand.Rand, int) redistest.Verdict { return v }
}

func inTheMiddle(rng *rand.Rand, size int) redistest.Verdict {
	return redistest.Truncate(rng.IntN(size))
}

var mishaps = []mishap{
	{"request dropped", redistest.Up, fixed(redistest.Drop)},
	{"request held", redistest.Up, fixed(redistest.Hold)}, // past every timeout, then delivered
	{"request cut", redistest.Up, inTheMiddle},
	{"request reset", redistest.Up, fixed(redistest.Cut)},
	{"reply dropped", redistest.Down, fixed(redistest.Drop)},
	{"reply held", redistest.Down, fixed(redistest.Hold)},
	{"reply cut", redistest.Down, inTheMiddle},
	{"reply reset", redistest.Down, fixed(redistest.Cut)},
}

// trap gives a mishap to the next requests that it is set for.
type trap struct {
	mu      sync.Mutex
	rng     *rand.Rand
	catches func(redistest.Chunk) bool // nil: it isn't set
	mishap  mishap
	left    int
	asked   map[int]bool // connections whose next answer is meant
}

// set has the trap catch so many requests, or their answers.
func (tr *trap) set(m mishap, times int, catches func(redistest.Chunk) bool) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.mishap, tr.left, tr.catches, tr.asked = m, times, catches, make(map[int]bool)
}

// rule is the proxy's.
func (tr *trap) rule(c redistest.Chunk) redistest.Verdict {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	switch {
	case tr.catches == nil:
		return redistest.Pass
	case c.Dir == redistest.Up && tr.left > 0 && tr.catches(c):
		tr.left--
		if tr.mishap.dir == redistest.Down {
			tr.asked[c.Conn] = true
			return redistest.Pass
		}
	case c.Dir == redistest.Down && tr.asked[c.Conn]:
		delete(tr.asked, c.Conn)
	default:
		return redistest.Pass
	}
	return tr.mishap.verdict(tr.rng, len(c.Data))
}

// counting is one number in Redis, and a client that doesn't know the server's clock yet. Its requests have no
// not-after, so only receipts keep a delayed one from changing the number.
type counting struct {
	t    *testing.T
	rdb  *redis.Client // sound
	c    *lock.Client
	key  string
	trap *trap
	wire *wireTap
}

func (n *counting) value() int {
	v, err := n.rdb.Get(context.Background(), n.key).Int()
	if err != nil && !errors.Is(err, redis.Nil) {
		n.t.Error(err)
	}
	return v
}

// operations are those that change a number. run returns the number that there should be in the end.
var operations = []struct {
	name, script string
	run          func(n *counting, set func()) (want int)
}{
	{"acquire", "unleased_acquire", func(n *counting, set func()) int {
		set()
		if n.c.UnleasedSemaphore(n.key).Acquire(context.Background(), 3) != nil {
			return 10
		}
		return 7
	}},
	{"acquire that is left", "unleased_acquire", func(n *counting, set func()) int {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Millisecond)
		defer cancel()
		set()
		if n.c.UnleasedSemaphore(n.key).Acquire(ctx, 3) != nil {
			return 10
		}
		return 7
	}},
	{"acquire of a waiter", "unleased_acquire", func(n *counting, set func()) int {
		n.rdb.Set(context.Background(), n.key, 2, 0)
		got := acquiring(context.Background(), n.c.UnleasedSemaphore(n.key), 3)
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
		_ = n.c.UnleasedSemaphore(n.key).Release(context.Background(), 3) // whatever it says, the client goes on
		return 13
	}},
	{"release that is left", "semaphore_add", func(n *counting, set func()) int {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Millisecond)
		defer cancel()
		set()
		_ = n.c.UnleasedSemaphore(n.key).Release(ctx, 3)
		return 13
	}},
	{"add permits", "semaphore_add", func(n *counting, set func()) int {
		set()
		_ = n.c.Semaphore(n.key).AddPermits(context.Background(), -3)
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
		done, err := n.c.UnleasedSemaphore(n.key).TrySetPermits(context.Background(), 5)
		return n.set(done, err)
	}},
	{"ensure permits", "semaphore_ensure", func(n *counting, set func()) int {
		n.rdb.Del(context.Background(), n.key)
		set()
		return n.set(true, n.c.Semaphore(n.key).EnsurePermits(context.Background(), 5))
	}},
	{"set", "latch_set", func(n *counting, set func()) int {
		n.rdb.Del(context.Background(), n.key)
		set()
		done, err := n.c.Latch(n.key).TrySetCount(context.Background(), 5)
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
	synctest.Test(t, func(t *testing.T) {
		const seed, workers = 5, 16
		sp := redistest.StartFake(t)
		rdb := sp.Client(t)
		work := make(chan int)
		var busy sync.WaitGroup
		for range workers {
			busy.Go(func() {
				for i := range work {
					op, m := operations[i%len(operations)], mishaps[i/len(operations)%len(mishaps)]
					rng := rand.New(rand.NewPCG(seed, uint64(i)))
					times := [...]int{1, 1, 2, 1 << 20}[rng.IntN(4)]
					countOnce(t, sp, rdb, i, rng, func(n *counting) int {
						return op.run(n, func() { n.trap.set(m, times, n.wire.script(op.script, n.key)) })
					}, fmt.Sprintf("%s, %s %d times", op.name, m.name, times))
				}
			})
		}
		all := len(operations) * len(mishaps)
		if lock.Full {
			all *= 4
		}
		for i := range all {
			if !t.Failed() {
				work <- i
			}
		}
		close(work)
		busy.Wait()
	})
}

func countOnce(t *testing.T, sp *redistest.Fake, rdb *redis.Client, i int, rng *rand.Rand, run func(*counting) int, what string) {
	n := &counting{t: t, rdb: rdb, key: sp.Prefix() + strconv.Itoa(i), trap: &trap{rng: rng}}
	p := redistest.NewProxy(t, sp.Addr())
	n.wire = listenOn(t, p)
	n.wire.set(n.trap.rule)
	through := sp.Client(t, answerWithin(100*time.Millisecond), func(o *redis.Options) { o.Addr, o.MaxRetries = p.Addr(), 3 })
	c, err := lock.New(through, lock.WithLease(300*time.Millisecond), lock.WithLogger(silent))
	if err != nil {
		t.Error(err)
		return
	}
	n.c = c
	defer closeSoon(c)
	rdb.Set(context.Background(), n.key, 10, 0)
	want := run(n)
	n.trap.set(mishap{}, 0, nil)
	for _, delta := range []int{1, -1} { // the next operations delete receipts: only those that nobody asks for any more
		_ = c.UnleasedSemaphore(n.key).AddPermits(context.Background(), delta) // whatever it says, the client goes on
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

// A receipt is deleted by the client's next operation, else by Redis, five minutes later.
func TestReceiptsAreFew(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		d := newDesk(t)
		c, ctx := d.client(), t.Context()
		s := c.UnleasedSemaphore("pool")
		must(t, "Release", s.Release(ctx, 4))
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				for range 25 {
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
		for i := range 100 {
			if err := c.UnleasedSemaphore(fmt.Sprint("many:", i)).Release(ctx, 1); err != nil {
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
			t.Errorf("%d receipts are left of 201 operations", count)
		}
	})
}
