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

// wantComposite checks the state of the client's composite, and those of its members.
func wantComposite(t *testing.T, c *lock.Client, state lock.LeaseState, members string) *lock.CompositeInfo {
	t.Helper()
	of := composite(t, c)
	held := strings.Count(members, "held")
	if of.State != state || states(of) != members || of.Held() != held && state != lock.StateLost {
		t.Errorf("%s: %s, %d held; want %s: %s: %+v", of.State, states(of), of.Held(), state, members, of)
	}
	return of
}

// tripleInBubble runs a test with a triple, in a bubble.
func tripleInBubble(t *testing.T, test func(t *testing.T, r *triple)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { test(t, newTriple(t, lock.WithLease(9*time.Second))) })
}

func TestCompositeInfo_Quorum(t *testing.T) {
	tripleInBubble(t, func(t *testing.T, r *triple) {
		r.down[2].Store(true)
		l := try(t, r.Mutex("job"))
		time.Sleep(time.Second)
		synctest.Wait()
		c := wantComposite(t, r.clients[0], lock.StateHeld, "held held absent")
		if c.Name != "job" || c.Kind != "quorum" || c.Need != 2 || c.LastError != nil || c.Owner != l.Owner() || c.Token != l.Token() || !c.Deadline.Equal(l.Deadline()) || c.Node != "" {
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
		c = wantComposite(t, r.clients[0], lock.StateHeld, "held held absent")
		mustMatch(t, c.LastError, errReset)
		m := c.Members[1]
		if !strings.Contains(c.LastError.Error(), "at "+r.servers[1].Addr()+": ") || !errors.Is(m.LastError, errReset) || !c.FailingSince.Equal(m.FailingSince) ||
			!m.FailingSince.After(began) || m.ErrorAt.Before(m.FailingSince) || c.Members[0].LastError != nil {
			t.Errorf("while it fails at one more: %+v", c)
		}

		<-l.Ended()
		synctest.Wait()
		c = wantComposite(t, r.clients[0], lock.StateLost, "canceled lost absent")
		mustMatch(t, c.LastError, lock.ErrLost)
		mustBe(t, "held", c.Held(), 1)
		mustMatch(t, l.Release(t.Context()), lock.ErrLost)
		ended := r.clients[1].Recent()[0]
		want := lock.EndedComposite{ID: c.ID, Name: "job", Need: 2, Members: 3, End: "lost"}
		if ended.Node != r.servers[1].Addr() || ended.Composite == nil || *ended.Composite != want {
			t.Errorf("the end: %+v, %+v", ended, ended.Composite)
		}
	})
}

// A Quorum that loses one node stays held. That node's ended lease says so: it was lost, the Quorum's wasn't.
func TestEndedComposite_HeldOn(t *testing.T) {
	tripleInBubble(t, func(t *testing.T, r *triple) {
		l := try(t, r.Mutex("job"))
		time.Sleep(time.Second) // so that all nodes are in
		del(t, r.servers[0], "job")
		time.Sleep(5 * time.Second)
		c := wantComposite(t, r.clients[1], lock.StateHeld, "lost held held")
		mustMatch(t, c.Members[0].LastError, lock.ErrLost)
		if e := r.clients[0].Recent()[0]; e.End != "lost" || e.Composite.End != "" || e.Composite.ID != c.ID {
			t.Errorf("the end: %+v, %+v", e, e.Composite)
		}
		for _, s := range r.servers[1:] {
			del(t, s, "job")
		}
		mustMatch(t, l.Release(t.Context()), lock.ErrLost)
		synctest.Wait()
		for _, c := range r.clients[1:] {
			mustBe(t, "gone when it was released", c.Recent()[0].Composite.End, "lost")
		}
	})
}

// A member that a release finds lost counts once: a Quorum of five that has lost two was released.
func TestEndedComposite_LostAtRelease(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ns := startNodes(t, 5)
		p := ns.quorum(lock.WithLease(steady))
		l := p.everywhere(t, p.Mutex("job"))
		for i, after := range []time.Duration{0, 10, 10, 10, 20} { // the nodes answer the release in this order
			ns.wires[i].set(redistest.When(redistest.Up, redistest.Delay(after*time.Millisecond)))
		}
		for _, i := range []int{0, 4} {
			must(t, "DEL", ns.raw[i].Del(t.Context(), "job").Err())
		}
		free(t, l)
		time.Sleep(time.Second)
		for _, i := range []int{0, 4} {
			if e := p.clients[i].Recent()[0]; e.End != "lost" || e.Composite.End != "" {
				t.Errorf("node %d: %s, and the composite %q", i, e.End, e.Composite.End)
			}
		}
	})
}

// Release of a Quorum returns when a majority of its nodes is released. As long as the release at another node goes on,
// the member there, and the composite, are releasing.
func TestCompositeInfo_Releasing(t *testing.T) {
	tripleInBubble(t, func(t *testing.T, r *triple) {
		l := try(t, r.Mutex("job"))
		time.Sleep(time.Second)
		r.down[2].Store(true)
		free(t, l)
		mustBe(t, "the lease's state", r.clients[2].Leases()[0].State, lock.StateReleasing)
		mustBe(t, "the composite's state", composite(t, r.clients[2]).State, lock.StateReleasing)
		time.Sleep(9 * time.Second) // until it gives up
	})
}

func TestCompositeInfo_QuorumThatWaits(t *testing.T) {
	tripleInBubble(t, func(t *testing.T, r *triple) {
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
		const all = "waiting waiting waiting"
		third := r.clients[2]
		c := wantComposite(t, third, lock.StateWaiting, all)
		if c.Need != 2 || c.WaitsFor != "java:1" || c.LastError != nil || third.Leases()[0].Node != r.servers[2].Addr() {
			t.Fatalf("it waits: %+v", c)
		}
		r.down[2].Store(true)
		time.Sleep(10 * time.Second)
		c = wantComposite(t, third, lock.StateWaiting, all)
		mustMatch(t, third.Leases()[0].LastError, errReset)
		mustMatch(t, c.Members[2].LastError, errReset)
		if c.LastError != nil || c.Members[0].LastError != nil {
			t.Errorf("one node fails: %+v", c)
		}
		r.down[1].Store(true)
		time.Sleep(5 * time.Second)
		c = wantComposite(t, third, lock.StateWaiting, all)
		if !errors.Is(c.LastError, errReset) || c.FailingSince.Sub(began) < 11*time.Second || !c.Members[2].FailingSince.Before(c.FailingSince) {
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
		of := wantComposite(t, c, lock.StateWaiting, "held waiting absent")
		if len(all) != 2 || all[0].Composite != all[1].Composite || of.Name != "a,b,c" || of.Kind != "multi" || of.WaitsFor != held.Owner() || of.Need != 3 {
			t.Errorf("it waits: %+v: %+v", all, of)
		}
		free(t, held)
		l := granted(t, next)
		if of = wantComposite(t, c, lock.StateHeld, "held held held"); !of.Deadline.Equal(l.Deadline()) {
			t.Errorf("it is held: %+v", of)
		}
		del(t, srv, "b")
		time.Sleep(5 * time.Second)
		wantComposite(t, c, lock.StateLost, "canceled lost canceled")
		mustMatch(t, l.Release(t.Context()), lock.ErrLost)
	})
}

// The LeaseInfo of a waiter has the error of the last failed try, also while the attempt goes on with further tries,
// and also for a waiter that isn't first in line.
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
