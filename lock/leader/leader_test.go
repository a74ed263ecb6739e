package leader_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/lock/leader"
)

var errWork = errors.New("the work failed")

// free fails the test if somebody holds the lock.
func free(t *testing.T, c *lock.Client) {
	t.Helper()
	if h, err := c.Mutex(name).Inspect(context.Background()); err != nil || h.Held {
		t.Errorf("the lock is not free: %+v, %v", h, err)
	}
}

func TestRun_FnReturnsNil(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := server(t, lock.WithClientID("north")).Client()
		var d diary
		e := leader.New(c.Mutex(name), append(d.told(), quiet())...)
		if e.IsLeader() {
			t.Error("leads before Run")
		}
		for range 2 { // an Elector may run again
			err := e.Run(t.Context(), func(ctx context.Context) error {
				synctest.Wait()
				h, err := c.Mutex(name).Inspect(ctx)
				if err != nil || !e.IsLeader() || leader.Token(ctx) != h.Token || leader.Lease(ctx).Owner() != h.Owner {
					t.Errorf("leader %v, token %d, holder %+v, %v", e.IsLeader(), leader.Token(ctx), h, err)
				}
				return nil
			})
			if err != nil || e.IsLeader() {
				t.Errorf("Run: %v; leads: %v", err, e.IsLeader())
			}
			free(t, c)
		}
		const want = "elected; new leader north; deposed: <nil>"
		if got := d.String(); got != want+"; "+want {
			t.Errorf("told %q", got)
		}
	})
}

// A leader that fails makes room for another, and campaigns again.
func TestRun_FnFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := server(t)
		var d diary
		var l logs
		terms := make(chan int64)
		resign := make(chan struct{})
		north := start(t, srv.Client().Mutex(name), func(ctx context.Context) error {
			terms <- leader.Token(ctx)
			<-resign
			return errWork
		}, leader.OnDeposed(func(cause error) { d.note("%v", cause) }), l.option())
		first := <-terms
		start := time.Now()
		resign <- struct{}{}
		synctest.Wait()
		free(t, srv.Client())
		south := srv.NewClient()
		lease, err := south.Mutex(name).TryLock(t.Context()) // during the pause
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if north.runs(t); north.IsLeader() {
			t.Error("two lead")
		}
		if err := lease.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		if second := <-terms; second <= first || time.Since(start) > time.Minute+time.Second {
			t.Errorf("tokens %d and %d, elected again after %v", first, second, time.Since(start))
		}
		if got := d.String(); got != errWork.Error() {
			t.Errorf("deposed: %q", got)
		}
		if l.count("the leader's function failed") != 1 {
			t.Errorf("logged:\n%s", &l.buf)
		}
		resign <- struct{}{}
		north.cancel(errWork)
	})
}

// A panic goes on where it began, after the release; runtime.Goexit likewise.
func TestRun_FnPanics(t *testing.T) {
	for _, way := range []string{"panic", "goexit"} {
		t.Run(way, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := server(t).Client()
				var d diary
				e := leader.New(c.Mutex(name), leader.OnDeposed(func(cause error) { d.note("%v", cause) }), quiet())
				var got any
				ended := make(chan struct{})
				go func() {
					defer close(ended)
					defer func() { got = recover() }()
					_ = e.Run(context.Background(), func(context.Context) error {
						if way == "goexit" {
							runtime.Goexit()
						}
						panic("boom")
					})
					t.Error("Run returned")
				}()
				<-ended
				if want := map[string]any{"panic": "boom"}[way]; got != want {
					t.Errorf("recovered %v, want %v", got, want)
				}
				free(t, c)
				if e.IsLeader() || !strings.Contains(d.String(), "panicked") {
					t.Errorf("leads: %v; deposed: %s", e.IsLeader(), &d)
				}
				if err := e.Run(t.Context(), func(context.Context) error { return nil }); err != nil {
					t.Errorf("the next Run: %v", err)
				}
			})
		})
	}
}

// brokenError is an error without a text.
type brokenError struct{ error }

