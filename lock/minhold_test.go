package lock_test

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/internal/fakeredis"
	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/telemetry"
)

// minHolders are the kinds that WithMinHold is for.
func minHolders(t *testing.T, cs []*lock.Client, opts ...lock.LockOption) map[string]lock.Locker {
	t.Helper()
	q, err := lock.NewQuorum(cs...)
	must(t, "NewQuorum", err)
	c := cs[0]
	return map[string]lock.Locker{
		"Mutex": c.Mutex("mutex", opts...), "FairMutex": c.FairMutex("fair", opts...),
		"Multi": c.Multi([]string{"multi:a", "multi:b"}, opts...), "Quorum": q.Mutex("quorum", opts...),
	}
}

// clientsOf opens a client of each server.
func clientsOf(t *testing.T, s *scope, servers []*redistest.Fake, opts ...lock.Option) (cs []*lock.Client) {
	t.Helper()
	for _, srv := range servers {
		cs = append(cs, s.open(t, srv.Client(t), opts...))
	}
	return cs
}

func threeServers(t *testing.T) []*redistest.Fake {
	t.Helper()
	return []*redistest.Fake{redistest.StartFake(t), redistest.StartFake(t), redistest.StartFake(t)}
}

// A release before WithMinHold is over counts as released, and leaves the lock taken until then: for TryLock, and for waiters here and in other
// processes, which take it then and not when the lease that they saw would have ended.
func TestMinHold(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		kind    string
		minHold time.Duration // the lease is 30 s
	}{
		{"Mutex", 2 * time.Second}, {"Mutex", time.Minute}, {"FairMutex", 2 * time.Second}, {"Multi", time.Minute}, {"Quorum", 2 * time.Second},
	} {
		t.Run(fmt.Sprint(tt.kind, " ", tt.minHold), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				servers := threeServers(t)
				s, elsewhere := newScope(t), newScope(t)
				c, other := clientsOf(t, s, servers), clientsOf(t, elsewhere, servers)
				here, there := minHolders(t, c, lock.WithMinHold(tt.minHold))[tt.kind], minHolders(t, other)[tt.kind]

				l := try(t, here)
				granted := time.Now()
				synctest.Wait()                                            // a Quorum's third node may come later; a waiter's call must not overtake it
				waiters := []lock.Locker{there, minHolders(t, c)[tt.kind]} // the first in line is elsewhere
				var gotAt [2]time.Time
				var all sync.WaitGroup
				for i, m := range waiters {
					all.Go(func() {
						l, err := m.Lock(t.Context())
						gotAt[i] = time.Now()
						if err == nil {
							err = l.Release(t.Context())
						}
						if err != nil {
							t.Error(err)
						}
					})
					eventually(t, patience, func() bool { return len(c[0].Leases())+len(other[0].Leases()) >= 2+i })
					synctest.Wait()
				}
				must(t, "Release", l.Release(t.Context()))
				mustMatch(t, l.Err(), lock.ErrReleased)
				mustMatch(t, l.Release(t.Context()), lock.ErrReleased)
				_, err := there.TryLock(t.Context())
				if !errors.Is(err, lock.ErrHeld) || !strings.Contains(err.Error(), "after its release by") {
					t.Errorf("TryLock after the release: %v", err)
				}
				if m, ok := there.(*lock.Mutex); ok {
					h, err := m.Inspect(t.Context())
					must(t, "Inspect", err)
					if !h.Released || h.Owner != l.Owner() || h.Token != l.Token() || h.ClientID == "" {
						t.Errorf("Inspect after the release of %q, token %d: %+v", l.Owner(), l.Token(), h)
					}
				}
				all.Wait()
				for i, at := range gotAt {
					if after := at.Sub(granted); after < tt.minHold-50*time.Millisecond || after > tt.minHold+patience/2 {
						t.Errorf("waiter %d has the lock %v after the grant", i, after)
					}
				}
				if n := s.sum(t, telemetry.MetricLosses); n != 0 {
					t.Errorf("%v losses", n)
				}
				for _, s := range []*scope{s, elsewhere} {
					if n := s.sum(t, telemetry.MetricTakeovers, "lockdog.reason="+string(telemetry.TakeoverExpired)); n != 0 {
						t.Errorf("%v takeovers of a holder that vanished", n)
					}
				}
				if n := s.sum(t, telemetry.MetricReleases, "lockdog.outcome=released"); n < 2 {
					t.Errorf("%v releases count as released", n)
				}
			})
		})
	}
}

