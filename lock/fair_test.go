package lock_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock"
)

// fairRig is a server and the queue of one fair lock on it.
type fairRig struct {
	t   *testing.T
	srv *redistest.Fake
	rdb *redis.Client
}

const (
	fairQueue     = "redisson_lock_queue:{job}"
	fairDeadlines = "redisson_lock_timeout:{job}"
	fairAlive     = "lockdog_fair:{job}"
)

func newFairRig(t *testing.T) *fairRig {
	srv := redistest.StartFake(t)
	return &fairRig{t, srv, srv.Client(t)}
}

func (r *fairRig) client(opts ...lock.Option) *lock.Client {
	r.t.Helper()
	return newScope(r.t).open(r.t, r.srv.Client(r.t), opts...)
}

// queue is who waits, the next first.
func (r *fairRig) queue() []string {
	r.t.Helper()
	all, err := r.rdb.LRange(context.Background(), fairQueue, 0, -1).Result()
	must(r.t, "LRANGE", err)
	return all
}

// others is a waiter of another program's, with a place for so long.
func (r *fairRig) others(owner string, place time.Duration) {
	r.t.Helper()
	must(r.t, "RPUSH", r.rdb.RPush(context.Background(), fairQueue, owner).Err())
	r.place(owner, place)
}

func (r *fairRig) place(owner string, place time.Duration) {
	r.t.Helper()
	end := float64(time.Now().Add(place).UnixMilli())
	must(r.t, "ZADD", r.rdb.ZAdd(context.Background(), fairDeadlines, redis.Z{Score: end, Member: owner}).Err())
}

// enqueue begins to wait, and returns when Redis has it n-th in the queue.
func (r *fairRig) enqueue(ctx context.Context, m lock.Locker, n int) <-chan taken {
	r.t.Helper()
	next := begin(ctx, m)
	eventually(r.t, patience, func() bool { return len(r.queue()) == n })
	return next
}

// empty checks that nothing of the queue is left.
func (r *fairRig) empty() {
	r.t.Helper()
	eventually(r.t, patience, func() bool {
		return r.rdb.Exists(context.Background(), fairQueue, fairDeadlines, fairAlive).Val() == 0
	})
}

// Those who wait in several clients get the lock in the order they came, and each release wakes the next one only.
func TestFairIsFirstComeFirstServed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newFairRig(t)
		clients := []*lock.Client{r.client(), r.client(), r.client()}
		l := try(t, clients[0].FairMutex("job"))
		var waiters []<-chan taken
		for i := range 12 {
			waiters = append(waiters, r.enqueue(t.Context(), clients[i%3].FairMutex("job"), i+1))
		}
		for i, w := range waiters {
			free(t, l)
			l = granted(t, w)
			for _, later := range waiters[i+1:] {
				select {
				case got := <-later:
					t.Fatalf("one who came later than %d has got in: %v", i, got.err)
				default:
				}
			}
		}
		free(t, l)
		r.empty()
	})
}

// Waiting for longer than a place lasts costs no place: it is kept by asking again.
func TestFairKeepsThePlace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newFairRig(t)
		short := r.client(lock.WithLease(1500 * time.Millisecond))
		l := try(t, r.client().FairMutex("job"))
		first := r.enqueue(t.Context(), short.FairMutex("job"), 1)
		second := r.enqueue(t.Context(), r.client().FairMutex("job"), 2)
		queue := r.queue()
		always(t, 5*time.Second, func() bool { return slices.Equal(r.queue(), queue) })
		free(t, l)
		l = granted(t, first)
		free(t, l)
		free(t, granted(t, second))
		r.empty()
	})
}

// Who gives up leaves the queue, wherever in it; when the next gives up, the one behind is woken.
func TestFairGivingUpLeavesTheQueue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newFairRig(t)
		c := r.client()
		l := try(t, c.FairMutex("job"))
		ctx, cancel := context.WithCancel(t.Context())
		first := r.enqueue(t.Context(), c.FairMutex("job"), 1)
		second := r.enqueue(ctx, c.FairMutex("job"), 2)
		third := r.enqueue(t.Context(), c.FairMutex("job", lock.WithWait(2500*time.Millisecond)), 3) // until the fourth is there
		fourth := r.enqueue(t.Context(), c.FairMutex("job"), 4)
		cancel()
		got := await(t, "Lock", second)
		mustMatch(t, got.err, lock.ErrHeld, context.Canceled)
		got = await(t, "Lock", third)
		mustMatch(t, got.err, lock.ErrHeld)
		eventually(t, patience, func() bool { return len(r.queue()) == 2 })

		free(t, l)
		l = granted(t, first)
		free(t, l)
		free(t, granted(t, fourth))
		r.empty()
	})
}

// A first waiter that gives up although the lock is free wakes the one behind it.
func TestFairLastGiveUpWakesTheNext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newFairRig(t)
		ctx := t.Context()
		const gone = "somebody:1"
		r.others(gone, time.Minute)
		next := r.enqueue(ctx, r.client().FairMutex("job"), 2) // the lock is free, and not its turn
		always(t, 200*time.Millisecond, func() bool { return len(next) == 0 })
		// What fair_release.lua does for one that gives up, as the cleanup has it done.
		keys := []string{"job", "unused:{job}", fairQueue, fairDeadlines, fairAlive}
		if err := r.rdb.Eval(ctx, lock.Scripts["fair_release"].Source, keys, gone, "redisson_lock__channel:{job}", "publish").Err(); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		free(t, granted(t, next))
		if took := time.Since(began); took > 10*time.Millisecond { // it asks every 10 s
			t.Errorf("the one behind got in after %v: nobody woke it", took)
		}
		r.empty()
	})
}

