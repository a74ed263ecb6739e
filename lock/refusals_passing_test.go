package lock_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/telemetry"
)

// A primary may refuse all writes for a while: after a failover, until a replica has caught up, or while it can't write to its disk. What
// waits, holds or releases a lock then has to outlast that.

// writes are the commands that a primary may refuse.
var writes = []string{
	"DEL", "PERSIST", "PEXPIRE", "PEXPIREAT", "HDEL", "LREM", "ZREM", "ZREMRANGEBYSCORE",
	"SET", "MSET", "INCR", "INCRBY", "DECR", "DECRBY", "HSET", "RPUSH", "ZADD",
}

// refuseWrites has a fake say so to what would write.
func refuseWrites(text string) func(cmd string, _ ...string) string { return refuseAny(writes, text) }

func refuseAny(commands []string, text string) func(cmd string, _ ...string) string {
	return func(cmd string, _ ...string) string {
		if slices.Contains(commands, cmd) {
			return text
		}
		return ""
	}
}

// noReplicas is what a primary answers to writes that has too few replicas. What other servers say, and that it passes, is in package redisfail.
const noReplicas = "NOREPLICAS Not enough good replicas to write."

// ordeal is calls that are made in a spell, or before it, none of which may fail.
type ordeal struct {
	whose  string
	calls  map[string]<-chan error
	failed atomic.Bool
}

// begin begins calls.
func (o *ordeal) begin(what string, n int, call func() error) {
	if o.calls == nil {
		o.calls = make(map[string]<-chan error)
	}
	done := make(chan error, n)
	o.calls[what] = done
	for range n {
		go func() {
			err := call()
			o.failed.Store(o.failed.Load() || err != nil)
			done <- err
		}()
	}
}

// lasts waits until Redis has refused them often enough, or one of them has failed.
func (o *ordeal) lasts(t *testing.T, enough func() bool) {
	t.Helper()
	eventually(t, patience, func() bool { return o.failed.Load() || enough() })
}

// outlasted waits for the end of all calls.
func (o *ordeal) outlasted(t *testing.T) {
	t.Helper()
	for what, done := range o.calls {
		for range cap(done) {
			if err := await(t, o.whose+" "+what, done); err != nil {
				t.Errorf("%s %s: %v", o.whose, what, err)
			}
		}
	}
}

// lockAndRelease is a call of Lock, and the release.
func lockAndRelease(m lock.Locker) func() error {
	return func() error {
		l, err := m.Lock(context.Background())
		if err == nil {
			err = l.Release(context.Background())
		}
		return err
	}
}

// several is a Multi of more than one name.
var several = kindOfLock{
	name: "multi of three",
	make: func(c *lock.Client, name string, opts ...lock.LockOption) subject {
		return oneOf{c.Multi([]string{name, name + ":2", name + ":3"}, opts...), c.Mutex(name, opts...)}
	},
}

// group is how many wait for the same.
const group = 4

// outlasting is a kind of lock in a spell.
type outlasting struct {
	*scope
	ordeal
	given *lock.Lease // released in it, while others wait
	spare *lock.Lease // ... while nobody does
	free  subject
	other subject
}

// prepare takes locks, and has others wait for them.
func prepare(t *testing.T, srv *redistest.Fake, k kindOfLock) *outlasting {
	t.Helper()
	o := &outlasting{scope: newScope(t), ordeal: ordeal{whose: k.name + ": who"}}
	c := o.open(t, srv.Client(t))
	lockOf := func(name string, opts ...lock.LockOption) subject { return k.make(c, k.name+":"+name, opts...) }
	rival := func(name string, opts ...lock.LockOption) subject { return k.against(c, k.name+":"+name, opts...) }
	o.free, o.other = lockOf("free"), lockOf("other") // a Semaphore is written to by that
	o.given, o.spare = try(t, rival("given")), try(t, lockOf("spare"))
	try(t, rival("left", lock.WithFixedLease(1500*time.Millisecond))) // its holder vanishes
	o.begin("waits for a release", group, lockAndRelease(lockOf("given")))
	o.begin("waits for a lease to end", group, lockAndRelease(lockOf("left")))
	waiting(t, c, 2*group)
	return o
}

// suffer goes on in the spell, until all calls were refused over and over.
func (o *outlasting) suffer(t *testing.T) {
	t.Helper()
	o.begin("releases", 1, func() error { return o.given.Release(context.Background()) })
	o.begin("releases what nobody waits for", 1, func() error { return o.spare.Release(context.Background()) })
	o.begin("asks for a free lock", group, lockAndRelease(o.free))
	o.lasts(t, func() bool {
		return o.refused(t, "acquire", "readonly") > 5*group && o.refused(t, "release", "readonly") > 8
	})
	_, err := o.other.TryLock(t.Context())
	mustMention(t, err, "other", "NOREPLICAS")
}

