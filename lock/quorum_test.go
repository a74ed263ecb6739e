package lock_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/internal/fakeredis"
	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/lock/internal/script"
	"github.com/lockdog/lockdog/telemetry"
)

func TestQuorum(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ns := startNodes(t, 3)
		a, b := ns.quorum(lock.WithLease(steady)), ns.quorum(lock.WithLease(steady))
		l := a.everywhere(t, a.Mutex("job"))
		if owners := ns.holders("job"); l.Name() != "job" || !slices.Contains(owners, l.Owner()) {
			t.Errorf("%s is held by %v, the lease is %q of %q", l.Name(), owners, l.Name(), l.Owner())
		}
		if tokens := l.Tokens(); len(tokens) != 1 || tokens["job"] != l.Token() || l.Token() == 0 {
			t.Errorf("token %d, tokens %v", l.Token(), tokens)
		}
		for i, c := range a.clients {
			if h, err := c.Mutex("job").Inspect(t.Context()); err != nil || h.Token != l.Token() {
				t.Errorf("node %d: %+v, %v; the token is %d", i, h, err, l.Token())
			}
			if infos := c.Leases(); len(infos) != 1 || infos[0].Kind != "quorum" || infos[0].Token != l.Token() || infos[0].Name != "job" {
				t.Errorf("node %d: %+v", i, infos)
			}
		}
		if left := time.Until(l.Deadline()); left <= 0 || left > steady {
			t.Errorf("%v are left", left)
		}
		var held *lock.HeldError
		_, err := b.Mutex("job").TryLock(t.Context())
		if !errors.As(err, &held) || held.Name != "job" || held.Remaining <= 0 || !slices.Contains(ns.holders("job"), held.Owner) {
			t.Errorf("another's TryLock: %v", err)
		}
		eventually(t, patience, func() bool { return a.sum(t, telemetry.MetricRenewals, "lockdog.outcome=renewed") >= 2*3 })
		if l.Err() != nil || l.Context().Err() != nil || ns.held("job") != 3 {
			t.Errorf("after two renewals: %v, held at %d", l.Err(), ns.held("job"))
		}
		free(t, l)
		ns.mustBeFree("job")
	})
}

// A minority that is down, or silent, costs nothing; more than that is an error with what each node said.
func TestQuorumDoesWithoutAMinority(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const lease = 6 * time.Second // a node has a tenth of it
		ns := startNodes(t, 5)
		a := ns.quorum(lock.WithLease(lease))
		m := a.Mutex("job")
		free(t, try(t, m)) // connections, scripts
		ns.mustBeFree("job")

		ns.servers[1].Kill(t)
		ns.mute(3, true)
		start := time.Now()
		free(t, try(t, m))
		if took := time.Since(start); took > 0 {
			t.Errorf("without two of five it took %v", took)
		}
		time.Sleep(lease / 10) // it isn't asked any more
		ns.mute(3, false)
		l := try(t, m)
		synctest.Wait()
		if n := ns.held("job"); n != 4 {
			t.Errorf("held at %d nodes, four of five answer", n)
		}
		ns.mute(3, true) // a member
		start = time.Now()
		free(t, l)
		next := begin(t.Context(), m)
		free(t, granted(t, next))
		if took := time.Since(start); took > 0 {
			t.Errorf("the release and the next turn took %v when a node fell silent", took)
		}

		ns.mute(0, true)
		start = time.Now()
		_, err := m.TryLock(t.Context())
		took := time.Since(start)
		if err == nil || errors.Is(err, lock.ErrHeld) {
			t.Fatalf("with two of five: %v", err)
		}
		for i, want := range []string{"timeout", "", "-", "timeout", "-"} { // that it is dead is seen in time, or not
			if at := "at " + ns.wires[i].proxy.Addr() + ": "; want != "-" && !strings.Contains(err.Error(), at+want) && !strings.Contains(err.Error(), at+"lockdog: "+want) {
				t.Errorf("the error doesn't say %q, %q: %v", at, want, err)
			}
		}
		if took > lease/10 {
			t.Errorf("it took %v to see that too few nodes answer", took)
		}
		eventually(t, patience, func() bool { return ns.held("job") == 0 })

		// Lock waits for nodes to come back.
		next = begin(t.Context(), m)
		time.Sleep(lease / 8)
		ns.mute(0, false)
		free(t, granted(t, next))
		ns.mute(3, false)
	})
}

