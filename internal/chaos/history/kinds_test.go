package history_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockdog/lockdog/internal/chaos/history"
)

// forced is a ForceUnlock of "job"; times are in ms.
func forced(from, to history.Time, why string) history.Event {
	return history.Event{At: to * ms, What: history.Forced, Since: from * ms, Name: "job", Why: why}
}

func TestForced(t *testing.T) {
	t.Parallel()
	both := func(more ...history.Event) *history.History {
		s := new(script).lease("1.0", 0, 1, 10).lease("2.0", 5, 9, 20)
		s.events[4].Why, s.events[5].Why = "lost:missing", "lost:missing"
		s.events = append(s.events, more...)
		return s.history(t)
	}
	for _, tc := range []struct {
		h  *history.History
		ok bool
	}{
		{both(), false},
		{both(forced(6, 7, history.WhyYes)), true},
		{both(forced(12, 13, history.WhyYes)), false}, // too late
		{both(forced(6, 7, "error:timeout")), true},   // at any time from then on
	} {
		if found, excused := history.Exclusion(tc.h); (len(found) == 0) != tc.ok || len(excused) != 0 {
			t.Errorf("%v, %d excused; ok is %v", found, len(excused), tc.ok)
		}
		if found, _ := history.Linearizable(tc.h, time.Minute); (len(found) == 0) != tc.ok {
			t.Errorf("%v; ok is %v", found, tc.ok)
		}
	}
	// One that had yet to hear of its grant, as its process was stopped.
	stopped := new(script).numbered("1.0", 2, 20, 21, 40).numbered("2.0", 1, 0, 30, 35).add(forced(5, 6, history.WhyYes)).history(t)
	if found, _ := history.Exclusion(stopped); len(found) > 0 {
		t.Error(found)
	}
	// It takes nothing from who came later.
	early := new(script).lease("1.0", 10, 11, 20).lease("2.0", 15, 19, 30).add(forced(1, 2, history.WhyYes)).history(t)
	found, _ := history.Exclusion(early)
	mustFind(t, found, "live at one time")
	if f := early.Forces["job"][0]; !f.Sure() {
		t.Error("a call of 1ms isn't sure")
	}
	slow := new(script).add(forced(1, 500, history.WhyNo)).history(t)
	if f := slow.Forces["job"][0]; f.Sure() {
		t.Error("a call of 499ms may have been made twice")
	}
}

// Readers share, and their lives don't come in the order of their tokens; writers' do.
func TestReadersAndWriters(t *testing.T) {
	t.Parallel()
	s := new(script).lease("1.0", 0, 1, 30).lease("2.0", 0, 2, 10).lease("3.0", 0, 20, 30).lease("4.0", 31, 32, 40)
	s.events[7*2+1].Token, s.events[7+1].Token = 2, 3 // 3.0, which lived last, has a smaller one than 2.0
	for i := range s.events {
		if s.events[i].What == history.Call {
			s.events[i].Room, s.events[i].Shared = 100, true
		}
	}
	s.events[7*3].Weight, s.events[7*3].Shared = 100, false
	check := func(exclusion, tokens, linear string) {
		t.Helper()
		h := s.history(t)
		found, _ := history.Exclusion(h)
		mustFind(t, found, strings.Fields(exclusion)...)
		mustFind(t, history.Tokens(h), strings.Fields(tokens)...)
		found, _ = history.Linearizable(h, time.Minute)
		mustFind(t, found, strings.Fields(linear)...)
	}
	check("", "", "")
	s.events[7*3+1].At = 29 * ms // the writer came too early
	s.events[7*3].At = 28 * ms
	check("live", "", "order")
	s.events[7*3+1].At, s.events[7*3].At = 32*ms, 31*ms
	s.events[7*2].Shared = false // a writer's token fell
	s.events[7].Shared = false
	check("", "over", "")
}

// A grant of several names is one of each.
func TestSeveralNames(t *testing.T) {
	t.Parallel()
	s := new(script).lease("1.0", 0, 1, 10).lease("2.0", 5, 9, 20)
	s.events[0].Names, s.events[1].Tokens = []string{"a", "b"}, map[string]int64{"a": 1, "b": 2}
	s.events[7].Names, s.events[8].Tokens = []string{"b", "c"}, map[string]int64{"b": 2, "c": 1}
	found, _ := history.Exclusion(s.history(t))
	mustFind(t, found, "exclusion: b")
	mustFind(t, history.Tokens(s.history(t)), "b: o0 and o7 have the same token, 2")
	s.events[8].Tokens["b"] = 3
	mustFind(t, history.Tokens(s.history(t)))
}