// Whoever waits for a lock, or gives one back, outlasts a primary that refuses writes for a while, and gets what it wanted long before a lease
// is over. So does a call that only begins to wait meanwhile. (Leases are kept: TestRenewalGoesOnAfterTrouble.)
func TestRefusalsThatPass(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		srv := redistest.StartFake(t)
		var kinds []*outlasting
		for _, k := range append([]kindOfLock{several}, allKinds...) {
			kinds = append(kinds, prepare(t, srv, k))
		}
		srv.SetRefusal(refuseWrites(noReplicas))
		for _, o := range kinds {
			o.suffer(t)
		}
		srv.SetRefusal(nil)
		for _, o := range kinds {
			o.outlasted(t)
			free(t, try(t, o.other))
		}
	})
}

// The numbers of semaphores and latches are changed as often as was asked for, be it late.
func TestRefusalsThatPassChangeNumbersOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		srv := redistest.StartFake(t)
		ctx, sc := t.Context(), newScope(t)
		c := sc.open(t, srv.Client(t))
		s, gate := c.UnleasedSemaphore("sem"), closed(t, c, "gate", 2)
		_, err := s.TrySetPermits(ctx, 5)
		must(t, "TrySetPermits", err)
		must(t, "Acquire", s.Acquire(ctx, 4))
		o := ordeal{whose: "a call of"}
		o.begin("Wait", 1, func() error { return gate.Wait(ctx) })
		waiting(t, c, 1)

		srv.SetRefusal(refuseWrites(noReplicas))
		o.begin("Acquire", 3, func() error { return s.Acquire(ctx, 1) })
		o.begin("Release", 2, func() error { return s.Release(ctx, 2) })
		o.begin("AddPermits", 2, func() error { return s.AddPermits(ctx, 10) })
		o.begin("CountDown", 2, func() error { return gate.CountDown(ctx) })
		o.begin("TrySetCount", 1, func() error { _, err := c.Latch("new").TrySetCount(ctx, 7); return err })
		o.lasts(t, func() bool {
			return sc.refused(t, "acquire", "readonly") > 20 && sc.refused(t, "release", "readonly") > 20
		})
		mustMention(t, s.TryAcquire(ctx, 1), "sem", "NOREPLICAS")
		mustBe(t, "permits", available(t, s), 1)
		_, err = c.Mutex("job").ForceUnlock(ctx)
		mustMention(t, err, "job", "NOREPLICAS")
		srv.SetRefusal(nil)
		o.outlasted(t)
		mustBe(t, "permits", available(t, s), 1-3+2*2+2*10)
		mustBe(t, "count", count(t, gate), 0)
		mustBe(t, "count", count(t, c.Latch("new")), 7)
	})
}

// A Quorum, too, outlasts a refusal by all of its nodes.
func TestRefusalsThatPassAtAQuorum(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ns := startNodes(t, 3)
		p := ns.quorum(lock.WithLease(lock.DefaultLease))
		given := p.everywhere(t, p.Mutex("given"))
		o := ordeal{whose: "who"}
		o.begin("waits", group, lockAndRelease(p.Mutex("given")))
		waiting(t, p.clients[0], group)
		ns.refuse(noReplicas)
		o.begin("releases", 1, func() error { return given.Release(context.Background()) })
		o.begin("asks for a free lock", group, lockAndRelease(p.Mutex("free")))
		o.lasts(t, func() bool {
			return p.refused(t, "acquire", "readonly") > 5*group && p.refused(t, "release", "readonly") > 20
		})
		ns.refuse("")
		o.outlasted(t)
		eventually(t, patience, func() bool { return ns.held("given") == 0 && ns.held("free") == 0 })
	})
}

// If Redis goes on refusing, all waiters of a client fail after one lease together, and not one lease after the other.
func TestRefusalThatStaysFailsAllWaitersTogether(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const waiters = 8
		srv := redistest.StartFake(t)
		c := newScope(t).open(t, srv.Client(t), lock.WithLease(ttl))
		free(t, try(t, c.Mutex("job")))
		srv.SetRefusal(refuseWrites("READONLY You can't write against a read only replica."))
		began := time.Now()
		var all []<-chan taken
		for range waiters {
			all = append(all, begin(t.Context(), c.Mutex("job")))
		}
		for _, w := range all {
			mustMention(t, await(t, "Lock", w).err, "job", "READONLY")
		}
		if took := time.Since(began); took < ttl || took > 2*ttl {
			t.Errorf("all have failed after %v, want about %v", took, ttl)
		}
	})
}

