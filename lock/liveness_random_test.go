package lock_test

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/lockdog/lockdog/internal/fakeredis"
	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/lock/internal/script"
)

// Nobody waits for what is free: random programs of several clients, over a server behind lines that are slow and lose
// requests and answers. More of them: go test -run FreeLockIsTaken -rapid.checks=10000.

const (
	freeLease  = 10 * time.Second
	freeLimit  = freeLease / 10
	freeSlow   = 60 * time.Millisecond
	freeShared = 2  // permits of what has some
	freeGates  = 20 // how often a latch is closed
)

// freeOp is one step of a program.
type freeOp struct {
	Do    string // lock, bounded (by WithWait), left (as its ctx ends), try
	Which int    // side of a read-write lock, names of a Multi
	After time.Duration
	Wait  time.Duration // how long a wait may be that is bounded or left
	Hold  time.Duration
}

// freeRun is a run of such programs.
type freeRun struct {
	kind    string
	clients []*lock.Client
	start   time.Time

	mu      sync.Mutex
	room    int // how many may hold it at a time; of a latch 1 while it is open, else 0
	holders int
	waiters int
	since   time.Time // since when there has been room while somebody waits, zero: there isn't
	worst   time.Duration
	closed  int // the number of the time for which a latch is closed, 0: it may be open
	bad     []string
	log     []string
}

// change notes that somebody came, got in or left.
func (f *freeRun) change(what string, room, holders, waiters int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	f.log = append(f.log, fmt.Sprintf("%v %s", now.Sub(f.start), what))
	if !f.since.IsZero() {
		if free := now.Sub(f.since); free > freeLimit && len(f.bad) == 0 {
			f.bad = append(f.bad, fmt.Sprintf("it was free for %v while %d waited", free, f.waiters))
		}
		f.worst = max(f.worst, now.Sub(f.since))
	}
	f.room += room
	f.holders += holders
	f.waiters += waiters
	switch gotIn := holders > 0; {
	case f.waiters == 0 || f.holders >= f.room:
		f.since = time.Time{}
	case f.since.IsZero() || gotIn:
		f.since = now
	}
}

// locker describes what an operation takes.
func (f *freeRun) locker(c *lock.Client, which int, opts ...lock.LockOption) lock.Locker {
	switch f.kind {
	case "fair":
		return c.FairMutex("job", opts...)
	case "rw":
		if which%3 == 0 {
			return c.RWMutex("job", opts...)
		}
		return c.RWMutex("job", opts...).RLocker()
	case "semaphore":
		return c.Semaphore("job", opts...)
	case "multi":
		return c.Multi([][]string{{"a", "b"}, {"b", "c"}, {"a", "b", "c"}, {"c"}}[which%4], opts...)
	}
	return c.Mutex("job", opts...)
}

// enter takes the lock, and returns a function that gives it back.
func (f *freeRun) enter(ctx context.Context, c *lock.Client, o freeOp) (leave func(), err error) {
	var opts []lock.LockOption
	if o.Do == "bounded" {
		opts = append(opts, lock.WithWait(o.Wait))
	}
	if f.kind == "unleased" {
		s := c.UnleasedSemaphore("job", opts...)
		take := s.Acquire
		if o.Do == "try" {
			take = s.TryAcquire
		}
		err = take(ctx, 1)
		return func() { _ = s.Release(context.Background(), 1) }, err
	}
	lk := f.locker(c, o.Which, opts...)
	take := lk.Lock
	if o.Do == "try" {
		take = lk.TryLock
	}
	l, err := take(ctx)
	return func() { _ = l.Release(context.Background()) }, err // what isn't confirmed is swept
}

