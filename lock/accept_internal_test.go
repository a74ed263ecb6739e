package lock

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock/internal/script"
	"github.com/lockdog/lockdog/telemetry"
)

// A waiter believes a message that grants it the lock for no longer than the server's clock and the time of its arrival allow.
func TestAcceptTrustsNoLongerThanTheLockIsHeld(t *testing.T) {
	t.Parallel()
	const zero, unknown = int64(1_700_000_000_000_000), time.Duration(-1)
	trust := DefaultLease / 10
	margin := DefaultLease/100 + 2*time.Millisecond
	for name, tt := range map[string]struct {
		granted time.Duration // by the server's clock, since a reply of the server
		arrives time.Duration // after that reply's request
		reads   time.Duration // after it arrived
		owner   string        // "": the head
		known   bool          // the server's clock
		until   time.Duration // since that request; unknown: it isn't believed
	}{
		"at once":                         {0, 0, 0, "", true, trust - margin},
		"after a while":                   {time.Second, time.Second, 0, "", true, time.Second - 500*time.Microsecond + trust - margin},
		"delayed":                         {0, time.Second, 0, "", true, trust - margin},
		"delayed for too long":            {0, 2 * time.Second, 0, "", true, unknown},
		"read late":                       {0, 0, 2 * time.Second, "", true, unknown},
		"the server's clock is ahead":     {time.Hour, time.Second, 0, "", true, unknown}, // or this machine slept, and the message is old
		"the server's clock was set back": {-time.Hour, time.Second, 0, "", true, unknown},
		"of an unknown clock":             {0, 0, 0, "", false, unknown},
		"for another":                     {0, 0, 0, "somebody:1", true, unknown},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c := openFor(t, redistest.StartFake(t).Client(t), WithWaitGraph(0)) // whose replies have another clock than the test
				m := c.Mutex("job")
				cl := &claim{lock: &m.lock, owner: c.newOwner()}
				w := c.waits.enter(t.Context(), &m.lock, cl, acquireParams{}, acquireReply{}, nil)
				began := time.Now()
				if tt.known {
					c.dispatcher.Node(m.key).Clock.Learn(zero, began, false)
				}
				time.Sleep(tt.arrives)
				o := script.Offer{Owner: cl.owner, Token: 7, Now: zero + tt.granted.Microseconds()}
				if tt.owner != "" {
					o.Owner = tt.owner
				}
				c.waits.mu.Lock()
				w.q.offer = &offer{o, time.Now()}
				c.waits.mu.Unlock()
				time.Sleep(tt.reads)
				v, _, ok := c.waits.accept(w)
				switch {
				case ok != (tt.until != unknown):
					t.Fatalf("believed: %v, until %v", ok, v.until.Sub(began))
				case ok && v.until.Sub(began) != tt.until:
					t.Errorf("until %v, want %v", v.until.Sub(began), tt.until)
				case ok && (v.Token != 7 || w.q != nil):
					t.Errorf("token %d, in a queue: %v", v.Token, w.q != nil)
				case !ok && w.q == nil:
					t.Error("it has left its queue")
				}
			})
		})
	}
}

// Between a waiter's look at an offer and its taking it, a release in this process hands it the lock.
func TestAcceptAfterHandOver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := openFor(t, redistest.StartFake(t).Client(t))
		m := c.Mutex("job")
		holder := &claim{lock: &m.lock, owner: c.newOwner()}
		cl := &claim{lock: &m.lock, owner: c.newOwner()}
		w := c.waits.enter(t.Context(), &m.lock, cl, acquireParams{}, acquireReply{}, nil)
		c.waits.mu.Lock()
		w.q.offer = &offer{Offer: script.Offer{Owner: holder.owner, Token: 7, Now: 1_700_000_000_000_000}}
		c.waits.mu.Unlock()
		if next, _ := c.waits.turnOf(t.Context(), w, &telemetry.Acquire{}); next != turnOffered {
			t.Fatal(next)
		}
		h, _, _, _ := c.waits.nextWaiter(&m.lock) // the release of the holder, on another goroutine
		if h == nil {
			t.Fatal("it isn't handed over")
		}
		h.succeeded(&grant{lock: &m.lock, claim: holder}, releaseReply{})
		if _, _, ok := c.waits.accept(w); ok {
			t.Error("it takes the offer, too")
		}
	})
}
