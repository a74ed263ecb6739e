package lock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/telemetry"
)

// A lock is gone when the server says so that has the key: not a node that its slot is on the way to or from, nor a replica.

// TestMovingSlotClaimsNothing holds every state of a moving slot, one key after the other, for as long as the leases are renewed in it.
func TestMovingSlotClaimsNothing(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 0)
	t.Run("to and fro", func(t *testing.T) { movesToAndFro(t, c) })
	t.Run("leases of the slot alone", func(t *testing.T) { t.Parallel(); movesUnderLeases(t, c, "{alone}", 0) })
	t.Run("among those of other slots", func(t *testing.T) { t.Parallel(); movesUnderLeases(t, c, "{among}", 20) })
	t.Run("renewed slot by slot", func(t *testing.T) {
		t.Parallel()
		movesUnderLeases(t, c, "{slots}", 20, lock.WithRenewalClient(oneSlotOnly(t, c)))
	})
	t.Run("other kinds", func(t *testing.T) { t.Parallel(); movesUnderKinds(t, c) })
	t.Run("acquires and releases", func(t *testing.T) { t.Parallel(); movesUnderCalls(t, c) })
}

// oneSlotOnly is a client of the cluster through a proxy that wants the keys of a call in one slot.
func oneSlotOnly(t *testing.T, c *redistest.Cluster) redis.UniversalClient {
	picky := openCluster(t, c)
	picky.(*redis.ClusterClient).OnNewNode(func(node *redis.Client) { node.AddHook(&oneSlot{}) })
	return picky
}