// lostLocker is a lock whose leases are lost when Lock returns.
type lostLocker struct {
	lock.Locker
	lose func()
}

func (m lostLocker) Lock(ctx context.Context) (*lock.Lease, error) {
	l, err := m.Locker.Lock(ctx)
	if err == nil {
		m.lose()
		<-l.Context().Done()
	}
	return l, err
}

// If leadership is lost at once, OnElected is still called before OnDeposed. In the opposite order, a program that goes
// by these callbacks would think that it leads for ever.
func TestRun_LostAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := server(t)
		var d diary
		m := lostLocker{srv.Client().Mutex(name), func() { srv.Lose(name, lock.CauseMissing) }}
		start(t, m, untilOver, leader.OnElected(func(int64) { d.note("elected") }), leader.OnDeposed(func(error) { d.note("deposed") }))
		time.Sleep(time.Second)
		if got := d.String(); !strings.HasPrefix(got, "elected; deposed") {
			t.Fatalf("told %q", got)
		}
	})
}

// blockedLog is a log handler that blocks at a message until the channel is closed.
type blockedLog struct {
	slog.Handler
	at    string
	until chan struct{}
}

func (h blockedLog) Handle(ctx context.Context, r slog.Record) error {
	if strings.Contains(r.Message, h.at) {
		<-h.until
	}
	return h.Handler.Handle(ctx, r)
}

// The release doesn't wait for the log. The log gets fn's error even if its text can't be read.
func TestRun_LogBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := server(t).Client()
		until := make(chan struct{})
		var terms atomic.Int32
		start(t, c.Mutex(name), func(ctx context.Context) error {
			if terms.Add(1) > 1 {
				<-ctx.Done()
			}
			return (*brokenError)(nil)
		}, leader.WithLogger(slog.New(blockedLog{slog.NewTextHandler(io.Discard, nil), "no longer leader", until})))
		time.Sleep(time.Second)
		free(t, c)
		close(until)
		time.Sleep(time.Minute)
		if n := terms.Load(); n != 2 {
			t.Errorf("%d terms, want another one once the log goes on", n)
		}
	})
}

// A callback that ends its goroutine, such as one that calls t.FailNow, doesn't keep the next ones from being called.
func TestCallbackThatExits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var d diary
		e := leader.New(server(t).Client().Mutex(name), quiet(),
			leader.OnElected(func(int64) { runtime.Goexit() }), leader.OnDeposed(func(cause error) { d.note("deposed: %v", cause) }))
		if err := e.Run(t.Context(), func(context.Context) error { return nil }); err != nil || d.String() != "deposed: <nil>" {
			t.Errorf("Run: %v; told %q", err, &d)
		}
	})
}

// fn's ctx ends, OnDeposed is called, and nobody campaigns here before fn has returned.
func TestRun_LeadershipIsLost(t *testing.T) {
	for _, cause := range []lock.Cause{lock.CauseMissing, lock.CauseTaken, lock.CauseUnreachable} {
		t.Run(string(cause), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := server(t)
				m := &sick{Mutex: srv.Client().Mutex(name)}
				var d diary
				terms, ended := make(chan int64), make(chan error)
				obey := make(chan struct{})
				e := start(t, m, func(ctx context.Context) error {
					terms <- leader.Token(ctx)
					<-ctx.Done()
					ended <- context.Cause(ctx)
					<-obey
					return nil // which doesn't end Run now
				}, leader.OnDeposed(func(cause error) { d.note("%v", cause) }))
				first := <-terms
				if !e.IsLeader() {
					t.Error("doesn't lead")
				}
				srv.Lose(name, cause)
				var lost *lock.LostError
				if err := <-ended; !errors.As(err, &lost) || lost.Cause != cause {
					t.Errorf("fn's ctx ended with %v", err)
				}
				synctest.Wait()
				if e.IsLeader() || !strings.Contains(d.String(), string(cause)) {
					t.Errorf("leads: %v; deposed: %q", e.IsLeader(), &d)
				}
				time.Sleep(time.Hour)
				if e.runs(t); len(m.times()) != 1 {
					t.Errorf("campaigned %d times while fn ran", len(m.times()))
				}
				obey <- struct{}{}
				if second := <-terms; second <= first {
					t.Errorf("token %d after %d", second, first)
				}
				go func() {
					if err := <-ended; !errors.Is(err, errWork) {
						t.Errorf("the second term ended with %v", err)
					}
					obey <- struct{}{}
				}()
				e.cancel(errWork)
				if err := e.end(t, time.Second); !errors.Is(err, errWork) {
					t.Errorf("Run: %v", err)
				}
			})
		})
	}
}

