package history

import (
	"slices"
	"time"
)

// switchSlack is how long a client may take to hear of a switch: what it sent by then may have gone to the old primary.
const switchSlack = 500 * time.Millisecond

// explains reports whether one of the faults explains that all of these hold a name at one time. What a fault without a switch
// loses may be anything. A switch loses what was granted and renewed until then: those that were granted or renewed after it must
// find room at the new primary.
func (h *History) explains(holders []*Op, room int, faults []string) bool {
	return slices.ContainsFunc(faults, func(fault string) bool {
		i := slices.IndexFunc(h.Switches, func(e Event) bool { return e.ID == fault })
		if i < 0 {
			return true
		}
		used := 0
		for _, o := range holders {
			if h.confirmed(o, h.Switches[i]) {
				used += o.Call.Weight
			}
		}
		return used <= room
	})
}

// confirmed reports whether a lease was granted or renewed by a request that was sent after its process had moved to the new primary.
func (h *History) confirmed(o *Op, s Event) bool {
	moved, ok := h.moved(o, s)
	if !ok {
		return false
	}
	slack := switchSlack
	if len(h.Wheres[o.Call.Proc]) == 0 { // it didn't tell, and may have had no CPU to hear of the switch
		slack += time.Duration(h.Stats[o.Call.Proc].Counts[StatLagAll])
	}
	return slices.ContainsFunc(o.Untils, func(until Time) bool {
		return until.Add(-o.Call.Lease) > moved.Add(slack) // a lease is trusted for a little less, so it was sent later
	})
}

// moved is when the process that took a lease had moved to the new primary: its Redis client, to which lockdog has to keep. It is
// false if the client stayed with the old one.
func (h *History) moved(o *Op, s Event) (at Time, ok bool) {
	at, next := s.At, h.End
	for _, later := range h.Switches {
		if later.At > s.At {
			next = min(next, later.Since)
		}
	}
	server := ""
	for _, e := range h.Wheres[o.Call.Proc] {
		if e.Name != "" && e.Name != o.Call.Name || e.At > next {
			continue
		}
		if server == s.Server && e.At > at {
			at = e.At
		}
		server = e.Server
	}
	return at, server != s.Server
}
