package lock_test

import (
	"context"
	"fmt"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/telemetry"
)

// Promise 8: no surprise cost. These tests count goroutines, so they don't run beside others.

var inBubble = regexp.MustCompile(`synctest bubble \d+\]`)

// goroutines counts those of the caller's bubble that run, or were started by, code of this library. What tests before have left isn't in it.
func goroutines() int {
	buf := make([]byte, 1<<20)
	for {
		n := runtime.Stack(buf, true)
		if n < len(buf) {
			buf = buf[:n]
			break
		}
		buf = make([]byte, 2*len(buf))
	}
	count, bubble := 0, inBubble.FindString(string(buf)) // the caller's stack is the first
	for stack := range strings.SplitSeq(string(buf), "\n\n") {
		if inBubble.FindString(stack) == bubble && (strings.Contains(stack, "/lockdog/lock.") ||
			strings.Contains(stack, "/lockdog/watchdog.") || strings.Contains(stack, "/lockdog/telemetry.")) {
			count++
		}
	}
	return count
}

// A client that takes no lock costs nothing: no goroutine, no connection, no command.
func TestUnusedClientOpensNothing(t *testing.T) {
	srv := redistest.Start(t)
	p := redistest.NewProxy(t, srv.Addr())
	rdb := srv.Client(t, func(o *redis.Options) {
		o.Addr = p.Addr()
		o.MinIdleConns = 0
		// Where these are required, a second client may not share the first one's handlers.
		o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeEnabled}
	})
	before := runtime.NumGoroutine()
	s := newScope(t)
	c := s.open(t, rdb)
	m := c.Mutex("job", lock.WithWait(time.Second))
	_ = c.Leases()
	_ = c.Recent()
	s.series(t, telemetry.MetricHeld)
	if _, err := c.Mutex("").TryLock(t.Context()); err == nil {
		t.Error("the empty name is a name")
	}
	eventually(t, patience, func() bool { return runtime.NumGoroutine() <= before }) // others' may come for a moment
	if n := p.Conns(); n != 0 {
		t.Errorf("%d connections", n)
	}
	if err := c.Close(t.Context()); err != nil {
		t.Errorf("Close: %v", err)
	}
	_, err := m.Lock(t.Context())
	mustMatch(t, err, lock.ErrClosed)
	if n := p.Conns(); n != 0 {
		t.Errorf("%d connections after Close", n)
	}
}

// Hundreds of locks cost the goroutines and the connections of one; and hundreds of waiters those of one.
func TestGoroutinesAreConstant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const many, lease = 200, 3 * time.Second
		before := goroutines()
		srv := redistest.StartFake(t)
		p := redistest.NewProxy(t, srv.Addr())
		rdb := srv.Client(t, func(o *redis.Options) { o.Addr = p.Addr() })
		s := newScope(t)
		c := s.open(t, rdb, lock.WithLease(lease))
		renewals := func() float64 { return s.sum(t, telemetry.MetricRenewals, "lockdog.outcome=renewed") }
		// counted lets every lock be renewed once more, and counts while nothing else is going on.
		counted := func(locks int) (gs, conns int) {
			had := renewals()
			time.Sleep(lease / 2)
			synctest.Wait()
			if n := renewals() - had; n < float64(locks) {
				t.Errorf("%v renewals of %d locks", n, locks)
			}
			return goroutines(), p.Conns()
		}

		first := try(t, c.Mutex("job:0"))
		gsOne, connsOne := counted(1)
		leases := []*lock.Lease{first}
		for i := 1; i < many; i++ {
			leases = append(leases, try(t, c.Mutex(fmt.Sprintf("job:%d", i))))
		}
		gs, conns := counted(many)
		t.Logf("1 lock: %d goroutines, %d connections; %d locks: %d and %d", gsOne, connsOne, many, gs, conns)
		// The watchdog may have as many calls in flight as it has batches (4).
		if gs > gsOne+1 || conns > connsOne+3 {
			t.Errorf("%d locks cost %d goroutines and %d connections, one costs %d and %d", many, gs, conns, gsOne, connsOne)
		}
		if n := s.sum(t, telemetry.MetricLosses); n > 0 {
			t.Errorf("%v leases lost", n)
		}

		// However many callers ask at a time, at most so many workers send their calls to Redis.
		const workers = 64

		// Waiters stand in their callers' goroutines; one connection hears of all releases.
		ctx, cancel := context.WithCancel(t.Context())
		callers := make([]<-chan taken, 0, len(leases))
		for i := range leases {
			callers = append(callers, begin(ctx, c.Mutex(fmt.Sprintf("job:%d", i))))
		}
		waiting(t, c, len(leases))
		gs, conns = counted(many)
		t.Logf("%d waiters: %d goroutines, %d connections", many, gs-len(callers), conns)
		if gs-len(callers) > gsOne+1+workers || conns > connsOne+3+3 { // the pool of the program has four
			t.Errorf("%d waiters cost %d goroutines and %d connections, none cost %d and %d", many, gs-len(callers), conns, gsOne, connsOne)
		}
		cancel()
		for _, ch := range callers {
			await(t, "Lock", ch)
		}
		for _, l := range leases {
			free(t, l)
		}
		if err := c.Close(t.Context()); err != nil {
			t.Errorf("Close: %v", err)
		}
		eventually(t, patience, func() bool { return goroutines() <= before })
	})
}

// Re-entry is opt-in, and costs no round trip.
func TestReentryTakesNoRoundTrip(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		srv := redistest.StartFake(t)
		c := newScope(t).open(t, srv.Client(t))
		m := c.Mutex("job", lock.WithReentrancy())
		outer := try(t, m)
		before := srv.Commands(t)
		_, err := c.Mutex("job").Lock(outer.Context())
		mustMatch(t, err, lock.ErrDeadlock)
		inner := enter(t, outer.Context(), m)
		again, err := m.TryLock(outer.Context())
		must(t, "TryLock", err)
		free(t, inner)
		free(t, outer)
		if after := srv.Commands(t).Since(before); after["evalsha"] != 0 || after["eval"] != 0 {
			t.Errorf("re-entry and releases of all but the last lease sent %v", after)
		}
		free(t, again)
	})
}
