package history

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Grace is the time after the last fault, in addition to one lease, within which every waiter must get what it waits
// for.
const Grace = 2 * time.Second

// SilenceLimit is how long a client takes to notice that the connection of its subscription died silently. Until
// then only the end of the holder's lease wakes waiters, one at a time.
const SilenceLimit = 6 * time.Second

// The keys of Event.Counts in a Stat of a process.
const (
	StatStart    = "goroutines at the start"
	StatWarm     = "goroutines at most before the faults"
	StatIdle     = "goroutines when idle after them"
	StatSlowest  = "the slowest answer of a server after them, past all proxies, in ns"
	StatClients  = "lock.Clients"
	StatConns    = "connections when idle after the faults"
	StatConnsMax = "connections allowed"
	StatLeft     = "connections after Close"
	StatLagAll   = "the longest time for which the process had no CPU, in ns"
	StatLag      = "the longest time after them for which the process had no CPU, in ns"
)

// moreGoroutines is how many more goroutines are allowed per lock.Client: its workers for calls stay until Close, and
// so do go-redis's idle connections.
const moreGoroutines = 24

// Lag returns how late the machine may have made things after the faults: the longest time for which a client process
// got no CPU, or the slowest answer of a server, whichever is longer.
func (h *History) Lag() (longest time.Duration) {
	for _, s := range h.Stats {
		longest = max(longest, time.Duration(s.Counts[StatLag]), time.Duration(s.Counts[StatSlowest]))
	}
	return longest
}

// worker returns the worker that made a call: the ID without its last part.
func worker(id string) string { return id[:max(strings.LastIndexByte(id, '.'), 0)] }

// Recovery checks that after all faults every worker of a process that wasn't killed got a lock within one lease and
// Grace (more if a clock stepped back, connections died silently, or the machine was slow), that leases were renewed
// again, and that the numbers of goroutines and connections returned to normal.
func Recovery(h *History) (found []Violation) {
	if h.Settle == 0 {
		return []Violation{violation("recovery", "", 0, h.End, "the faults never ended")}
	}
	longest := time.Duration(0)
	for _, o := range h.Ops {
		longest = max(longest, o.Call.Lease)
	}
	// Leases that were granted by a clock that then stepped back last longer. Nothing takes them away from their
	// holders.
	limit := h.Settle.Add(longest + h.Behind + Grace + h.Lag())
	if h.Silence != 0 {
		limit = max(limit, h.Silence.Add(SilenceLimit+time.Second))
	}
	in, renewed, names := map[string]Time{}, map[int]bool{}, map[string]string{}
	for _, o := range h.Ops {
		who := worker(o.Call.ID)
		if h.Killed[o.Call.Proc] != 0 {
			continue
		}
		names[who] = o.Call.Name
		if o.Granted && o.Returned >= h.Settle && (in[who] == 0 || o.Returned < in[who]) {
			in[who] = o.Returned
		}
		if o.Granted && o.Call.At >= h.Settle && len(o.RenewedAt) > 0 {
			renewed[o.Call.Proc] = true
		}
	}
	for who, name := range names {
		switch at, ok := in[who]; {
		case !ok:
			found = append(found, violation("recovery", name, h.Settle, h.End,
				"worker %s got no lock in %v after the faults", who, h.End.Sub(h.Settle)))
		case at > limit:
			found = append(found, violation("recovery", name, h.Settle, at,
				"worker %s got in %v after the faults, not within %v", who, at.Sub(h.Settle), limit.Sub(h.Settle)))
		}
	}
	for p := range h.Started {
		switch {
		case h.Killed[p] != 0:
		case h.Idle[p] == 0:
			found = append(found, violation("recovery", "", h.Settle, h.End,
				"process %d never got everything it wanted", p))
		case !renewed[p]:
			found = append(found, violation("recovery", "", h.Settle, h.End,
				"process %d: nothing was renewed after the faults", p))
		default:
			found = append(found, remains(p, h.Stats[p])...)
		}
	}
	slices.SortFunc(found, func(a, b Violation) int { return strings.Compare(a.Text, b.Text) })
	return found
}

// remains checks the goroutines and connections that a process has at the end.
func remains(p int, s Event) (found []Violation) {
	if s.Counts == nil {
		return []Violation{violation("recovery", "", s.At, s.At, "process %d told nothing of its goroutines", p)}
	}
	c := s.Counts
	bad := func(cond bool, format string, args ...any) {
		if cond {
			found = append(found,
				violation("recovery", "", s.At, s.At, "process %d: %s", p, fmt.Sprintf(format, args...)))
		}
	}
	bad(c[StatIdle] > c[StatWarm]+moreGoroutines*max(1, c[StatClients]),
		"%v goroutines when idle, at most %v before the faults", c[StatIdle], c[StatWarm])
	bad(c[StatConns] > c[StatConnsMax],
		"%v connections when idle, %v are what its pools may have", c[StatConns], c[StatConnsMax])
	bad(c[StatLeft] > 0, "%v connections after Close", c[StatLeft])
	bad(s.Why != "", "goroutines were left behind: %s", s.Why)
	return found
}
