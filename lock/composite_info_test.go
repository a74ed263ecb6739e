package lock_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockdog/lockdog/internal/fakeredis"
	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock"
)

// triple is a Quorum of three servers, of which any can be cut off.
type triple struct {
	*lock.Quorum
	servers []*redistest.Fake
	clients []*lock.Client
	down    [3]atomic.Bool
}

func newTriple(t *testing.T, opts ...lock.Option) *triple {
	t.Helper()
	r := &triple{}
	for i := range 3 {
		r.servers = append(r.servers, redistest.StartFake(t))
		r.clients = append(r.clients, openTapped(t, r.servers[i], cutWhile(&r.down[i]), opts...))
	}
	var err error
	if r.Quorum, err = lock.NewQuorum(r.clients...); err != nil {
		t.Fatal(err)
	}
	return r
}

// states are those of a composite's members, in their order.
func states(c *lock.CompositeInfo) string {
	var out []string
	for _, m := range c.Members {
		out = append(out, string(m.State))
	}
	return strings.Join(out, " ")
}

// composite is that of the client's only lease.
func composite(t *testing.T, c *lock.Client) *lock.CompositeInfo {
	t.Helper()
	all := c.Leases()
	if len(all) == 0 || all[0].Composite == nil {
		t.Fatalf("no composite: %+v", all)
	}
	return all[0].Composite
}

func TestCompositeInfo_Quorum(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newTriple(t, lock.WithLease(9*time.Second))
		r.down[2].Store(true)
		l := try(t, r.Mutex("job"))
		time.Sleep(time.Second)
		synctest.Wait()
		c := composite(t, r.clients[0])
		if c.Name != "job" || c.Kind != "quorum" || c.Need != 2 || c.Held() != 2 || c.State != lock.StateHeld || c.LastError != nil || c.Owner != l.Owner() ||
			c.Token != l.Token() || !c.Deadline.Equal(l.Deadline()) || c.Node != "" || states(c) != "held held absent" {
			t.Errorf("without the third node: %+v", c)
		}
		for i, m := range c.Members {
			if m.Node != r.servers[i].Addr() || m.Kind != "quorum" || m.Composite != nil {
				t.Errorf("node %d: %+v", i, m)
			}
		}
		if m := c.Members[2]; !errors.Is(m.LastError, errReset) || m.ErrorAt.IsZero() || m.Owner != "" {
			t.Errorf("the third: %+v", m)
		}
		if other := composite(t, r.clients[1]); other.ID != c.ID || r.clients[0].Leases()[0].Node != r.servers[0].Addr() {
			t.Errorf("the same at another client: %d, %d", other.ID, c.ID)
		}

		r.down[1].Store(true)
		began := time.Now()
		time.Sleep(5 * time.Second)
		c = composite(t, r.clients[0])
		m := c.Members[1]
		if c.State != lock.StateHeld || !errors.Is(c.LastError, errReset) || !strings.Contains(c.LastError.Error(), "at "+r.servers[1].Addr()+": ") ||
			!errors.Is(m.LastError, errReset) || !c.FailingSince.Equal(m.FailingSince) || !m.FailingSince.After(began) || m.ErrorAt.Before(m.FailingSince) || c.Members[0].LastError != nil {
			t.Errorf("while it fails at one more: %+v", c)
		}

		<-l.Ended()
		synctest.Wait()
		c = composite(t, r.clients[0])
		if c.State != lock.StateLost || !errors.Is(c.LastError, lock.ErrLost) || c.Held() != 1 || states(c) != "canceled lost absent" {
			t.Errorf("lost: %s, %+v", states(c), c)
		}
		mustMatch(t, l.Release(t.Context()), lock.ErrLost)
		ended := r.clients[1].Recent()[0]
		want := lock.EndedComposite{ID: c.ID, Name: "job", Need: 2, Members: 3, End: "lost"}
		if ended.Node != r.servers[1].Addr() || ended.Composite == nil || *ended.Composite != want {
			t.Errorf("the end: %+v, %+v", ended, ended.Composite)
		}
	})
}

// A Quorum that loses one node is held on, and says so of that member's end.
func TestEndedComposite_HeldOn(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newTriple(t, lock.WithLease(9*time.Second))
		l := try(t, r.Mutex("job"))
		time.Sleep(time.Second) // so that all nodes are in
		del(t, r.servers[0], "job")
		time.Sleep(5 * time.Second)
		c := composite(t, r.clients[1])
		if c.State != lock.StateHeld || c.Held() != 2 || states(c) != "lost held held" || !errors.Is(c.Members[0].LastError, lock.ErrLost) {
			t.Errorf("%s, %+v", states(c), c)
		}
		if e := r.clients[0].Recent()[0]; e.End != "lost" || e.Composite.End != "" || e.Composite.ID != c.ID {
			t.Errorf("the end: %+v, %+v", e, e.Composite)
		}
		for _, s := range r.servers[1:] {
			del(t, s, "job")
		}
		mustMatch(t, l.Release(t.Context()), lock.ErrLost)
		synctest.Wait()
		first, second := r.clients[1].Recent()[0].Composite.End, r.clients[2].Recent()[0].Composite.End
		if first != "lost" || second != "lost" {
			t.Errorf("gone when it was released: %q, %q", first, second)
		}
	})
}

