package lock_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/lockdog/lockdog/lock"
)

var waitBehaviours = []behaviour{
	{name: "Lock/woken by a release of the same client", test: wokenBySameClient},
	{name: "Lock/woken by a release of another client", test: wokenByOtherClient},
	{name: "Lock/takes over what has expired", test: takesOverWhatExpired},
	{name: "Lock/first come, first served", test: firstComeFirstServed},
	{name: "Lock/hands over", test: handsOver},
	{name: "Lock/starves no other client", test: starvesNoOtherClient},
	{name: "Lock/excludes", test: excludes},
	{name: "WithWait/over", test: waitOver},
	{name: "WithWait/zero", test: waitZero},
	{name: "WithWait/does not bound the lease", test: waitDoesNotBoundTheLease, timed: true},
	{name: "waiting/ctx canceled", test: canceledWhileWaiting},
	{name: "waiting/ctx deadline", test: deadlineWhileWaiting},
	{name: "waiting/who leaves is passed over", test: leaverIsPassedOver},
}

// far is a lease so long that nobody wakes at its end.
const far = time.Hour

func wokenBy(t *testing.T, w *world, holder, waiter *lock.Client) {
	t.Helper()
	l := try(t, w.rival(holder, "a", lock.WithLease(far)))
	next := begin(context.Background(), w.lock(waiter, "a", lock.WithLease(far)))
	waiting(t, waiter, 1)
	free(t, l)
	got := granted(t, next)
	if got.Token() <= l.Token() || got.Owner() == l.Owner() {
		t.Errorf("token %d after %d, owner %q after %q", got.Token(), l.Token(), got.Owner(), l.Owner())
	}
	free(t, got)
}

func wokenBySameClient(t *testing.T, w *world) {
	c := w.client()
	wokenBy(t, w, c, c)
}

func wokenByOtherClient(t *testing.T, w *world) { wokenBy(t, w, w.client(), w.client()) }

func takesOverWhatExpired(t *testing.T, w *world) {
	const lease = 1500 * time.Millisecond
	start := time.Now()
	w.hold("a", "vanished:1", "1", lease)
	l := granted(t, begin(context.Background(), w.lock(w.client(), "a")))
	if waited := time.Since(start); waited < lease-lease/10 { // by the server's clock
		t.Errorf("taken after %v, held for %v", waited, lease)
	}
	free(t, l)
}

func firstComeFirstServed(t *testing.T, w *world) {
	c := w.client()
	first := try(t, w.lock(c, "a"))
	var mu sync.Mutex
	var order []int
	var all sync.WaitGroup
	const n = 8
	for i := range n {
		all.Go(func() {
			_ = w.lock(c, "a").Do(context.Background(), func(context.Context, *lock.Lease) error {
				mu.Lock()
				defer mu.Unlock()
				order = append(order, i)
				return nil
			})
		})
		waiting(t, c, i+1)
	}
	free(t, first)
	all.Wait()
	if len(order) != n {
		t.Fatalf("%d of %d were served", len(order), n)
	}
	for i, got := range order {
		if got != i {
			t.Fatalf("served in the order %v", order)
		}
	}
}

func handsOver(t *testing.T, w *world) {
	c := w.client()
	l := try(t, w.rival(c, "a"))
	next := begin(context.Background(), w.lock(c, "a"))
	waiting(t, c, 1)
	free(t, l)
	got := granted(t, next)
	// Whoever looks sees the new owner with its own token and a whole lease.
	hash := w.raw.hgetall(w.key("a"))
	if hash[got.Owner()] != "1" || len(hash) != 2 {
		t.Errorf("in Redis: %v; owner %q", hash, got.Owner())
	}
	h, err := w.lock(c, "a").Inspect(t.Context())
	if err != nil || h.Token != got.Token() || got.Token() <= l.Token() {
		t.Errorf("%+v, %v; token %d after %d", h, err, got.Token(), l.Token())
	}
	renewedPast(t, got, got.Deadline()) // like any other
	free(t, got)
}

func starvesNoOtherClient(t *testing.T, w *world) {
	greedy, modest := w.client(), w.client()
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	m := w.lock(greedy, "a", lock.WithLifetime(context.Background()))
	for range 4 {
		all.Go(func() {
			for ctx.Err() == nil {
				_ = m.Do(ctx, func(context.Context, *lock.Lease) error {
					<-time.After(time.Millisecond)
					return nil
				})
			}
		})
	}
	for range 3 {
		free(t, granted(t, begin(context.Background(), w.lock(modest, "a"))))
	}
	cancel()
	all.Wait()
}

