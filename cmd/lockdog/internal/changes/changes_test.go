package changes

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/lockdog/lockdog/lock/fleet"
)

var start = time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)

// at is a moment so many seconds after the start.
func at(seconds float64) time.Time { return start.Add(time.Duration(seconds * float64(time.Second))) }

const second = time.Second

var errAway = errors.New("a node is away")

// mutex is a lock that an owner holds, with so many seconds left.
func mutex(name, owner string, token int64, left float64) fleet.Lock {
	remaining := time.Duration(left * float64(second))
	return fleet.Lock{
		Name: name, Key: name, Kind: fleet.Mutex, Held: 1, Remaining: remaining,
		Holders: []fleet.Holder{{Owner: owner, ClientID: owner, Token: token, Remaining: remaining}},
	}
}

func keptAfterRelease(name, owner string, token int64, left float64) fleet.Lock {
	l := mutex(name, owner, token, left)
	l.Holders[0].Released = true
	return l
}

func awaited(l fleet.Lock, waiters ...fleet.Waiter) fleet.Lock {
	l.Waiters, l.Waiting = waiters, len(waiters)
	return l
}

func semaphore(held int, left float64) fleet.Lock {
	return fleet.Lock{Name: "s", Key: "s", Kind: fleet.Semaphore, Held: held, Remaining: time.Duration(left * float64(second))}
}

func readers(left float64, owners ...string) fleet.Lock {
	l := fleet.Lock{Name: "rw", Key: "rw", Kind: fleet.RW, Mode: "read", Held: len(owners), Remaining: time.Duration(left * float64(second))}
	for i, o := range owners {
		l.Holders = append(l.Holders, fleet.Holder{Owner: o, Token: int64(i + 1), Mode: "read", Remaining: l.Remaining})
	}
	return l
}

func writer(owner string) fleet.Lock {
	l := mutex("rw", owner, 9, 30)
	l.Kind, l.Mode = fleet.RW, "write"
	return l
}

// look is one that took 10 ms from so many seconds on, and read the locks in its middle.
func look(seconds float64, locks ...fleet.Lock) Look {
	l := Look{Began: at(seconds), Ended: at(seconds).Add(10 * time.Millisecond)}
	for _, one := range locks {
		l.Locks = append(l.Locks, Seen{Lock: one, At: at(seconds).Add(5 * time.Millisecond)})
	}
	return l
}

func incomplete(l Look) Look {
	l.Err = errAway
	return l
}

// brief is an event in a few letters: name, event, and "?" where the lease may have run out.
func brief(events []Event) []string {
	var texts []string
	for _, e := range events {
		text := fmt.Sprintf("%s %s", e.Lock().Name, e.What)
		if e.MayHaveExpired {
			text += "?"
		}
		texts = append(texts, text)
	}
	return texts
}

