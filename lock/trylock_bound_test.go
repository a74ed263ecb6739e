package lock_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock"
)

// openSilenceable returns a client of a Redis that can be silenced.
func openSilenceable(t *testing.T, heeds bool) (*lock.Client, *redistest.Proxy) {
	t.Helper()
	srv := redistest.StartFake(t)
	p := redistest.NewProxy(t, srv.Addr())
	c := newScope(t).open(t, srv.Client(t, func(o *redis.Options) {
		o.Addr, o.ContextTimeoutEnabled, o.ReadTimeout = p.Addr(), heeds, 20*time.Second
	}))
	t.Cleanup(p.CutAll) // so that nothing waits for an answer when the client closes
	return c, p
}

// TryLock doesn't wait for a Redis that accepts connections and is silent: it ends after a third of the lease, 5 s at most, or a second after
// WithWait. So does Lock with WithWait.
func TestTryLock_SilentRedis(t *testing.T) {
	t.Parallel()
	const slack = 2 * time.Second // of a machine that is busy
	take := map[bool]func(lock.Locker, context.Context) (*lock.Lease, error){false: lock.Locker.TryLock, true: lock.Locker.Lock}
	wait := func(d time.Duration) []lock.LockOption { return []lock.LockOption{lock.WithWait(d)} }
	for _, test := range []struct {
		name  string
		waits bool // it is Lock
		opts  []lock.LockOption
		most  time.Duration
	}{
		{"default lease", false, nil, 5 * time.Second},
		{"lease of 3 s", false, []lock.LockOption{lock.WithLease(3 * time.Second)}, time.Second},
		{"WithWait", false, wait(200 * time.Millisecond), 1200 * time.Millisecond},
		{"Lock, WithWait", true, wait(1500 * time.Millisecond), 2500 * time.Millisecond},
		{"Lock, WithWait(0)", true, wait(0), time.Second},
	} {
		for _, heeds := range []bool{false, true} { // then calls are sent by a worker, or by their caller
			for _, first := range []bool{false, true} { // whether it is the client's first call
				t.Run(fmt.Sprintf("%s/ContextTimeoutEnabled %v/first %v", test.name, heeds, first), func(t *testing.T) {
					t.Parallel()
					synctest.Test(t, func(t *testing.T) {
						c, p := openSilenceable(t, heeds)
						if !first {
							for range 3 {
								free(t, try(t, c.Mutex("warm-up")))
							}
						}
						p.SetRule(redistest.When(redistest.Up, redistest.Drop))
						var all sync.WaitGroup
						for name, l := range map[string]lock.Locker{
							"Mutex": c.Mutex("job", test.opts...), "FairMutex": c.FairMutex("fair", test.opts...),
							"RWMutex": c.RWMutex("rw", test.opts...), "Semaphore": c.Semaphore("permits", test.opts...),
							"Multi": c.Multi([]string{"a", "b"}, test.opts...),
						} {
							all.Go(func() {
								start := time.Now()
								_, err := take[test.waits](l, context.Background())
								if took := time.Since(start); took > test.most+slack || !errors.Is(err, lock.ErrUnavailable) {
									t.Errorf("%s: it took %v, want %v at most: %v", name, took, test.most, err)
								}
							})
						}
						all.Wait()
					})
				})
			}
		}
	}
}

// So does a Multi that has taken some of its names, and waits for another one: it doesn't wait for their release.
func TestMultiLock_SilentRedis(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const wait = 10 * time.Second
		c, p := openSilenceable(t, true)
		held := try(t, c.Mutex("b", lock.WithLease(time.Hour)))
		began := time.Now()
		got := begin(t.Context(), c.Multi([]string{"a", "b"}, lock.WithWait(wait)))
		waiting(t, c, 1)
		p.SetRule(redistest.When(redistest.Up, redistest.Drop))
		mustMatch(t, (<-got).err, lock.ErrUnavailable)
		if took := time.Since(began); took > wait+time.Second {
			t.Errorf("it took %v, with WithWait(%v)", took, wait)
		}
		p.SetRule(nil)
		free(t, held)
		free(t, granted(t, begin(t.Context(), c.Mutex("a"))))
	})
}

// If a deadline passes while Redis is silent, the error of any call matches ErrUnavailable, also if calls share a
// batch. A service has to tell this from a lock that is held.
func TestDeadlineWhileRedisIsSilent(t *testing.T) {
	t.Parallel()
	for _, heeds := range []bool{false, true} {
		for _, limit := range []time.Duration{200 * time.Millisecond, time.Second} {
			t.Run(fmt.Sprintf("ContextTimeoutEnabled %v/%v", heeds, limit), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					c, p := openSilenceable(t, heeds)
					held, both := try(t, c.Mutex("held")), try(t, c.Multi([]string{"x", "y"}))
					p.SetRule(redistest.When(redistest.Up, redistest.Drop))
					var all sync.WaitGroup
					fails := func(what string, call func(ctx context.Context) error) {
						all.Go(func() {
							ctx, cancel := context.WithTimeout(t.Context(), limit)
							defer cancel()
							if err := call(ctx); !errors.Is(err, lock.ErrUnavailable) || !errors.Is(err, context.DeadlineExceeded) {
								t.Errorf("%s: %v", what, err)
							}
						})
					}
					for i := range 12 {
						m := c.Mutex(fmt.Sprint("job:", i))
						fails(fmt.Sprint("TryLock ", i), func(ctx context.Context) error { return errorOf(m.TryLock(ctx)) })
					}
					for name, l := range map[string]lock.Locker{
						"FairMutex": c.FairMutex("fair"), "RWMutex": c.RWMutex("rw"), "Multi": c.Multi([]string{"a", "b"}), "Semaphore": c.Semaphore("permits"),
					} {
						fails(name, func(ctx context.Context) error { return errorOf(l.Lock(ctx)) })
					}
					fails("Inspect", func(ctx context.Context) error { return errorOf(c.Mutex("held").Inspect(ctx)) })
					fails("Release", held.Release)
					fails("Release of a Multi", both.Release)
					all.Wait()
				})
			})
		}
	}
}
