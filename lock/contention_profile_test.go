package lock_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/lock/locktest"
)

// profiled is a client over a fake server, of which every acquire is recorded.
func profiled(t *testing.T) *lock.Client { return profiledServer(t).Client() }

func profiledServer(t *testing.T) *locktest.Server {
	return locktest.New(t, lock.WithContentionProfile(1), lock.WithReentrancy(), lock.WithLogger(slog.New(slog.DiscardHandler)))
}

// stackOf returns what was recorded of the acquires that a function of this package made itself.
func stackOf(t *testing.T, c *lock.Client, function string) (found lock.ContentionStack) {
	t.Helper()
	n := 0
	for _, s := range c.Contention().Stacks {
		if len(s.Frames) > 0 && strings.HasSuffix(s.Frames[0].Function, "lock_test."+function) {
			found = s
			n++
		}
	}
	if n > 1 {
		t.Fatalf("%d stacks of %s", n, function)
	}
	return found
}

// sum adds up what was recorded of all acquires.
func sum(c *lock.Client) (all lock.ContentionStack) {
	for _, s := range c.Contention().Stacks {
		all.Waiting += s.Waiting
		all.Waits += s.Waits
		all.Wait += s.Wait
		all.Held += s.Held
	}
	return all
}

func nameOf(c *lock.Client, name string) (found lock.ContentionName) {
	for _, n := range c.Contention().Names {
		if n.Name == name {
			found = n
		}
	}
	return found
}

// holder takes a lock in one of the ways there are, and keeps it until told.
func holder(ctx context.Context, l lock.Locker, by string, until <-chan struct{}) error {
	switch by {
	case "Do":
		return l.Do(ctx, func(context.Context, *lock.Lease) error { <-until; return nil })
	case "function Do":
		_, err := lock.Do(ctx, l, func(context.Context, *lock.Lease) (int, error) { <-until; return 0, nil })
		return err
	}
	lease, err := l.Lock(ctx)
	if err != nil {
		return err
	}
	<-until
	return lease.Release(ctx)
}

// waiterFor waits for a lock, and gives it back at once.
func waiterFor(ctx context.Context, l lock.Locker) error {
	lease, err := l.Lock(ctx)
	if err != nil {
		return err
	}
	return lease.Release(ctx)
}

// contended takes held by the method by. A second later it waits for awaited and calls meanwhile. After wait it
// releases held.
func contended(t *testing.T, held, awaited lock.Locker, by string, wait time.Duration, meanwhile func()) {
	t.Helper()
	until, done := make(chan struct{}), make(chan error)
	go func() { done <- holder(t.Context(), held, by, until) }()
	synctest.Wait()
	time.Sleep(time.Second)
	go func() { done <- waiterFor(t.Context(), awaited) }()
	synctest.Wait()
	meanwhile()
	time.Sleep(wait)
	close(until)
	for range 2 {
		must(t, "hold, or wait", <-done)
	}
	synctest.Wait()
}

// near reports whether d is about 2 s.
func near(d time.Duration) bool { return (d - 2*time.Second).Abs() < 100*time.Millisecond }

