package history

import (
	"cmp"
	"slices"
	"time"
)

// Exclusion checks that the live grants of a name never took more than its room (see Event.Room), according to the
// holders' Contexts. For a mutex, no two may be live. An overlap is accepted if a ForceUnlock may have taken the lock
// from one of the holders. If Redis may have forgotten a grant, the overlap is excused, and Exclusion returns the
// earlier holder. A failover that lost the grant doesn't excuse a renewal after it: such a renewal was accepted by a
// replaced primary.
func Exclusion(h *History) (found []Violation, excused []*Op) {
	for name, ops := range h.byName() {
		type edge struct {
			at    Time
			start bool
			op    *Op
		}
		var edges []edge
		for _, o := range ops {
			if from, to, ok := o.Live(); ok {
				edges = append(edges, edge{from, true, o}, edge{to, false, o})
			}
		}
		slices.SortFunc(edges, func(a, b edge) int {
			// An interval includes its ends. But two events in the same nanosecond have no known order, so an end sorts
			// before a start.
			if c := cmp.Compare(a.at, b.at); c != 0 || a.start == b.start {
				return c
			} else if a.start {
				return 1
			}
			return -1
		})
		var live []*Op
		told := false
		for _, e := range edges {
			if !e.start {
				live = slices.DeleteFunc(live, func(o *Op) bool { return o == e.op })
				continue
			}
			used := e.op.Call.Weight
			for _, o := range live {
				used += o.Call.Weight
			}
			if used > e.op.Call.Room {
				other := live[len(live)-1]
				until := min(other.LastLive, e.op.LastLive)
				switch {
				case slices.ContainsFunc(append(live, e.op), func(o *Op) bool {
					return h.forced(name, o.Call.At, e.at)
				}):
					// The holder that lost the lock may notice that a moment later, or may get the reply to its acquire
					// only then.
				case h.excused(e.at, e.at, max(e.op.Call.Lease, other.Call.Lease)):
					if h.explains(append(live, e.op), e.op.Call.Room,
						h.excuses(e.at, e.at, max(e.op.Call.Lease, other.Call.Lease))) {
						excused = append(excused, other)
						break
					}
					if told { // a holder that stays overlaps with many others: report only the first overlap
						break
					}
					told = true
					found = append(found, violation("stale", name, other.Call.At, until,
						"%s: %s (token %d) and %s (token %d) were live at one time, for %v at least, and both were granted or renewed after the switch to another primary",
						name, other.Owner, other.Token, e.op.Owner, e.op.Token, until.Sub(e.at)))
				default:
					found = append(found, violation("exclusion", name, other.Call.At, until,
						"%s: %s (token %d) and %s (token %d) were live at one time, for %v at least",
						name, other.Owner, other.Token, e.op.Owner, e.op.Token, until.Sub(e.at)))
				}
			}
			live = append(live, e.op)
		}
	}
	return found, excused
}

// mayFall reports whether a token may be smaller than an earlier one by this much. That takes two things: Redis lost
// the largest token (otherwise the next one is larger, whatever the clock says), and the servers' time went back by at
// least as much.
func (h *History) mayFall(by int64) bool {
	return h.Back && h.Lost && time.Duration(by)*time.Microsecond <= h.Behind
}

// Tokens checks that a grant's token is larger than those of all earlier grants of the name. No two tokens are equal. A
// call that returned before another call began has the smaller token, unless mayFall allows the opposite. A lease that
// was over before another lease began has the smaller token, too, unless one of the two is shared, or there was a
// ForceUnlock, or a clock stepped, or Redis may have lost writes: then two servers may have granted locks.
func Tokens(h *History) (found []Violation) {
	for name, ops := range h.byName() {
		if ops[0].Call.Kind == KindSemaphore {
			continue // an UnleasedSemaphore has no tokens
		}
		ops = slices.Clone(ops)
		slices.SortFunc(ops, func(a, b *Op) int { return cmp.Compare(a.Token, b.Token) })
		// The earliest return of a call with a larger token than the current one: the loop starts with the largest.
		earliest := Time(1<<63 - 1)
		var ended *Op
		for i := len(ops) - 1; i >= 0; i-- {
			o := ops[i]
			if i > 0 && ops[i-1].Token == o.Token && ops[i-1].Call.ID != o.Call.ID {
				found = append(found, violation("tokens", name, ops[i-1].Call.At, o.Returned,
					"%s: %s and %s have the same token, %d", name, ops[i-1].Owner, o.Owner, o.Token))
			}
			if o.Token <= 0 {
				found = append(found, violation("tokens", name, o.Call.At, o.Returned,
					"%s: %s has token %d", name, o.Owner, o.Token))
			}
			if ended != nil && earliest < o.Call.At && !h.mayFall(ended.Token-o.Token) {
				found = append(found, violation("tokens", name, ended.Call.At, o.Returned,
					"%s: %s (token %d) was granted before %s (token %d) was called",
					name, ended.Owner, ended.Token, o.Owner, o.Token))
			}
			if o.Returned < earliest {
				earliest, ended = o.Returned, o
			}
		}
		found = append(found, order(h, name, ops)...)
	}
	return found
}

// order checks that leases that don't overlap are in the order of their tokens. ops must be sorted by token.
func order(h *History, name string, ops []*Op) (found []Violation) {
	var last *Op // among those with a smaller token, the lease that began last
	for _, o := range ops {
		from, to, ok := o.Live()
		if !ok || o.Call.Shared {
			continue
		}
		if last != nil && to < last.Returned &&
			!h.excused(from, last.Returned, max(o.Call.Lease, last.Call.Lease)) &&
			!h.forced(name, last.Call.At, last.Returned) {
			found = append(found, violation("tokens", name, o.Call.At, last.Returned,
				"%s: %s (token %d) was over before %s (token %d) began",
				name, o.Owner, o.Token, last.Owner, last.Token))
		}
		if last == nil || from > last.Returned {
			last = o
		}
	}
	return found
}

// Store checks that the store accepted no write with a smaller token than an earlier write had, and refused no other
// write. It returns how many writes were refused because of a smaller token.
func Store(h *History) (found []Violation, stale int) {
	last := make(map[string]Event)
	for _, w := range h.Writes {
		before, seen := last[w.Name]
		switch {
		case seen && w.Token < before.Token && w.Why == "":
			found = append(found, violation("store", w.Name, before.At, w.At,
				"%s: a write with token %d was taken after one with %d", w.Name, w.Token, before.Token))
		case seen && w.Token < before.Token:
			stale++
		case w.Why != "":
			found = append(found, violation("store", w.Name, before.At, w.At,
				"%s: a write with token %d was refused after one with %d", w.Name, w.Token, before.Token))
		default:
			last[w.Name] = w
		}
	}
	return found, stale
}