func TestTracker_Add(t *testing.T) {
	w := fleet.Waiter{ClientID: "w", Since: at(-5)}
	for name, c := range map[string]struct {
		looks []Look
		want  []string // of the last look
	}{
		"the first look": {
			[]Look{look(0, mutex("b", "x", 1, 30), awaited(mutex("a", "y", 1, 30), w))}, []string{"a held", "b held"},
		},
		"the first complete look": {
			[]Look{incomplete(look(0, mutex("a", "x", 1, 30))), look(1, mutex("a", "x", 1, 29), mutex("b", "y", 1, 30))}, []string{"b held"},
		},
		"acquired":         {[]Look{look(0), look(1, mutex("a", "x", 1, 30))}, []string{"a acquired"}},
		"nothing happened": {[]Look{look(0, mutex("a", "x", 1, 30)), look(1, mutex("a", "x", 1, 29))}, nil},
		"renewed":          {[]Look{look(0, mutex("a", "x", 1, 20)), look(1, mutex("a", "x", 1, 30))}, nil},
		"handed over":      {[]Look{look(0, mutex("a", "x", 1, 30)), look(1, mutex("a", "y", 2, 30))}, []string{"a hand_over"}},
		"the same owner's next grant": {
			[]Look{look(0, mutex("a", "x", 1, 30)), look(1, mutex("a", "x", 2, 30))}, []string{"a hand_over"},
		},
		"released":               {[]Look{look(0, mutex("a", "x", 1, 30)), look(1)}, []string{"a gone"}},
		"released, still listed": {[]Look{look(0, mutex("a", "x", 1, 30)), look(1, fleet.Lock{Name: "a", Key: "a"})}, []string{"a gone"}},
		"released, and awaited": {
			[]Look{look(0, awaited(mutex("a", "x", 1, 30), w)), look(1, awaited(fleet.Lock{Name: "a", Key: "a"}, w))}, []string{"a gone"},
		},
		"somebody waits":  {[]Look{look(0, mutex("a", "x", 1, 30)), look(1, awaited(mutex("a", "x", 1, 29), w))}, []string{"a wait_began"}},
		"taken with wait": {[]Look{look(0), look(1, awaited(mutex("a", "x", 1, 30), w))}, []string{"a acquired", "a wait_began"}},
		"one more waits": {
			[]Look{look(0, awaited(mutex("a", "x", 1, 30), w)), look(1, awaited(mutex("a", "x", 1, 29), w, w))}, nil,
		},
		"nobody waits any more": {
			[]Look{look(0, awaited(mutex("a", "x", 1, 30), w)), look(1, mutex("a", "x", 1, 29))}, []string{"a wait_ended"},
		},
		"gone with its waiters": {
			[]Look{look(0, awaited(mutex("a", "x", 1, 30), w)), look(1)}, []string{"a gone", "a wait_ended"},
		},
		"the waiter gets it": {
			[]Look{look(0, awaited(mutex("a", "x", 1, 30), w)), look(1, mutex("a", "w", 2, 30))}, []string{"a hand_over", "a wait_ended"},
		},
		"another reader":    {[]Look{look(0, readers(30, "x")), look(1, readers(30, "x", "y"))}, []string{"rw holders"}},
		"readers to writer": {[]Look{look(0, readers(30, "x", "y")), look(1, writer("z"))}, []string{"rw hand_over"}},
		"a permit":          {[]Look{look(0, semaphore(1, 30)), look(1, semaphore(2, 29))}, []string{"s holders"}},
		"the last permit":   {[]Look{look(0, semaphore(1, 30)), look(1, semaphore(0, -1))}, []string{"s gone"}},

		// The end of a lease.
		"the lease ran out": {
			[]Look{look(0, mutex("a", "x", 1, 10)), look(9.5, mutex("a", "x", 1, 0.5)), look(10.5)}, []string{"a lease_over"},
		},
		"it ran out just now, by Redis's clock": {
			[]Look{look(0, mutex("a", "x", 1, 10)), look(9.5, mutex("a", "x", 1, 0.5)), look(9.985)}, []string{"a gone?"},
		},
		"it ran out, and another got it": {
			[]Look{look(0, mutex("a", "x", 1, 10)), look(9.5, mutex("a", "x", 1, 0.5)), look(10.5, mutex("a", "y", 2, 10))},
			[]string{"a lease_over", "a acquired"},
		},
		"a short lease, renewed every third, released": {
			[]Look{look(0, mutex("a", "x", 1, 0.9)), look(1, mutex("a", "x", 1, 0.67)), look(2)}, []string{"a gone?"},
		},
		"a short lease, renewed, handed over": {
			[]Look{look(0, mutex("a", "x", 1, 0.9)), look(1, mutex("a", "x", 1, 0.67)), look(2, mutex("a", "y", 2, 0.9))}, []string{"a hand_over?"},
		},
		"seen once, so it isn't known how long the lease was": {
			[]Look{look(0, mutex("a", "x", 1, 0.5)), look(1)}, []string{"a gone?"},
		},
		"released before its lease ended": {
			[]Look{look(0, mutex("a", "x", 1, 10)), look(8, mutex("a", "x", 1, 2)), look(9)}, []string{"a gone"},
		},
		"the end came during the look": {
			[]Look{look(0, mutex("a", "x", 1, 10)), look(9, mutex("a", "x", 1, 0.998)), look(10)}, []string{"a gone?"},
		},
		"the lease of another grant was longer": {
			[]Look{look(0, mutex("a", "x", 1, 30)), look(1, mutex("a", "y", 2, 0.9)), look(2)}, []string{"a gone?"},
		},
		"released, and taken until the end of WithMinHold": {
			[]Look{look(0, mutex("a", "x", 1, 30)), look(1, keptAfterRelease("a", "x", 1, 5)), look(5.5, keptAfterRelease("a", "x", 1, 0.5)), look(7)}, []string{"a gone"},
		},
		"not seen for a while": {
			[]Look{look(0, mutex("a", "x", 1, 10)), look(6, mutex("a", "x", 1, 4)), incomplete(look(7)), look(60)}, []string{"a gone?"},
		},
		"without an end": {
			[]Look{look(0, mutex("a", "x", 1, -0.001)), look(60)}, []string{"a gone"},
		},
		"an end, and then none": {
			[]Look{look(0, mutex("a", "x", 1, 10)), look(1, mutex("a", "x", 1, -0.001)), look(2, mutex("a", "x", 1, 1)), look(20)}, []string{"a lease_over"},
		},
		"a semaphore's last permit, of which Redis doesn't say whose": {
			[]Look{look(0, semaphore(1, 30)), look(1, semaphore(1, 0.5)), look(2)}, []string{"s gone?"},
		},
		"several readers": {
			[]Look{look(0, readers(30, "x", "y")), look(29.5, readers(0.5, "x", "y")), look(31)}, []string{"rw gone?"},
		},

		// Incomplete looks.
		"missed by an incomplete look": {[]Look{look(0, mutex("a", "x", 1, 30)), incomplete(look(1))}, nil},
		"missed, and found again": {
			[]Look{look(0, mutex("a", "x", 1, 30)), incomplete(look(1)), look(2, mutex("a", "x", 1, 28))}, nil,
		},
		"missed, and gone": {[]Look{look(0, mutex("a", "x", 1, 30)), incomplete(look(1)), look(2)}, []string{"a gone"}},
		"changed in an incomplete look": {
			[]Look{look(0, mutex("a", "x", 1, 30)), incomplete(look(1, mutex("a", "y", 2, 30)))}, []string{"a hand_over"},
		},
		"new in an incomplete look": {[]Look{look(0), incomplete(look(1, mutex("a", "x", 1, 30)))}, []string{"a acquired"}},
		"all fails at first":        {[]Look{incomplete(look(0)), incomplete(look(1))}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			var tracker Tracker
			var events []Event
			for _, l := range c.looks {
				_, events = tracker.Add(l)
			}
			if got := brief(events); !slices.Equal(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
			for _, e := range events {
				if e.Sentence() == "" || e.At.IsZero() {
					t.Errorf("%+v: no sentence, or no time", e)
				}
			}
		})
	}
}

