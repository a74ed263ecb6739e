package contention_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockdog/lockdog/lock/internal/contention"
)

func named(t *testing.T, s contention.Snapshot, name string) (found contention.Name) {
	t.Helper()
	for _, n := range s.Names {
		if n.Name == name {
			found = n
		}
	}
	return found
}

// waited has somebody wait for a name.
func waited(p *contention.Profile, name string, d time.Duration) {
	s := guilty(p)
	s.WaitStart(name)
	time.Sleep(d)
	s.WaitEnd()
}

// A hold counts in the window for as long as it was in the window, however long it was.
func TestNamesOfTheLastMinute(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := contention.New(1)
		h := guilty(p)
		h.Granted("old")
		p.Waiters("old", 1)
		time.Sleep(time.Hour)
		if n := named(t, p.Snapshot(), "old"); n.Held != n.Window || n.Grants != 0 || n.Samples != 0 {
			t.Errorf("held since an hour: %+v", n)
		}
		p.Waiters("old", -1)
		h.End()
		n := named(t, p.Snapshot(), "old")
		if n.Held != n.Window || n.Window < time.Minute || n.Window > 70*time.Second || n.HeldBy == nil || n.Grants != 0 {
			t.Errorf("held for an hour: %+v", n)
		}
		time.Sleep(75 * time.Second)
		if n := named(t, p.Snapshot(), "old"); n.Name != "" {
			t.Errorf("a minute after its end: %+v", n)
		}

		h, w := guilty(p), innocent(p)
		h.Granted("new")
		w.WaitStart("new")
		p.Waiters("new", 1)
		time.Sleep(15 * time.Second)
		n = named(t, p.Snapshot(), "new")
		if n.Held != 15*time.Second || n.Waited != 15*time.Second || n.LongestWait != 15*time.Second || n.Grants != 1 || n.HeldBy == nil || n.AwaitedBy == nil {
			t.Errorf("while it lasts: %+v", n)
		}
		p.Waiters("new", -1)
		w.WaitEnd()
		h.End()
		n = named(t, p.Snapshot(), "new")
		if n.Held != 15*time.Second || n.Waited != 15*time.Second || n.LongestWait != 15*time.Second || n.Samples != 2 || n.HeldBy[0].Function == n.AwaitedBy[0].Function {
			t.Errorf("afterwards: %+v", n)
		}
		time.Sleep(30 * time.Second)
		if again := named(t, p.Snapshot(), "new"); again.Waited != n.Waited || again.Held != n.Held {
			t.Errorf("half a minute later: %+v", again)
		}
	})
}

// A name that is busy from now on gets its place among a hundred that were busier until now, although others come that are not.
func TestNewlyBusyNameStays(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := contention.New(1)
		for i := range 100 {
			waited(p, fmt.Sprintf("before:%d", i), 100*time.Millisecond)
		}
		for i := range 50 {
			waited(p, "busy", 2*time.Millisecond)
			waited(p, fmt.Sprintf("rare:%d", i), time.Millisecond)
		}
		if n := named(t, p.Snapshot(), "busy"); n.Waited != 100*time.Millisecond {
			t.Errorf("%+v", n)
		}
	})
}