// renewedAll waits until each lease was renewed by a call made since, and fails the test if one has ended.
func renewedAll(t *testing.T, what string, lease time.Duration, leases []*lock.Lease) {
	t.Helper()
	since := time.Now()
	for _, l := range leases {
		renewedPast(t, l, since.Add(lease-lease/100-2*time.Millisecond)) // less the margin
		if err := l.Err(); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
}

func movesUnderLeases(t *testing.T, c *redistest.Cluster, tag string, others int, opts ...lock.Option) {
	const n, lease = 3, 10 * time.Second
	s := newScope(t)
	client := s.open(t, openCluster(t, c), append(opts, lock.WithLease(lease))...)
	slot := c.Slot(t, tag)
	var held []*lock.Lease
	for i := range n {
		held = append(held, try(t, client.Mutex(fmt.Sprint(tag, i))))
	}
	var elsewhere []*lock.Lease
	for _, name := range namesOn(t, c, c.Owner(t, slot), others) {
		elsewhere = append(elsewhere, try(t, client.Mutex("{"+name+"}s")))
	}
	to := otherNode(t, c, slot)
	m := c.Migrate(t, slot, to)
	renewedAll(t, "none has moved", lease, held)
	began, before := time.Now(), s.sent(t, telemetry.PurposeRenew)
	for i, l := range held {
		m.MoveKeys(t, l.Name())
		renewedAll(t, fmt.Sprint(i+1, " have moved, the counter hasn't"), lease, held)
	}
	// A call for all, and one for each that has moved; a cohort of its own costs another. Slot by slot all are asked for by themselves.
	calls, rounds := s.sent(t, telemetry.PurposeRenew)-before, int(time.Since(began)/(lease/3))+1
	if t.Logf("%d calls in %d rounds", calls, rounds); len(opts) == 0 && calls > rounds*(2+n) {
		t.Errorf("%d calls in %d rounds, of %d leases of which %d have moved at last", calls, rounds, n+others, n)
	}
	gone := held[n-1]
	_, err := to.Client(t).Pipelined(t.Context(), func(p redis.Pipeliner) error {
		p.Do(t.Context(), "asking")
		p.Del(t.Context(), gone.Name())
		return nil
	})
	must(t, "DEL", err)
	mustBeLost(t, gone, lock.CauseMissing) // of which the target is the owner by now
	held = held[:n-1]
	m.MoveKeys(t)
	renewedAll(t, "all keys have moved", lease, held)
	m.Finish(t)
	renewedAll(t, "the slot has moved", lease, held)
	mustAllLive(t, elsewhere)
	freeAll(t, append(held, elsewhere...))
}

// movesUnderKinds moves what belongs to leases of the other kinds. Those of a read-write lock can't be renewed while a lock and its marks are
// apart; they aren't lost by that.
func movesUnderKinds(t *testing.T, c *redistest.Cluster) {
	const tag, lease = "{kinds}", 10 * time.Second
	client := newScope(t).open(t, openCluster(t, c), lock.WithLease(lease))
	_, err := client.Semaphore(tag+"semaphore").TrySetPermits(t.Context(), 3)
	must(t, "TrySetPermits", err)
	rw := []*lock.Lease{try(t, client.RWMutex(tag+"write")), try(t, client.RWMutex(tag+"read").RLocker())}
	held := []*lock.Lease{
		try(t, client.Mutex(tag+"mutex")), try(t, client.FairMutex(tag+"fair")), try(t, client.Semaphore(tag+"semaphore")),
		try(t, client.Multi([]string{tag + "one", tag + "two"})),
	}
	slot := c.Slot(t, tag)
	to := otherNode(t, c, slot)
	m := c.Migrate(t, slot, to)
	keys, err := c.Owner(t, slot).Client(t).ClusterGetKeysInSlot(t.Context(), slot, 100).Result()
	must(t, "CLUSTER GETKEYSINSLOT", err)
	for _, l := range rw {
		belongs := func(key string) bool { return strings.HasPrefix(key, l.Name()) }
		for _, key := range keys {
			if belongs(key) && key != l.Name() {
				m.MoveKeys(t, key)
			}
		}
		renewedAll(t, "the marks of "+l.Name()+" have moved, it hasn't", lease, held)
		m.MoveKeys(t, l.Name())
		renewedAll(t, l.Name()+" has moved", lease, append(held, l))
		keys = slices.DeleteFunc(keys, belongs)
	}
	for part := range slices.Chunk(keys, (len(keys)+1)/2) {
		m.MoveKeys(t, part...)
		renewedAll(t, fmt.Sprint(part, " have moved"), lease, held)
	}
	mustAllLive(t, rw)
	m.Finish(t)
	renewedAll(t, "the slot has moved", lease, append(held, rw...))
	freeAll(t, append(held, rw...))
}

// movesUnderCalls asks for locks that are held, one by one and many at once, looks at them and gives them back.
func movesUnderCalls(t *testing.T, c *redistest.Cluster) {
	const tag, n = "{calls}", 8
	holder := newScope(t).open(t, openCluster(t, c), lock.WithLease(far))
	other := newScope(t).open(t, openCluster(t, c), lock.WithLease(far))
	name := func(i int) string { return fmt.Sprint(tag, i) }
	held := make([]*lock.Lease, n)
	for i := range held {
		held[i] = try(t, holder.Mutex(name(i)))
	}
	slot := c.Slot(t, tag)
	m := c.Migrate(t, slot, otherNode(t, c, slot))
	for _, stage := range []struct {
		what string
		move func()
	}{
		{"none has moved", func() {}},
		{"half of the locks have moved", func() { m.MoveKeys(t, name(0), name(1), name(2), name(3)) }},
		{"the others and the counter have", func() { m.MoveKeys(t) }},
		{"the slot has", func() { m.Finish(t) }},
	} {
		stage.move()
		var all sync.WaitGroup
		for range 4 {
			for i := range held {
				all.Go(func() {
					if l, err := other.Mutex(name(i)).TryLock(t.Context()); !errors.Is(err, lock.ErrHeld) {
						t.Errorf("%s: %d was taken once more: %v, %v", stage.what, i, l, err)
					}
				})
			}
		}
		all.Wait()
		for i, l := range held {
			if h, err := other.Mutex(name(i)).Inspect(t.Context()); err != nil || h.Owner != l.Owner() {
				t.Errorf("%s: %d is held by %+v, %v", stage.what, i, h, err)
			}
			all.Go(func() {
				if err := l.Release(t.Context()); err != nil {
					t.Errorf("%s: %d: %v", stage.what, i, err)
				}
			})
		}
		all.Wait()
		for i := range held {
			if h, err := other.Mutex(name(i)).Inspect(t.Context()); err != nil || h.Held {
				t.Errorf("%s: %d, given back, is held by %+v, %v", stage.what, i, h, err)
			}
			all.Go(func() {
				var err error
				if held[i], err = holder.Mutex(name(i)).TryLock(t.Context()); err != nil {
					t.Errorf("%s: %d, given back: %v", stage.what, i, err)
				}
			})
		}
		all.Wait()
		if t.Failed() {
			t.FailNow()
		}
	}
	freeAll(t, held)
}

// TestReplicaClaimsNothing turns a primary into the replica of an empty one while its clients stay connected. No call
// may say that a lock is lost, held or free.
func TestReplicaClaimsNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, replicaClaimsNothing)
}

