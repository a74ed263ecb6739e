package history

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// The keys of a summary's Counts. Those of metrics are followed by the value of the label in braces where there is one;
// groups are added up.
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
)

// Labeled is the key of one series.
func Labeled(key, label string) string { return key + "{" + label + "}" }

// Telemetry checks that what a process told the world by counters, spans and logs is what its callers saw.
func Telemetry(h *History) (found []Violation) {
	for _, p := range slices.Sorted(maps.Keys(h.Summaries)) {
		s := h.Summaries[p]
		want, may := expected(h, p)
		if h.apart(p) {
			n := float64(len(s.Ended))
			want, may = map[string]float64{CountHeld: 0, CountWaiting: 0, CountWatched: 0, CountLost: 0, Labeled(CountSpans, "held"): n, Labeled(CountSpans, "hold"): n}, nil
		}
		for _, e := range s.Ended { // what Endings has compared with what the callers saw
			switch e.End {
			case "lost":
				want[Labeled(CountLosses, e.Why)]++
				want[Labeled(CountSpans, "lost")]++
				want[CountLost]++
			case "canceled", "closed":
				want[Labeled(CountCancellations, e.Why)]++
				want[Labeled(CountSpans, "cancel")]++
			}
		}
		for key := range s.Counts {
			if _, ok := want[key]; !ok && !strings.HasPrefix(key, CountErrors) && compared(key, h.apart(p)) {
				want[key] = 0
			}
		}
		for _, key := range slices.Sorted(maps.Keys(want)) {
			if more := s.Counts[key] - want[key]; more < 0 || more > may[key] {
				found = append(found, violation("telemetry", "", s.At, s.At, "process %d says %s = %v; by what its callers saw it is %v", p, key, s.Counts[key], want[key]))
			}
		}
	}
	return found
}

// apart says whether what a process calls for isn't one lock each time. Then what its counters have to be is known of the
// locks that ended, by Client.Recent, and not of the calls.
func (h *History) apart(p int) bool {
	return slices.ContainsFunc(h.Ops, func(o *Op) bool { return o.Call.Proc == p && o.Call.Apart })
}

// compared says whether what the callers saw tells what a count has to be.
func compared(key string, apart bool) bool {
	for _, prefix := range []string{CountLosses, CountCancellations, CountLost, CountHeld, CountWaiting, CountWatched, CountAcquisitions, CountReleases} {
		if apart && prefix == CountAcquisitions {
			return false
		}
		if strings.HasPrefix(key, prefix) {
			return true
		}
	}
	return false
}

// expected is what the calls of a process come to at least, and by how much it may be more, where callers can't tell.
func expected(h *History, p int) (want, may map[string]float64) {
	want, may = map[string]float64{CountHeld: 0, CountWaiting: 0, CountWatched: 0, CountLost: 0}, map[string]float64{}
	for _, span := range []string{"acquire", "held", "hold", "lost", "cancel", "release"} {
		want[Labeled(CountSpans, span)] = 0
	}
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
			// Redis failed. Whether the wait was over, too, depends on what of it was waiting.
			may[Labeled(CountAcquisitions, "error")]++
			may[Labeled(CountAcquisitions, "timeout")]++
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
			// It may have been lost between the question and the call, or during the call, by a renewal or a message: then that
			// need not have asked Redis.
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

// refusal is the outcome of a call that gave no lease.
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
	case strings.HasPrefix(o.Refused, WhyError):
		return "error"
	}
	return fmt.Sprintf("? (%s)", o.Refused)
}