// A lock that somebody waits for now is found, although a hundred others were busy until now and more are waited for. Looking changes nothing.
func TestLockThatIsWaitedForNow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := contention.New(1)
		for i := range 100 {
			waited(p, fmt.Sprintf("busy:%02d", i), 100*time.Millisecond)
		}
		hot := innocent(p)
		hot.WaitStart("hot")
		time.Sleep(20 * time.Second)
		for i := range 50 {
			innocent(p).WaitStart(fmt.Sprintf("live:%02d", i))
		}
		time.Sleep(10 * time.Millisecond)
		s := p.Snapshot()
		const waited = 20010 * time.Millisecond
		want := contention.Name{
			Name: "hot", Group: "orders", Kind: "mutex", Waited: waited, LongestWait: waited, Window: s.Time.Sub(s.Start), AwaitedBy: s.Names[0].AwaitedBy,
		}
		if n := s.Names[0]; !reflect.DeepEqual(n, want) || n.AwaitedBy == nil {
			t.Errorf("the first is %+v, want %+v", n, want)
		}
		if len(s.Names) != 100 || s.Names[99].Name != "busy:98" {
			t.Errorf("%d names, the last %+v", len(s.Names), s.Names[len(s.Names)-1])
		}
		if again := p.Snapshot(); !reflect.DeepEqual(again.Names, s.Names) {
			t.Errorf("the second time: %+v; the first time: %+v", again.Names, s.Names)
		}
		hot.WaitEnd()
		if n := p.Snapshot().Names[0]; n.Name != "hot" || n.Waited != waited || n.Samples != 1 {
			t.Errorf("the first, once the wait has ended, is %+v", n)
		}
	})
}

// The kind and the group of a name are those of the sampled acquire that holds it, if there is one, and not of the last one that did, or of one that waits.
// What is known of a name and what goes on now are one entry.
func TestKindOfWhoHoldsIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, order := range [][2]string{{"read", "write"}, {"write", "read"}} {
			p := contention.New(1)
			hold := func(kind string) *contention.Sample {
				s := p.Sample("of "+kind, kind)
				s.Granted("a")
				time.Sleep(time.Second)
				return s
			}
			hold(order[0]).End()
			last := hold(order[1])
			for i, when := range []string{"while it is held", "afterwards"} {
				p.Sample("of "+order[0], order[0]).WaitStart("a")
				time.Sleep(time.Second)
				names := p.Snapshot().Names
				if n := names[0]; len(names) != 1 || n.Kind != order[1] || n.Group != "of "+order[1] || n.Grants != 2 || n.Held != 3*time.Second ||
					n.Waited != []time.Duration{1, 3}[i]*time.Second || n.LongestWait != time.Duration(i+1)*time.Second {
					t.Errorf("%s: %+v; want %s", when, names, order[1])
				}
				last.End()
			}
		}
	})
}

// When another line of code becomes the one that makes all wait, it is the one that is shown.
func TestCallSiteThatMakesOthersWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := contention.New(1)
		hold := func(by func(*contention.Profile) *contention.Sample, d time.Duration) {
			s := by(p)
			s.Granted("a")
			p.Waiters("a", 1)
			time.Sleep(d)
			p.Waiters("a", -1)
			s.End()
		}
		check := func(want string) {
			t.Helper()
			if got := named(t, p.Snapshot(), "a").HeldBy[0].Function; !strings.HasSuffix(got, "."+want) {
				t.Errorf("%s; want %s", got, want)
			}
		}
		for range 100 {
			hold(guilty, 3*time.Second)
			hold(innocent, time.Second)
		}
		check("guilty")
		for range 30 {
			hold(innocent, 3*time.Second)
			hold(guilty, time.Second)
		}
		check("innocent")
	})
}

// No line of code is to blame for a wait that there wasn't.
func TestNobodyIsBlamedForAHoldThatNobodyWaitedFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := contention.New(1)
		h := guilty(p)
		h.Granted("a")
		time.Sleep(time.Second)
		for _, when := range []string{"while it lasts", "afterwards"} {
			if n := named(t, p.Snapshot(), "a"); n.Held != time.Second || n.HeldBy != nil {
				t.Errorf("%s: %+v", when, n)
			}
			h.End()
		}
		innocent(p).Granted("a")
		p.Waiters("a", 1)
		time.Sleep(time.Millisecond)
		if n := named(t, p.Snapshot(), "a"); n.HeldBy == nil || !strings.HasSuffix(n.HeldBy[0].Function, ".innocent") {
			t.Errorf("while others wait for another line: %+v", n)
		}
	})
}