// Where this process doesn't lead, the end of ctx ends Run at once, with its cause.
func TestRun_CtxEndsBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := server(t)
		srv.Hold(name, "java:1")
		sick := &sick{Mutex: srv.Client().Mutex(name)}
		sick.fail(errors.New("no route"))
		for what, m := range map[string]lock.Locker{"waiting": srv.Client().Mutex(name), "in a pause": sick} {
			e := start(t, m, untilOver, leader.WithBackoff(time.Hour, time.Hour))
			time.Sleep(ages)
			if e.runs(t); e.IsLeader() {
				t.Errorf("%s: leads", what)
			}
			e.cancel(errWork)
			if err := e.end(t, time.Millisecond); err != errWork { //nolint:errorlint // the cause itself, for nothing else failed
				t.Errorf("%s: Run: %v", what, err)
			}
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errWork)
		err := leader.Run(ctx, srv.Client().Mutex("free"), func(context.Context) error {
			t.Error("fn ran")
			return nil
		}, quiet())
		if !errors.Is(err, errWork) {
			t.Errorf("it had ended: Run: %v", err)
		}
	})
}

// While fn winds down, for however long, the lock stays: a successor starts when fn has returned, and then at once.
func TestRun_CtxEndsWhileLeading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const windDown = 5 * lock.DefaultLease
		srv := server(t)
		var returned, succeeded time.Time
		north := leading(t, srv.Client().Mutex(name), func(ctx context.Context) error {
			if cause := context.Cause(ctx); cause != errWork { //nolint:errorlint // the cause itself
				t.Errorf("fn's ctx ended with %v", cause)
			}
			time.Sleep(windDown)
			returned = time.Now()
			return errors.New("a file was left open")
		})
		south := start(t, srv.NewClient().Mutex(name), func(ctx context.Context) error {
			succeeded = time.Now()
			return untilOver(ctx)
		})
		time.Sleep(ages)
		north.cancel(errWork)
		synctest.Wait()
		if north.IsLeader() || south.IsLeader() {
			t.Error("somebody leads while fn winds down")
		}
		err := north.end(t, 2*windDown)
		if !errors.Is(err, errWork) || !strings.Contains(err.Error(), "a file was left open") {
			t.Errorf("Run: %v", err)
		}
		synctest.Wait()
		if gap := succeeded.Sub(returned); !south.IsLeader() || gap < 0 || gap > 50*time.Millisecond {
			t.Errorf("south leads: %v, %v after north's fn returned", south.IsLeader(), gap)
		}
	})
}

// fn reports the end of its ctx in many ways; Run says it once.
func TestRun_FnEchoesTheEnd(t *testing.T) {
	for what, says := range map[string]func(context.Context) error{
		"nil":      func(context.Context) error { return nil },
		"cause":    context.Cause,
		"wrapped":  func(ctx context.Context) error { return fmt.Errorf("stopped: %w", context.Cause(ctx)) },
		"canceled": context.Context.Err,
		"deadline": func(context.Context) error { return context.DeadlineExceeded },
	} {
		synctest.Test(t, func(t *testing.T) {
			e := leading(t, server(t).Client().Mutex(name), says)
			e.cancel(errWork)
			if err := e.end(t, time.Second); err != errWork { //nolint:errorlint // the cause itself
				t.Errorf("%s: Run: %v", what, err)
			}
		})
	}
}

