package lock_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/lock/locktest"
	"github.com/lockdog/lockdog/telemetry"
)

// Who looks at the client's leases, or closes it, while locks are taken meets no grant that is half made. (The race
// detector tells.)
func TestGrantsAreVisibleWhole(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sp := redistest.StartFake(t)
		c := newScope(t).open(t, sp.Client(t), lock.WithKeyPrefix(sp.Prefix()))
		var all sync.WaitGroup
		taken := make(chan struct{}, 4*200)
		for _, name := range []string{"a", "b", "c", "d"} {
			all.Go(func() {
				for range 200 {
					l, err := c.Mutex(name).TryLock(context.Background())
					for _, l := range c.Leases() {
						if l.State == lock.StateHeld && (l.TraceID == "" || l.Token == 0) {
							t.Errorf("a lease without trace or token: %+v", l)
						}
					}
					if err == nil {
						err = l.Release(context.Background())
					}
					if err != nil {
						if !errors.Is(err, lock.ErrClosed) {
							t.Error(err)
						}
						return
					}
					taken <- struct{}{}
				}
			})
		}
		await(t, "a lock", taken)
		await(t, "another", taken)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		must(t, "Close", c.Close(ctx))
		all.Wait()
	})
}

// A loss that Redis told of is not blamed on a call that had failed before.
func TestLossIsNotBlamedOnAnEarlierFailure(t *testing.T) {
	t.Parallel()
	for _, cause := range []lock.Cause{lock.CauseMissing, lock.CauseTaken} {
		synctest.Test(t, func(t *testing.T) {
			sick := errors.New("connection refused")
			srv := locktest.New(t, lock.WithLogger(slog.New(slog.DiscardHandler)))
			l := try(t, srv.Client().Mutex("job"))
			srv.FailRenewals(sick)
			time.Sleep(lock.DefaultLease / 2)
			if err := srv.Client().Leases()[0].LastError; !errors.Is(err, sick) {
				t.Errorf("the last renewal's error is %v", err)
			}
			srv.Lose("job", cause)
			srv.FailRenewals(nil)
			<-l.Ended()
			if err := l.Err(); !strings.HasSuffix(err.Error(), string(cause)) || errors.Is(err, sick) {
				t.Errorf("%q, want it to end with the cause %s", err, cause)
			}
		})
	}
}

// TestCanceledLeaseThatIsBeingReleased checks that a canceled lease is listed as releasing while it is released, and
// still says why it was canceled.
func TestCanceledLeaseThatIsBeingReleased(t *testing.T) {
	t.Parallel()
	for kind, of := range map[string]func(c *lock.Client) lock.Locker{
		"mutex": func(c *lock.Client) lock.Locker { return c.Mutex("job") },
		"multi": func(c *lock.Client) lock.Locker { return c.Multi([]string{"a", "b"}) },
	} {
		synctest.Test(t, func(t *testing.T) {
			srv := locktest.New(t)
			ctx, cancel := context.WithCancel(t.Context())
			l := enter(t, ctx, of(srv.Client()))
			cancel()
			synctest.Wait()
			srv.DelayReleases(time.Second)
			released := make(chan error, 1)
			go func() { released <- l.Release(t.Context()) }()
			time.Sleep(time.Second / 2)
			shown := srv.Client().Leases()
			if whole := shown[0].Composite; whole != nil {
				shown = append(append(shown, whole.LeaseInfo), whole.Members...)
			}
			for _, info := range shown {
				if info.State != lock.StateReleasing || info.Reason != lock.ReasonContext {
					t.Errorf("%s: %q is %s, its reason %q", kind, info.Name, info.State, info.Reason)
				}
			}
			must(t, "Release", <-released)
		})
	}
}

// A Close that waits for a lock that nobody releases says so after a while, and at the end which it was.
func TestCloseNamesWhatItWaitsFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newScope(t)
		srv := locktest.New(t)
		c := srv.NewClient(lock.WithLogger(slog.New(slog.NewJSONHandler(s, nil))))
		for _, name := range []string{"a", "b", "c", "d", "e"} {
			try(t, c.Mutex(name))
		}
		ctx, cancel := context.WithTimeout(t.Context(), lock.DefaultLease+time.Second)
		defer cancel()
		closed := make(chan error, 1)
		go func() { closed <- c.Close(ctx) }()
		time.Sleep(lock.DefaultLease)
		synctest.Wait()
		const names = `"a", "b", "c", ...`
		waits := s.records(t, telemetry.Log{Level: slog.LevelWarn, Message: "lockdog: Close waits for locks that are not released"})
		if len(waits) != 1 || waits[0]["level"] != "WARN" || waits[0]["locks"] != 5.0 || waits[0]["names"] != names {
			t.Errorf("logged: %v", waits)
		}
		if err := <-closed; !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "5 locks not released ("+names+")") {
			t.Errorf("Close: %v", err)
		}
	})
}