// A token may fall where a server's clock did, as far as that, and only if the counter was lost, too.
func TestFallingTokens(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		lost bool
		back time.Duration
		ok   bool
	}{{true, 10 * time.Millisecond, true}, {true, 0, false}, {false, 10 * time.Millisecond, false}, {true, time.Millisecond, false}} {
		s := new(script).numbered("1.0", 9000, 0, 1, 10).numbered("2.0", 5000, 500, 512, 520)
		s.add(history.Event{At: 100 * ms, What: history.FaultOn, ID: "0", Clock: true, Back: tc.back > 0, Delay: -tc.back})
		s.add(history.Event{At: 100 * ms, What: history.FaultOff, ID: "0"})
		s.add(history.Event{At: 101 * ms, What: history.FaultOn, ID: "1", Loses: tc.lost})
		s.add(history.Event{At: 102 * ms, What: history.FaultOff, ID: "1"})
		if found := history.Tokens(s.history(t)); (len(found) == 0) != tc.ok {
			t.Errorf("%+v: %v", tc, found)
		}
	}
}

// A failover to a server whose clock is ahead lets tokens fall as far if another failover leads back, and what was written last is lost.
func TestTokensFallBehindAClockThatWasAhead(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		ahead time.Duration
		again bool
		ok    bool
	}{{10 * time.Millisecond, true, true}, {10 * time.Millisecond, false, false}, {time.Millisecond, true, false}} {
		s := new(script).numbered("1.0", 9000, 0, 1, 10).numbered("2.0", 5000, 500, 512, 520)
		s.add(history.Event{At: 100 * ms, What: history.FaultOn, ID: "0", Clock: true, Loses: true, Delay: tc.ahead})
		s.add(history.Event{At: 100 * ms, What: history.FaultOff, ID: "0"})
		s.add(history.Event{At: 101 * ms, What: history.FaultOn, ID: "1", Loses: tc.again})
		s.add(history.Event{At: 102 * ms, What: history.FaultOff, ID: "1"})
		if found := history.Tokens(s.history(t)); (len(found) == 0) != tc.ok {
			t.Errorf("%+v: %v", tc, found)
		}
	}
}

func TestConserved(t *testing.T) {
	t.Parallel()
	for n, words := range map[float64]string{3: "", 4: "4 permits are left, of 3", 2: "2 permits are left, of 3"} {
		found := history.Conserved(new(script).add(history.Event{What: history.Left, Name: "job", Room: 3, Counts: map[string]float64{history.CountLeft: n}}).history(t))
		if words == "" {
			mustFind(t, found)
		} else {
			mustFind(t, found, words)
		}
	}
}

func TestLatches(t *testing.T) {
	t.Parallel()
	open := func(at history.Time) *history.History {
		s := new(script)
		for i := range 3 {
			s.add(history.Event{At: history.Time(10*(i+1)) * ms, What: history.Counted, Name: "door", Room: 3})
		}
		s.add(history.Event{At: 1 * ms, What: history.Call, Proc: 1, ID: "1.0.1", Name: "door", Kind: history.KindLatch, Room: 3})
		return s.add(history.Event{At: at * ms, What: history.Grant, Proc: 1, ID: "1.0.1"}).history(t)
	}
	mustFind(t, history.Latches(open(30)))
	mustFind(t, history.Latches(open(29)), "counted down 2 times of 3")
	found, _ := history.Exclusion(open(30))
	mustFind(t, found)
}

// Of what isn't a lock no call tells what the counters have to be; leases are held beside, which end.
func TestTelemetryApart(t *testing.T) {
	t.Parallel()
	s := new(script).lease("1.0", 0, 1, 10).add(summary())
	s.events[0].Apart = true
	e := &s.events[7]
	e.Ended = []history.Ended{{Owner: "a", End: "released"}, {Owner: "b", End: "lost", Why: "missing"}}
	c := e.Counts
	c["span{held}"], c["span{hold}"], c["lockdog.acquisitions{acquired}"] = 2, 2, 7
	mustFind(t, history.Telemetry(s.history(t)), "lockdog.losses{missing} = 0", "log lost = 0", "span{lost} = 0")
	c["lockdog.losses{missing}"], c["log lost"], c["span{lost}"] = 1, 1, 1
	mustFind(t, history.Telemetry(s.history(t)))
	c["lockdog.held"], c["span{hold}"] = 1, 1
	mustFind(t, history.Telemetry(s.history(t)), "lockdog.held = 1", "span{hold} = 1")
}

