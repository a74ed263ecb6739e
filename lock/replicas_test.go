package lock_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock"
)

// replicaShapes are those with one replica of the server that has a lock.
var replicaShapes = []struct {
	name  string
	start func(t *testing.T, name string) (rdb redis.UniversalClient, primary, replica *redistest.Server)
}{
	{"primary+replica", func(t *testing.T, _ string) (redis.UniversalClient, *redistest.Server, *redistest.Server) {
		r := redistest.StartReplicated(t, 1)
		return redistest.Open(t, patient(r)), r.Primary, r.Replicas[0]
	}},
	{"cluster", func(t *testing.T, name string) (redis.UniversalClient, *redistest.Server, *redistest.Server) {
		c := redistest.StartCluster(t, 1)
		withReplicasWhileSlotMoves(t, c)
		primary := c.Owner(t, c.Slot(t, name))
		return redistest.Open(t, patient(c)), primary, replicaOf(t, c, primary)
	}},
}

// patient are options of a client that waits for a replica as long as a test does.
func patient(s interface {
	Universal() *redis.UniversalOptions
},
) *redis.UniversalOptions {
	o := s.Universal()
	o.ReadTimeout = 4 * patience
	return o
}

func TestWithReplicas(t *testing.T) {
	t.Parallel()
	for _, shape := range replicaShapes {
		t.Run(shape.name, func(t *testing.T) {
			t.Parallel()
			const name = "job"
			rdb, primary, replica := shape.start(t, name)
			client := newScope(t).open(t, rdb, lock.WithLease(far))
			m := client.Mutex(name, lock.WithReplicas(1, 2*patience))
			l := try(t, m)
			own := replica.Client(t)
			conn := own.Conn()
			defer func() { _ = conn.Close() }()
			_ = conn.ReadOnly(t.Context()) // of a cluster's replica
			if n, err := conn.Exists(t.Context(), name).Result(); n != 1 || err != nil {
				t.Errorf("the replica has it: %d, %v", n, err)
			}
			free(t, l)

			replica.Pause(t)
			defer replica.Resume(t)
			var few *lock.ReplicasError
			_, err := client.Mutex(name, lock.WithReplicas(1, 100*time.Millisecond)).TryLock(t.Context())
			if !errors.As(err, &few) || few.Wanted != 1 || few.Acked != 0 || few.Name != name || few.Within != 100*time.Millisecond {
				t.Errorf("%+v, %v", few, err)
			}
			server := primary.Client(t)
			if n := server.Exists(t.Context(), name).Val(); n != 0 {
				t.Error("the grant wasn't undone before the call failed")
			}
			if left := client.Leases(); len(left) != 0 {
				t.Errorf("left: %+v", left)
			}

			// Lock waits until the replica is back, once it waits at all.
			if err := server.HSet(t.Context(), name, "somebody:1", 1).Err(); err != nil {
				t.Fatal(err)
			}
			if err := server.PExpire(t.Context(), name, 300*time.Millisecond).Err(); err != nil {
				t.Fatal(err)
			}
			next := begin(context.Background(), client.Mutex(name, lock.WithReplicas(1, 100*time.Millisecond)))
			pass(t, 1500*time.Millisecond)
			select {
			case got := <-next:
				t.Fatalf("Lock returned without a replica: %v", got.err)
			default:
			}
			replica.Resume(t)
			l = granted(t, next)
			always(t, 500*time.Millisecond, func() bool { return server.HGet(t.Context(), name, l.Owner()).Val() == "1" })
			free(t, l)
		})
	}
}

// scarce has a Mutex, and a Multi, ask for a replica that isn't there, of a server that knows the scripts.
func scarce(t *testing.T, test func(t *testing.T, srv *redistest.Fake, wire *wireTap, m lock.Locker)) {
	for name, describe := range map[string]func(c *lock.Client) lock.Locker{
		"Mutex": func(c *lock.Client) lock.Locker { return c.Mutex("job", lock.WithReplicas(1, time.Millisecond)) },
		"Multi": func(c *lock.Client) lock.Locker {
			return c.Multi([]string{"job", "other"}, lock.WithReplicas(1, time.Millisecond))
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				srv := redistest.StartFake(t)
				rdb, wire := throughProxy(t, srv)
				c := open(t, rdb, lock.WithLease(time.Hour))
				free(t, try(t, c.Mutex("before")))
				free(t, try(t, c.Multi([]string{"before", "and after"})))
				test(t, srv, wire, describe(c))
				time.Sleep(10 * time.Second)
				if n := srv.Client(t).Exists(t.Context(), "job", "other").Val(); n != 0 {
					t.Error("it is held by nobody")
				}
			})
		})
	}
}