// While it is released, nothing is missing.
func TestCompositeInfo_Releasing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newTriple(t, lock.WithLease(9*time.Second))
		l := try(t, r.Mutex("job"))
		time.Sleep(time.Second)
		r.down[2].Store(true)
		free(t, l)
		c := composite(t, r.clients[2])
		if all := r.clients[2].Leases(); all[0].State != lock.StateReleasing || c.State != lock.StateReleasing {
			t.Errorf("%+v, %+v", all, c)
		}
		time.Sleep(9 * time.Second) // until it gives up
	})
}

func TestCompositeInfo_QuorumThatWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newTriple(t, lock.WithLease(9*time.Second))
		for _, s := range r.servers {
			rdb := s.Client(t)
			must(t, "HSET", rdb.HSet(t.Context(), "job", "java:1", 1).Err())
			go func() {
				for rdb.PExpire(t.Context(), "job", 2*time.Second).Err() == nil {
					time.Sleep(time.Second)
				}
			}()
		}
		ctx, leave := context.WithCancel(t.Context())
		began := time.Now()
		waiter := begin(ctx, r.Mutex("job"))
		time.Sleep(time.Second)
		of := func() lock.LeaseInfo { return r.clients[2].Leases()[0] }
		info := of()
		c := info.Composite
		if c == nil || c.State != lock.StateWaiting || c.Need != 2 || c.WaitsFor != "java:1" || states(c) != "waiting waiting waiting" || c.LastError != nil || info.Node != r.servers[2].Addr() {
			t.Fatalf("it waits: %+v of %+v", info, c)
		}
		r.down[2].Store(true)
		time.Sleep(10 * time.Second)
		info = of()
		if c = info.Composite; c.LastError != nil || !errors.Is(info.LastError, errReset) || !errors.Is(c.Members[2].LastError, errReset) || c.Members[0].LastError != nil {
			t.Errorf("one node fails: %+v of %+v", info, c)
		}
		r.down[1].Store(true)
		time.Sleep(5 * time.Second)
		info = of()
		if c = info.Composite; !errors.Is(c.LastError, errReset) || c.FailingSince.Sub(began) < 11*time.Second || !c.Members[2].FailingSince.Before(c.FailingSince) {
			t.Errorf("two nodes fail: %+v", c)
		}
		leave()
		<-waiter
	})
}

// A Multi that waits for one of its names shows those that it has.
func TestCompositeInfo_MultiThatWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		srv := redistest.StartFake(t)
		c := open(t, srv.Client(t), lock.WithLease(9*time.Second))
		held := try(t, open(t, srv.Client(t)).Mutex("b"))
		next := begin(t.Context(), c.Multi([]string{"a", "b", "c"}))
		time.Sleep(time.Second)
		all := c.Leases()
		if len(all) != 2 || all[0].Composite == nil || all[0].Composite != all[1].Composite {
			t.Fatalf("%+v", all)
		}
		of := all[0].Composite
		if of.Name != "a,b,c" || of.Kind != "multi" || of.State != lock.StateWaiting || of.WaitsFor != held.Owner() || of.Need != 3 || of.Held() != 1 || states(of) != "held waiting absent" {
			t.Errorf("it waits: %s, %+v", states(of), of)
		}
		free(t, held)
		l := granted(t, next)
		if of = composite(t, c); of.State != lock.StateHeld || of.Held() != 3 || !of.Deadline.Equal(l.Deadline()) {
			t.Errorf("it is held: %+v", of)
		}
		del(t, srv, "b")
		time.Sleep(5 * time.Second)
		if of = composite(t, c); of.State != lock.StateLost || states(of) != "canceled lost canceled" {
			t.Errorf("lost: %s, %+v", states(of), of)
		}
		mustMatch(t, l.Release(t.Context()), lock.ErrLost)
	})
}

// A waiter says what the last try to take the lock came to, before all tries of an attempt are over, and also who isn't first in line.
func TestLeaseInfo_ErrorsOfWaiters(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		srv := redistest.StartFake(t)
		var down atomic.Bool
		c := openTapped(t, srv, fakeredis.Tap{Up: func(redis.Cmder) error {
			if down.Load() {
				time.Sleep(3 * time.Second) // as long as go-redis waits for an answer
				return errReset
			}
			return nil
		}}, lock.WithWaitGraph(0)) // whose calls may be stuck at the end, too
		l := try(t, open(t, srv.Client(t)).Mutex("job"))
		var waiters []<-chan taken
		for range 2 {
			fixed := lock.WithFixedLease(time.Minute) // it has to ask: it can't be granted the lock by a message
			waiters = append(waiters, begin(t.Context(), c.Mutex("job", fixed)))
			time.Sleep(time.Second)
		}
		down.Store(true)
		free(t, l)
		began := time.Now()
		time.Sleep(4 * time.Second)
		for _, info := range c.Leases() {
			if !errors.Is(info.LastError, errReset) || info.ErrorAt.Sub(began) > 3*time.Second+100*time.Millisecond || !info.FailingSince.Equal(info.ErrorAt) || info.Node != srv.Addr() {
				t.Errorf("after one try: %+v", info)
			}
		}
		time.Sleep(4 * time.Second)
		for _, info := range c.Leases() {
			if info.ErrorAt.Sub(info.FailingSince) < 3*time.Second {
				t.Errorf("after another: %+v", info)
			}
		}
		down.Store(false)
		for _, w := range waiters {
			free(t, granted(t, w))
		}
	})
}