// If the lock is lost after the end of ctx, while fn winds down, Run's error says both.
func TestRun_CtxEndsAndTheReleaseFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := server(t)
		e := leading(t, srv.Client().Mutex(name), func(context.Context) error {
			srv.Lose(name, lock.CauseTaken)
			synctest.Wait()
			return nil
		})
		e.cancel(errWork)
		if err := e.end(t, time.Minute); !errors.Is(err, errWork) || !errors.Is(err, lock.ErrLost) {
			t.Errorf("Run: %v", err)
		}
	})
}

// As Mutex.Do: work that was done without the lock isn't called done.
func TestRun_FnReturnsNilAfterAnUnnoticedLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := server(t)
		// A fixed lease isn't watched: its holder hears of the loss from Release.
		err := leader.Run(t.Context(), srv.Client().Mutex(name, lock.WithFixedLease(time.Hour)), func(context.Context) error {
			srv.Lose(name, lock.CauseTaken)
			return nil
		}, quiet())
		if !errors.Is(err, lock.ErrLost) {
			t.Errorf("Run: %v", err)
		}
	})
}

// fn may resign by itself.
func TestRun_FnReleases(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := server(t).Client()
		e := leader.New(c.Mutex(name), quiet())
		err := e.Run(t.Context(), func(ctx context.Context) error {
			if err := leader.Lease(ctx).Release(ctx); err != nil || ctx.Err() == nil || e.IsLeader() {
				t.Errorf("Release: %v; ctx: %v; leads: %v", err, ctx.Err(), e.IsLeader())
			}
			return nil
		})
		if err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}

// A client that closes ends Run, and a successor leads at once.
func TestRun_ClientCloses(t *testing.T) {
	for what, held := range map[string]bool{"while waiting": true, "while leading": false} {
		synctest.Test(t, func(t *testing.T) {
			srv := server(t)
			release := func() {}
			if held {
				release = srv.Hold(name, "java:1")
			}
			north := start(t, srv.Client().Mutex(name), untilOver)
			time.Sleep(time.Minute)
			if north.IsLeader() == held {
				t.Fatalf("%s: leads: %v", what, north.IsLeader())
			}
			south := start(t, srv.NewClient().Mutex(name), untilOver)
			synctest.Wait()
			if err := srv.Client().Close(t.Context()); err != nil {
				t.Error(err)
			}
			if err := north.end(t, time.Millisecond); !errors.Is(err, lock.ErrClosed) {
				t.Errorf("%s: Run: %v", what, err)
			}
			release()
			time.Sleep(time.Second)
			if !south.IsLeader() {
				t.Errorf("%s: the successor doesn't lead", what)
			}
		})
	}
}

func TestRun_Misuse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := server(t).Client()
		m := c.Mutex(name)
		never := func(context.Context) error { t.Error("fn ran"); return nil }
		for _, tc := range []struct {
			what string
			err  error
			says string
		}{
			{"nil ctx", leader.Run(nil, m, never), "ctx is nil"}, //nolint:staticcheck // that is the test
			{"nil fn", leader.Run(t.Context(), m, nil), "a function"},
			{"nil lock", leader.Run(t.Context(), nil, never), "lock is nil"},
			{"nil mutex", leader.Run(t.Context(), (*lock.Mutex)(nil), never), "made by a Client"},
			{"bad name", leader.Run(t.Context(), c.Mutex(""), never), "invalid"},
			{"nil option", leader.Run(t.Context(), m, never, nil), "option is nil"},
			{"no backoff", leader.Run(t.Context(), m, never, leader.WithBackoff(0, time.Second)), "WithBackoff(0s, 1s)"},
			{"backoff that shrinks", leader.Run(t.Context(), m, never, leader.WithBackoff(2, 1)), "WithBackoff"},
			{"interval", leader.Run(t.Context(), m, never, leader.WithInspectInterval(0)), "WithInspectInterval(0s)"},
			{"who leads of many", leader.Run(t.Context(), c.Multi([]string{"a", "b"}), never, leader.OnNewLeader(func(string) {})), "Inspect"},
		} {
			if !errors.Is(tc.err, lock.ErrInvalid) || !strings.Contains(fmt.Sprint(tc.err), tc.says) {
				t.Errorf("%s: %v, want it to say %q", tc.what, tc.err, tc.says)
			}
		}
	})
}

