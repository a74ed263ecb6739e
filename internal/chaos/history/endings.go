package history

import (
	"strings"
	"time"
)

// Deadlines checks that no Context says that it is live after its deadline.
func Deadlines(h *History) (found []Violation) {
	for _, o := range h.Ops {
		for _, e := range o.Overdue {
			found = append(found, violation("deadline", o.Call.Name, o.Call.At, e.At,
				"%s: the Context of %s called itself live %v past the lease's deadline", o.Call.Name, o.Owner, e.At.Sub(
					e.Until)))
		}
	}
	return found
}

// steadyLease is the shortest lease that Losses checks: a busy machine may cost a shorter one.
const steadyLease = 3 * time.Second

// Losses checks that no lease is lost in a run without faults, unless a ForceUnlock was called, the lease is never
// renewed, or its process had no CPU for a while. What is wrong with an agent alone is no fault.
func Losses(h *History) (found []Violation) {
	for _, e := range h.Events {
		if e.What == FaultOn && e.Name != "calm" {
			return nil
		}
	}
	for _, o := range h.Ops {
		how, why := cause(o.Dead)
		lag := time.Duration(h.Stats[o.Call.Proc].Counts[StatLagAll])
		if how != WhyLost || o.Call.Fixed || o.Call.Lease < steadyLease || len(h.Forces) > 0 || lag > o.Call.Lease/4 {
			continue
		}
		found = append(found, violation("losses", o.Call.Name, o.Call.At, o.DeadAt,
			"%s: %s was lost (%s), although nothing was wrong", o.Call.Name, o.Owner, why))
	}
	return found
}

// Endings checks that every lease ended for exactly one reason, and that the Context, Release, Lease.Err and
// Client.Recent agree on it. For a composite lock, Client.Recent isn't compared: it has only the members. Endings skips
// processes that were killed.
func Endings(h *History) (found []Violation) {
	told := make(map[string][]Ended)
	for _, s := range h.Summaries {
		for _, e := range s.Ended {
			told[e.Owner] = append(told[e.Owner], e)
		}
	}
	for _, o := range h.Ops {
		if _, whole := h.Summaries[o.Call.Proc]; !o.Granted || !whole || o.Owner == "" {
			continue
		}
		bad := func(format string, args ...any) {
			args = append([]any{o.Call.Name, o.Owner}, args...)
			found = append(found, violation("endings", o.Call.Name, o.Call.At, max(o.FreeReturned, o.DeadAt),
				"%s: %s "+format, args...))
		}
		ends := told[o.Owner]
		e := Ended{}
		switch {
		case o.Call.Whole: // each of its members has its own end
		case len(ends) != 1:
			bad("ended %d times by Client.Recent: %v", len(ends), ends)
			continue
		default:
			e = ends[0]
		}
		how, why := cause(o.Dead)
		over, overWhy := cause(o.Over)
		switch {
		case o.Dead == "":
			bad("is over, but its Context never ended")
		case over == "":
			bad("is over, but Err says nothing")
		case how == WhyReleased && o.FreeCalled == 0:
			bad("says that it was released, which nobody did")
		case o.Call.Whole:
		case how == WhyReleased && (e.End != "released" && e.End != "lost"),
			how == WhyLost && (e.End != "lost" || e.Why != why),
			how == WhyCanceled && (e.End != "canceled" && e.End != "closed" || e.Why != why):
			bad("ended as %s by its Context, as %+v by Client.Recent", o.Dead, e)
		case e.End == "lost" && (over != WhyLost || overWhy != e.Why):
			bad("ended as %s by Err, as %+v by Client.Recent", o.Over, e)
		case e.End == "released" && over != WhyReleased:
			bad("ended as %s by Err, as %+v by Client.Recent", o.Over, e)
		}
		// The result of Release must agree too: an error that says lost if and only if the lease was lost.
		if o.FreeReturned == 0 {
			continue
		}
		freed, _ := cause(o.Freed)
		switch {
		case over == WhyLost && freed != WhyLost:
			bad("was lost (%s), but Release said %q", o.Over, o.Freed)
		case over != WhyLost && freed == WhyLost:
			bad("ended as %s, but Release said %q", o.Over, o.Freed)
		case freed == WhyReleased:
			bad("was released once, but Release said that it had been before")
		case strings.HasPrefix(o.Freed, WhyHeld):
			bad("Release said %q", o.Freed)
		}
	}
	return found
}