// Where Redis is silent, too, the waiters that come after the first don't each wait for answers of their own.
func TestSilenceFailsAllWaitersTogether(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"Mutex", "Quorum"} {
		synctest.Test(t, func(t *testing.T) {
			const lease = 30 * time.Second
			servers := threeServers(t)
			elsewhere := clientsOf(t, newScope(t), servers)
			held := try(t, minHolders(t, elsewhere, lock.WithLease(time.Hour))[kind])
			var cs []*lock.Client
			var wires []*wireTap
			for _, srv := range servers {
				rdb, wire := throughProxy(t, srv)
				cs, wires = append(cs, newScope(t).open(t, rdb, lock.WithLease(lease))), append(wires, wire)
			}
			m := minHolders(t, cs)[kind]
			var all []<-chan taken
			for range 8 {
				all = append(all, begin(t.Context(), m))
				waiting(t, cs[0], len(all))
			}
			synctest.Wait()
			for _, wire := range wires {
				wire.set(redistest.When(redistest.Down, redistest.Hold))
			}
			began := time.Now()
			free(t, held) // they don't hear of it
			var took []time.Duration
			for _, w := range all {
				mustMatch(t, (<-w).err, lock.ErrUnavailable)
				took = append(took, time.Since(began))
			}
			if last := took[len(took)-1]; last < lease || last > took[0]+time.Second {
				t.Errorf("%s: they have failed after %v", kind, took)
			}
		})
	}
}

// If WithWait is over or ctx ends while Redis refuses, the error of Lock has Redis's last refusal, and isn't ErrHeld.
func TestRefusalOutlivesTheWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		srv := redistest.StartFake(t)
		c := newScope(t).open(t, srv.Client(t))
		srv.SetRefusal(refuseWrites(noReplicas))
		_, err := c.Mutex("job", lock.WithWait(300*time.Millisecond)).Lock(t.Context())
		mustMention(t, err, "job", "NOREPLICAS")
		if errors.Is(err, lock.ErrHeld) {
			t.Errorf("%v: nobody holds it", err)
		}
		cause := errors.New("the request is over")
		ctx, cancel := context.WithTimeoutCause(t.Context(), 300*time.Millisecond, cause)
		defer cancel()
		_, err = c.Mutex("job").Lock(ctx)
		mustMention(t, err, "job", "NOREPLICAS")
		mustMatch(t, err, cause)
		if errors.Is(err, lock.ErrHeld) {
			t.Errorf("%v: nobody holds it", err)
		}
	})
}

// TryLock asks a Redis that refuses for a while four times, in a tenth of a second.
func TestTryLockOfARedisThatRefuses(t *testing.T) {
	t.Parallel()
	for _, k := range alikes {
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				srv, s := redistest.StartFake(t), newScope(t)
				c := s.open(t, srv.Client(t))
				for kind, text := range map[string]string{
					"busy": "BUSY Redis is busy running a script.", "readonly": "READONLY You can't write against a read only replica.",
					"loading": "LOADING Redis is loading the dataset in memory",
				} {
					asked := 0
					srv.SetRefusal(func(cmd string, _ ...string) string {
						if cmd != "EVALSHA" {
							return ""
						}
						asked++
						return text
					})
					began := time.Now()
					_, err := k.make(c, "job").TryLock(t.Context())
					took := time.Since(began)
					srv.SetRefusal(nil)
					if !errors.Is(err, lock.ErrUnavailable) || asked != 4 || s.refused(t, "acquire", kind) != 4 || took > 105*time.Millisecond {
						t.Errorf("%v after %d calls and %v; counted: %v", err, asked, took, s.series(t, telemetry.MetricErrors))
					}
				}
			})
		})
	}
}

// A replica says who holds a lock, but takes none, nor takes it away.
func TestReplicaOfAHeldLock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		srv := redistest.StartFake(t)
		c := newScope(t).open(t, srv.Client(t))
		l := try(t, newScope(t).open(t, srv.Client(t)).Mutex("held"))
		srv.SetRefusal(refuseWrites("READONLY You can't write against a read only replica."))
		mustMention(t, errorOf(c.Mutex("job").TryLock(t.Context())), "job", "READONLY")
		mustMatch(t, errorOf(c.Mutex("held").TryLock(t.Context())), lock.ErrHeld)
		mustMention(t, errorOf(c.Mutex("held").ForceUnlock(t.Context())), "held", "READONLY")
		srv.SetRefusal(nil)
		free(t, l)
	})
}