// Whatever the kind and the method, the profile records an acquire once, under the program's line that made the call.
func TestContentionProfileNamesTheCaller(t *testing.T) {
	t.Parallel()
	kinds := map[string]func(t *testing.T, c *lock.Client) lock.Locker{
		"mutex": func(_ *testing.T, c *lock.Client) lock.Locker { return c.Mutex("a") },
		"fair":  func(_ *testing.T, c *lock.Client) lock.Locker { return c.FairMutex("a") },
		"multi": func(_ *testing.T, c *lock.Client) lock.Locker { return c.Multi([]string{"a", "b", "c"}) },
		"write": func(_ *testing.T, c *lock.Client) lock.Locker { return c.RWMutex("a") },
		"semaphore": func(t *testing.T, c *lock.Client) lock.Locker {
			must(t, "EnsurePermits", c.Semaphore("a").EnsurePermits(t.Context(), 1))
			return c.Semaphore("a")
		},
	}
	for kind, of := range kinds {
		for _, by := range []string{"Lock", "Do", "function Do"} {
			t.Run(kind+" "+by, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					c := profiled(t)
					l := of(t, c)
					contended(t, l, l, by, 2*time.Second, func() {
						h, w := stackOf(t, c, "holder"), stackOf(t, c, "waiterFor")
						if h.Held != 1 || h.Holds != 1 || w.Waiting != 1 || w.Held != 0 || w.Waits != 1 {
							t.Errorf("while it lasts: %+v, %+v", h, w)
						}
					})
					h, w := stackOf(t, c, "holder"), stackOf(t, c, "waiterFor")
					// A Multi's names are released one by one: a waiter may wait for the next, too. Since when, the release doesn't know: the whole hold counts.
					again := kind == "multi" && w.Waits <= 3
					held := near(h.Hold) || again && near(h.Hold-time.Second)
					if h.Kind != kind || h.Group != "default" || h.Waits != 0 || h.Holds != 1 || !held || h.Held != 0 {
						t.Errorf("the holder: %+v", h)
					}
					if w.Waits != 1 && !again || !near(w.Wait) || w.Waiting != 0 || w.Held != 0 || w.Holds != 0 {
						t.Errorf("the waiter: %+v", w)
					}
					if got := len(c.Contention().Stacks); got != 2 {
						t.Errorf("%d stacks; want 2: %+v", got, c.Contention().Stacks)
					}
					n := nameOf(c, "a")
					if !near(n.Waited) || n.Grants != 2 || (n.Utilization*n.Window.Seconds()-3) > 0.2 || len(n.HeldBy) == 0 || !strings.HasSuffix(n.HeldBy[0].Function, ".holder") ||
						!strings.HasSuffix(n.AwaitedBy[0].Function, ".waiterFor") {
						t.Errorf("the name: %+v", n)
					}
					if b := nameOf(c, "b"); kind == "multi" && (b.Grants != 2 || b.Waited != 0) {
						t.Errorf("the Multi's second name, for which nobody waited: %+v", b)
					}
				})
			})
		}
	}
}

// The number of waits that go on now goes down however a wait fails.
func TestContentionProfileForgetsWaitsThatFail(t *testing.T) {
	t.Parallel()
	ends := map[string]func(ctx context.Context, c *lock.Client, cancel func()) error{
		"WithWait is over":  func(context.Context, *lock.Client, func()) error { time.Sleep(time.Minute); return nil },
		"its ctx ends":      func(_ context.Context, _ *lock.Client, cancel func()) error { cancel(); return nil },
		"the client closes": func(ctx context.Context, c *lock.Client, _ func()) error { return c.Close(ctx) },
	}
	limit := lock.WithWait(30 * time.Second)
	waits := map[string]func(ctx context.Context, c *lock.Client) error{
		"mutex": func(ctx context.Context, c *lock.Client) error { return waiterFor(ctx, c.Mutex("a", limit)) },
		"fair":  func(ctx context.Context, c *lock.Client) error { return waiterFor(ctx, c.FairMutex("a", limit)) },
		"multi": func(ctx context.Context, c *lock.Client) error {
			return waiterFor(ctx, c.Multi([]string{"0", "a"}, limit))
		},
		"latch": func(ctx context.Context, c *lock.Client) error { return c.Latch("latch", limit).Wait(ctx) },
	}
	for how, end := range ends {
		for kind, wait := range waits {
			t.Run(how+" "+kind, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					c := profiled(t)
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					try(t, c.Mutex("a"))
					must(t, "TrySetCount", second(c.Latch("latch").TrySetCount(t.Context(), 1)))
					done := make(chan error)
					for range 3 {
						go func() { done <- wait(ctx, c) }()
					}
					synctest.Wait()
					if n := sum(c).Waiting; n < 1 || n > 3 {
						t.Errorf("%d wait", n)
					}
					soon, stop := context.WithTimeout(t.Context(), time.Second)
					defer stop()
					if err := end(soon, c, cancel); (err != nil) != (how == "the client closes") {
						t.Errorf("%v", err)
					}
					for range 3 {
						if err := <-done; err == nil {
							t.Error("no error")
						}
					}
					synctest.Wait()
					if all := sum(c); all.Waiting != 0 || all.Waits < 3 || all.Held > 1 || all.Wait <= 0 && how == "WithWait is over" {
						t.Errorf("afterwards: %+v", all)
					}
				})
			})
		}
	}
}

