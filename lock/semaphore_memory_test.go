package lock_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/lock/internal/backend"
	"github.com/lockdog/lockdog/lock/internal/memory"
)

// Semaphores and latches over memory, where time is exact.

// bubbled runs a test in a bubble, with two clients of one server there.
func bubbled(t *testing.T, test func(t *testing.T, s *memory.Server, a, b *lock.Client)) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := memory.New()
		var clients []*lock.Client
		for range 2 {
			c, err := lock.New(memoryProvider{backend: s.Backend()}, lock.WithLogger(silent))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { closeSoon(c) })
			clients = append(clients, c)
		}
		test(t, s, clients[0], clients[1])
	})
}

// A waiter that hears of nothing asks again every ten seconds, and no oftener.
func TestSemaphoreNet(t *testing.T) {
	bubbled(t, func(t *testing.T, s *memory.Server, a, _ *lock.Client) {
		start := time.Now()
		got, opened := acquiring(t.Context(), a.UnleasedSemaphore("pool"), 1), awaiting(t.Context(), closed(t, a, "gate", 1))
		synctest.Wait()
		s.SetString("pool", "1") // nobody says so
		s.Del("gate")
		must(t, "Acquire", <-got)
		must(t, "Wait", <-opened)
		if took := time.Since(start); took < 9*time.Second || took > 11*time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

// A message wakes at once, and a receipt is gone five minutes later.
func TestSemaphoreWakesAtOnce(t *testing.T) {
	bubbled(t, func(t *testing.T, s *memory.Server, a, b *lock.Client) {
		got, opened := acquiring(t.Context(), a.UnleasedSemaphore("pool"), 2), awaiting(t.Context(), closed(t, a, "gate", 1))
		leased := begin(t.Context(), a.Semaphore("leases"))
		synctest.Wait()
		start := time.Now()
		must(t, "Release", b.UnleasedSemaphore("pool").Release(t.Context(), 2))
		must(t, "Acquire", <-got)
		must(t, "CountDown", b.Latch("gate").CountDown(t.Context()))
		must(t, "Wait", <-opened)
		must(t, "AddPermits", b.Semaphore("leases").AddPermits(t.Context(), 1))
		free(t, granted(t, leased))
		if took := time.Since(start); took > 10*time.Millisecond { // the memory's clock ticks with every call
			t.Errorf("it took %v", took)
		}
		if n := len(s.Keys()); n < 5 {
			t.Errorf("keys: %q", s.Keys())
		}
		<-time.After(5*time.Minute + time.Second)
		for _, key := range s.Keys() {
			switch key {
			case "pool", "leases":
			default:
				if len(key) < 14 || key[:14] != "lockdog:fence:" {
					t.Errorf("%q is left", key)
				}
			}
		}
	})
}

// The permit of a holder that died is had when its lease ends. That of one that lives is kept for as long as it likes.
func TestSemaphoreForHours(t *testing.T) {
	bubbled(t, func(t *testing.T, s *memory.Server, a, b *lock.Client) {
		p := permits(t, a, "pool", 1)
		l := try(t, p)
		next := begin(t.Context(), b.Semaphore("pool"))
		<-time.After(3 * time.Hour)
		must(t, "the lease", l.Err())
		mustBe(t, "grants", len(next), 0)
		free(t, l)
		free(t, granted(t, next))

		must(t, "AddPermits", p.AddPermits(t.Context(), -1))
		dead := backend.NewScript("dead", "return redis.call('zadd', KEYS[1], redis.call('time')[1] * 1000 + 25000, 'of the dead one!')")
		_, err := s.Backend().Eval(t.Context(), backend.Call{Script: dead, SendSource: true, Keys: []string{"{pool}:timeout"}})
		must(t, "ZADD", err)
		start := time.Now()
		got := <-begin(t.Context(), b.Semaphore("pool"))
		must(t, "Lock", got.err)
		if took := time.Since(start); took < 24*time.Second || took > 26*time.Second {
			t.Errorf("it took %v", took)
		}
		free(t, got.Lease)
	})
}

// A semaphore that Redis has lost while it is waited for doesn't keep the waiter waiting without a word, and EnsurePermits lets it go on.
func TestSemaphoreLostWhileAwaited(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := openMemory(t, kindOfLock{})
		g := newTangle(t, w, 2)
		s := [2]*lock.Semaphore{g.jobs[0].Semaphore("pool"), g.jobs[1].Semaphore("pool")}
		must(t, "EnsurePermits", s[0].EnsurePermits(t.Context(), 1))
		g.holds(0, s[0])
		g.waits(1, s[1])
		time.Sleep(time.Minute)
		warnings := func() int { return strings.Count(g.jobs[1].said(), "EnsurePermits gives it some") }
		if n := warnings(); n > 0 {
			t.Errorf("%d warnings while a permit is held", n)
		}
		w.raw.flush()
		time.Sleep(time.Minute)
		if n := warnings(); n != 1 || !strings.Contains(g.jobs[1].said(), "pool") {
			t.Errorf("%d warnings:\n%s", n, g.jobs[1].said())
		}
		must(t, "EnsurePermits", s[1].EnsurePermits(t.Context(), 1))
		free(t, granted(t, g.jobs[1].got))
	})
}