// The holder's own lease of a read-write lock counts: the key may live longer.
func TestTracker_Add_OwnLease(t *testing.T) {
	of := func(left float64) fleet.Lock {
		l := readers(left, "x")
		l.Remaining = 60 * second
		return l
	}
	var tracker Tracker
	tracker.Add(look(0, of(10)))
	tracker.Add(look(9.5, of(0.5)))
	if _, events := tracker.Add(look(11)); !slices.Equal(brief(events), []string{"rw lease_over"}) {
		t.Errorf("got %q", brief(events))
	}
}

func TestTracker_Add_Unseen(t *testing.T) {
	var tracker Tracker
	tracker.Add(look(0, mutex("a", "x", 1, 30), mutex("b", "x", 1, 30)))
	locks, _ := tracker.Add(incomplete(look(1, mutex("b", "x", 1, 30))))
	if len(locks) != 2 || !locks[0].Unseen || locks[1].Unseen {
		t.Fatalf("after an incomplete look: %+v", locks)
	}
	locks, _ = tracker.Add(look(2, mutex("a", "x", 1, 30)))
	if len(locks) != 1 || locks[0].Unseen {
		t.Fatalf("after a complete look: %+v", locks)
	}
}

// While no look is complete, what is remembered doesn't grow for ever, and the oldest goes first.
func TestTracker_Add_ForgetsUnseen(t *testing.T) {
	const each = 100
	const most = 4 * each
	tracker := Tracker{most: most}
	for i := range 8 {
		var locks []fleet.Lock
		for n := range each {
			locks = append(locks, mutex(fmt.Sprintf("%d:%d", i, n), "x", 1, 30))
		}
		tracker.Add(incomplete(look(float64(i), locks...)))
	}
	locks, events := tracker.Add(incomplete(look(9)))
	if len(locks) != most || len(events) != 0 {
		t.Fatalf("%d locks and %d events, want %d and none", len(locks), len(events), most)
	}
	if locks[0].Name != "4:0" {
		t.Errorf("the oldest is %q, want one of the last four looks", locks[0].Name)
	}
}

