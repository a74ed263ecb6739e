package history_test

import (
	"testing"
	"time"

	"github.com/lockdog/lockdog/internal/chaos/history"
)

// After a switch, whose grant was lost may live to the deadline that it had then. No later renewal of it counts.
func TestStale(t *testing.T) {
	t.Parallel()
	const old, other = "7001", "7002"
	where := func(at history.Time, proc int, server string) history.Event {
		return history.Event{At: at * ms, What: history.Where, Proc: proc, Name: "job", Server: server}
	}
	// Of leases of a second, 1.0 was granted at 1, and lives until 6000; 2.0 is granted at 5000, at the new primary. The switch
	// is from 2000 to 4000.
	both := func(more ...history.Event) (s *script, first string) {
		s = new(script).add(history.Event{At: 2000 * ms, What: history.FaultOn, ID: "0", Loses: true})
		s.add(history.Event{At: 4000 * ms, What: history.Switch, ID: "0", Since: 2000 * ms, Server: old})
		s.add(history.Event{At: 7000 * ms, What: history.FaultOff, ID: "0"})
		s.lease("1.0", 0, 1, 6000).lease("2.0", 4800, 5000, 5900)
		first, second := s.events[3].ID, s.events[10].ID
		s.events[4].Until, s.events[11].Until = 1000*ms, 5800*ms
		s.add(history.Event{At: 5700 * ms, What: history.Renewed, ID: second, Until: 6700 * ms})
		s.events = append(s.events, more...)
		return s, first
	}
	renewed := func(id string, at, until history.Time) history.Event {
		return history.Event{At: at * ms, What: history.Renewed, ID: id, Until: until * ms}
	}
	_, id := both()
	for words, tc := range map[string]struct {
		more []history.Event
		ok   bool
	}{
		"never renewed since":     {nil, true},
		"before the switch":       {[]history.Event{renewed(id, 3900, 4890)}, true},
		"before it could hear":    {[]history.Event{renewed(id, 4400, 5390)}, true},
		"after the switch":        {[]history.Event{renewed(id, 4700, 5690)}, false},
		"its client had moved":    {[]history.Event{where(1, 1, old), where(3000, 1, other), renewed(id, 4700, 5690)}, false},
		"its client moved late":   {[]history.Event{where(1, 1, old), where(4600, 1, other), renewed(id, 4700, 5690)}, true},
		"after it had moved late": {[]history.Event{where(1, 1, old), where(4600, 1, other), renewed(id, 5500, 6490)}, false},
		"its client never moved":  {[]history.Event{where(1, 1, old), renewed(id, 5500, 6490)}, true},
		"another's never moved":   {[]history.Event{where(1, 2, other), where(2, 3, old), renewed(id, 5500, 6490)}, false},
		"something else is wrong": {[]history.Event{{At: 4500 * ms, What: history.FaultOn, ID: "1", Loses: true}, renewed(id, 4700, 5690)}, true},
		"no CPU": {[]history.Event{
			{At: 8000 * ms, What: history.Stat, Proc: 1, Counts: map[string]float64{history.StatLagAll: float64(300 * time.Millisecond)}}, renewed(id, 4700, 5690),
		}, true},
	} {
		s, _ := both(tc.more...)
		found, excused := history.Exclusion(s.history(t))
		if tc.ok != (len(found) == 0) || tc.ok != (len(excused) == 1) {
			t.Errorf("%s: found %v, %d excused", words, found, len(excused))
		}
		if !tc.ok {
			mustFind(t, found, "after the switch to another primary")
		}
	}
	// Who holds a part of the room may stay beside others that were granted after it.
	s, _ := both(renewed(id, 4700, 5690))
	for i := range s.events {
		s.events[i].Room *= 2
	}
	found, excused := history.Exclusion(s.history(t))
	mustFind(t, found)
	if len(excused) > 0 {
		t.Errorf("%d excused", len(excused))
	}
}
