package history

import (
	"cmp"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

// A lock, as porcupine is told of it: a room that grants take a part of, and that they give back. The tokens rise.

// step is one thing that happened to a lock, at one instant within its call.
type step struct {
	take   bool
	op     int // which grant
	weight int
	room   int
	token  int64
	fall   int64 // by how much it may be smaller than the one before
	force  bool  // whoever is in the room is put out of it
	forgot bool  // Redis may have forgotten by then whatever it had granted
}

// room is the state of a lock.
type room struct {
	used int
	last int64
	// Who is in it, the smallest first. The state has to be comparable.
	in [roomHolds]int
}

// roomHolds is how many are in a room at most: no more workers than that contend for it.
const roomHolds = 16

// lockModel says what a lock may do.
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
			return true, r // else it was forgotten
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

// Linearizable checks that the grants and releases of each name can have happened one after the other, each at some
// instant of its call, without two in a room for one, and with rising tokens. undecided are the names for which the time
// did not suffice.
func Linearizable(h *History, limit time.Duration) (found []Violation, undecided []string) {
	for name, ops := range h.byName() {
		var all []porcupine.Operation
		for i, o := range ops {
			_, to, lived := o.Live()
			if !lived {
				continue // nobody was in it by its leave; Redis may have had it granted for as long as the call lasted
			}
			s := step{
				take: true, op: i + 1, weight: o.Call.Weight, room: o.Call.Room, token: o.Token,
				forgot: h.excused(o.Call.At, o.Returned, o.Call.Lease) || unsure(h, name, o.Returned),
			}
			if h.mayFall(0) {
				s.fall = h.Behind.Microseconds()
			}
			all = append(all, porcupine.Operation{Input: s, Call: int64(o.Call.At), Return: int64(o.Returned)})
			// A lease that wasn't released is out of the room when it is known no more to be in: later would only forbid more.
			s.take = false
			from, until := to, to+1
			if how, _ := cause(o.Freed); o.FreeReturned != 0 && how == "" {
				from, until = o.FreeCalled, o.FreeReturned
			}
			all = append(all, porcupine.Operation{Input: s, Call: int64(max(from, o.Returned+1)), Return: int64(max(until, o.Returned+2))})
		}
		for _, f := range h.Forces[name] {
			if f.Sure() {
				all = append(all, porcupine.Operation{Input: step{force: true}, Call: int64(f.From), Return: int64(f.To)})
			}
		}
		slices.SortFunc(all, func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
		switch porcupine.CheckOperationsTimeout(lockModel, all, limit) {
		case porcupine.Illegal:
			found = append(found, violation("linearizability", name, 0, h.End, "%s: no order of its %d grants explains what was seen", name, len(all)/2))
		case porcupine.Unknown:
			undecided = append(undecided, name)
		}
	}
	slices.Sort(undecided)
	return found, undecided
}

// unsure reports whether a ForceUnlock that may have its effect at any time after its call had begun by then.
func unsure(h *History, name string, by Time) bool {
	return slices.ContainsFunc(h.Forces[name], func(f Force) bool { return !f.Sure() && f.From <= by })
}