// When Release has returned, the end of its ctx doesn't stop the releases at nodes that haven't answered yet. They go
// on for nodeTimeout, and one that is answered within that time isn't reported as failed.
func TestQuorumReleaseOutlivesItsCaller(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ns := startNodes(t, 3)
		a := ns.quorum(lock.WithLease(20 * time.Second)) // nodeTimeout is 2 s
		l := a.everywhere(t, a.Mutex("job"))
		late := ns.wires[2]
		late.set(redistest.ReplyTo(redistest.Hold, late.script("release", "job")))
		ctx, cancel := context.WithCancel(t.Context())
		if err := l.Release(ctx); err != nil {
			t.Fatal(err)
		}
		late.proxy.AwaitHeld(t, 1)
		cancel()
		time.Sleep(50 * time.Millisecond) // in which a call that went by ctx would end
		late.set(nil)
		late.proxy.Release()
		eventually(t, patience, func() bool { return len(a.spansNamed("release member default")) == 3 })
		for _, span := range a.spansNamed("release member default") {
			if got := attrsOf(span)[telemetry.KeyOutcome]; got != "released" {
				t.Errorf("a release ended as %s: %v", got, attrsOf(span))
			}
		}

		// A ctx that ends before a majority is free ends the wait for it.
		l = a.everywhere(t, a.Mutex("job"))
		for _, w := range ns.wires {
			w.set(redistest.ReplyTo(redistest.Hold, w.script("release", "job")))
		}
		gone := errors.New("the client has gone")
		cut, cutOff := context.WithCancelCause(t.Context())
		released := make(chan error, 1)
		go func() { released <- l.Release(cut) }()
		for _, w := range ns.wires {
			w.proxy.AwaitHeld(t, 1)
		}
		cutOff(gone)
		mustMatch(t, await(t, "Release", released), gone)
	})
}

// The lease lives as long as a majority does. When that is gone, so is the lease, the cause says where, and what is left
// isn't renewed.
func TestQuorumLosesItsMajority(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ns := startNodes(t, 3)
		a := ns.quorum(lock.WithLease(steady))
		l := a.everywhere(t, a.Mutex("job"))
		work := l.Context()
		ns.raw[0].Del(t.Context(), "job")
		eventually(t, patience, func() bool { return a.sum(t, telemetry.MetricMembersLost) == 1 })
		lost := time.Now()
		renewedPast(t, l, lost.Add(steady)) // by a call that was made since
		if l.Err() != nil || work.Err() != nil {
			t.Fatalf("with two of three: %v, %v", l.Err(), work.Err())
		}
		ns.raw[2].Del(t.Context(), "job")
		mustBeLost(t, l, lock.CauseMissing)
		if work.Err() == nil {
			t.Error("its Context lives")
		}
		for _, i := range []int{0, 2} {
			if at := "at " + ns.wires[i].proxy.Addr(); !strings.Contains(l.Err().Error(), at) {
				t.Errorf("it isn't said that it was lost %s: %v", at, l.Err())
			}
		}
		eventually(t, patience, func() bool { return ns.held("job") == 0 }) // though nobody has released it
		mustMatch(t, l.Release(t.Context()), lock.ErrLost)
	})
}

// A lease without renewal is over when the majority's are, whether anybody looks at it or not.
func TestQuorumDeadline(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const lease = 1500 * time.Millisecond
		ns := startNodes(t, 3)
		a := ns.quorum()
		start := time.Now()
		l := try(t, a.Mutex("job", lock.WithFixedLease(lease)))
		const margin = lease/100 + 2*time.Millisecond
		if d := l.Deadline().Sub(start); d != lease-margin {
			t.Errorf("the deadline is %v after the call", d)
		}
		mustBeLost(t, l, lock.CauseExpired)
		if late := time.Since(l.Deadline()); late != 0 {
			t.Errorf("lost %v after its deadline", late)
		}
	})
}

