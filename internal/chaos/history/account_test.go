package history_test

import (
	"strings"
	"testing"
	"time"

	"github.com/lockdog/lockdog/internal/chaos/history"
)

// summary is what a process tells that saw one lease, of owner o0, released.
func summary() history.Event {
	return history.Event{
		At: 100 * ms, What: history.Summary, Proc: 1,
		Ended: []history.Ended{{Owner: "o0", End: "released"}},
		Counts: map[string]float64{
			"lockdog.acquisitions{acquired}": 1, "lockdog.acquisitions{held}": 0, "lockdog.releases{released}": 1, "lockdog.losses{missing}": 0,
			"span{acquire}": 1, "span{held}": 1, "span{hold}": 1, "span{release}": 1, "span{renew}": 3, "lockdog.errors{network}": 5,
		},
	}
}

func TestEndings(t *testing.T) {
	t.Parallel()
	for words, change := range map[string]func(s *script){
		"":                 func(*script) {},
		"ended 0 times":    func(s *script) { s.events[7].Ended = nil },
		"ended 2 times":    func(s *script) { s.events[7].Ended = append(s.events[7].Ended, s.events[7].Ended[0]) },
		"never ended":      func(s *script) { s.events[5].What = history.Note },
		"Err says nothing": func(s *script) { s.events[6].What = history.Note },
		"ended as lost:taken by its Context": func(s *script) {
			s.events[5].Why = "lost:taken"
		},
		"which nobody did": func(s *script) {
			s.events[3].What, s.events[4].What = history.Note, history.Note
		},
		"ended as released by Err, as {Owner:o0 End:lost": func(s *script) {
			s.events[7].Ended[0].End, s.events[7].Ended[0].Why = "lost", "missing"
		},
		`was lost (lost:missing), but Release said ""`: func(s *script) {
			s.events[7].Ended[0].End, s.events[7].Ended[0].Why = "lost", "missing"
			s.events[6].Why = "lost:missing"
		},
		`but Release said "lost:taken"`:        func(s *script) { s.events[4].Why = "lost:taken" },
		"Release said that it had been before": func(s *script) { s.events[4].Why = history.WhyReleased },
	} {
		s := new(script).lease("1.0", 0, 1, 10).add(summary())
		change(s)
		found := history.Endings(s.history(t))
		if words == "" {
			mustFind(t, found)
		} else {
			mustFind(t, found, words)
		}
	}
	// Of a process that was killed nobody knows.
	mustFind(t, history.Endings(new(script).lease("1.0", 0, 1, 10).history(t)))
	// Lost, canceled and then lost, and found lost by Release.
	for _, tc := range []struct{ dead, freed, over, end, why string }{
		{"lost:unreachable", "lost:unreachable", "lost:unreachable", "lost", "unreachable"},
		{"canceled:context", "", "released", "canceled", "context"},
		{"canceled:context", "lost:missing", "lost:missing", "canceled", "context"},
		{"released", "lost:taken", "lost:taken", "lost", "taken"},
		{"released", "error:timeout", "released", "released", ""},
	} {
		s := new(script).lease("1.0", 0, 1, 10).add(summary())
		s.events[4].Why, s.events[5].Why, s.events[6].Why = tc.freed, tc.dead, tc.over
		s.events[7].Ended[0].End, s.events[7].Ended[0].Why = tc.end, tc.why
		mustFind(t, history.Endings(s.history(t)))
	}
}

func TestLosses(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change func(s *script)
		found  []string
	}{
		"lost":            {func(*script) {}, []string{"o0 was lost (missing), although nothing was wrong"}},
		"calm":            {func(s *script) { s.add(history.Event{What: history.FaultOn, Name: "calm"}) }, []string{"although"}},
		"with a fault":    {func(s *script) { s.add(history.Event{What: history.FaultOn, Name: "latency"}) }, nil},
		"forced":          {func(s *script) { s.add(history.Event{What: history.Forced, Name: "job"}) }, nil},
		"never renewed":   {func(s *script) { s.events[0].Fixed = true }, nil},
		"short":           {func(s *script) { s.events[0].Lease = 2 * time.Second }, nil},
		"released":        {func(s *script) { s.events[5].Why = history.WhyReleased }, nil},
		"without CPU":     {func(s *script) { s.add(lagging(800)) }, nil},
		"with enough CPU": {func(s *script) { s.add(lagging(700)) }, []string{"although"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := new(script).lease("1.0", 0, 1, 10)
			s.events[0].Lease, s.events[5].Why = 3*time.Second, "lost:missing"
			tc.change(s)
			mustFind(t, history.Losses(s.history(t)), tc.found...)
		})
	}
}

// lagging is what process 1 says that had no CPU for some ms.
func lagging(milliseconds float64) history.Event {
	return history.Event{At: 200 * ms, What: history.Stat, Proc: 1, Counts: map[string]float64{history.StatLagAll: milliseconds * 1e6}}
}

