package lock

import (
	"context"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock/internal/script"
	"github.com/lockdog/lockdog/lock/internal/waitset"
	"github.com/lockdog/lockdog/telemetry"
)

// Between a waiter's look at a remote grant and its taking it, a release in this process hands it the lock.
func TestAcceptAfterHandOver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := openFor(t, redistest.StartFake(t).Client(t))
		m := c.Mutex("job")
		holder := &claim{lock: &m.lock, owner: c.newOwner()}
		cl := &claim{lock: &m.lock, owner: c.newOwner()}
		w := c.waits.enter(t.Context(), &m.lock, cl, &acquireParams{}, acquireReply{}, nil)
		c.waits.mu.Lock()
		w.q.membership.Message("7 1700000000000000 -\n"+cl.owner+"\nanother:1", cl.owner)
		c.waits.mu.Unlock()
		if next, _ := c.waits.turnOf(t.Context(), w, &telemetry.Acquire{}); next != turnOffered {
			t.Fatal(next)
		}
		h, _, _, _ := c.waits.beginHandOver(&m.lock) // the release of the holder, on another goroutine
		if h == nil {
			t.Fatal("it isn't handed over")
		}
		h.succeeded(&grant{lock: &m.lock, claim: holder}, releaseReply{})
		if _, _, ok := c.waits.accept(w); ok {
			t.Error("it takes the remote grant, too")
		}
	})
}

// A hand-over removes from the wait set the entry by which a release could grant the waiter the lock, also if the client
// has become slow since: its new entry has no owner.
func TestHandOverRemovesTheGrantableEntry(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		srv, ctx := redistest.StartFake(t), t.Context()
		c, rdb := openFor(t, srv.Client(t)), srv.Client(t)
		m := c.Mutex("job")
		l, err := m.TryLock(ctx)
		if err != nil {
			t.Fatal(err)
		}
		cl := &claim{lock: &m.lock, owner: c.newOwner()}
		w := c.waits.enter(ctx, &m.lock, cl, &acquireParams{}, acquireReply{}, nil)
		synctest.Wait() // until it is subscribed
		c.waits.mu.Lock()
		q := w.q
		attempt := q.startAsking()
		c.waits.mu.Unlock()
		v, err := c.ops.sendAcquire(ctx, cl, &attempt.params)
		c.waits.mu.Lock()
		q.headRefused(&attempt, v)
		c.waits.mu.Unlock()
		set := func() []string { return rdb.ZRange(ctx, script.WaitSetKey("job"), 0, -1).Val() }
		if entries := set(); err != nil || len(entries) != 1 || !waitset.MayBeGranted(entries[0]) {
			t.Fatalf("%v: the wait set has %q", err, entries)
		}

		c.waits.mu.Lock()
		q.membership.Message(strconv.FormatInt(time.Now().Add(-waitset.MaxTrust).UnixMicro(), 10), cl.owner)
		q.due = wakeNone // it doesn't come to asking
		c.waits.mu.Unlock()
		if err := l.Release(ctx); err != nil || w.won == nil {
			t.Fatalf("it isn't handed over: %v", err)
		}
		if entries := set(); len(entries) != 0 {
			t.Errorf("the wait set has %q", entries)
		}
		cl.undo(ctx)
	})
}

// The last waiter leaves before the grant to a waiter of another client ends. If that client is dead, somebody has to
// wake all others after the end, which may come sooner or later than the waiter's own lease suggests.
func TestLastWaiterLeavesBeforeAGrantEnds(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		lease time.Duration // of the waiter
		left  time.Duration // when it leaves, from the start
		asks  bool          // before it leaves
	}{
		"at once":                    {DefaultLease, 0, false},
		"just before its fallback":   {DefaultLease, waitset.MaxTrust + fallbackAfter/2, false},
		"after it has asked":         {DefaultLease, time.Second, true},
		"with a shorter lease":       {time.Second, 0, false},
		"with a shorter lease, late": {time.Second, time.Second, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				srv, start := redistest.StartFake(t), time.Now()
				c, rdb := openFor(t, srv.Client(t)), srv.Client(t)
				m := c.Mutex("job", WithLease(tt.lease))
				w := c.waits.enter(t.Context(), &m.lock, &claim{lock: &m.lock, owner: c.newOwner()}, &acquireParams{}, acquireReply{}, nil)
				synctest.Wait() // until it is subscribed
				others := rdb.Subscribe(t.Context(), script.Channel("job"))
				defer func() { _ = others.Close() }()
				if _, err := others.Receive(t.Context()); err != nil {
					t.Fatal(err)
				}
				rdb.HSet(t.Context(), "job", "dead:1", 1)
				rdb.PExpire(t.Context(), "job", waitset.MaxTrust)
				end := start.Add(waitset.MaxTrust)
				c.waits.mu.Lock()
				q := w.q
				q.setFallback(true)
				c.waits.mu.Unlock()
				if tt.asks {
					c.waits.mu.Lock()
					q.startAsking()
					q.headRefused(&headAttempt{}, acquireReply{AcquireReply: script.AcquireReply{Owner: "dead:1", Remaining: waitset.MaxTrust}})
					c.waits.mu.Unlock()
				}
				time.Sleep(time.Until(start.Add(tt.left)))
				c.waits.mu.Lock()
				unheeded := q.leaving(w)
				after := c.waits.leave(w)
				c.waits.mu.Unlock()
				after()
				if unheeded {
					t.Error("the cleanup is to wake all now")
				}
				ctx, cancel := context.WithTimeout(t.Context(), 2*waitset.MaxTrust)
				defer cancel()
				_, err := others.ReceiveMessage(ctx)
				if late := time.Since(end); err != nil || late < 0 || late > 2*fallbackAfter {
					t.Errorf("all are woken %v after the end, %v", late, err)
				}
			})
		})
	}
}

// A claim that may be granted the lock once more isn't given back before WithMinHold is over.
func TestGivenBackAfterMinHold(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, ctx := openFor(t, redistest.StartFake(t).Client(t)), t.Context()
		m := c.Mutex("job", WithMinHold(10*time.Second))
		l, err := m.TryLock(ctx)
		if err != nil {
			t.Fatal(err)
		}
		until := time.Now().Add(10 * time.Second)
		cl := l.target.(*grant).claim
		cl.SetWaitEntry(script.Entry(c.waits.set.Tag(), waitset.MaxTrust, "", cl.owner))
		if err := l.Release(ctx); err != nil {
			t.Fatal(err)
		}
		c.waits.mu.Lock()
		c.waits.set.GiveBackAbandoned(cl.owner)
		c.waits.mu.Unlock()
		next, err := m.Lock(ctx)
		if early := time.Until(until); err != nil || early > 0 {
			t.Fatalf("it got the lock %v too early, %v", early, err)
		}
		if err := next.Release(ctx); err != nil {
			t.Error(err)
		}
	})
}