// Within a term, its lock can't be campaigned for, and its Elector doesn't run again.
func TestRun_WithinItsTerm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := server(t).Client().Mutex(name)
		e := leader.New(m, quiet())
		if err := e.Run(t.Context(), func(ctx context.Context) error {
			if err := leader.Run(ctx, m, untilOver, quiet()); !errors.Is(err, lock.ErrDeadlock) {
				t.Errorf("another: %v", err)
			}
			if err := e.Run(context.Background(), untilOver); !errors.Is(err, lock.ErrInvalid) {
				t.Errorf("the same: %v", err)
			}
			return ctx.Err()
		}); err != nil {
			t.Error(err)
		}
	})
}

// A lock with WithWait ends each wait; the campaign goes on, and that is no failure.
func TestRun_WithWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := server(t)
		release := srv.Hold(name, "java:1")
		m := &sick{Mutex: srv.Client().Mutex(name, lock.WithWait(0))}
		var l logs
		e := start(t, m, untilOver, l.option())
		time.Sleep(time.Minute)
		if n := len(m.times()); n < 60 || n > 121 {
			t.Errorf("asked %d times in a minute", n)
		}
		if l.count("failed") != 0 {
			t.Errorf("logged:\n%s", &l.buf)
		}
		release()
		time.Sleep(leader.DefaultMinBackoff)
		if !e.IsLeader() {
			t.Error("not elected")
		}
	})
}

// Redis fails: pauses grow, up to a bound, with jitter; the log isn't flooded; and the end of it is noticed.
func TestRun_Unavailable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const shortest, longest = 100 * time.Millisecond, 3 * time.Second
		m := &sick{Mutex: server(t).Client().Mutex(name)}
		m.fail(errors.New("no route"))
		var d diary
		var l logs
		e := start(t, m, untilOver, append(d.told(), l.option(), leader.WithBackoff(shortest, longest))...)
		time.Sleep(time.Hour - time.Second)
		asked := m.times()
		want, jitter := shortest, map[time.Duration]bool{}
		for i := 1; i < len(asked); i++ {
			pause := asked[i].Sub(asked[i-1])
			if pause > want || pause < want/2 {
				t.Fatalf("pause %d took %v, want at most %v, at least half", i, pause, want)
			}
			jitter[pause] = true
			want = min(2*want, longest)
		}
		if len(jitter) < len(asked)/2 {
			t.Errorf("%d pauses have %d lengths only", len(asked), len(jitter))
		}
		if n := l.count("campaign for leadership failed"); n < 50 || n > 60 {
			t.Errorf("logged %d times in an hour", n)
		}
		if d.String() != "" {
			t.Errorf("told %q", &d)
		}
		m.fail(nil)
		time.Sleep(longest)
		if !e.IsLeader() {
			t.Error("not elected when Redis works again")
		}
	})
}

// A term that lasted long makes the pauses between campaigns short again. Short terms don't.
func TestRun_BackoffOfTerms(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const shortest, longest = 100 * time.Millisecond, 10 * time.Second
		m := &sick{Mutex: server(t).Client().Mutex(name)}
		last, n := time.Now(), 0
		err := leader.Run(t.Context(), m, func(context.Context) error {
			pause := time.Since(last)
			defer func() { last = time.Now() }()
			n++
			switch n {
			case 21: // after the long one
				if pause > shortest {
					t.Errorf("paused %v after a long term", pause)
				}
				return nil
			case 20:
				time.Sleep(longest)
			}
			if n > 10 && (pause < longest/2 || pause > longest) {
				t.Errorf("pause %d took %v", n, pause)
			}
			return errWork
		}, quiet(), leader.WithBackoff(shortest, longest))
		if err != nil || n != 21 {
			t.Errorf("%d terms, %v", n, err)
		}
	})
}