// A waiter that comes while WithMinHold still keeps a released lock doesn't count a takeover: the holder hasn't
// vanished.
func TestMinHold_CameLater(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"Mutex", "FairMutex", "Multi"} {
		synctest.Test(t, func(t *testing.T) {
			servers, elsewhere := threeServers(t), newScope(t)
			free(t, try(t, minHolders(t, clientsOf(t, newScope(t), servers), lock.WithMinHold(10*time.Second))[kind]))
			time.Sleep(time.Second)
			l := granted(t, begin(t.Context(), minHolders(t, clientsOf(t, elsewhere, servers))[kind]))
			if n := elsewhere.sum(t, telemetry.MetricTakeovers); n != 0 {
				t.Errorf("%s: %v takeovers", kind, n)
			}
			free(t, l)
		})
	}
}

// An acquire that the network delays past its own release doesn't keep the lock taken for longer than WithMinHold says.
// If the lock was lost, such an acquire may take it again until the time after which it is refused: here the client's
// ReadTimeout after it was sent.
func TestMinHold_DelayedAcquire(t *testing.T) {
	t.Parallel()
	const minHold, answer = 10 * time.Second, 2 * time.Second
	for _, kind := range []string{"Mutex", "FairMutex", "Mutex, forced"} {
		synctest.Test(t, func(t *testing.T) {
			srv, ctx := redistest.StartFake(t), t.Context()
			var lose atomic.Bool
			var late []any
			rdb := srv.Client(t, answerWithin(answer))
			rdb.AddHook(fakeredis.Tap{Up: func(cmd redis.Cmder) error {
				if isEval(cmd) && lose.Swap(false) {
					late = cmd.Args()
					return io.EOF
				}
				return nil
			}})
			c := open(t, rdb)
			var m lock.Locker = c.Mutex("job", lock.WithMinHold(minHold))
			if kind == "FairMutex" {
				m = c.FairMutex("job", lock.WithMinHold(minHold))
			}
			free(t, try(t, c.Mutex("warm-up"))) // c knows the server's clock then
			lose.Store(true)
			asked := time.Now()
			l, until := try(t, m), time.Now().Add(minHold)
			if kind == "Mutex, forced" {
				_, err := c.Mutex("job").ForceUnlock(ctx)
				must(t, "ForceUnlock", err)
				mustMatch(t, l.Release(ctx), lock.ErrLost)
				until = asked.Add(answer) // the delayed acquire has no effect after that
				synctest.Wait()           // for the first run of the cleanup
			} else {
				free(t, l)
				synctest.Wait()
				_, err := m.TryLock(ctx)
				mustMatch(t, err, lock.ErrHeld)
			}
			must(t, "the delayed acquire", srv.Client(t).Do(ctx, late...).Err())
			sleepUntil(until.Add(-10 * time.Millisecond))
			_, err := m.TryLock(ctx)
			mustMatch(t, err, lock.ErrHeld)
			sleepUntil(until.Add(10 * time.Millisecond))
			free(t, try(t, m))
		})
	}
}

// A release that keeps the lock taken leaves a sign of it. So a lock that a second try doesn't find was lost.
func TestMinHold_LostBetweenTries(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		srv := redistest.StartFake(t)
		var lose atomic.Bool
		c := openTapped(t, srv, fakeredis.Tap{Down: func(cmd redis.Cmder) error {
			if isEval(cmd) && lose.Swap(false) {
				del(t, srv, "job")
				return io.EOF
			}
			return nil
		}})
		l := try(t, c.Mutex("job", lock.WithMinHold(10*time.Second)))
		lose.Store(true)
		mustMatch(t, l.Release(t.Context()), lock.ErrLost)
	})
}

// A lock that was taken for a lease which the program didn't get is freed at once.
func TestMinHold_NotGot(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := openTapped(t, redistest.StartFake(t), fakeredis.Tap{})
		held := try(t, c.Mutex("b"))
		_, err := c.Multi([]string{"a", "b"}, lock.WithMinHold(time.Minute), lock.WithWait(time.Second)).Lock(t.Context())
		mustMatch(t, err, lock.ErrHeld)
		free(t, try(t, c.Mutex("a")))
		free(t, held)
	})
}