func TestTelemetry(t *testing.T) {
	t.Parallel()
	for words, change := range map[string]func(c map[string]float64){
		"":                                      func(map[string]float64) {},
		"lockdog.acquisitions{acquired} = 2":    func(c map[string]float64) { c["lockdog.acquisitions{acquired}"] = 2 },
		"lockdog.acquisitions{error} = 1":       func(c map[string]float64) { c["lockdog.acquisitions{error}"] = 1 },
		"lockdog.releases{released} = 0":        func(c map[string]float64) { delete(c, "lockdog.releases{released}") },
		"lockdog.losses{taken} = 1":             func(c map[string]float64) { c["lockdog.losses{taken}"] = 1 },
		"lockdog.held = 1":                      func(c map[string]float64) { c["lockdog.held"] = 1 },
		"span{hold} = 0":                        func(c map[string]float64) { c["span{hold}"] = 0 },
		"log lost = 1; by what its callers saw": func(c map[string]float64) { c["log lost"] = 1 },
	} {
		s := new(script).lease("1.0", 0, 1, 10).add(summary())
		change(s.events[7].Counts)
		found := history.Telemetry(s.history(t))
		if words == "" {
			mustFind(t, found)
		} else {
			mustFind(t, found, words)
		}
	}
	// A loss is to be on every channel.
	s := new(script).lease("1.0", 0, 1, 10).add(summary())
	s.events[3].Why, s.events[4].Why = "lost:missing", "lost:missing"
	s.events[7].Ended[0] = history.Ended{Owner: "o0", End: "lost", Why: "missing"}
	mustFind(t, history.Telemetry(s.history(t)), "lockdog.losses{missing} = 0", "lockdog.releases{released} = 1", "log lost = 0", "span{lost} = 0", "span{release} = 1")
	c := s.events[7].Counts
	c["lockdog.losses{missing}"], c["lockdog.releases{released}"], c["log lost"], c["span{lost}"], c["span{release}"] = 1, 0, 1, 1, 0
	mustFind(t, history.Telemetry(s.history(t)))
	// It may have been lost just before Release was called: then that may have asked Redis, or not.
	s.events[3].Why, s.events[5].Why = "", "lost:missing"
	mustFind(t, history.Telemetry(s.history(t)))
	c["lockdog.releases{lost}"], c["span{release}"] = 1, 1
	mustFind(t, history.Telemetry(s.history(t)))
	c["lockdog.releases{lost}"] = 2
	mustFind(t, history.Telemetry(s.history(t)), "lockdog.releases{lost} = 2")
	// Callers can't tell whether a wait that an error ended was over, too, or whether Redis had failed before a lease was lost that ctx carries.
	for _, refused := range []struct{ why, outcome string }{
		{history.WhyError + "BUSY", "timeout"},
		{history.WhyError + "BUSY", "error"},
		{history.WhyContext + ":unclear", "canceled"},
		{history.WhyContext + ":unclear", "error"},
	} {
		for n := range 3 {
			s, count := new(script), "lockdog.acquisitions{"+refused.outcome+"}"
			s.add(history.Event{At: 1, What: history.Call, Proc: 1, ID: "1.0.1", Name: "job", How: "wait"}).add(history.Event{At: 2, What: history.Refuse, Proc: 1, ID: "1.0.1", Why: refused.why})
			s.add(history.Event{At: 3, What: history.Summary, Proc: 1, Counts: map[string]float64{count: float64(n), "span{acquire}": 1}})
			if n < 2 {
				mustFind(t, history.Telemetry(s.history(t)))
			} else {
				mustFind(t, history.Telemetry(s.history(t)), count+" = 2")
			}
		}
	}
	// Refusals by their outcome.
	s = new(script)
	for i, why := range []string{history.WhyHeld, history.WhyHeld, history.WhyContext + ":deadline", history.WhyContext, history.WhyError + "EOF", history.WhyContext + ":unavailable"} {
		id := "1.0." + string(rune('a'+i))
		how := "try"
		if i == 1 {
			how = "wait"
		}
		s.add(history.Event{At: 1, What: history.Call, Proc: 1, ID: id, Name: "job", How: how}).add(history.Event{At: 2, What: history.Refuse, Proc: 1, ID: id, Why: why})
	}
	s.add(history.Event{At: 3, What: history.Summary, Proc: 1, Counts: map[string]float64{
		"lockdog.acquisitions{held}": 1, "lockdog.acquisitions{timeout}": 2, "lockdog.acquisitions{canceled}": 1, "lockdog.acquisitions{error}": 2, "span{acquire}": 6,
	}})
	mustFind(t, history.Telemetry(s.history(t)))
}