func TestQuorumReentry(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ns := startNodes(t, 3)
		a := ns.quorum(lock.WithLease(2 * steady))
		l := a.everywhere(t, a.Mutex("job"))
		for _, m := range []lock.Locker{a.Mutex("job"), a.clients[1].Mutex("job")} {
			mustMatch(t, second(m.Lock(l.Context())), lock.ErrDeadlock)
		}
		ns.raw[1].Del(t.Context(), "job")
		eventually(t, patience, func() bool { return a.sum(t, telemetry.MetricMembersLost) == 1 })
		inner, err := a.Mutex("job", lock.WithReentrancy()).Lock(l.Context())
		if err != nil || inner.Token() != l.Token() {
			t.Fatalf("%v, token %d within %d", err, inner.Token(), l.Token())
		}
		free(t, l)
		if inner.Err() != nil || ns.held("job") != 2 {
			t.Errorf("%v, held at %d", inner.Err(), ns.held("job"))
		}
		free(t, inner)
		ns.mustBeFree("job")

		one := try(t, a.clients[0].Mutex("job"))
		_, err = a.Mutex("job", lock.WithReentrancy()).Lock(one.Context())
		mustMatch(t, err, lock.ErrDeadlock)
		if one.Err() != nil || one.Context().Err() != nil {
			t.Errorf("%v", one.Err())
		}
		free(t, one)

		// Only one of the clients joins: then none does.
		mixed, err := lock.NewQuorum(newScope(t).open(t, ns.servers[0].Client(t), lock.WithReentrancy(), lock.WithLease(2*steady)), a.clients[1], a.clients[2])
		must(t, "NewQuorum", err)
		l = try(t, mixed.Mutex("job"))
		mustMatch(t, second(mixed.Mutex("job").Lock(l.Context())), lock.ErrDeadlock)
		free(t, l)
		ns.mustBeFree("job")
	})
}

// One of three clients closes as its node grants the lock: the other two form the lease then, which is renewed, and counted, like any other.
func TestQuorumClosedAsItGrants(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ns := startNodes(t, 3)
		a := ns.quorum(lock.WithLease(2 * steady))
		free(t, a.everywhere(t, a.Mutex("before"))) // the servers know the scripts
		ns.mute(2, true)
		ns.wires[1].set(redistest.When(redistest.Down, redistest.Delay(100*time.Millisecond)))
		got := begin(t.Context(), a.Mutex("job", lock.WithMaxHold(time.Hour)))
		time.Sleep(50 * time.Millisecond)
		closed := closing(a.clients[1], t.Context())
		time.Sleep(time.Second)
		ns.mute(2, false)
		l := granted(t, got)
		time.Sleep(4 * steady)
		if l.Context().Err() != nil {
			t.Errorf("it ended: %v", context.Cause(l.Context()))
		}
		for _, i := range a.clients[0].Leases() {
			if i.Since.IsZero() || i.Token == 0 {
				t.Errorf("%+v", i)
			}
		}
		free(t, l)
		must(t, "Close", <-closed)
		synctest.Wait()
		if n := a.unended.Load(); n != 0 {
			t.Errorf("%d spans have no end", n)
		}
	})
}

// If one client closes and too few nodes are left, TryLock returns why the others didn't grant the lock, and not
// ErrClosed.
func TestQuorumClosedAsItGrants_TryLock(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ns := startNodes(t, 3)
		a, b := ns.quorum(lock.WithLease(2*steady)), ns.quorum(lock.WithLease(2*steady))
		free(t, a.everywhere(t, a.Mutex("before"))) // the servers know the scripts
		other := try(t, b.clients[2].Mutex("job"))
		ns.wires[1].set(redistest.When(redistest.Down, redistest.Delay(100*time.Millisecond)))
		got := make(chan error, 1)
		go func() { got <- second(a.Mutex("job").TryLock(t.Context())) }()
		time.Sleep(50 * time.Millisecond)
		closed := closing(a.clients[1], t.Context())
		err := await(t, "TryLock", got)
		mustMatch(t, err, lock.ErrHeld)
		if errors.Is(err, lock.ErrClosed) {
			t.Errorf("%v; two of three clients are open", err)
		}
		must(t, "Close", await(t, "Close", closed))
		free(t, other)
		ns.mustBeFree("job")
	})
}

// Close of one of the clients waits for the holder to release its part of the lease. When the lease loses its majority
// elsewhere, that part is renewed no more, and Close returns.
func TestQuorumLostWhileClosing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ns := startNodes(t, 3)
		a := ns.quorum(lock.WithLease(steady))
		l := a.everywhere(t, a.Mutex("job"))
		ctx, cancel := context.WithTimeout(t.Context(), patience/2)
		defer cancel()
		closed := closing(a.clients[2], ctx)
		eventually(t, patience, func() bool {
			all := a.clients[2].Leases()
			return len(all) == 1 && all[0].State == lock.StateCanceled
		})
		for _, node := range ns.raw[:2] {
			node.Del(t.Context(), "job")
		}
		await(t, "Done", l.Ended())
		mustMatch(t, l.Err(), lock.ErrLost)
		must(t, "Close", await(t, "Close", closed))
	})
}