// program runs one.
func (f *freeRun) program(name string, c *lock.Client, ops []freeOp) {
	for i, o := range ops {
		time.Sleep(o.After + time.Millisecond) // a program that goes on for as long as another lets time pass
		ctx, cancel := context.WithCancel(context.Background())
		if o.Do == "left" {
			ctx, cancel = context.WithTimeout(ctx, o.Wait)
		}
		who := fmt.Sprintf("%s.%d %s %d", name, i, o.Do, o.Which)
		waits := 1
		if o.Do == "try" {
			waits = 0
		}
		if f.kind == "latch" {
			f.await(ctx, who, c)
			cancel()
			continue
		}
		f.change(who, 0, 0, waits)
		leave, err := f.enter(ctx, c, o)
		if err != nil {
			f.change(fmt.Sprintf("%s: %v", who, err), 0, 0, -waits)
			cancel()
			continue
		}
		f.change(who+": in", 0, 1, -waits)
		time.Sleep(o.Hold)
		leave()
		f.change(who+": out", 0, -1, 0)
		cancel()
	}
}

// await waits for the latch. It must not be let through one that was closed all the time.
func (f *freeRun) await(ctx context.Context, who string, c *lock.Client) {
	f.change(who, 0, 0, 1)
	f.mu.Lock()
	closed := f.closed
	f.mu.Unlock()
	err := c.Latch("job").Wait(ctx)
	f.mu.Lock()
	if err == nil && closed != 0 && closed == f.closed {
		f.bad = append(f.bad, who+" was let through a closed latch")
	}
	f.mu.Unlock()
	f.change(fmt.Sprintf("%s: %v", who, err), 0, 0, -1)
	if err == nil {
		f.change(who, 0, 1, 0) // it got in, and is out
		f.change(who, 0, -1, 0)
	}
}

// gatekeeper closes and opens the latch.
func (f *freeRun) gatekeeper(gate *lock.Latch, ops []freeOp) error {
	for i := range freeGates {
		o := ops[i%len(ops)]
		time.Sleep(o.After / 4)
		f.change("closing", -1, 0, 0)
		if did, err := gate.TrySetCount(context.Background(), 1); !did || err != nil {
			return fmt.Errorf("TrySetCount: %v, %w", did, err)
		}
		f.setClosed(i + 1)
		time.Sleep(o.Hold)
		f.setClosed(0)
		if err := gate.CountDown(context.Background()); err != nil {
			return err
		}
		f.change("open", 1, 0, 0)
	}
	return nil
}

func (f *freeRun) setClosed(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = n
}

// freeLine is the rule of a line that is slow at random, and loses one of so many requests, answers and messages, each with its
// connection; 0: none.
func freeLine(seed, client uint64, loses int) redistest.Rule {
	rng := rand.New(rand.NewPCG(seed, client))
	return func(redistest.Chunk) redistest.Verdict {
		most := 3 * time.Millisecond
		switch {
		case loses > 0 && rng.IntN(loses) == 0:
			return redistest.Cut
		case rng.IntN(8) == 0:
			most = freeSlow
		}
		return redistest.Delay(1 + time.Duration(rng.Int64N(int64(most))))
	}
}

func (f *freeRun) play(t *testing.T, seed uint64, loses int, programs [][]freeOp) {
	f.start = time.Now()
	srv := redistest.StartFake(t)
	for i := range uint64(3) {
		p := redistest.NewProxy(t, srv.Addr())
		p.SetRule(freeLine(seed, i, loses))
		f.clients = append(f.clients, openBehind(t, srv, p, lock.WithLease(freeLease)))
	}
	f.room = 1
	keeper := open(t, srv.Client(t))
	switch f.kind {
	case "semaphore":
		f.room = freeShared
		must(t, "TrySetPermits", second(keeper.Semaphore("job").TrySetPermits(t.Context(), freeShared)))
	case "unleased":
		f.room = freeShared
		must(t, "TrySetPermits", second(keeper.UnleasedSemaphore("job").TrySetPermits(t.Context(), freeShared)))
	}
	var all sync.WaitGroup
	ended := make(chan struct{}) // the latch stays open
	if f.kind == "latch" {
		all.Go(func() {
			defer close(ended)
			if err := f.gatekeeper(keeper.Latch("job"), programs[0]); err != nil {
				t.Error(err)
			}
		})
	} else {
		close(ended)
	}
	for i, ops := range programs {
		all.Go(func() {
			for again := true; again; {
				f.program(fmt.Sprint("p", i, "@", i%3), f.clients[i%3], ops)
				select {
				case <-ended:
					again = false
				default:
				}
			}
		})
	}
	all.Wait()
	for _, c := range f.clients {
		must(t, "Close", c.Close(t.Context()))
	}
	time.Sleep(time.Second) // what is under way arrives
}

