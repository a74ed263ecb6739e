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

func named(t *testing.T, s contention.Snapshot, name string) contention.Name {
	t.Helper()
	for _, n := range s.Names {
		if n.Name == name {
			return n
		}
	}
	return contention.Name{}
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
		if n.Held != 15*time.Second || n.Waited != 15*time.Second || n.LongestWait != 15*time.Second || n.Samples != 2 || n.HeldBy.Frames[0].Function == n.AwaitedBy.Frames[0].Function {
			t.Errorf("afterwards: %+v", n)
		}
		time.Sleep(30 * time.Second)
		if again := named(t, p.Snapshot(), "new"); again.Waited != n.Waited || again.Held != n.Held {
			t.Errorf("half a minute later: %+v", again)
		}
	})
}

// Ten busy names are found among a thousand that come once, also if they come last.
func TestBusyNamesStay(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := contention.New(1)
		use := func(name string, d time.Duration) {
			s := guilty(p)
			s.WaitStart(name)
			time.Sleep(d)
			s.Granted(name)
			s.End()
		}
		for i := range 500 {
			use(fmt.Sprintf("once:%d", i), time.Millisecond)
		}
		for i := range 500 {
			use(fmt.Sprintf("busy:%d", i%10), 10*time.Millisecond)
			use(fmt.Sprintf("rare:%d", i), time.Millisecond)
		}
		s := p.Snapshot()
		if len(s.Names) > 100 {
			t.Errorf("%d names", len(s.Names))
		}
		for i := range 10 {
			n := s.Names[i]
			if n.Name[:5] != "busy:" || n.Waited != time.Second/2 || n.Grants != 50 {
				t.Errorf("name %d: %+v", i, n)
			}
		}
	})
}

// A name that is busy from now on gets its place among a hundred that were busier until now, although others come that are not.
func TestNewlyBusyNameStays(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := contention.New(1)
		use := func(name string, d time.Duration) {
			s := guilty(p)
			s.WaitStart(name)
			time.Sleep(d)
			s.WaitEnd()
		}
		for i := range 100 {
			use(fmt.Sprintf("before:%d", i), 100*time.Millisecond)
		}
		for i := range 50 {
			use("busy", 2*time.Millisecond)
			use(fmt.Sprintf("rare:%d", i), time.Millisecond)
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
			s := guilty(p)
			s.WaitStart(fmt.Sprintf("busy:%02d", i))
			time.Sleep(100 * time.Millisecond)
			s.WaitEnd()
		}
		hot := innocent(p)
		hot.WaitStart("hot")
		time.Sleep(20 * time.Second)
		for i := range 50 {
			innocent(p).WaitStart(fmt.Sprintf("live:%02d", i))
		}
		time.Sleep(10 * time.Millisecond)
		s := p.Snapshot()
		if n := s.Names[0]; n.Name != "hot" || n.Group != "orders" || n.Kind != "mutex" || n.Waited != 20010*time.Millisecond || n.LongestWait != n.Waited ||
			n.Window != s.Time.Sub(s.Start) || n.HeldBy != nil || n.AwaitedBy == nil {
			t.Errorf("the first is %+v", n)
		}
		if len(s.Names) != 100 || s.Names[99].Name != "busy:98" {
			t.Errorf("%d names, the last %+v", len(s.Names), s.Names[len(s.Names)-1])
		}
		if again := p.Snapshot(); !reflect.DeepEqual(again.Names, s.Names) {
			t.Errorf("the second time: %+v; the first time: %+v", again.Names, s.Names)
		}
		hot.WaitEnd()
		if n := p.Snapshot().Names[0]; n.Name != "hot" || n.Waited != s.Names[0].Waited || n.Samples != 1 {
			t.Errorf("the first, once the wait has ended, is %+v", n)
		}
	})
}

// What is known of a name and what goes on now are one entry, and its kind is that of its last grant.
func TestNameThatIsBusyStill(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p := contention.New(10)
		var s *contention.Sample
		for s == nil {
			s = p.Sample("orders", "read")
		}
		s.Granted("a")
		time.Sleep(time.Second)
		s.End()
		for s = nil; s == nil; {
			s = p.Sample("orders", "write")
		}
		s.WaitStart("a")
		time.Sleep(2 * time.Second)
		names := p.Snapshot().Names
		if len(names) != 1 || names[0].Kind != "read" || names[0].Grants != 10 || names[0].Held != 10*time.Second || names[0].Waited != 20*time.Second ||
			names[0].LongestWait != 2*time.Second || names[0].Samples != 1 {
			t.Errorf("%+v", names)
		}
	})
}

// The kind and the group of a name are those of the sampled acquire that holds it, if there is one, and not of the last one that did.
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
			waiter := p.Sample("of "+order[0], order[0])
			waiter.WaitStart("a")
			time.Sleep(time.Second)
			waiter.WaitEnd()
			for _, when := range []string{"while it is held", "afterwards"} {
				if n := named(t, p.Snapshot(), "a"); n.Kind != order[1] || n.Group != "of "+order[1] {
					t.Errorf("%s: %s, %s; want %s", when, n.Kind, n.Group, order[1])
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
		by := func() string { return named(t, p.Snapshot(), "a").HeldBy.Frames[0].Function }
		const pkg = "github.com/lockdog/lockdog/lock/internal/contention_test."
		for range 100 {
			hold(guilty, 3*time.Second)
			hold(innocent, time.Second)
		}
		if got := by(); got != pkg+"guilty" {
			t.Errorf("%s; want guilty", got)
		}
		for range 30 {
			hold(innocent, 3*time.Second)
			hold(guilty, time.Second)
		}
		if got := by(); got != pkg+"innocent" {
			t.Errorf("%s; want innocent", got)
		}
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
		if n := named(t, p.Snapshot(), "a"); n.Held != time.Second || n.HeldBy != nil {
			t.Errorf("while it lasts: %+v", n)
		}
		h.End()
		if n := named(t, p.Snapshot(), "a"); n.Held != time.Second || n.HeldBy != nil {
			t.Errorf("afterwards: %+v", n)
		}
		innocent(p).Granted("a")
		p.Waiters("a", 1)
		time.Sleep(time.Millisecond)
		if n := named(t, p.Snapshot(), "a"); n.HeldBy == nil || !strings.HasSuffix(n.HeldBy.Frames[0].Function, ".innocent") {
			t.Errorf("while others wait for another line: %+v", n)
		}
	})
}