// Waiters of a process that died hold nobody up for longer than a lease, whether they are next or further behind.
func TestFairDeadWaitersLeave(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newFairRig(t)
		l := try(t, r.client().FairMutex("job"))
		rdb, wire := throughProxy(t, r.srv)
		const lease = 900 * time.Millisecond
		dying := newScope(t).open(t, rdb, lock.WithLease(lease))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		for n := range 2 {
			r.enqueue(ctx, dying.FairMutex("job"), n+1)
		}
		next := r.enqueue(t.Context(), r.client(lock.WithLease(3*time.Second)).FairMutex("job"), 3)
		wire.proxy.Refuse(t)
		wire.proxy.CutAll()
		died := time.Now()
		free(t, l)
		free(t, granted(t, next))
		if took := time.Since(died); took > lease+time.Second { // it asks every second; Redisson's would have stayed for minutes
			t.Errorf("the next got in %v after the death, a place lasts %v", took, lease)
		}
		r.empty()
		wire.proxy.Accept(t) // for the client to end
	})
}

// If the next in the queue is dead when the lock becomes free, the first that lives learns when its place ends.
func TestFairDeadHead(t *testing.T) {
	t.Parallel()
	releases := map[string][]lock.LockOption{"release": nil, "kept": {lock.WithMinHold(11500 * time.Millisecond)}}
	for name, opts := range releases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := newFairRig(t)
				l := try(t, r.client().FairMutex("job", opts...))
				const place = 12 * time.Second
				r.others("dead:1", place)
				r.others("dead:2", place/2)
				ends := time.Now().Add(place)
				next := r.enqueue(t.Context(), r.client().FairMutex("job"), 3)
				time.Sleep(place - time.Second) // it asks every 10 s
				free(t, l)
				l = granted(t, next)
				if idle := time.Since(ends); idle < 0 || idle > 300*time.Millisecond {
					t.Errorf("granted %v after the place of the dead", idle)
				}
				free(t, l)
				r.empty()
			})
		})
	}
}

// A waiter that was told when the lock can be had gives up before: the one behind it is told.
func TestFairToldWaiterGivesUp(t *testing.T) {
	t.Parallel()
	const until = 9 * time.Second
	for _, why := range []string{"dead head", "kept"} {
		t.Run(why, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				r := newFairRig(t)
				ends, n := time.Now().Add(until), 0
				var opts []lock.LockOption
				if why == "kept" {
					opts = append(opts, lock.WithMinHold(until))
				}
				l := try(t, r.client().FairMutex("job", opts...))
				if why == "dead head" {
					n++
					r.others("dead:1", until)
				}
				told := r.enqueue(t.Context(), r.client().FairMutex("job", lock.WithWait(until-time.Second)), n+1)
				next := r.enqueue(t.Context(), r.client().FairMutex("job"), n+2)
				time.Sleep(until - 2*time.Second)
				free(t, l)
				mustMatch(t, (<-told).err, lock.ErrHeld)
				l = granted(t, next)
				if idle := time.Since(ends); idle < 0 || idle > 300*time.Millisecond { // it asks every 10 s
					t.Errorf("the lock was free for %v", idle)
				}
				free(t, l)
			})
		})
	}
}

// TryLock doesn't overtake those who wait, although the lock is free.
func TestFairTryLockOvertakesNobody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newFairRig(t)
		ctx := t.Context()
		r.others("somebody:1", 3*time.Second)
		m := r.client().FairMutex("job")
		_, err := m.TryLock(ctx)
		var held *lock.HeldError
		if !errors.As(err, &held) || held.Owner != "" || held.Remaining <= 0 || held.Remaining > 3*time.Second {
			t.Fatalf("TryLock: %v (%+v), want a HeldError of nobody for three seconds at most", err, held)
		}
		if q := r.queue(); len(q) != 1 {
			t.Errorf("the queue is %q: TryLock stands in it", q)
		}
		time.Sleep(3 * time.Second) // the other's deadline passes
		free(t, try(t, m))
		r.empty()
	})
}

// A release calls Redisson's waiters on their channel, and nobody overtakes them. (By which deadlines they go: TestFairCountsRedissonsWaiters.)
func TestFairBesideRedisson(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newFairRig(t)
		ctx := t.Context()
		c := r.client() // leases of 30 s
		l := try(t, c.FairMutex("job"))
		first := r.enqueue(ctx, c.FairMutex("job"), 1)
		const java = "3f8c:77"
		r.others(java, 330*time.Second)
		last := r.enqueue(ctx, c.FairMutex("job"), 3)

		free(t, l)
		l = granted(t, first)

		call := messages(t, r.rdb, "redisson_lock__channel:{job}:"+java)
		free(t, l)
		mustBe(t, "message", await(t, "a message", call).Payload, "0")
		always(t, 300*time.Millisecond, func() bool { return len(last) == 0 })
		r.place(java, -time.Millisecond)                         // it has died
		l, err := c.FairMutex("job", lock.WithWait(0)).Lock(ctx) // whoever asks finds out
		if err == nil {
			t.Fatalf("%s overtook the last", l.Owner())
		}
		found := time.Now()
		free(t, granted(t, last))
		if took := time.Since(found); took > 10*time.Millisecond { // it asks every 10 s
			t.Errorf("the last got in after %v: nobody told it that it was next", took)
		}
		r.empty()
	})
}