func replicaClaimsNothing(t *testing.T) {
	srv, s := redistest.StartFake(t), newScope(t)
	const lease, ask = 4500 * time.Millisecond, 300 * time.Millisecond
	c := s.open(t, srv.Client(t), lock.WithLease(far))
	ctx := t.Context()
	_, err := c.Semaphore("semaphore").TrySetPermits(ctx, 3)
	must(t, "TrySetPermits", err)
	_, err = c.UnleasedSemaphore("unleased").TrySetPermits(ctx, 3)
	must(t, "TrySetPermits", err)
	_, err = c.Latch("latch").TrySetCount(ctx, 3)
	must(t, "Set", err)
	take := func(suffix string, opts ...lock.LockOption) map[string]*lock.Lease {
		return map[string]*lock.Lease{
			"Mutex": try(t, c.Mutex("mutex"+suffix, opts...)), "FairMutex": try(t, c.FairMutex("fair"+suffix, opts...)),
			"RWMutex":       try(t, c.RWMutex("rw"+suffix, opts...)),
			"RWMutex, read": try(t, c.RWMutex("read"+suffix, opts...).RLocker()),
			"Multi":         try(t, c.Multi([]string{"one" + suffix, "two" + suffix}, opts...)),
			"Semaphore":     try(t, c.Semaphore("semaphore", opts...)),
		}
	}
	released, renewed := take(" released"), take(" renewed", lock.WithLease(lease))
	must(t, "FLUSHALL", srv.Client(t).FlushAll(ctx).Err())
	srv.SetRefusal(refuseWrites("READONLY You can't write against a read only replica."))

	var all sync.WaitGroup
	claims := func(what string, call func(context.Context) (any, error)) {
		all.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, ask)
			defer cancel()
			if got, err := call(ctx); err == nil || errors.Is(err, lock.ErrLost) || errors.Is(err, lock.ErrHeld) && !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: %+v, %v", what, got, err)
			}
		})
	}
	any1 := func(v any, err error) (any, error) { return v, err }
	for kind, l := range released {
		claims(kind+": Release", func(ctx context.Context) (any, error) { return nil, l.Release(ctx) })
	}
	for kind, m := range map[string]interface {
		Inspect(context.Context) (lock.Holder, error)
		ForceUnlock(context.Context) (bool, error)
	}{
		"Mutex": c.Mutex("mutex renewed"), "FairMutex": c.FairMutex("fair renewed"), "RWMutex": c.RWMutex("rw renewed"),
	} {
		claims(kind+": Inspect", func(ctx context.Context) (any, error) { return any1(m.Inspect(ctx)) })
		claims(kind+": ForceUnlock", func(ctx context.Context) (any, error) { return any1(m.ForceUnlock(ctx)) })
	}
	claims("Semaphore: Available", func(ctx context.Context) (any, error) { return any1(c.Semaphore("semaphore").Available(ctx)) })
	claims("Semaphore: TryLock", func(ctx context.Context) (any, error) { return any1(c.Semaphore("semaphore").TryLock(ctx)) })
	claims("UnleasedSemaphore: Available", func(ctx context.Context) (any, error) { return any1(c.UnleasedSemaphore("unleased").Available(ctx)) })
	claims("UnleasedSemaphore: TryAcquire", func(ctx context.Context) (any, error) {
		return nil, c.UnleasedSemaphore("unleased").TryAcquire(ctx, 1)
	})
	claims("UnleasedSemaphore: Release", func(ctx context.Context) (any, error) { return nil, c.UnleasedSemaphore("unleased").Release(ctx, 1) })
	claims("Latch: Count", func(ctx context.Context) (any, error) { return any1(c.Latch("latch").Count(ctx)) })
	claims("Latch: Wait", func(ctx context.Context) (any, error) { return nil, c.Latch("latch").Wait(ctx) })
	claims("Latch: CountDown", func(ctx context.Context) (any, error) { return nil, c.Latch("latch").CountDown(ctx) })
	all.Wait()
	for kind, l := range renewed {
		<-l.Ended()
		var lost *lock.LostError
		if !errors.As(l.Err(), &lost) || lost.Cause != lock.CauseUnreachable {
			t.Errorf("%s: lost as %v", kind, l.Err())
		}
	}
	if n := s.sum(t, telemetry.MetricErrors, "error.type=readonly", "lockdog.operation=renew"); n == 0 {
		t.Error("no renewal was refused as READONLY")
	}
	if n := s.sum(t, telemetry.MetricRenewals, "lockdog.outcome=missing"); n != 0 {
		t.Errorf("%v renewals were told that the lock is gone", n)
	}
}