// A lock of several members is counted as one, and as its callers saw it end; its members have spans, and their losses.
func TestTelemetryWhole(t *testing.T) {
	t.Parallel()
	s := new(script).lease("1.0", 0, 1, 10).add(summary())
	s.events[0].Whole = true
	e := &s.events[7]
	e.Ended = []history.Ended{{Owner: "o0", End: "released"}, {Owner: "b", End: "lost", Why: "missing", Member: true}}
	c := e.Counts
	c["span{held}"], c["span{hold}"], c["span{release}"] = 2, 2, 3
	mustFind(t, history.Telemetry(s.history(t)), "lockdog.members.lost = 0", "span{held} = 2", "span{hold} = 2", "span{lost} = 0")
	c["span{held}"], c["span{hold}"], c["span{lost}"], c["lockdog.members.lost"] = 3, 3, 1, 1
	mustFind(t, history.Telemetry(s.history(t)))
	mustFind(t, history.Endings(s.history(t)))
	c["lockdog.losses{missing}"], c["log lost"], c["lockdog.acquisitions{acquired}"] = 1, 1, 2
	mustFind(t, history.Telemetry(s.history(t)), "lockdog.acquisitions{acquired} = 2", "lockdog.losses{missing} = 1", "log lost = 1")
	// Too many members were lost.
	c["lockdog.acquisitions{acquired}"], c["lockdog.releases{released}"], c["span{lost}"] = 1, 0, 2
	for i := range s.events[3:7] { // known before Release, by Release, by the Context and by Err
		s.events[3+i].Why = "lost:missing"
	}
	mustFind(t, history.Telemetry(s.history(t)))
	// Canceled, and released after that.
	s.events[3].Why, s.events[4].Why, s.events[5].Why, s.events[6].Why = "", "", "canceled:context", "released"
	e.Ended[1].End, e.Ended[1].Why = "canceled", "context"
	c["lockdog.losses{missing}"], c["log lost"], c["span{lost}"], c["lockdog.members.lost"] = 0, 0, 0, 0
	c["lockdog.cancellations{context}"], c["span{cancel}"], c["lockdog.releases{released}"] = 1, 2, 1
	mustFind(t, history.Telemetry(s.history(t)))
	c["lockdog.cancellations{context}"], c["span{cancel}"] = 2, 1
	mustFind(t, history.Telemetry(s.history(t)), "lockdog.cancellations{context} = 2", "span{cancel} = 1")
}

const someone = "host/7:00112233445566aa-9"

// seen are looks into Redis every 100 ms, from 0 on: who "job" was held by.
func seen(looks ...string) (all []history.Event) {
	for i, who := range looks {
		at := history.Time(100*i) * ms
		e := history.Event{At: at + ms, What: history.Peek, Since: at, Name: "job"}
		if who != "" {
			e.Owners = []string{history.GrantID(who)}
		}
		all = append(all, e)
	}
	return all
}

func TestGhosts(t *testing.T) {
	t.Parallel()
	lost := func(at history.Time) history.Event {
		return history.Event{At: at * ms, What: history.Unclear, Proc: 1, Owner: history.GrantID(someone), Delay: 50 * time.Millisecond}
	}
	nobody := slices.Repeat([]string{""}, 9)
	came := append(slices.Clone(nobody), someone, "")
	loses := []history.Event{{At: 800 * ms, What: history.FaultOn, ID: "0", Loses: true}, {At: 801 * ms, What: history.FaultOff, ID: "0"}}
	granted := new(script).lease("1.0", 0, 1, 10)
	granted.events[1].Owner = someone
	for _, tc := range []struct {
		events []history.Event
		words  string
	}{
		{append(seen(came...), lost(700)), ""},
		{append(seen(came...), lost(600)), "took it 150ms after"},
		{append(append(seen(came...), lost(600)), loses...), ""},
		// Once it was away, it stays away, asked for or not.
		{append(seen(append([]string{someone}, came...)...), granted.events...), "took it 899ms after"},
		{append(seen(append(slices.Repeat([]string{someone}, 15), "")...), granted.events...), "after it was released"},
		{append(seen(append(slices.Repeat([]string{someone}, 11), "")...), granted.events...), ""},
		// Nobody knows it, and it doesn't go.
		{append(seen(append(slices.Repeat([]string{someone}, 24), "")...), new(script).lease("1.0", 0, 1, 10).events...), "of whom nobody has heard for 2.099s"},
		{append(seen(append(slices.Repeat([]string{someone}, 20), "")...), new(script).lease("1.0", 0, 1, 10).events...), ""},
		{append(seen(append(slices.Repeat([]string{someone}, 24), "")...), history.Event{What: history.Call, ID: "1.0.1", Whole: true}), ""},
		{seen("", someone), "at the end"},
	} {
		h, err := history.New(tc.events)
		if err != nil {
			t.Fatal(err)
		}
		found := history.Ghosts(h)
		if tc.words == "" {
			mustFind(t, found)
		} else {
			mustFind(t, found, tc.words)
		}
	}
	if id := history.GrantID("vm/1:0123456789abcdef-12:write"); id != "0123456789abcdef-12" {
		t.Error(id)
	}
}