// A hold ends when the lease is lost, and one that was joined is one hold.
func TestContentionProfileOfLeasesThatEndOtherwise(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		srv := profiledServer(t)
		c := srv.Client()
		held := func(when string, want int64) {
			t.Helper()
			if got := sum(c).Held; got != want {
				t.Errorf("%s: %d held, want %d", when, got, want)
			}
		}
		l := try(t, c.Mutex("a"))
		inner := enter(t, l.Context(), c.Mutex("a"))
		held("one joined", 1)
		free(t, l)
		held("the inner one is left", 1)
		srv.Lose("a", lock.CauseMissing)
		<-inner.Ended()
		synctest.Wait()
		held("lost", 0)
		all := try(t, c.Multi([]string{"x", "y"}))
		held("a Multi is one", 1)
		srv.Lose("y", lock.CauseMissing)
		<-all.Ended()
		synctest.Wait()
		held("a member is lost", 0)
	})
}

// The nodes of a Quorum are one lock.
func TestContentionProfileOfAQuorum(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		clients := []*lock.Client{profiled(t), profiled(t), profiled(t)}
		q, err := lock.NewQuorum(clients...)
		must(t, "NewQuorum", err)
		contended(t, q.Mutex("a"), q.Mutex("a"), "Lock", 2*time.Second, func() {})
		h, w := stackOf(t, clients[0], "holder"), stackOf(t, clients[0], "waiterFor")
		if h.Kind != "quorum" || h.Holds != 1 || h.Hold < 1900*time.Millisecond || h.Hold > 3*time.Second || h.Held != 0 || w.Waits != 1 || w.Wait < 1900*time.Millisecond || w.Waiting != 0 || w.Held != 0 {
			t.Errorf("%+v, %+v", h, w)
		}
		for _, c := range clients[1:] {
			if got := c.Contention().Stacks; len(got) != 0 {
				t.Errorf("another node's client has it, too: %+v", got)
			}
		}
		if n := nameOf(clients[0], "a"); n.Grants != 2 {
			t.Errorf("%+v", n)
		}
	})
}

// A hold for which only another process waits counts as one that made others wait: the release finds out.
func TestContentionProfileKnowsOfOtherProcesses(t *testing.T) {
	t.Parallel()
	for _, wait := range []time.Duration{300 * time.Millisecond, 3 * time.Second} { // the latter is told, not granted
		synctest.Test(t, func(t *testing.T) {
			var h lock.ContentionStack
			for range 5 { // one release of many wakes all, and doesn't know whom
				srv := redistest.StartFake(t)
				here, there := open(t, srv.Client(t), lock.WithContentionProfile(1)), open(t, srv.Client(t), lock.WithContentionProfile(1))
				contended(t, here.Mutex("job"), there.Mutex("job"), "Lock", wait, func() {})
				if w := stackOf(t, there, "waiterFor"); w.Waits != 1 || w.Wait < wait || w.Holds != 0 {
					t.Fatalf("the waiter: %+v", w)
				}
				if h = stackOf(t, here, "holder"); h.Holds == 1 && h.Hold >= wait {
					return
				}
			}
			t.Errorf("no release has found the waiter: %+v", h)
		})
	}
}

func TestContentionProfileOptions(t *testing.T) {
	t.Parallel()
	off := locktest.New(t, lock.WithContentionProfile(0)).Client()
	free(t, try(t, off.Mutex("a")))
	if got := off.Contention(); got.Rate != 0 || len(got.Stacks)+len(got.Names) != 0 || got.Time.IsZero() {
		t.Errorf("off: %+v", got)
	}
	if got := locktest.New(t).Client().Contention(); got.Rate != lock.DefaultContentionRate || got.Since.IsZero() {
		t.Errorf("by default: %+v", got)
	}
	var none *lock.Client
	if got := none.Contention(); got.Rate != 0 {
		t.Errorf("of a nil client: %+v", got)
	}
}
