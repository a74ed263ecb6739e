package lock_test

import (
	"context"
	"errors"
	"fmt"
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
func profiled(t *testing.T) *lock.Client {
	return locktest.New(t, lock.WithContentionProfile(1), lock.WithLogger(slog.New(slog.DiscardHandler))).Client()
}

// stackOf returns what was recorded of the acquires that a function of this package made itself.
func stackOf(t *testing.T, c *lock.Client, function string) lock.ContentionStack {
	t.Helper()
	var found []lock.ContentionStack
	for _, s := range c.Contention().Stacks {
		if len(s.Frames) > 0 && strings.HasSuffix(s.Frames[0].Function, "lock_test."+function) {
			found = append(found, s)
		}
	}
	switch len(found) {
	case 0:
		return lock.ContentionStack{}
	case 1:
		return found[0]
	}
	t.Fatalf("%d stacks of %s: %+v", len(found), function, found)
	return lock.ContentionStack{}
}

func nameOf(c *lock.Client, name string) lock.ContentionName {
	for _, n := range c.Contention().Names {
		if n.Name == name {
			return n
		}
	}
	return lock.ContentionName{}
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

// Of all kinds, by whatever method, what is recorded is the line of the program, once.
func TestContentionProfileNamesTheCaller(t *testing.T) {
	t.Parallel()
	kinds := map[string]func(t *testing.T, c *lock.Client) lock.Locker{
		"mutex": func(_ *testing.T, c *lock.Client) lock.Locker { return c.Mutex("a") },
		"fair":  func(_ *testing.T, c *lock.Client) lock.Locker { return c.FairMutex("a") },
		"multi": func(_ *testing.T, c *lock.Client) lock.Locker { return c.Multi([]string{"a", "b", "c"}) },
		"write": func(_ *testing.T, c *lock.Client) lock.Locker { return c.RWMutex("a") },
		"semaphore": func(t *testing.T, c *lock.Client) lock.Locker {
			s := c.Semaphore("a")
			if err := s.EnsurePermits(t.Context(), 1); err != nil {
				t.Fatal(err)
			}
			return s
		},
	}
	for kind, of := range kinds {
		for _, by := range []string{"Lock", "Do", "function Do"} {
			t.Run(kind+" "+by, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					c := profiled(t)
					l := of(t, c)
					until, done := make(chan struct{}), make(chan error)
					go func() { done <- holder(t.Context(), l, by, until) }()
					synctest.Wait()
					time.Sleep(time.Second) // nobody waits
					go func() { done <- waiterFor(t.Context(), l) }()
					synctest.Wait()
					if h, w := stackOf(t, c, "holder"), stackOf(t, c, "waiterFor"); h.Held != 1 || h.Holds != 1 || w.Waiting != 1 || w.Held != 0 || w.Waits != 1 {
						t.Errorf("while it lasts: %+v, %+v", h, w)
					}
					time.Sleep(2 * time.Second)
					close(until)
					for range 2 {
						if err := <-done; err != nil {
							t.Fatal(err)
						}
					}
					h, w := stackOf(t, c, "holder"), stackOf(t, c, "waiterFor")
					near := func(d time.Duration) bool { return (d - 2*time.Second).Abs() < 100*time.Millisecond }
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

// What waits now is counted down however the wait ends.
func TestContentionProfileForgetsWaitsThatFail(t *testing.T) {
	t.Parallel()
	errEnough := errors.New("enough")
	ends := map[string]func(t *testing.T, c *lock.Client, cancel func(error)){
		"WithWait is over": func(*testing.T, *lock.Client, func(error)) { time.Sleep(time.Minute) },
		"its ctx ends":     func(_ *testing.T, _ *lock.Client, cancel func(error)) { cancel(errEnough) },
		"the client closes": func(t *testing.T, c *lock.Client, _ func(error)) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if err := c.Close(ctx); err == nil {
				t.Error("Close, with a lock that is held: no error")
			}
		},
	}
	for how, end := range ends {
		for _, kind := range []string{"mutex", "fair", "multi", "latch"} {
			t.Run(how+" "+kind, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					c := profiled(t)
					ctx, cancel := context.WithCancelCause(t.Context())
					defer cancel(nil)
					opts := []lock.LockOption{lock.WithWait(30 * time.Second)}
					wait := map[string]func() error{
						"mutex": func() error { return waiterFor(ctx, c.Mutex("a", opts...)) },
						"fair":  func() error { return waiterFor(ctx, c.FairMutex("a", opts...)) },
						"multi": func() error { return waiterFor(ctx, c.Multi([]string{"0", "a"}, opts...)) },
						"latch": func() error { return c.Latch("latch", opts...).Wait(ctx) },
					}[kind]
					if _, err := c.Mutex("a").Lock(t.Context()); err != nil {
						t.Fatal(err)
					}
					if _, err := c.Latch("latch").TrySetCount(t.Context(), 1); err != nil {
						t.Fatal(err)
					}
					done := make(chan error)
					for range 3 {
						go func() { done <- wait() }()
					}
					synctest.Wait()
					waiting := func() (n int64) {
						for _, s := range c.Contention().Stacks {
							n += s.Waiting
						}
						return n
					}
					if n := waiting(); n < 1 || n > 3 {
						t.Errorf("%d wait", n)
					}
					end(t, c, cancel)
					for range 3 {
						if err := <-done; err == nil {
							t.Error("no error")
						}
					}
					synctest.Wait()
					var waits int64
					for _, s := range c.Contention().Stacks {
						waits += s.Waits
						if s.Waiting != 0 || s.Waits > 0 && s.Held != 0 || s.Waits > 0 && s.Wait <= 0 && how == "WithWait is over" {
							t.Errorf("afterwards: %+v", s)
						}
					}
					if waits < 3 {
						t.Errorf("%d waits; want 3", waits)
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
		srv := locktest.New(t, lock.WithContentionProfile(1), lock.WithReentrancy(), lock.WithLogger(slog.New(slog.DiscardHandler)))
		c := srv.Client()
		m := c.Mutex("a")
		l, err := m.Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		inner, err := m.Lock(l.Context())
		if err != nil {
			t.Fatal(err)
		}
		held := func() (n int64) {
			for _, s := range c.Contention().Stacks {
				n += s.Held
			}
			return n
		}
		if held() != 1 {
			t.Errorf("%d held, want 1: one joined", held())
		}
		if err := l.Release(t.Context()); err != nil || held() != 1 {
			t.Errorf("%v, %d held, want 1: the inner one", err, held())
		}
		srv.Lose("a", lock.CauseMissing)
		<-inner.Ended()
		synctest.Wait()
		if held() != 0 {
			t.Errorf("%d held after a loss", held())
		}
		if all, err := c.Multi([]string{"x", "y"}).Lock(t.Context()); err != nil || held() != 1 {
			t.Errorf("%v, %d held, want 1: a Multi is one", err, held())
		} else if srv.Lose("y", lock.CauseMissing); true {
			<-all.Ended()
			synctest.Wait()
			if held() != 0 {
				t.Errorf("%d held after the loss of a member", held())
			}
		}
	})
}

// The nodes of a Quorum are one lock.
func TestContentionProfileOfAQuorum(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		clients := []*lock.Client{profiled(t), profiled(t), profiled(t)}
		q, err := lock.NewQuorum(clients...)
		if err != nil {
			t.Fatal(err)
		}
		m := q.Mutex("a")
		until, done := make(chan struct{}), make(chan error)
		go func() { done <- holder(t.Context(), m, "Lock", until) }()
		synctest.Wait()
		go func() { done <- waiterFor(t.Context(), m) }()
		time.Sleep(2 * time.Second)
		close(until)
		for range 2 {
			if err := <-done; err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
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

// A release finds that another process waits, which nobody here does.
func TestContentionProfileKnowsOfOtherProcesses(t *testing.T) {
	t.Parallel()
	for _, wait := range []time.Duration{300 * time.Millisecond, 3 * time.Second} { // the latter is told, not granted
		t.Run(fmt.Sprint(wait), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				// One release of many wakes all, and doesn't know whom.
				for range 5 {
					h, w := holdWhileAnotherWaits(t, redistest.StartFake(t), wait)
					if w.Waits != 1 || w.Wait < wait || w.Holds != 0 {
						t.Fatalf("the waiter: %+v", w)
					}
					if h.Holds == 1 && h.Hold >= wait {
						return
					}
					t.Logf("the holder: %+v", h)
				}
				t.Error("no release has found the waiter")
			})
		})
	}
}

// holdWhileAnotherWaits returns the stacks of a hold, and of the wait for it of another client.
func holdWhileAnotherWaits(t *testing.T, srv *redistest.Fake, wait time.Duration) (h, w lock.ContentionStack) {
	var clients [2]*lock.Client
	for i := range clients {
		c, err := lock.New(srv.Client(t), lock.WithContentionProfile(1))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { closeSoon(c) })
		clients[i] = c
	}
	const name = "job"
	until, done := make(chan struct{}), make(chan error)
	go func() { done <- holder(t.Context(), clients[0].Mutex(name), "Lock", until) }()
	eventually(t, patience, func() bool { return len(clients[0].Leases()) == 1 && clients[0].Leases()[0].State == lock.StateHeld })
	go func() { done <- waiterFor(t.Context(), clients[1].Mutex(name)) }()
	eventually(t, patience, func() bool { return stackOf(t, clients[1], "waiterFor").Waiting == 1 })
	<-time.After(wait)
	close(until)
	for range 2 {
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	return stackOf(t, clients[0], "holder"), stackOf(t, clients[1], "waiterFor")
}

func TestContentionProfileOptions(t *testing.T) {
	t.Parallel()
	off := locktest.New(t, lock.WithContentionProfile(0)).Client()
	if err := cycle(t.Context(), off.Mutex("a")); err != nil {
		t.Fatal(err)
	}
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
