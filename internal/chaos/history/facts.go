package history

import (
	"slices"
	"strings"
	"time"
)

// Facts are what one run shows of its faults, for a table over many runs.
type Facts struct {
	Grants  int
	Live    int                        // leases that were live at some time while a fault was on
	Ends    map[string]int             // how those ended, by what their Context said
	After   map[string][]time.Duration // how long after the fault had begun, or after the grant if that was later, unless they were released
	Forced  int                        // calls of ForceUnlock
	Calls   int                        // calls that were under way while a fault was on, and returned then or later
	Refused map[string]int             // those of them that were refused or failed, by why
	BackIn  time.Duration              // how long after the faults the last worker got in that had waited
	Lag     time.Duration              // the longest time for which a process had no CPU
	Counts  map[string]float64         // of all clients: what their counters, spans and logs say
	Excused int                        // pairs that held a name at one time, where Redis had lost a write
	Beside  int                        // writes that the store refused of the first of these
	Stale   int                        // ... and of all
}

// Facts are those of the history.
func (h *History) Facts() Facts {
	f := Facts{Grants: h.Grants(), Ends: map[string]int{}, After: map[string][]time.Duration{}, Refused: map[string]int{}, Counts: map[string]float64{}}
	on, off := Time(1<<63-1), Time(0)
	for _, e := range h.Events {
		switch e.What {
		case FaultOn:
			on = min(on, e.At)
		case FaultOff:
			off = max(off, e.At)
		case Forced:
			f.Forced++
		}
	}
	in := make(map[string]Time)
	for _, o := range h.Ops {
		if (o.Granted || o.Refused != "") && o.Returned >= on && o.Call.At <= off {
			f.Calls++
		}
		who := worker(o.Call.ID)
		if o.Granted && o.Call.At < h.Settle && o.Returned >= h.Settle && in[who] == 0 {
			in[who] = o.Returned
		}
		switch {
		case o.Granted && o.Owner != "" && o.DeadAt >= on && o.Returned <= off:
			f.Live++
			f.Ends[o.Dead]++
			if how, _ := cause(o.Dead); how != WhyReleased {
				f.After[o.Dead] = append(f.After[o.Dead], o.DeadAt.Sub(max(on, o.Returned)))
			}
		case o.Refused != "" && o.Returned >= on && o.Call.At <= off:
			why := o.Refused
			if strings.HasPrefix(why, WhyError) {
				why = "error"
			}
			f.Refused[why]++
		}
	}
	for _, at := range in {
		f.BackIn = max(f.BackIn, at.Sub(h.Settle))
	}
	for _, s := range h.Stats {
		f.Lag = max(f.Lag, time.Duration(s.Counts[StatLagAll]))
	}
	for _, s := range h.Summaries {
		for k, n := range s.Counts {
			f.Counts[k] += n
		}
	}
	for _, all := range f.After {
		slices.Sort(all)
	}
	return f
}