// A lock that is held for longer is released as without the option.
func TestMinHold_Over(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cs := clientsOf(t, newScope(t), threeServers(t), lock.WithMinHold(time.Millisecond))
		c := cs[0]
		for kind, m := range minHolders(t, cs) {
			l := try(t, m)
			<-time.After(2 * time.Millisecond)
			free(t, l)
			if l, err := m.TryLock(t.Context()); err != nil {
				t.Errorf("%s: %v", kind, err)
			} else {
				<-time.After(2 * time.Millisecond)
				free(t, l)
			}
		}
		free(t, try(t, c.RWMutex("rw"))) // the client's default isn't for it
		l := newScope(t).open(t, redistest.StartFake(t).Client(t), lock.WithMinHold(time.Minute))
		free(t, try(t, l.RWMutex("rw", lock.WithFixedLease(10*time.Second))))
		free(t, try(t, l.RWMutex("rw", lock.WithMaxHold(30*time.Second))))
	})
}

// A try of a release that reaches Redis late, just before the next try, doesn't keep the lock for longer.
func TestMinHold_DelayedRelease(t *testing.T) {
	t.Parallel()
	const minHold, lateBy = 10 * time.Second, 2 * time.Second
	for _, kind := range []string{"Mutex", "FairMutex"} {
		synctest.Test(t, func(t *testing.T) {
			srv := redistest.StartFake(t)
			var first []any
			var on, late atomic.Bool
			c := openTapped(t, srv, fakeredis.Tap{Up: func(cmd redis.Cmder) error {
				switch {
				case !isEval(cmd) || !on.Load():
				case first == nil:
					first = cmd.Args()
					time.Sleep(lateBy)
					return io.EOF
				case !late.Swap(true):
					return srv.Client(t).Do(t.Context(), first...).Err()
				}
				return nil
			}})
			var m lock.Locker = c.Mutex("job", lock.WithMinHold(minHold))
			if kind == "FairMutex" {
				m = c.FairMutex("job", lock.WithMinHold(minHold))
			}
			l, until := try(t, m), time.Now().Add(minHold)
			time.Sleep(time.Second)
			on.Store(true)
			free(t, l)
			sleepUntil(until.Add(-10 * time.Millisecond))
			_, err := m.TryLock(t.Context())
			mustMatch(t, err, lock.ErrHeld)
			sleepUntil(until.Add(10 * time.Millisecond))
			free(t, try(t, m))
			if !late.Load() {
				t.Error("there was no second try")
			}
		})
	}
}

// A renewal that reaches Redis after the release doesn't change how long the lock stays taken.
func TestMinHold_DelayedRenewal(t *testing.T) {
	t.Parallel()
	const lease, lateBy = 30 * time.Second, time.Second
	for _, kind := range []string{"Mutex", "FairMutex", "Multi", "Quorum"} {
		for _, minHold := range []time.Duration{lease/3 + 2*lateBy, 2 * lease} {
			t.Run(fmt.Sprint(kind, " ", minHold), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					var cs []*lock.Client
					var pulses []*wireTap
					for _, srv := range threeServers(t) {
						renewals, pulse := throughProxy(t, srv)
						cs = append(cs, newScope(t).open(t, srv.Client(t), lock.WithLease(lease), lock.WithRenewalClient(renewals)))
						pulses = append(pulses, pulse)
					}
					m := minHolders(t, cs, lock.WithMinHold(minHold))[kind]
					l, until := try(t, m), time.Now().Add(minHold)
					synctest.Wait() // all nodes of a Quorum
					for _, pulse := range pulses {
						pulse.set(redistest.When(redistest.Up, redistest.Hold, pulse.script("renew", "")))
					}
					time.Sleep(lease/3 + 10*time.Millisecond)
					pulses[0].proxy.AwaitHeld(t, 1)
					free(t, l)
					time.Sleep(lateBy)
					for _, pulse := range pulses {
						pulse.set(nil)
						pulse.proxy.Release()
					}
					sleepUntil(until.Add(-10 * time.Millisecond))
					_, err := m.TryLock(t.Context())
					mustMatch(t, err, lock.ErrHeld)
					sleepUntil(until.Add(10 * time.Millisecond))
					free(t, try(t, m))
				})
			})
		}
	}
}