// If the ACL forbids WAIT, what the script took is given back, also if the caller has left before the answer.
func TestWithReplicasRefused(t *testing.T) {
	t.Parallel()
	scarce(t, func(t *testing.T, srv *redistest.Fake, wire *wireTap, m lock.Locker) {
		srv.SetRefusal(refuseAny([]string{"WAIT"}, "NOPERM this user has no permissions to run the 'wait' command"))
		if _, err := m.TryLock(t.Context()); err == nil || !strings.Contains(err.Error(), "WAIT: NOPERM") {
			t.Error(err)
		}
		time.Sleep(5 * time.Second)
		if n := srv.Client(t).Exists(t.Context(), "job").Val(); n != 0 {
			t.Error("the call has failed, and it is held")
		}
		wire.set(redistest.When(redistest.Down, redistest.Delay(time.Second)))
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		mustMatch(t, second(m.TryLock(ctx)), context.DeadlineExceeded)
		if n := srv.Client(t).Exists(t.Context(), "job").Val(); n != 1 {
			t.Fatal("it wasn't granted: this test shows nothing")
		}
	})
}

// A call that gives back what too few replicas have ends with its ctx, also if Redis doesn't answer.
func TestWithReplicasTooFew_CallerLeaves(t *testing.T) {
	t.Parallel()
	scarce(t, func(t *testing.T, _ *redistest.Fake, wire *wireTap, m lock.Locker) {
		release, both := wire.script("release", "job"), wire.script("batch", "job")
		wire.set(redistest.ReplyTo(redistest.Delay(3*time.Second), func(c redistest.Chunk) bool { return release(c) || both(c) }))
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		start := time.Now()
		_, err := m.TryLock(ctx)
		if took := time.Since(start); err == nil || took > 350*time.Millisecond { // see GUARANTEES
			t.Errorf("%v, after %v", err, took)
		}
	})
}

// withReplicasWhileSlotMoves takes locks while their slot moves. go-redis doesn't follow redirections for a call with
// WAIT, so lockdog does.
func withReplicasWhileSlotMoves(t *testing.T, c *redistest.Cluster) {
	t.Helper()
	client := newScope(t).open(t, redistest.Open(t, patient(c)), lock.WithLease(far), lock.WithReplicas(1, 2*patience))
	free(t, try(t, client.Mutex("{m}a")))
	slot := c.Slot(t, "{m}")
	m := c.Migrate(t, slot, otherNode(t, c, slot))
	free(t, try(t, client.Mutex("{m}a"))) // TRYAGAIN, then ASK
	m.MoveKeys(t)
	l := try(t, client.Mutex("{m}b"))
	m.Finish(t)
	free(t, try(t, client.Mutex("{m}a"))) // MOVED
	free(t, l)
}

// TestWithReplicasSweepsOldBidsOnly delays the removal of a grant that too few replicas confirmed until the waiter has the
// lock: it must not take that away.
func TestWithReplicasSweepsOldBidsOnly(t *testing.T) {
	t.Parallel()
	const name = "job"
	r := redistest.StartReplicated(t, 1)
	rdb, wire := throughProxy(t, r.Primary, answerWithin(stretched(patience))) // what is held isn't sent again
	client := newScope(t).open(t, rdb, lock.WithLease(far))
	server, replica := r.Primary.Client(t), r.Replicas[0]
	unlock := func() {
		t.Helper()
		must(t, "unlock", errors.Join(server.Del(t.Context(), name).Err(), server.Publish(t.Context(), "redisson_lock__channel:{"+name+"}", "0").Err()))
	}
	must(t, "HSET", errors.Join(server.HSet(t.Context(), name, "somebody:1", 1).Err(), server.PExpire(t.Context(), name, far).Err()))
	next := begin(context.Background(), client.Mutex(name, lock.WithReplicas(1, 300*time.Millisecond)))
	waiting(t, client, 1)
	listenedTo(t, server, name)
	wire.set(redistest.When(redistest.Up, redistest.Hold, wire.script("release", client.Leases()[0].Owner), redistest.Nth(1)))
	replica.Pause(t)
	unlock()
	wire.proxy.AwaitHeld(t, 1) // the first grant is being undone ...
	replica.Resume(t)
	unlock() // ... and gone by another way, so that the next attempt can win, or one that the replica is in time for
	l := granted(t, next)
	wire.set(nil)
	wire.proxy.Release()
	always(t, time.Second, func() bool { return server.HGet(t.Context(), name, l.Owner()).Val() == "1" })
	free(t, l)
}
