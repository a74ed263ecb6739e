package lock_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/telemetry"
)

// What becomes of a quorum's tokens, and of nodes that answer late.

// Tokens rise whichever majority grants, though the nodes' counters are far apart and beyond their clocks.
func TestQuorumTokensRise(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const n = 5
		ns := startNodes(t, n)
		parties := []*party{ns.quorum(lock.WithLease(steady)), ns.quorum(lock.WithLease(steady))}
		for _, p := range parties { // connections, scripts, counters
			free(t, p.everywhere(t, p.Mutex("job")))
			ns.mustBeFree("job")
		}
		base := time.Now().Add(1000 * time.Hour).UnixMicro()
		for i, rdb := range ns.raw {
			if err := rdb.Set(t.Context(), fences(t, rdb)[0], base+int64(i)*1_000_000, 0).Err(); err != nil {
				t.Fatal(err)
			}
		}
		last := base
		for round := range 24 {
			down := rand.Perm(n)[:2]
			for _, i := range down {
				ns.mute(i, true)
			}
			l := try(t, parties[round%2].Mutex("job"))
			if l.Token() <= last {
				t.Errorf("round %d, without nodes %v: token %d after %d", round, down, l.Token(), last)
			}
			last = l.Token()
			synctest.Wait() // the others join; those that are down don't
			free(t, l)
			time.Sleep(steady / 10) // they aren't asked any more
			for _, i := range down {
				ns.mute(i, false)
			}
			ns.mustBeFree("job")
		}
		t.Logf("%d tokens past the largest counter", last-base-(n-1)*1_000_000)
	})
}

// If no majority confirms a grant's token, TryLock fails, and the nodes are free.
func TestQuorumNeedsItsTokenConfirmed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ns := startNodes(t, 3)
		a := ns.quorum(lock.WithLease(4 * steady)) // a node has a tenth of it
		m := a.Mutex("job")
		free(t, try(t, m))
		ns.mustBeFree("job")
		ns.drift()
		for _, e := range ns.wires {
			e.set(redistest.When(redistest.Up, redistest.Cut, e.script("raise", "job")))
		}
		_, err := m.TryLock(t.Context())
		if err == nil || errors.Is(err, lock.ErrHeld) || !strings.Contains(err.Error(), "confirm its token") {
			t.Errorf("%v", err)
		}
		ns.mustBeFree("job")
		next := begin(t.Context(), m)
		waiting(t, a.clients[1], 1)
		for _, e := range ns.wires {
			e.set(nil)
		}
		free(t, granted(t, next))
	})
}

// A node that is slow joins the lease when it answers; if that is released by then, nothing is left.
func TestQuorumLateNode(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const lease, slow = 2 * steady, 80 * time.Millisecond // a node has a tenth of it
		ns := startNodes(t, 3)
		a := ns.quorum(lock.WithLease(lease))
		m := a.Mutex("job")
		free(t, try(t, m))
		ns.mustBeFree("job")
		e := ns.wires[2]
		e.set(redistest.ReplyTo(redistest.Hold, e.script("acquire", "job")))
		joined := func() bool { return len(a.clients[2].Leases()) == 1 }
		l := try(t, m)
		if joined() {
			t.Fatal("it waited for the slow node")
		}
		e.proxy.AwaitHeld(t, 1)
		e.proxy.Release()
		synctest.Wait()
		if !joined() {
			t.Fatal("it hasn't joined")
		}
		e.set(redistest.ReplyTo(redistest.Delay(slow), e.script("acquire", "job")))
		if info := a.clients[2].Leases()[0]; info.Token != l.Token() {
			t.Errorf("%+v; the token is %d", info, l.Token())
		}
		ns.raw[0].Del(t.Context(), "job")
		eventually(t, patience, func() bool { return a.sum(t, telemetry.MetricMembersLost) >= 1 })
		end := l.Deadline()
		renewedPast(t, l, end)
		if l.Err() != nil { // the late one is of the majority now
			t.Errorf("%v", l.Err())
		}
		free(t, l)
		ns.mustBeFree("job")

		ctx, cancel := context.WithCancel(t.Context()) // whose end doesn't take the late one along
		l, err := a.Mutex("job", lock.WithLifetime(t.Context())).Lock(ctx)
		if err != nil {
			t.Fatal(err)
		}
		cancel()
		eventually(t, patience, joined)
		free(t, l)
		ns.mustBeFree("job")

		free(t, try(t, m))
		time.Sleep(slow)
		ns.mustBeFree("job")
		if joined() {
			t.Error("it has joined what was released")
		}
	})
}

// A call that fails, or whose caller leaves, leaves nothing at nodes that answer late or never.
func TestQuorumLeavesNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ns := startNodes(t, 3)
		a, b := ns.quorum(lock.WithLease(far)), ns.quorum(lock.WithLease(far)) // nothing runs out while we look
		free(t, try(t, b.Mutex("job")))
		free(t, try(t, a.Mutex("job")))
		ns.mustBeFree("job")

		gone := func() {
			t.Helper()
			synctest.Wait() // the call may be on its way yet: it is gone, too, before it comes
			eventually(t, patience, func() bool { return ns.raw[2].Exists(t.Context(), "job").Val() == 0 })
		}
		// Held by another at a majority; the third node grants it, in time or late.
		for i := range 2 {
			ns.raw[i].HSet(t.Context(), "job", somebodyElse, 1)
		}
		for range 10 {
			_, err := a.Mutex("job").TryLock(t.Context())
			mustMatch(t, err, lock.ErrHeld)
			gone()
		}
		for _, wire := range ns.wires { // until all have been asked
			wire.set(redistest.ReplyTo(redistest.Hold, wire.script("acquire", "job")))
		}
		refused := make(chan error, 1)
		go func() { refused <- errorOf(a.Mutex("job").TryLock(t.Context())) }()
		for _, wire := range ns.wires {
			wire.proxy.AwaitHeld(t, 1)
		}
		for _, wire := range ns.wires[:2] {
			wire.set(nil)
			wire.proxy.Release()
		}
		start := time.Now()
		mustMatch(t, await(t, "TryLock", refused), lock.ErrHeld)
		if took := time.Since(start); took > 0 {
			t.Errorf("it waited for the third node, though two had refused: %v", took)
		}
		e := ns.wires[2]
		e.set(nil)
		e.proxy.Release()
		gone()
		// Its answer is lost, and its caller leaves.
		for _, rule := range []redistest.Rule{
			redistest.ReplyTo(redistest.Drop, e.script("acquire", "job")),
			redistest.ReplyTo(redistest.Hold, e.script("acquire", "job")),
		} {
			e.set(rule)
			ctx, leave := context.WithCancel(t.Context())
			got := begin(ctx, a.Mutex("job"))
			eventually(t, patience, func() bool { // it was told by the others
				return slices.ContainsFunc(a.clients[0].Leases(), func(info lock.LeaseInfo) bool { return info.WaitsFor != "" })
			})
			leave()
			mustMatch(t, await(t, "Lock", got).err, context.Canceled, lock.ErrHeld)
			e.set(nil)
			e.proxy.Release()
			gone()
		}
		if owners := ns.holders("job"); owners[0] != somebodyElse || owners[1] != somebodyElse {
			t.Errorf("somebody else's lock was touched: %v", owners)
		}
	})
}
