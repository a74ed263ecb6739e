package waitset

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockdog/lockdog/internal/redistest"
	"github.com/lockdog/lockdog/lock/internal/dispatch"
	"github.com/lockdog/lockdog/lock/internal/script"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// testClaim is a claim of a waiter, and whether it was given back.
type testClaim struct {
	owner, entry string
	givenBack    bool
}

func (c *testClaim) Owner() string         { return c.owner }
func (c *testClaim) Traceparent() string   { return "" }
func (c *testClaim) WaitEntry() string     { return c.entry }
func (c *testClaim) SetWaitEntry(e string) { c.entry = e }
func (c *testClaim) GiveBack()             { c.givenBack = true }

// newTestMembership returns the membership of a queue of a client whose server has a clock.
func newTestMembership() (*Client, *Membership, *dispatch.Clock) {
	clock := &dispatch.Clock{}
	c := NewClient(func(string) *dispatch.Clock { return clock }, func() bool { return false }, func() {})
	m := &Membership{}
	m.Join(c, "job", "released:job")
	return c, m, clock
}

const zero = int64(1_700_000_000_000_000) // Redis's time when a test begins

func grantMessage(owner string, after time.Duration) string {
	return fmt.Sprintf("7 %d -\n%s\nanother:1", zero+after.Microseconds(), owner)
}

// A waiter believes a message that grants it the lock for no longer than the server's clock and the time of its arrival allow.
func TestAcceptTrustsNoLongerThanTheLockIsHeld(t *testing.T) {
	t.Parallel()
	const (
		trust, margin = MaxTrust, 302 * time.Millisecond
		unknown       = time.Duration(-1)
	)
	for name, tt := range map[string]struct {
		granted time.Duration // by the server's clock, since a reply of the server
		arrives time.Duration // after that reply's request
		reads   time.Duration // after it arrived
		owner   string        // "": the head
		known   bool          // the server's clock
		until   time.Duration // since that request; unknown: it isn't believed
		slow    bool          // the client notices that it is late
	}{
		"at once":                         {0, 0, 0, "", true, trust - margin, false},
		"after a while":                   {time.Second, time.Second, 0, "", true, time.Second - 500*time.Microsecond + trust - margin, false},
		"delayed":                         {0, time.Second, 0, "", true, trust - margin, false},
		"delayed for too long":            {0, 2 * time.Second, 0, "", true, unknown, true},
		"read late":                       {0, 0, 2 * time.Second, "", true, unknown, true},
		"the server's clock is ahead":     {time.Hour, time.Second, 0, "", true, unknown, false}, // or this machine slept, and the message is old
		"the server's clock was set back": {-time.Hour, time.Second, 0, "", true, unknown, true},
		"of an unknown clock":             {0, 0, 0, "", false, unknown, false},
		"for another":                     {0, 0, 0, "somebody:1", true, unknown, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c, m, clock := newTestMembership()
				claim := &testClaim{owner: "me:1"}
				m.Register(claim, trust, int64(30_000))
				began := time.Now()
				if tt.known {
					clock.Learn(zero, began, false)
				}
				time.Sleep(tt.arrives)
				owner := tt.owner
				if owner == "" {
					owner = claim.owner
				}
				wake := m.Message(grantMessage(owner, tt.granted), claim.owner)
				if wake != (tt.owner == "") {
					t.Errorf("it wakes the head: %v", wake)
				}
				time.Sleep(tt.reads)
				g, _, until, ok := m.TakeGrant(claim, trust, margin)
				switch {
				case ok != (tt.until != unknown):
					t.Fatalf("believed: %v, until %v", ok, until.Sub(began))
				case ok && until.Sub(began) != tt.until:
					t.Errorf("until %v, want %v", until.Sub(began), tt.until)
				case ok && (g.Token != 7 || claim.entry != "" || m.Registered(claim)):
					t.Errorf("token %d; the wait set may have %q, registered: %v", g.Token, claim.entry, m.Registered(claim))
				case !ok && !m.Registered(claim):
					t.Error("it isn't registered any more")
				}
				if c.slow() != tt.slow {
					t.Errorf("slow: %v", c.slow())
				}
				if e := m.Register(claim, trust, int64(30_000)); MayBeGranted(e.Add) == tt.slow {
					t.Errorf("registers %q", e.Add)
				}
			})
		})
	}
}

