package history_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lockdog/lockdog/internal/chaos/history"
)

// Every check is shown a history that it must find fault with, beside one that is well.

const ms = history.Time(time.Millisecond)

// script is a history in the making.
type script struct {
	events []history.Event
	seq    int64
}

func (s *script) add(e history.Event) *script {
	s.events = append(s.events, e)
	return s
}

// lease adds a lease of "job" that one worker called for at call, was granted at granted, knew to be live until live, and
// released right after; times are in ms. The token is the number of the lease.
func (s *script) lease(who string, call, granted, live history.Time) *script {
	s.seq++
	return s.numbered(who, s.seq, call, granted, live)
}

func (s *script) numbered(who string, token int64, call, granted, live history.Time) *script {
	id, owner := fmt.Sprintf("%s.%d", who, len(s.events)), fmt.Sprintf("o%d", len(s.events))
	proc := int(who[0] - '0')
	for _, e := range []history.Event{
		{At: call * ms, What: history.Call, Name: "job", Kind: "mutex", How: "lock", Weight: 1, Room: 1, Lease: time.Second},
		{At: granted * ms, What: history.Grant, Owner: owner, Token: token},
		{At: live * ms, What: history.Live},
		{At: live*ms + 1, What: history.Freeing},
		{At: live*ms + 2, What: history.Freed},
		{At: live*ms + 3, What: history.Dead, Why: history.WhyReleased},
		{At: live*ms + 4, What: history.Over, Why: history.WhyReleased},
	} {
		e.ID, e.Proc = id, proc
		s.add(e)
	}
	return s
}

