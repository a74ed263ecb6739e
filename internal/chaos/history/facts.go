package history

import (
	"slices"
	"strings"
	"time"
)

// Facts summarizes the faults of one run, for a table over many runs.
type Facts struct {
	Grants int
	Live   int            // leases that were live at some time during a fault
	Ends   map[string]int // how these ended, according to their Contexts
	// After is how long after the start of the fault, or after the grant if that was later. Without released ones.
	After   map[string][]time.Duration
	Forced  int                // calls of ForceUnlock
	Calls   int                // calls that overlapped with a fault and returned
	Refused map[string]int     // those of them that failed, by why
	BackIn  time.Duration      // time from the faults' end until the last worker that had waited got its lock
	Lag     time.Duration      // the longest time for which a process had no CPU
	Counts  map[string]float64 // of all clients together: counters, spans and logs
	Excused int                // pairs that held a name at the same time because Redis had lost a write
	Beside  int                // writes of the earlier holders in these pairs that the store refused
	Stale   int                // all writes that the store refused
}

// Facts returns the facts of the history.
func (h *History) Facts() Facts {
	f := Facts{
		Grants: h.Grants(), Ends: map[string]int{}, After: map[string][]time.Duration{},
		Refused: map[string]int{}, Counts: map[string]float64{},
	}
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