// The ctx of fn is a child of the lease's, with the values and the deadline of Run's, and is never late.
func TestRun_Context(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type key struct{}
		at := time.Now().Add(time.Hour)
		ctx, cancel := context.WithDeadline(context.WithValue(t.Context(), key{}, "v"), at)
		defer cancel()
		ctx, stop := context.WithCancelCause(ctx)
		m := server(t).Client().Mutex(name)
		if leader.Lease(ctx) != nil || leader.Token(ctx) != 0 {
			t.Error("a ctx without a term has a lease")
		}
		err := leader.Run(ctx, m, func(ctx context.Context) error {
			child, cancel := context.WithCancel(ctx)
			defer cancel()
			if d, ok := child.Deadline(); !ok || !d.Equal(at) || child.Value(key{}) != "v" {
				t.Errorf("deadline %v, value %v", d, child.Value(key{}))
			}
			if leader.Token(child) == 0 || leader.Token(child) != leader.Lease(child).Token() {
				t.Errorf("token %d", leader.Token(child))
			}
			if _, err := m.TryLock(child); !errors.Is(err, lock.ErrDeadlock) {
				t.Errorf("it isn't made of the lease's Context: %v", err)
			}
			stop(errWork)
			if ctx.Err() == nil || context.Cause(child) != errWork { //nolint:errorlint // the cause itself
				t.Errorf("after the end of Run's ctx: %v, %v", ctx.Err(), context.Cause(child))
			}
			return nil
		}, quiet())
		if !errors.Is(err, errWork) {
			t.Errorf("Run: %v", err)
		}
	})
}

// Check fails when fn outlives its leadership for too long.
func TestElector_Check(t *testing.T) {
	for _, way := range []string{"lost", "ctx", "unreachable"} {
		t.Run(way, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const tolerance = 20 * time.Second
				srv := server(t)
				obey, ended := make(chan struct{}), make(chan error, 1)
				e := start(t, srv.Client().Mutex(name), func(ctx context.Context) error {
					<-ctx.Done()
					ended <- context.Cause(ctx)
					<-obey
					return nil
				})
				if err := e.Check(0); err != nil {
					t.Errorf("before: %v", err)
				}
				time.Sleep(ages)
				if err := e.Check(0); err != nil {
					t.Errorf("while leading: %v", err)
				}
				switch way {
				case "lost":
					srv.Lose(name, lock.CauseTaken)
				case "ctx":
					e.cancel(errWork)
				case "unreachable":
					srv.Lose(name, lock.CauseUnreachable)
				}
				cause := <-ended
				time.Sleep(tolerance)
				if err := e.Check(tolerance); err != nil {
					t.Errorf("within the tolerance: %v", err)
				}
				time.Sleep(time.Millisecond)
				if err := e.Check(tolerance); !errors.Is(err, cause) || !strings.Contains(err.Error(), name) {
					t.Errorf("after it: %v", err)
				}
				close(obey)
				synctest.Wait()
				if err := e.Check(0); err != nil {
					t.Errorf("after fn returned: %v", err)
				}
			})
		})
	}
}

// A callback that blocks delays other callbacks, and the end of Run, but neither fn nor the release.
func TestCallbacks_Block(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := server(t).Client()
		var d diary
		unblock := make(chan struct{})
		e := start(t, c.Mutex(name), func(context.Context) error {
			d.note("fn ran")
			return nil
		}, leader.OnElected(func(int64) { <-unblock; d.note("elected") }), leader.OnDeposed(func(error) { d.note("deposed") }))
		time.Sleep(time.Hour)
		e.runs(t)
		free(t, c)
		close(unblock)
		if err := e.end(t, time.Millisecond); err != nil {
			t.Error(err)
		}
		if got := d.String(); got != "fn ran; elected; deposed" {
			t.Error(got)
		}
	})
}
