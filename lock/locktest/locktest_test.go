package locktest_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/lock/locktest"
)

const name = "orders:42"

// take takes the lock, or fails the test.
func take(t *testing.T, c *lock.Client, opts ...lock.LockOption) *lock.Lease {
	t.Helper()
	l, err := c.Mutex(name, opts...).TryLock(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// cause waits for the lease's end and says how it was lost.
func cause(t *testing.T, l *lock.Lease) lock.Cause {
	t.Helper()
	select {
	case <-l.Ended():
	case <-time.After(time.Hour): // of a bubble's time
		t.Fatal("the lease lives on")
	}
	var lost *lock.LostError
	if !errors.As(l.Err(), &lost) {
		t.Fatalf("the lease ended with %v, not a loss", l.Err())
	}
	if got := context.Cause(l.Context()); !errors.Is(got, l.Err()) {
		t.Fatalf("the cause of Context is %v, Err is %v", got, l.Err())
	}
	return lost.Cause
}

func TestHoldExcludesAndReleaseWakes(t *testing.T) {
	for _, name := range []string{name, "{a}:b"} {
		synctest.Test(t, func(t *testing.T) {
			srv := locktest.New(t)
			release := srv.Hold(name, "java")
			_, err := srv.Client().Mutex(name).TryLock(t.Context())
			var held *lock.HeldError
			if !errors.As(err, &held) || held.Owner != "java" || held.Remaining != lock.DefaultLease {
				t.Fatalf("TryLock: %v", err)
			}
			start := time.Now()
			time.AfterFunc(time.Minute, release)
			l, err := srv.Client().Mutex(name).Lock(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if waited := time.Since(start); waited != time.Minute {
				t.Errorf("the waiter was woken after %v, the release was after a minute", waited)
			}
			release() // not its own any more
			if err := l.Release(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// A FairMutex and a Multi listen on other channels than a Mutex. A release that was called before doesn't end a later
// hold of the same owner.
func TestHold_ReleaseWakes(t *testing.T) {
	for kind, lockOf := range map[string]func(c *lock.Client) lock.Locker{
		"fair":  func(c *lock.Client) lock.Locker { return c.FairMutex(name) },
		"multi": func(c *lock.Client) lock.Locker { return c.Multi([]string{name, "another"}) },
	} {
		t.Run(kind, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := locktest.New(t)
				released := srv.Hold(name, "java")
				released()
				release := srv.Hold(name, "java")
				released()
				start := time.Now()
				time.AfterFunc(time.Second, release)
				l, err := lockOf(srv.Client()).Lock(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if waited := time.Since(start); waited != time.Second {
					t.Errorf("the waiter was woken after %v, the release was after a second", waited)
				}
				if err := l.Release(t.Context()); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

func TestClientsExcludeEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := locktest.New(t, lock.WithLease(time.Second))
		a, b := srv.Client(), srv.NewClient(lock.WithClientID("b"))
		if srv.Client() != a || a == b {
			t.Fatal("Client must always be the first, NewClient another one")
		}
		l := take(t, a)
		if d := time.Until(l.Deadline()); d > time.Second {
			t.Errorf("the option given to New was lost: %v to the deadline", d)
		}
		if _, err := b.Mutex(name).TryLock(t.Context()); !errors.Is(err, lock.ErrHeld) {
			t.Fatalf("TryLock of the other client: %v", err)
		}
		time.AfterFunc(time.Minute, func() { _ = l.Release(context.Background()) })
		l2, err := b.Mutex(name).Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(l2.Owner(), "b:") || l2.Token() <= l.Token() {
			t.Errorf("owner %q, token %d after %d", l2.Owner(), l2.Token(), l.Token())
		}
	})
}

// fakeTB ends the goroutine at Fatalf, as a test does, and remembers why.
type fakeTB struct {
	testing.TB
	fatal string
	logs  []string
}

func (f *fakeTB) Helper()                   {}
func (f *fakeTB) Cleanup(func())            {}
func (f *fakeTB) Logf(s string, a ...any)   { f.logs = append(f.logs, fmt.Sprintf(s, a...)) }
func (f *fakeTB) Fatalf(s string, a ...any) { f.fatal = fmt.Sprintf(s, a...); runtime.Goexit() }
func (f *fakeTB) run(test func()) (fatal string) {
	f.fatal = ""
	done := make(chan struct{})
	go func() { defer close(done); test() }()
	<-done
	return f.fatal
}

func TestMisuseFailsTheTest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb := &fakeTB{TB: t}
		srv := locktest.New(tb)
		defer srv.Close()
		permits, unleased := srv.Client().Semaphore("permits"), srv.Client().UnleasedSemaphore("unleased")
		if err := permits.EnsurePermits(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		if _, err := unleased.TrySetPermits(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			what string
			call func()
			says string
		}{
			{"nobody holds it", func() { srv.Lose(name, lock.CauseMissing) }, "nobody holds it"},
			{"bad option", func() { srv.NewClient(lock.WithRenewalBatch(-1)) }, "WithRenewalBatch"},
			{"no owner", func() { srv.Hold(name, "") }, "an owner"},
			{"hold", func() { srv.Hold(name, "x") }, ""},
			{"hold twice", func() { srv.Hold(name, "y") }, `held by "x"`},
			{"a stranger's", func() { srv.Lose(name, lock.CauseTaken) }, "no client of this server"},
			{"take", func() { _, _ = srv.Client().Mutex("mine").TryLock(context.Background()) }, ""},
			{"expired", func() { srv.Lose("mine", lock.CauseExpired) }, "WithFixedLease"},
			{"stalled", func() { srv.Lose("mine", lock.CauseStalled) }, "stands still"},
			{"forced", func() { srv.Lose("mine", lock.CauseForced) }, "ForceUnlock of another client"},
			{"unknown", func() { srv.Lose("mine", "bored") }, "possible"},
			{"no name", func() { srv.Lose("", lock.CauseMissing) }, "nobody holds it"},
			{"free permits", func() { srv.Lose("permits", lock.CauseMissing) }, "no lease of it is held"},
			{"no leases", func() { srv.Lose("unleased", lock.CauseMissing) }, "no lease of it is held"},
			{"a permit", func() { _, _ = permits.TryLock(context.Background()) }, ""},
			{"a taken permit", func() { srv.Lose("permits", lock.CauseTaken) }, "missing and unreachable are possible"},
		} {
			got := tb.run(c.call)
			if c.says == "" && got != "" || !strings.Contains(got, c.says) {
				t.Errorf("%s: %q, want it to say %q", c.what, got, c.says)
			}
		}
	})
}

func TestMisusePanicsWithoutATest(t *testing.T) {
	srv := locktest.New(nil)
	defer srv.Close()
	defer func() {
		if v := recover(); v == nil || !strings.Contains(v.(string), "nobody holds it") {
			t.Errorf("recovered %v", v)
		}
	}()
	srv.Lose(name, lock.CauseMissing)
}

func TestCloseSaysWhatIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tb := &fakeTB{TB: t}
		srv := locktest.New(tb)
		l := take(t, srv.Client())
		srv.Close()
		srv.Close()
		if len(tb.logs) != 1 || !strings.Contains(tb.logs[0], "1 locks not released") {
			t.Errorf("logged %q", tb.logs)
		}
		if !errors.Is(l.Err(), lock.ErrClosed) {
			t.Errorf("the lease: %v", l.Err())
		}
	})
}
