package history

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// The keys of a summary's Counts. The value of the label, if there is one, follows in braces. Groups are summed.
const (
	CountAcquisitions  = "lockdog.acquisitions"  // {outcome}
	CountReleases      = "lockdog.releases"      // {outcome}
	CountLosses        = "lockdog.losses"        // {cause}
	CountCancellations = "lockdog.cancellations" // {reason}
	CountHeld          = "lockdog.held"
	CountWaiting       = "lockdog.acquire.waiting"
	CountWatched       = "lockdog.watchdog.leases"
	CountErrors        = "lockdog.errors" // {type}
	CountSpans         = "span"           // {first word of the name}
	CountLost          = "log lost"
	CountMembersLost   = "lockdog.members.lost"
	CountDeadlocks     = "lockdog.deadlocks"
	CountAgentRequests = "lockdog.agent.requests" // {outcome}
)

// Labeled returns the key of one series.
func Labeled(key, label string) string { return key + "{" + label + "}" }

// Telemetry checks that the counters, spans and logs of a process agree with what its callers saw. A composite lock
// counts as one; its members have additional spans.
func Telemetry(h *History) (found []Violation) {
	deadlocks := slices.ContainsFunc(h.Ops, func(o *Op) bool { return o.Call.Nest == NestUnordered })
	for _, p := range slices.Sorted(maps.Keys(h.Summaries)) {
		s := h.Summaries[p]
		if n := s.Counts[CountDeadlocks]; n > 0 && !deadlocks {
			found = append(found, violation("telemetry", "", s.At, s.At,
				"process %d says %s = %v; there can't be any", p, CountDeadlocks, n))
		}
		apart := h.does(p, func(c Event) bool { return c.Apart })
		want, may := zeros(), map[string]float64{}
		if apart {
			n := float64(len(s.Ended))
			want[Labeled(CountSpans, "held")], want[Labeled(CountSpans, "hold")] = n, n
		} else {
			want, may = expected(h, p)
		}
		if h.does(p, func(c Event) bool { return c.Whole }) {
			membersOf(h, p, want)
		}
		for _, e := range s.Ended { // Endings compares these with what the callers saw
			switch e.End {
			case "lost":
				want[Labeled(CountSpans, "lost")]++
				if e.Member {
					want[CountMembersLost]++
					continue
				}
				want[Labeled(CountLosses, e.Why)]++
				want[CountLost]++
			case "canceled", "closed":
				want[Labeled(CountSpans, "cancel")]++
				if !e.Member {
					want[Labeled(CountCancellations, e.Why)]++
				}
			}
		}
		for key := range s.Counts {
			if _, ok := want[key]; !ok && !strings.HasPrefix(key, CountErrors) && compared(key, apart) {
				want[key] = 0
			}
		}
		for _, key := range slices.Sorted(maps.Keys(want)) {
			if more := s.Counts[key] - want[key]; more < 0 || more > may[key] {
				found = append(found, violation("telemetry", "", s.At, s.At,
					"process %d says %s = %v; by what its callers saw it is %v", p, key, s.Counts[key], want[key]))
			}
		}
	}
	return found
}

// does reports whether the process made a call for which such returns true.
func (h *History) does(p int, such func(call Event) bool) bool {
	return slices.ContainsFunc(h.Ops, func(o *Op) bool { return o.Call.Proc == p && such(o.Call) })
}