// One client that closes is one node less; a majority of them ends what it holds and what waits.
func TestQuorumClose(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ns := startNodes(t, 3)
		a, b := ns.quorum(lock.WithLease(steady)), ns.quorum(lock.WithLease(steady))
		l := a.everywhere(t, a.Mutex("job"))
		next := begin(t.Context(), b.Mutex("job"))
		waiting(t, b.clients[0], 1)
		for _, p := range []*party{a, b} {
			closeSoon(p.clients[2]) // and abandons its part of the lease
		}
		since := time.Now()
		renewedPast(t, l, since.Add(steady)) // by a call that was made since
		if l.Err() != nil || l.Context().Err() != nil {
			t.Errorf("with two of three clients: %v", l.Err())
		}
		free(t, l)
		l = granted(t, next)
		next = begin(t.Context(), b.Mutex("job"))
		waiting(t, b.clients[0], 1)
		time.Sleep(quorumLease / 4)
		start := time.Now()
		closed := closing(b.clients[0], context.Background())
		mustMatch(t, await(t, "Lock", next).err, lock.ErrClosed)
		if took := time.Since(start); took > 0 {
			t.Errorf("who waited heard of the end after %v", took)
		}
		mustMatch(t, mustBeCanceled(t, l, lock.ReasonClosed), lock.ErrClosed)
		if l.Err() != nil {
			t.Errorf("it has ended before its holder could wind down: %v", l.Err())
		}
		free(t, l)
		must(t, "Close", await(t, "Close", closed))
		for _, take := range []func(context.Context) (*lock.Lease, error){b.Mutex("job").TryLock, b.Mutex("job").Lock} {
			mustMatch(t, second(take(t.Context())), lock.ErrClosed)
		}
		eventually(t, patience, func() bool { return ns.held("job") == 0 })

		// When two of three clients close, and abandon their parts of a lease, the lease ends. The part at the third node
		// isn't renewed for ever.
		p := ns.quorum()
		l = p.everywhere(t, p.Mutex("job"))
		closeSoon(p.clients[0])
		closeSoon(p.clients[1])
		await(t, "Done", l.Ended())
		mustMatch(t, l.Release(t.Context()), lock.ErrClosed)
		eventually(t, patience, func() bool { return ns.held("job") == 0 })
	})
}

// A node that grants the lock late, while its client closes, was never counted on: it must not cost the lease a node.
func TestQuorumLateVoteOfAClosingClient(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var servers []*redistest.Fake
		var clients []*lock.Client
		late := map[int]*gate{3: newGate(), 4: newGate()}
		for i := range 5 {
			var tap fakeredis.Tap
			if g := late[i]; g != nil {
				tap.Up = func(cmd redis.Cmder) error {
					if script.Acquire.IsRunBy(cmd) {
						g.pass()
					}
					return nil
				}
			}
			servers = append(servers, redistest.StartFake(t))
			clients = append(clients, openTapped(t, servers[i], tap))
		}
		q, err := lock.NewQuorum(clients...)
		must(t, "NewQuorum", err)
		l, err := q.Mutex("job").TryLock(context.Background())
		must(t, "TryLock", err)
		close(late[3].opened)
		synctest.Wait() // it is held at four nodes
		closed := closing(clients[4], context.Background())
		synctest.Wait()
		close(late[4].opened)
		must(t, "Close", <-closed)

		lose(t, servers[0], "job", func(rdb *redis.Client) { rdb.Del(t.Context(), "job") })
		synctest.Wait()
		if err := l.Err(); err != nil {
			t.Errorf("held at three of five nodes, it ended: %v", err)
		}
		free(t, l)
	})
}

// The error of a Quorum whose nodes lack replicas matches ReplicasError. It doesn't say "no answer" of nodes whose
// answer wasn't needed any more.
func TestQuorumWithoutReplicasSaysWhy(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var clients []*lock.Client
		for range 3 {
			clients = append(clients, newScope(t).open(t, redistest.StartFake(t).Client(t)))
		}
		q, err := lock.NewQuorum(clients...)
		if err != nil {
			t.Fatal(err)
		}
		_, err = q.Mutex("job", lock.WithReplicas(1, 50*time.Millisecond)).TryLock(t.Context())
		if replicas := (*lock.ReplicasError)(nil); !errors.As(err, &replicas) {
			t.Fatalf("TryLock: %v", err)
		}
		if text := err.Error(); strings.Contains(text, "no answer") || !strings.Contains(text, "0 of 3 nodes gave an answer that counts") {
			t.Errorf("TryLock: %v", err)
		}
	})
}
