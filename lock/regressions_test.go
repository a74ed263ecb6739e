package lock_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/telemetry"
)

// Tests of what users of other lock libraries suffered.

func TestRenewalGoesOnAfterTrouble(t *testing.T) {
	t.Parallel()
	refuses := func(text string, commands ...string) func(*testing.T, *redistest.Fake, *wireTap) func() {
		return func(_ *testing.T, srv *redistest.Fake, _ *wireTap) func() {
			srv.SetRefusal(refuseAny(commands, text))
			return func() { srv.SetRefusal(nil) }
		}
	}
	for name, trouble := range map[string]func(t *testing.T, srv *redistest.Fake, wire *wireTap) (over func()){
		"restart": func(t *testing.T, srv *redistest.Fake, _ *wireTap) func() {
			srv.Kill(t)
			return func() { srv.Restart(t, redistest.KeepData) }
		},
		"busy script": refuses("BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.", "EVALSHA", "EVAL"),
		"loading":     refuses("LOADING Redis is loading the dataset in memory", "EVALSHA", "EVAL", "PING"),
		"read only":   refuses("READONLY You can't write against a read only replica.", writes...),
		"no connection": func(t *testing.T, _ *redistest.Fake, wire *wireTap) func() {
			wire.proxy.Refuse(t)
			wire.proxy.CutAll()
			return func() { wire.proxy.Accept(t) }
		},
		"silence": func(_ *testing.T, _ *redistest.Fake, wire *wireTap) func() {
			wire.set(redistest.When(redistest.Down, redistest.Drop))
			return func() { wire.set(nil) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				srv := redistest.StartFake(t)
				rdb, wire := throughProxy(t, srv)
				s := newScope(t)
				c := s.open(t, rdb, lock.WithLease(5*time.Second)) // the trouble has to be over before it is
				failing := func(want float64) {
					t.Helper()
					eventually(t, patience, func() bool { return s.sum(t, telemetry.MetricFailing) == want })
				}
				renewed := func(l *lock.Lease) {
					t.Helper()
					before := l.Deadline()
					eventually(t, patience, func() bool {
						if err := l.Err(); err != nil {
							t.Fatalf("the lease: %v", err)
						}
						return l.Deadline().After(before)
					})
				}
				l := try(t, c.Mutex("job"))
				renewed(l)
				over := trouble(t, srv, wire)
				eventually(t, patience, func() bool { return s.sum(t, telemetry.MetricRenewals, "lockdog.outcome=error") > 0 })
				failing(1)
				over()
				renewed(l)
				renewed(l)
				failing(0)
				free(t, l)
				l = try(t, c.Mutex("job"))
				renewed(l)
				free(t, l)
			})
		})
	}
}

// A lease whose key becomes something else is lost, and says so. That something stays.
func TestLossSaysWhatIsThereInstead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rdb := redistest.StartFake(t).Client(t)
		l := try(t, newScope(t).open(t, rdb).Mutex("job"))
		must(t, "SET", rdb.Set(t.Context(), "job", "no lock", 0).Err())
		mustBeLost(t, l, lock.CauseTaken)
		mustMention(t, l.Err(), "job", "WRONGTYPE")
		mustBe(t, "the key", rdb.Get(t.Context(), "job").Val(), "no lock")
	})
}

// The message of a release never comes: the waiter looks again when the holder's lease would have ended.
func TestLostPublishDelaysNoLongerThanTheLease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sp := redistest.StartFake(t)
		holder := newScope(t).open(t, sp.Client(t), lock.WithKeyPrefix(sp.Prefix()), lock.WithLease(3*time.Second))
		rdb, wire := throughProxy(t, sp)
		s := newScope(t)
		c := s.open(t, rdb, lock.WithKeyPrefix(sp.Prefix()))
		l := try(t, holder.Mutex("job"))
		next := begin(t.Context(), c.Mutex("job"))
		asleep(t, c, 1)
		said := false
		wire.set(redistest.When(redistest.Down, redistest.Drop, redistest.Contains("redisson_lock__channel"), func(redistest.Chunk) bool {
			said = true
			return true
		}))
		free(t, l)
		free(t, granted(t, next))
		wire.mu.Lock()
		defer wire.mu.Unlock()
		if !said {
			t.Error("the release was not published: this test shows nothing")
		}
		woken := func(source string) float64 { return s.sum(t, telemetry.MetricWakeups, "lockdog.wakeup.source="+source) }
		if woken("expiry") == 0 || woken("message") != 0 { // the first may have been before the release
			t.Errorf("wake-ups: %v, want one by expiry", s.series(t, telemetry.MetricWakeups))
		}
	})
}