// membersOf corrects want for composite locks. expected counts each of them as one lock. membersOf adds the spans of
// members, and the ends of the composite locks: Client.Recent has only the ends of members.
func membersOf(h *History, p int, want map[string]float64) {
	// The number of these spans isn't known: members that weren't granted, or were lost, have them too.
	for _, span := range []string{"acquire", "release"} {
		delete(want, Labeled(CountSpans, span))
	}
	held := float64(len(h.Summaries[p].Ended))
	for _, o := range h.Ops {
		if o.Call.Proc != p || !o.Call.Whole || !o.Granted {
			continue
		}
		held++
		how, why := cause(o.Dead)
		if how == WhyReleased {
			how, why = cause(o.Over)
		}
		switch how {
		case WhyLost:
			want[Labeled(CountLosses, why)]++
			want[Labeled(CountSpans, "lost")]++
			want[CountLost]++
		case WhyCanceled:
			want[Labeled(CountCancellations, why)]++
			want[Labeled(CountSpans, "cancel")]++
		}
	}
	want[Labeled(CountSpans, "held")], want[Labeled(CountSpans, "hold")] = held, held
}

// compared reports whether the callers know what a count must be.
func compared(key string, apart bool) bool {
	for _, prefix := range []string{
		CountLosses, CountCancellations, CountLost, CountMembersLost, CountHeld, CountWaiting, CountWatched,
		CountAcquisitions, CountReleases,
	} {
		if apart && prefix == CountAcquisitions {
			return false
		}
		if strings.HasPrefix(key, prefix) {
			return true
		}
	}
	return false
}

// expected returns the minimum counts for the calls of a process, and by how much they may be larger where callers
// can't know.
func expected(h *History, p int) (want, may map[string]float64) {
	want, may = zeros("acquire", "held", "hold", "lost", "cancel", "release"), map[string]float64{}
	count := func(key, label string) { want[Labeled(key, label)]++ }
	for _, o := range h.Ops {
		if o.Call.Proc != p {
			continue
		}
		count(CountSpans, "acquire")
		switch {
		case o.Granted:
		case o.Returned == 0:
			continue
		case o.Call.How == "wait" && strings.HasPrefix(o.Refused, WhyError):
			// Redis failed. Whether the outcome is error or timeout depends on what the call was waiting for.
			may[Labeled(CountAcquisitions, "error")]++
			may[Labeled(CountAcquisitions, "timeout")]++
			continue
		case o.Refused == WhyContext+":unclear":
			may[Labeled(CountAcquisitions, "error")]++
			may[Labeled(CountAcquisitions, "canceled")]++
			continue
		default:
			count(CountAcquisitions, refusal(o))
			continue
		}
		count(CountAcquisitions, "acquired")
		count(CountSpans, "held")
		count(CountSpans, "hold")
		if o.FreeReturned == 0 {
			continue
		}
		switch how, _ := cause(o.Freed); {
		case how == "":
			count(CountReleases, "released")
		case how == WhyLost && o.KnownLost:
			continue // nothing was sent
		case how == WhyLost:
			// It was lost after it was checked for KnownLost, before or during the call of Release. If a renewal or a
			// message detected that, Redis may not have been asked.
			may[Labeled(CountReleases, "lost")]++
			may[Labeled(CountSpans, "release")]++
			continue
		default:
			count(CountReleases, "error")
		}
		count(CountSpans, "release")
	}
	return want, may
}

// zeros returns the counts of a process that has done nothing.
func zeros(spans ...string) map[string]float64 {
	want := map[string]float64{CountHeld: 0, CountWaiting: 0, CountWatched: 0, CountLost: 0, CountMembersLost: 0}
	for _, span := range spans {
		want[Labeled(CountSpans, span)] = 0
	}
	return want
}

// refusal returns the outcome of a call that returned no lease.
func refusal(o *Op) string {
	switch {
	case o.Refused == WhyHeld && o.Call.How == "wait":
		return "timeout"
	case o.Refused == WhyHeld:
		return "held"
	case o.Refused == WhyContext+":deadline":
		return "timeout"
	case o.Refused == WhyContext, o.Refused == WhyClosed:
		return "canceled"
	case o.Refused == WhyContext+":unavailable", o.Refused == WhyDeadlock:
		return "error"
	case strings.HasPrefix(o.Refused, WhyError):
		return "error"
	}
	return fmt.Sprintf("? (%s)", o.Refused)
}
