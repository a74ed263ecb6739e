package history

import (
	"cmp"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

// For porcupine a lock is a room. Grants take a part of it, and give it back. The tokens rise.

// step is an event of a lock, at one instant within its call.
type step struct {
	take   bool
	op     int // number of the grant
	weight int
	room   int
	token  int64
	fall   int64 // by how much the token may be smaller than the previous one
	force  bool  // all holders are removed from the room
	forgot bool  // Redis, or a ForceUnlock that isn't Sure, may have removed everything that was granted before
}

// room is the state of a lock.
type room struct {
	used int
	last int64
	// The grants in it, sorted. An array, because the state must be comparable.
	in [roomHolds]int
}

// roomHolds is the maximum number of grants in a room: no more workers than that compete for it.
const roomHolds = 16

// lockModel defines the allowed steps of a lock.
var lockModel = porcupine.Model{
	Init: func() any { return room{} },
	Step: func(state, input, _ any) (bool, any) {
		r, s := state.(room), input.(step)
		if s.force {
			return true, room{last: r.last}
		}
		if !s.take {
			if i := slices.Index(r.in[:], s.op); i >= 0 {
				r.in[i] = 0
				r.used -= s.weight
				slices.Sort(r.in[:])
			}
			return true, r // if i < 0, the grant was forgotten or forced away before
		}
		if s.forgot {
			r.in, r.used = [roomHolds]int{}, 0
			s.token = max(s.token, r.last+1)
		}
		i := slices.Index(r.in[:], 0)
		if r.used+s.weight > s.room || i < 0 || s.token != 0 && s.token <= r.last-s.fall {
			return false, r
		}
		r.in[i], r.used, r.last = s.op, r.used+s.weight, s.token
		slices.Sort(r.in[:])
		return true, r
	},
	Equal: func(a, b any) bool { return a == b },
}

// Linearizable checks that there is an order of the grants and releases of each name, each at some instant of its call,
// in which the room is never exceeded and the tokens rise. undecided has the names for which limit was too short.
func Linearizable(h *History, limit time.Duration) (found []Violation, undecided []string) {
	for name, ops := range h.byName() {
		var all []porcupine.Operation
		for i, o := range ops {
			_, to, lived := o.Live()
			if !lived {
				continue // the caller never saw it live: the lease may have begun and ended during the call
			}
			longest := time.Duration(0) // of the leases that Redis may have forgotten
			for _, earlier := range ops {
				if earlier.Call.At < o.Returned {
					longest = max(longest, earlier.Call.Lease)
				}
			}
			s := step{
				take: true, op: i + 1, weight: o.Call.Weight, room: o.Call.Room, token: o.Token,
				forgot: h.excused(o.Call.At, o.Returned, longest) || unsure(h, name, o.Returned),
			}
			if h.mayFall(0) {
				s.fall = h.Behind.Microseconds()
			}
			all = append(all, porcupine.Operation{Input: s, Call: int64(o.Call.At), Return: int64(o.Returned)})
			// A lease that wasn't released leaves the room when it was last seen live: a later time would only forbid
			// more.
			s.take = false
			from, until := to, to+1
			if how, _ := cause(o.Freed); o.FreeReturned != 0 && how == "" {
				from, until = o.FreeCalled, o.FreeReturned
			}
			all = append(all, porcupine.Operation{
				Input: s, Call: int64(max(from, o.Returned+1)), Return: int64(max(until, o.Returned+2)),
			})
		}
		for _, f := range h.Forces[name] {
			if f.Sure() {
				all = append(all, porcupine.Operation{
					Input: step{force: true}, Call: int64(f.From), Return: int64(f.To),
				})
			}
		}
		slices.SortFunc(all, func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
		switch porcupine.CheckOperationsTimeout(lockModel, all, limit) {
		case porcupine.Illegal:
			found = append(found, violation("linearizability", name, 0, h.End,
				"%s: no order of its %d grants explains what was seen", name, len(all)/2))
		case porcupine.Unknown:
			undecided = append(undecided, name)
		}
	}
	slices.Sort(undecided)
	return found, undecided
}

// unsure reports whether a ForceUnlock that began before the given time may still have its effect after it.
func unsure(h *History, name string, by Time) bool {
	return slices.ContainsFunc(h.Forces[name], func(f Force) bool { return !f.Sure() && f.From <= by })
}