// recovered is a history in which a client gets on after a fault, from 1 s on; change is shown its last call, its idle event
// and its stat.
func recovered(in history.Time, change func(call, renewal, idle, stat *history.Event)) *script {
	s := new(script).lease("1.0", 0, 1, 10)
	s.add(history.Event{At: 1000 * ms, What: history.Settle})
	s.lease("1.0", 900, in, in+500)
	last := len(s.events)
	s.lease("1.0", in+600, in+601, in+1000)
	id := s.events[last].ID
	s.add(history.Event{At: (in + 900) * ms, What: history.Renewed, Proc: 1, ID: id, Until: (in + 1900) * ms})
	s.add(history.Event{At: (in + 1100) * ms, What: history.Idle, Proc: 1})
	s.add(history.Event{At: (in + 1200) * ms, What: history.Stat, Proc: 1, Counts: map[string]float64{
		history.StatWarm: 40, history.StatIdle: 50,
	}})
	s.add(history.Event{At: (in + 1300) * ms, What: history.Stat, Proc: 1, Counts: map[string]float64{
		history.StatConns: 12, history.StatConnsMax: 16, history.StatLeft: 0,
	}})
	n := len(s.events)
	change(&s.events[last], &s.events[n-4], &s.events[n-3], &s.events[n-2])
	return s
}

func TestRecovery(t *testing.T) {
	t.Parallel()
	nothing := func(_, _, _, _ *history.Event) {}
	mustFind(t, history.Recovery(recovered(4000, nothing).history(t)))                         // one lease and 2 s
	mustFind(t, history.Recovery(recovered(4001, nothing).history(t)), "worker 1.0 got in 3.") // more
	for words, change := range map[string]func(call, renewal, idle, stat *history.Event){
		"nothing was renewed":             func(_, renewal, _, _ *history.Event) { renewal.What = history.Note },
		"never got everything":            func(_, _, idle, _ *history.Event) { idle.What = history.Note },
		"75 goroutines when idle":         func(_, _, _, stat *history.Event) { stat.Counts[history.StatIdle] = 75 },
		"goroutines were left behind: go": func(_, _, _, stat *history.Event) { stat.Why = "go" },
	} {
		mustFind(t, history.Recovery(recovered(1500, change).history(t)), words)
	}
	for words, change := range map[string]func(c map[string]float64){
		"17 connections when idle":  func(c map[string]float64) { c[history.StatConns] = 17 },
		"1 connections after Close": func(c map[string]float64) { c[history.StatLeft] = 1 },
	} {
		s := recovered(1500, nothing)
		change(s.events[len(s.events)-1].Counts)
		mustFind(t, history.Recovery(s.history(t)), words)
	}
	// Who never got in.
	s := recovered(1500, nothing)
	s.add(history.Event{At: 900 * ms, What: history.Call, Proc: 1, ID: "1.1.1", Name: "job"})
	mustFind(t, history.Recovery(s.history(t)), "worker 1.1 got no lock")
	// Whoever was killed, can't.
	s = new(script).lease("1.0", 0, 1, 10).add(history.Event{At: 20 * ms, What: history.Restart, Proc: 1}).add(history.Event{At: 30 * ms, What: history.Settle})
	mustFind(t, history.Recovery(s.history(t)))
	mustFind(t, history.Recovery(new(script).lease("1.0", 0, 1, 10).history(t)), "the faults never ended")
	// Connections that died in silence are noticed later, and what a clock that stepped back has granted lasts longer.
	s = recovered(6000, nothing)
	s.add(history.Event{At: 0, What: history.FaultOn, ID: "0", Silent: true}).add(history.Event{At: 100 * ms, What: history.FaultOff, ID: "0"})
	mustFind(t, history.Recovery(s.history(t)))
	s = recovered(4500, nothing) // the machine was busy
	s.events[len(s.events)-1].Counts[history.StatLag] = float64(500 * time.Millisecond)
	mustFind(t, history.Recovery(s.history(t)))
	s = recovered(4900, nothing)
	s.add(history.Event{At: 0, What: history.FaultOn, ID: "0", Clock: true, Back: true, Delay: -time.Second})
	mustFind(t, history.Recovery(s.history(t)))
}

func TestRead(t *testing.T) {
	t.Parallel()
	got, err := history.Read(strings.NewReader(`{"t":1,"e":"call","id":"1.0.1"}` + "\n" + `{"t":2,"e":"gra`)) // killed while it wrote
	if err != nil || len(got) != 1 || got[0].At != 1 || got[0].What != history.Call || got[0].ID != "1.0.1" {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err = history.Read(strings.NewReader("{]\n")); err == nil {
		t.Error("no error")
	}
	for name, events := range map[string][]history.Event{
		"never called": {{What: history.Grant, ID: "1.0.1"}},
		"there twice":  {{What: history.Call, ID: "1.0.1"}, {What: history.Call, ID: "1.0.1"}},
	} {
		if _, err := history.New(events); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%v, want %q", err, name)
		}
	}
}

func TestTimeline(t *testing.T) {
	t.Parallel()
	s := new(script).lease("1.0", 5, 6, 10).add(history.Event{At: 7 * ms, What: history.FaultOn, Name: "FLUSHALL", Loses: true})
	h := s.history(t)
	all := h.Timeline(0, h.End, "")
	if n := strings.Count(all, "\n"); n != 8 {
		t.Errorf("%d lines, want 8:\n%s", n, all)
	}
	some := h.Timeline(6*ms, 8*ms, "another")
	if some != "    0.002000  process 0  fault     FLUSHALL (writes may be lost)\n" {
		t.Errorf("%q", some)
	}
}
