package history

import (
	"slices"
	"time"
)

// switchSlack is how long a client may take to learn of a switch. What it sends until then may go to the old primary.
const switchSlack = 500 * time.Millisecond

// explains reports whether one of the faults explains that all the holders hold one name at the same time. A fault
// without a switch may lose anything. A switch loses only what was granted and renewed before it. Leases that were
// granted or renewed after it must fit into the room at the new primary.
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

// confirmed reports whether a lease was granted or renewed by a request that was sent after its process had moved to
// the new primary.
func (h *History) confirmed(o *Op, s Event) bool {
	moved, ok := h.moved(o, s)
	if !ok {
		return false
	}
	slack := switchSlack
	// The process reported no servers, and may have had no CPU to learn of the switch.
	if len(h.Wheres[o.Call.Proc]) == 0 {
		slack += time.Duration(h.Stats[o.Call.Proc].Counts[StatLagAll])
	}
	return slices.ContainsFunc(o.Untils, func(until Time) bool {
		// deadline = sentAt + lease - margin, so the request was sent even later.
		return until.Add(-o.Call.Lease) > moved.Add(slack)
	})
}

// moved returns when the program's Redis client moved to the new primary of the switch s, in the process that took the
// lease. From then on lockdog must use the new primary, too. ok is false if the client stayed with the old primary. A
// client that reported no servers counts as moved at the switch.
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