func TestEvent_After(t *testing.T) {
	var tracker Tracker
	_, events := tracker.Add(look(0, mutex("a", "x", 1, 30)))
	if !events[0].After.IsZero() {
		t.Errorf("the first look knows when it was free: %v", events[0].After)
	}
	_, events = tracker.Add(look(1, mutex("b", "x", 1, 30)))
	for _, e := range events {
		want := at(0) // the beginning of the last complete look
		if e.What == Gone {
			want = at(0.005) // when it was read
		}
		if !e.After.Equal(want) {
			t.Errorf("%s: after %v, want %v", e.What, e.After, want)
		}
	}
}

func TestSeen_LongestWait(t *testing.T) {
	queued := func(owner string, redisson bool) fleet.Waiter { return fleet.Waiter{Owner: owner, Redisson: redisson} }
	since := func(s float64) fleet.Waiter { return fleet.Waiter{ClientID: "c", Since: at(s)} }
	for name, c := range map[string]struct {
		looks  []Look
		want   time.Time
		longer bool
	}{
		"in the wait set":     {[]Look{look(0, awaited(mutex("a", "x", 1, 30), since(-3), since(-7)))}, at(-7), false},
		"in a queue":          {[]Look{look(0, awaited(mutex("a", "x", 1, 30), queued("q", false)))}, at(0.005), true},
		"in a queue for long": {[]Look{look(0, awaited(mutex("a", "x", 1, 30), queued("q", false))), look(5, awaited(mutex("a", "x", 1, 30), queued("q", false)))}, at(0.005), true},
		"another in a queue":  {[]Look{look(0, awaited(mutex("a", "x", 1, 30), queued("p", false))), look(5, awaited(mutex("a", "x", 1, 30), queued("q", false)))}, at(5.005), true},
		"Redisson's in a queue, which may have left and come back": {[]Look{look(0, awaited(mutex("a", "x", 1, 30), queued("q", true)))}, time.Time{}, false},
		"nobody": {[]Look{look(0, mutex("a", "x", 1, 30))}, time.Time{}, false},
	} {
		t.Run(name, func(t *testing.T) {
			var tracker Tracker
			var locks []Seen
			for _, l := range c.looks {
				locks, _ = tracker.Add(l)
			}
			if got := locks[0]; !got.LongestWait.Equal(c.want) || got.WaitsLonger != c.longer {
				t.Errorf("since %v (longer: %v), want %v (%v)", got.LongestWait, got.WaitsLonger, c.want, c.longer)
			}
		})
	}
}

func TestEvent_Sentence(t *testing.T) {
	x := mutex("a", "x", 1, 30)
	x.Holders[0].Since = at(-60)
	y := mutex("a", "evil\x1b[2J", 2, 30)
	for want, e := range map[string]Event{
		"held by x":     {What: Held, Is: Seen{Lock: x}},
		"acquired by x": {What: Acquired, Is: Seen{Lock: x}},
		"free; x held it for 1m00s; its lease may have run out": {What: Gone, Was: Seen{Lock: x}, MayHaveExpired: true},
		`free; evil\x1b[2J held it`:                             {What: Gone, Was: Seen{Lock: y}},
		`handed over from x to evil\x1b[2J`:                     {What: HandOver, Was: Seen{Lock: x}, Is: Seen{Lock: y}},
		"acquired again by x":                                   {What: HandOver, Was: Seen{Lock: x}, Is: Seen{Lock: x}},
		"LEASE OVER, not renewed; x held it for 1m00s":          {What: LeaseOver, Was: Seen{Lock: x}},
		"now held by 2 readers, before by x":                    {What: Holders, Was: Seen{Lock: x}, Is: Seen{Lock: readers(3, "p", "q")}},
		"1 waiting":                                             {What: WaitBegan, Is: Seen{Lock: awaited(x, fleet.Waiter{})}},
		"nobody waits any more":                                 {What: WaitEnded, Was: Seen{Lock: x}},
	} {
		e.At = at(0)
		if got := e.Sentence(); got != want {
			t.Errorf("%s: %q, want %q", e.What, got, want)
		}
	}
}