// TestFreeLockIsTaken: whenever there is room and somebody waits, some waiter gets in within a tenth of the lease.
func TestFreeLockIsTaken(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"mutex", "fair", "rw", "semaphore", "unleased", "multi", "latch"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			worst := time.Duration(0)
			rapid.Check(t, func(rt *rapid.T) {
				ms := func(most int) *rapid.Generator[time.Duration] {
					return rapid.Map(rapid.IntRange(0, most), func(n int) time.Duration { return time.Duration(n) * time.Millisecond })
				}
				op := rapid.Custom(func(t *rapid.T) freeOp {
					return freeOp{
						Do:    rapid.SampledFrom([]string{"lock", "lock", "lock", "bounded", "left", "try"}).Draw(t, "do"),
						Which: rapid.IntRange(0, 11).Draw(t, "which"),
						After: ms(40).Draw(t, "after"),
						Wait:  ms(300).Draw(t, "wait"),
						Hold:  ms(40).Draw(t, "hold"),
					}
				})
				programs := rapid.SliceOfN(rapid.SliceOfN(op, 1, 6), 2, 8).Draw(rt, "programs")
				seed := rapid.Uint64().Draw(rt, "seed")
				loses := rapid.SampledFrom([]int{0, 50, 10}).Draw(rt, "loses")
				f := &freeRun{kind: kind}
				synctest.Test(t, func(t *testing.T) { f.play(t, seed, loses, programs) })
				worst = max(worst, f.worst)
				if len(f.bad) > 0 {
					rt.Fatalf("%s\n%q", f.bad[0], f.log)
				}
			})
			t.Logf("it was never free for longer than %v while somebody waited", worst)
		})
	}
}

// The answer that grants a waiter the lock is lost, and WithWait is over while the call is repeated. The client gives
// the lock back at once.
func TestGrantOfALostAnswerIsGivenBackWhenTheWaitIsOver(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"mutex", "fair", "rw"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				const wait = 2 * time.Second
				acquirers := []*script.Acquirer{script.Acquire, script.FairAcquire, script.WriteAcquire}
				f, srv := &freeRun{kind: kind}, redistest.StartFake(t)
				other := open(t, srv.Client(t))
				held := try(t, f.locker(other, 0))
				over := time.Now().Add(wait + time.Second) // when an answer is waited for no longer
				lose := false
				c := openTapped(t, srv, fakeredis.Tap{Down: func(cmd redis.Cmder) error {
					acquires := func(s *script.Acquirer) bool { return s.IsRunBy(cmd) }
					if !lose || !slices.ContainsFunc(acquirers, acquires) {
						return nil
					}
					lose = false
					sleepUntil(over.Add(-time.Millisecond))
					return io.EOF
				}}, lock.WithWaitGraph(0)) // whose calls would come by there, too
				waiter := begin(t.Context(), f.locker(c, 0, lock.WithWait(wait), lock.WithFixedLease(lock.DefaultLease)) /* so that it has to ask */)
				synctest.Wait()
				lose = true
				free(t, held)
				if got := <-waiter; got.err == nil {
					t.Fatalf("%s got the lock, though no answer came", got.Owner())
				}
				began := time.Now()
				free(t, granted(t, begin(t.Context(), f.locker(other, 0))))
				if took := time.Since(began); took > lock.DefaultLease/10 {
					t.Errorf("nobody had the lock, and it was free for others %v later", took)
				}
			})
		})
	}
}