func (s *script) history(t *testing.T) *history.History {
	t.Helper()
	h, err := history.New(s.events)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// mustFind fails the test unless a check found just what contains these words; none: nothing.
func mustFind(t *testing.T, found []history.Violation, words ...string) {
	t.Helper()
	if len(found) != len(words) {
		t.Fatalf("found %v, want %d violations, of %q", found, len(words), words)
	}
	for i, w := range words {
		if !strings.Contains(found[i].String(), w) {
			t.Errorf("found %v, want one of %q", found[i], w)
		}
	}
}

func TestExclusion(t *testing.T) {
	t.Parallel()
	well := new(script).lease("1.0", 0, 1, 10).lease("2.0", 5, 12, 20).history(t)
	found, _ := history.Exclusion(well)
	mustFind(t, found)
	// Never known to be live: the grant came too late.
	found, _ = history.Exclusion(new(script).lease("1.0", 0, 1, 10).lease("2.0", 2, 5, 4).history(t))
	mustFind(t, found)

	both := new(script).lease("1.0", 0, 1, 10).lease("2.0", 5, 9, 20)
	found, excused := history.Exclusion(both.history(t))
	mustFind(t, found, "live at one time, for 1ms")
	if len(excused) != 0 {
		t.Errorf("%d excused", len(excused))
	}
	// Once Redis had lost writes, it may be; and again not, once what it had granted before has run out.
	lost := []history.Event{{At: 1 * ms, What: history.FaultOn, ID: "0", Loses: true}, {At: 2 * ms, What: history.FaultOff, ID: "0"}}
	found, excused = history.Exclusion((&script{events: append(lost, both.events...)}).history(t))
	mustFind(t, found)
	if len(excused) != 1 || excused[0].Owner != both.events[1].Owner {
		t.Errorf("excused %+v, want the first", excused)
	}
	late := new(script).lease("1.0", 5000, 5001, 5010).lease("2.0", 5005, 5009, 5020)
	found, _ = history.Exclusion((&script{events: append(lost, late.events...)}).history(t))
	mustFind(t, found, "live at one time")
	// Three readers share, a writer doesn't.
	shared := new(script).lease("1.0", 0, 1, 10).lease("2.0", 0, 2, 10).lease("3.0", 0, 3, 10)
	for i := range shared.events {
		shared.events[i].Room *= 1000
	}
	found, _ = history.Exclusion(shared.history(t))
	mustFind(t, found)
	shared.events[7].Weight = 1000
	found, _ = history.Exclusion(shared.history(t))
	mustFind(t, found, "live at one time", "live at one time")
}

func TestTokens(t *testing.T) {
	t.Parallel()
	mustFind(t, history.Tokens(new(script).lease("1.0", 0, 1, 10).lease("2.0", 5, 12, 20).history(t)))
	mustFind(t, history.Tokens(new(script).numbered("1.0", 7, 0, 1, 10).numbered("2.0", 7, 5, 12, 20).history(t)), "the same token, 7")
	mustFind(t, history.Tokens(new(script).numbered("1.0", 0, 0, 1, 10).history(t)), "has token 0")
	// One had returned before the other was called ...
	mustFind(t, history.Tokens(new(script).numbered("1.0", 8, 0, 1, 0).numbered("2.0", 7, 2, 3, 2).history(t)), "was granted before")
	// ... or was over before the other began.
	falling := new(script).numbered("1.0", 8, 0, 1, 10).numbered("2.0", 7, 0, 12, 20)
	mustFind(t, history.Tokens(falling.history(t)), "was over before")
	lost := append([]history.Event{{At: 1 * ms, What: history.FaultOn, ID: "0", Loses: true}}, falling.events...)
	mustFind(t, history.Tokens((&script{events: lost}).history(t)))
}

func TestStore(t *testing.T) {
	t.Parallel()
	write := func(at history.Time, token int64, why string) history.Event {
		return history.Event{At: at * ms, What: history.Write, Name: "job", Token: token, Why: why}
	}
	for words, tc := range map[string]struct {
		writes []history.Event
		stale  int
	}{
		"":                {[]history.Event{write(1, 1, ""), write(2, 1, ""), write(3, 2, ""), write(4, 1, history.WhyStale), write(5, 2, "")}, 1},
		"was taken after": {[]history.Event{write(1, 2, ""), write(2, 1, "")}, 0},
		"was refused":     {[]history.Event{write(1, 2, ""), write(2, 2, history.WhyStale)}, 0},
	} {
		found, stale := history.Store((&script{events: tc.writes}).history(t))
		if words == "" {
			mustFind(t, found)
		} else {
			mustFind(t, found, words)
		}
		if stale != tc.stale {
			t.Errorf("%q: %d stale writes, want %d", words, stale, tc.stale)
		}
	}
}

func TestDeadlines(t *testing.T) {
	t.Parallel()
	mustFind(t, history.Deadlines(new(script).lease("1.0", 0, 1, 10).history(t)))
	s := new(script).lease("1.0", 0, 1, 10)
	s.add(history.Event{At: 9 * ms, What: history.Overdue, ID: s.events[0].ID, Until: 5 * ms})
	mustFind(t, history.Deadlines(s.history(t)), "live 4ms past the lease's deadline")
}

func TestLinearizable(t *testing.T) {
	t.Parallel()
	check := func(s *script, words ...string) {
		t.Helper()
		found, undecided := history.Linearizable(s.history(t), time.Minute)
		mustFind(t, found, words...)
		if len(undecided) > 0 {
			t.Errorf("undecided: %v", undecided)
		}
	}
	check(new(script).lease("1.0", 0, 1, 10).lease("2.0", 5, 12, 20))
	check(new(script).lease("1.0", 0, 1, 10).lease("2.0", 5, 9, 20), "no order")
	check(new(script).numbered("1.0", 8, 0, 1, 10).numbered("2.0", 7, 5, 12, 20), "no order")
	// The release of the first and the grant of the second were under way at one time: a hand-over.
	s := new(script).lease("1.0", 0, 1, 10).lease("2.0", 5, 11, 20)
	s.events[4].At = 12 * ms // Release returns after the next Lock
	check(s)
	// What is lost, and was never released, is out.
	s = new(script).lease("1.0", 0, 1, 10).lease("2.0", 5, 12, 20)
	s.events[4].Why = history.WhyLost + ":unreachable"
	check(s)
	lost := []history.Event{{At: 8 * ms, What: history.FaultOn, ID: "0", Loses: true}}
	check(&script{events: append(lost, new(script).lease("1.0", 0, 1, 10).lease("2.0", 5, 9, 20).events...)})
	// A lost grant may matter for as long as its lease, however short that of the next grant is.
	lost = append(lost, history.Event{At: 9 * ms, What: history.FaultOff, ID: "0"})
	s = new(script).lease("1.0", 0, 1, 1500).lease("2.0", 1400, 1410, 1600)
	s.events[7].Lease = 100 * time.Millisecond
	check(&script{events: append(lost, s.events...)})
}