func excludes(t *testing.T, w *world) {
	clients := []*lock.Client{w.client(), w.client()}
	var inside, served int
	var last int64
	var all sync.WaitGroup
	var mu sync.Mutex // for the race detector's peace only: inside must be 0 whenever it is had
	for i := range 12 {
		all.Go(func() {
			for range 5 {
				l, err := w.lock(clients[i%2], "a").Lock(context.Background())
				if err != nil {
					t.Errorf("Lock: %v", err)
					return
				}
				mu.Lock()
				inside++
				if inside != 1 || l.Token() <= last {
					t.Errorf("%d inside, token %d after %d", inside, l.Token(), last)
				}
				last = l.Token()
				mu.Unlock()
				<-time.After(time.Millisecond)
				mu.Lock()
				inside--
				served++
				mu.Unlock()
				if err := l.Release(context.Background()); err != nil {
					t.Errorf("Release: %v", err)
				}
			}
		})
	}
	all.Wait()
	if served != 60 {
		t.Errorf("served %d of 60", served)
	}
}

func waitOver(t *testing.T, w *world) {
	l := try(t, w.rival(w.client(), "a", lock.WithLease(far)))
	c := w.client()
	start := time.Now()
	err := outwaited(300*time.Millisecond, func(d time.Duration) error { return second(w.lock(c, "a", lock.WithWait(d)).Lock(t.Context())) })
	var held *lock.HeldError
	if !errors.As(err, &held) || !errors.Is(err, lock.ErrHeld) || held.Name != "a" || !w.tells(held.Owner, l) {
		t.Errorf("%v", err)
	}
	if waited := time.Since(start); waited < 300*time.Millisecond {
		t.Errorf("waited %v only", waited)
	}
	waiting(t, c, 0)
	free(t, l)
	eventually(t, patience, func() bool { return w.left("a") == -2 }) // as in canceledWhileWaiting
	free(t, w.takeFreed(w.lock(w.client(), "a").TryLock))             // it has left nothing
}

func waitZero(t *testing.T, w *world) {
	l := try(t, w.rival(w.client(), "a", lock.WithLease(far)))
	m := w.lock(w.client(), "a", lock.WithWait(0))
	_, err := m.Lock(t.Context())
	mustMatch(t, err, lock.ErrHeld)
	free(t, l)
	free(t, w.takeFreed(m.Lock))
}

func waitDoesNotBoundTheLease(t *testing.T, w *world) {
	l := granted(t, begin(context.Background(), w.lock(w.client(), "a", lock.WithWait(100*time.Millisecond))))
	always(t, 3*ttl/2, func() bool { return l.Context().Err() == nil })
	free(t, l)
}

func canceledWhileWaiting(t *testing.T, w *world) {
	l := try(t, w.rival(w.client(), "a", lock.WithLease(far)))
	c := w.client()
	why := errors.New("the user went away")
	ctx, cancel := context.WithCancelCause(t.Context())
	next := begin(ctx, w.lock(c, "a"))
	waiting(t, c, 1)
	cancel(why)
	got := await(t, "Lock", next)
	mustMatch(t, got.err, lock.ErrHeld, why)
	var held *lock.HeldError
	if !errors.As(got.err, &held) || !w.tells(held.Owner, l) {
		t.Errorf("%v", got.err)
	}
	waiting(t, c, 0)
	free(t, l)
	eventually(t, patience, func() bool { return w.left("a") == -2 }) // who left gives back what it is granted before it is out of the wait set
}

func deadlineWhileWaiting(t *testing.T, w *world) {
	l := try(t, w.rival(w.client(), "a", lock.WithLease(far)))
	m := w.lock(w.client(), "a")
	err := outwaited(300*time.Millisecond, func(d time.Duration) error {
		ctx, cancel := context.WithTimeout(t.Context(), d)
		defer cancel()
		return second(m.Lock(ctx))
	})
	mustMatch(t, err, lock.ErrHeld, context.DeadlineExceeded)
	free(t, l)
}

func leaverIsPassedOver(t *testing.T, w *world) {
	c := w.client()
	l := try(t, w.rival(c, "a", lock.WithLease(far)))
	ctx, cancel := context.WithCancel(context.Background())
	leaver := begin(ctx, w.lock(c, "a"))
	waiting(t, c, 1)
	next := begin(context.Background(), w.lock(c, "a"))
	waiting(t, c, 2)
	cancel()
	mustMatch(t, await(t, "Lock", leaver).err, context.Canceled)
	free(t, l)
	free(t, granted(t, next))
}