// A grant to a claim that was given up is given back, whether the message is there already, comes later, or is never heard and the next question tells.
func TestGrantToAbandonedClaimIsGivenBack(t *testing.T) {
	t.Parallel()
	for name, told := range map[string]func(c *Client, m *Membership, owner string){
		"the message came before": nil,
		"the message comes later": func(_ *Client, m *Membership, owner string) { m.Message(grantMessage(owner, 0), "next:1") },
		"an answer names it":      func(c *Client, _ *Membership, owner string) { c.GiveBackAbandoned(owner) },
		"the last one leaves":     func(_ *Client, m *Membership, _ string) { m.GiveBackLast() },
		"the channel comes back":  func(_ *Client, m *Membership, _ string) { m.SetReachable(true, true) },
		"the client closes":       func(c *Client, _ *Membership, _ string) { c.GiveBackAll() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c, m, _ := newTestMembership()
			claim := &testClaim{owner: "me:1"}
			m.Register(claim, MaxTrust, int64(30_000))
			if told == nil {
				m.Message(grantMessage(claim.owner, 0), claim.owner)
			}
			m.GiveUp(claim)
			if told != nil {
				if claim.givenBack || !m.Lingers() {
					t.Fatalf("given back: %v; goes on listening: %v", claim.givenBack, m.Lingers())
				}
				told(c, m, claim.owner)
			}
			if !claim.givenBack {
				t.Error("not given back")
			}
		})
	}
}

// A client has one tag, which messages to all are told by.
func TestTags(t *testing.T) {
	t.Parallel()
	var seen []string
	for range 1000 {
		tag := newTag()
		if !IsTag(tag) || tag[0] == '0' || slices.Contains(seen, tag) {
			t.Fatalf("tag %s after %d others", tag, len(seen))
		}
		seen = append(seen, tag)
	}
}

// While a client is slow, the wait set has its bare tag. When it isn't any more, the tag doesn't stay beside the new entry.
func TestSlowClientHasOneEntry(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, m, _ := newTestMembership()
		set := make(map[string]bool)
		apply := func(e script.EntryChange) {
			delete(set, e.Remove)
			if e.Add != "" {
				set[e.Add] = true
			}
			if len(set) > 1 {
				t.Errorf("the wait set has %q", slices.Sorted(maps.Keys(set)))
			}
		}
		ask := func(claim *testClaim) { apply(m.Register(claim, MaxTrust, int64(30_000))) }
		one, next := &testClaim{owner: "me:1"}, &testClaim{owner: "me:2"}
		ask(one)
		c.noteSlow()
		ask(one)
		ask(one)
		time.Sleep(slowFor + 1)
		ask(one)
		c.noteSlow()
		ask(one)
		time.Sleep(slowFor + 1)
		ask(next)
		if apply(m.Unregister()); len(set) > 0 {
			t.Errorf("left: %q", slices.Sorted(maps.Keys(set)))
		}
	})
}

// A grant that the server has contradicted since isn't taken, whether its message comes before that reply or after it.
func TestGrantBeforeARefusalIsNotTaken(t *testing.T) {
	t.Parallel()
	claim := &testClaim{owner: "me:1"}
	for name, steps := range map[string]struct {
		do   func(m *Membership)
		want bool
	}{
		"the message first": {func(m *Membership) {
			m.Message(grantMessage(claim.owner, 0), claim.owner)
			m.Refused(zero+1, true)
		}, false},
		"the reply first": {func(m *Membership) {
			m.Refused(zero+1, true)
			if !m.Message(grantMessage(claim.owner, 0), claim.owner) {
				t.Error("the head doesn't ask")
			}
		}, false},
		"granted after the refusal": {func(m *Membership) {
			m.Refused(zero-1, true)
			m.Message(grantMessage(claim.owner, 0), claim.owner)
		}, true},
	} {
		_, m, _ := newTestMembership()
		m.Register(claim, MaxTrust, int64(30_000))
		if steps.do(m); m.HasGrant() != steps.want {
			t.Errorf("%s: has a grant: %v", name, m.HasGrant())
		}
	}
}