// A slot that goes to and fro costs nobody a lock, and no caller an error: neither who holds, nor who waits and takes turns.
func movesToAndFro(t *testing.T, c *redistest.Cluster) {
	const tag, lease, moves, processes, goroutines = "{busy}", 12 * time.Second, 6, 2, 8
	holder := newScope(t).open(t, openCluster(t, c), lock.WithLease(lease))
	_, err := holder.Semaphore(tag+"semaphore").TrySetPermits(t.Context(), 3)
	must(t, "TrySetPermits", err)
	held := append(many(t, holder, 30), // of other slots, in the same batches
		try(t, holder.Mutex(tag+"mutex")), try(t, holder.FairMutex(tag+"fair")), try(t, holder.RWMutex(tag+"read").RLocker()),
		try(t, holder.RWMutex(tag+"write")), try(t, holder.Semaphore(tag+"semaphore")), try(t, holder.Multi([]string{tag + "one", tag + "two"})))

	ctx, stop := context.WithCancel(t.Context())
	var all sync.WaitGroup
	var inside, turns atomic.Int32
	var token atomic.Int64 // the last
	for range processes {
		client := newScope(t).open(t, openCluster(t, c), lock.WithLease(lease))
		for i := range goroutines {
			name := tag + "contended"
			if i%2 == 1 {
				name = fmt.Sprint(tag, "own", i) // shared by a goroutine of each process
			}
			m := client.Mutex(name)
			all.Go(func() {
				for ctx.Err() == nil {
					l, err := m.Lock(t.Context())
					if err != nil {
						t.Errorf("Lock of %s: %v", name, err)
						return
					}
					if i%2 == 0 {
						if n := inside.Add(1); n != 1 {
							t.Errorf("%d hold %s", n, name)
						}
						if last := token.Swap(l.Token()); last >= l.Token() {
							t.Errorf("token %d after %d", l.Token(), last)
						}
						turns.Add(1)
						inside.Add(-1)
					}
					if err := l.Release(t.Context()); err != nil {
						t.Errorf("Release of %s: %v", name, err)
					}
				}
			})
		}
	}
	slot := c.Slot(t, tag)
	for range moves {
		before := turns.Load()
		c.MoveSlot(t, slot, otherNode(t, c, slot))
		eventually(t, patience, func() bool { return turns.Load() > before+processes*goroutines })
		mustAllLive(t, held)
	}
	stop()
	all.Wait()
	renewedAll(t, "the slot has moved six times", lease, held)
	freeAll(t, held)
	for _, name := range []string{"contended", "own1", "own3"} {
		if h, err := holder.Mutex(tag + name).Inspect(t.Context()); err != nil || h.Held {
			t.Errorf("%s, released by all: %+v, %v", name, h, err)
		}
	}
	t.Logf("%d turns", turns.Load())
}
