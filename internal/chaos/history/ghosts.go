package history

import (
	"maps"
	"regexp"
	"slices"
	"time"
)

var grantID = regexp.MustCompile(`[0-9a-f]{16}-\d+`)

// GrantID returns the part of an owner that identifies the grant: the random digits of its client and a number. Every
// kind of lock stores that part.
func GrantID(owner string) string { return grantID.FindString(owner) }

const (
	ghostSlack = 100 * time.Millisecond // difference between the servers' clock and ours
	sweepSlack = time.Second            // time for removing what was left behind, with a retry if Redis failed
)

// known is what the clients know about one owner.
type known struct {
	asked   Time // until then a request of this owner, or its entry in the wait set, may acquire the lock
	until   Time // until then a client may believe that the owner holds the lock, or its lease may last
	freed   Time // when it was released; 0: it wasn't
	unbound bool // asked has no known limit
}

// Ghosts compares what Redis was seen to hold with what the clients know. It checks that a request that was given up
// doesn't take the lock after its time limit, that an owner is gone after its release and stays away, that what no
// client holds isn't in Redis for longer than one lease, and that at the end nothing is held. Except for the end,
// violations are excused while Redis may have lost writes.
func Ghosts(h *History) (found []Violation) {
	owners := h.owners()
	peeks := make(map[string][]Event)
	for _, e := range h.Events {
		if e.What == Peek {
			peeks[e.Name] = append(peeks[e.Name], e)
		}
	}
	lease := h.longest()
	whole := slices.ContainsFunc(h.Ops, func(o *Op) bool { return o.Call.Whole })
	for _, name := range slices.Sorted(maps.Keys(peeks)) {
		all := peeks[name]
		first, told := make(map[string]int), make(map[string]bool)
		for i, p := range all {
			for _, owner := range p.Owners {
				from, seen := first[owner]
				if !seen || !slices.Contains(all[max(i-1, 0)].Owners, owner) {
					from = i
					first[owner] = i
				}
				k, ok := owners[owner]
				bad := func(format string, args ...any) {
					if !told[owner+format] && !h.excused(all[from].Since, p.At, lease) {
						told[owner+format] = true
						found = append(found, violation("ghosts", name, all[from].Since.Add(-time.Second), p.At,
							"%s: "+format, append([]any{name, owner}, args...)...))
					}
				}
				// The owner is new if the last two looks didn't see it. One look may miss an owner because its slot is
				// on the way from one server to another.
				came := from == i && i > 1 &&
					!slices.Contains(all[i-1].Owners, owner) && !slices.Contains(all[i-2].Owners, owner)
				switch last := max(k.until, k.asked, all[from].At); {
				case ok && came && !k.unbound && all[i-1].Since > k.asked.Add(ghostSlack):
					bad("%s took it %v after the last request for it was to be void", all[i-1].Since.Sub(k.asked))
				case ok && k.freed != 0 &&
					p.Since > max(k.freed, k.asked).Add(sweepSlack) && p.Since > h.Settle.Add(sweepSlack):
					bad("%s has it, %v after it was released", p.Since.Sub(k.freed))
				case !ok && whole: // a member of a composite lease, whose grant names only one owner
				case p.Since > last.Add(lease+h.Behind+sweepSlack):
					bad("%s has it, of whom nobody has heard for %v", p.Since.Sub(last))
				}
			}
			if i == len(all)-1 && len(p.Owners) > 0 {
				found = append(found,
					violation("ghosts", name, p.Since, p.At, "%s: at the end %q have it", name, p.Owners))
			}
		}
	}
	return found
}

// longest returns the longest lease in any call.
func (h *History) longest() (longest time.Duration) {
	for _, o := range h.Ops {
		longest = max(longest, o.Call.Lease)
	}
	return longest
}

func (h *History) owners() map[string]known {
	all := make(map[string]known)
	for _, o := range h.Ops {
		if !o.Granted || o.Owner == "" {
			continue
		}
		k := known{asked: o.Returned, until: max(o.LastUntil, o.LastLive, o.DeadAt, o.FreeReturned)}
		if o.FreeReturned != 0 && o.Freed == "" {
			k.freed = o.FreeReturned
		}
		k.until = max(k.until, h.Killed[o.Call.Proc])
		all[GrantID(o.Owner)] = k
	}
	for _, e := range h.Events {
		if e.What != Unclear {
			continue
		}
		k := all[e.Owner]
		k.asked = max(k.asked, e.At.Add(max(e.Delay, 0)))
		k.unbound = k.unbound || e.Why != "" || h.Killed[e.Proc] != 0
		all[e.Owner] = k
	}
	return all
}