// A waiter whose attempts fail tries again by polling: no lease has expired.
func TestRetryAfterAnErrorIsAPoll(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		srv, s := redistest.StartFake(t), newScope(t)
		h, c := open(t, srv.Client(t)), s.open(t, srv.Client(t))
		l := try(t, h.Mutex("job", lock.WithFixedLease(lock.DefaultLease)))
		next := begin(t.Context(), c.Mutex("job"))
		asleep(t, c, 1)
		time.Sleep(time.Second)
		srv.SetRefusal(refuseAny([]string{"EVALSHA"}, "LOADING Redis is loading the dataset in memory"))
		must(t, "PUBLISH", srv.Client(t).Publish(t.Context(), "redisson_lock__channel:{job}", "0").Err())
		time.Sleep(3 * time.Second)
		srv.SetRefusal(nil)
		time.Sleep(time.Second)
		woken := func(source string) float64 { return s.sum(t, telemetry.MetricWakeups, "lockdog.wakeup.source="+source) }
		if woken("expiry") != 0 || woken("poll") < 4 {
			t.Errorf("wake-ups: %v, want polls after the message", s.series(t, telemetry.MetricWakeups))
		}
		free(t, l)
		free(t, granted(t, next))
	})
}

// A hundred waiters in two processes' clients: Redis hears nothing of them while they wait, each client has one
// connection for them, and a release wakes one of each.
func TestWaitersCostRedisNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		srv := redistest.StartFake(t)
		rdb := srv.Client(t)
		s := newScope(t)
		holder := newScope(t).open(t, rdb, lock.WithLease(far)) // whose renewals nobody sees
		free(t, try(t, holder.Mutex("job")))                    // the server knows the scripts
		l := try(t, holder.Mutex("job"))
		var clients [2]*lock.Client
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var waiters []<-chan taken
		for i := range clients {
			clients[i] = s.open(t, srv.Client(t), lock.WithWaitGraph(0)) // what it costs: TestWaitGraph_CostsNothingBeforeAWaitLasts
			for range 50 {
				waiters = append(waiters, begin(ctx, clients[i].Mutex("job")))
			}
			asleep(t, clients[i], 50)
		}
		// One of the name, one of each client that waits for it, and the holder's control channel.
		if all, err := rdb.PubSubChannels(t.Context(), "*").Result(); err != nil || len(all) != 1+len(clients)+1 {
			t.Errorf("channels %q, %v", all, err)
		}
		scripts := func() int64 { c := srv.Commands(t); return c["evalsha"] + c["eval"] }
		asked := scripts()
		always(t, time.Second, func() bool { return scripts() == asked })

		free(t, l)
		eventually(t, patience, func() bool {
			return s.sum(t, telemetry.MetricAcquisitions, "lockdog.outcome=acquired") == 1 && s.sum(t, telemetry.MetricWakeups) >= 2
		})
		// The release, the first renewal of a lease that came by message, and a question of each of the two clients.
		always(t, 300*time.Millisecond, func() bool { return scripts() <= asked+4 })
		if n := s.sum(t, telemetry.MetricWakeups); n != 2 {
			t.Errorf("wake-ups %v, want one of each client", s.series(t, telemetry.MetricWakeups))
		}
		cancel()
		for _, w := range waiters {
			if got := await(t, "Lock", w); got.err == nil {
				free(t, got.Lease)
			}
		}
	})
}
