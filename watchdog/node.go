package watchdog

import "time"

// node has the cohorts and calls of one server. Nodes share no cohort and no limit of calls, so a server that hangs
// never delays the calls to another.
type node struct {
	engine    *Engine
	name      string
	agendaPos int32
	groups    int
	calls     int    // in flight
	load      uint64 // mean calls per window, as a 32.32 fixed-point number

	planned  order         // the planned cohorts of all groups
	resting  heap[*cohort] // by the time of the next try
	ready    heap[*cohort] // cohorts whose call is due, by the latest time at which it should start
	offCycle heap[*cohort] // the same for off-cycle cohorts
	sent     []int64       // the times of the calls of the last window
}

func (e *Engine) nodeOf(name string) *node {
	n := e.nodes[name]
	if n == nil {
		pos := func(c *cohort) *int32 { return &c.waitPos }
		n = &node{
			engine: e, name: name,
			resting: heap[*cohort]{pos: pos}, ready: heap[*cohort]{pos: pos}, offCycle: heap[*cohort]{pos: pos},
		}
		e.nodes[name] = n
	}
	return n
}

// schedule moves the next pass of the node to the time at. It does nothing if that pass isn't later than at.
func (e *Engine) schedule(n *node, at int64) {
	if n.agendaPos != 0 && e.agenda.entries[n.agendaPos-1].at <= at {
		return
	}
	e.agenda.set(n, at)
	e.wake(at)
}

// makeCalls starts the calls that may be made now: those that are due, and those that must be early (see early). It
// sets the time of the next pass.
func (n *node) makeCalls(now int64) {
	e := n.engine
	for n.resting.minAt() <= now {
		e.enqueue(n.resting.entries[0].item, now)
	}
	for n.planned.firstDue() <= now {
		e.enqueue(n.planned.nth(0), now)
	}
	limit := n.limit(now)
	for n.calls < maxInFlight {
		c := n.pick(now, limit)
		if c == nil {
			break
		}
		e.startCall(c, now)
	}
	if at := n.nextPass(now, limit); at == never {
		e.agenda.remove(n)
	} else {
		e.agenda.set(n, max(at, now+1))
	}
}

// pick returns the cohort whose call is to be made now; nil: none.
func (n *node) pick(now int64, limit int) *cohort {
	used := n.used(now)
	if n.ready.Len() > 0 && (used < limit || n.ready.minAt() <= now) {
		return n.ready.entries[0].item
	}
	if n.offCycle.Len() > 0 {
		// Off-cycle calls are made only if they don't delay planned calls, or if their own deadlines are near.
		if n.offCycle.minAt() <= now || used < limit && n.spare(now, limit) {
			return n.offCycle.entries[0].item
		}
	}
	if n.ready.Len() == 0 && used < n.base() && n.early() <= now {
		c := n.planned.nth(0)
		n.engine.enqueue(c, now)
		return c
	}
	return nil
}

// spare reports whether, after a call made now, every planned call of the next window can be made at its time.
func (n *node) spare(now int64, limit int) bool {
	gone := 0 // calls in sent that aren't in the window that ends at c.due
	for k := 0; ; k++ {
		c := n.planned.nth(k)
		if c == nil || c.due > now+int64(window) {
			return true
		}
		for gone < len(n.sent) && n.sent[gone] <= c.due-int64(window) {
			gone++
		}
		if len(n.sent)-gone+k+2 > limit { // k planned calls before c's, c's call, and the call made now
			return false
		}
	}
}

// nextPass returns when the next pass is needed, if nothing new happens.
func (n *node) nextPass(now int64, limit int) int64 {
	at := min(n.planned.firstDue(), n.resting.minAt())
	if n.calls >= maxInFlight {
		return at // a call that returns schedules a pass if others wait
	}
	free := n.free(now, limit)
	if n.ready.Len() > 0 {
		at = min(at, n.ready.minAt(), max(free, now+1))
	}
	if n.offCycle.Len() > 0 {
		// If the off-cycle call would delay planned calls, it may follow the first of these. Then it needs no time
		// here: at is planned.firstDue or earlier.
		at = min(at, n.offCycle.minAt())
		if free > now {
			at = min(at, free)
		}
	}
	return min(at, max(n.early(), n.free(now, n.base())))
}

// base returns how many calls may be made in any window: the mean, rounded up, plus one.
func (n *node) base() int { return int((n.load+1<<32-1)>>32) + 1 }

// limit returns how many calls may be made in any window now: base or, if that is higher, the smallest rate at which
// each waiting cohort gets its call by its latestStart, nearest deadline first.
func (n *node) limit(now int64) int {
	limit := n.base()
	if n.ready.Len()+n.offCycle.Len() <= limit {
		return limit
	}
	const horizon = 256 // windows; later calls don't matter yet
	var within [horizon]int
	for _, line := range [...]*heap[*cohort]{&n.ready, &n.offCycle} {
		for i := range line.entries {
			if slack := (line.entries[i].at - now) / int64(window); slack < horizon {
				within[max(slack, 0)]++
			}
		}
	}
	sum := 0
	for i, count := range within {
		sum += count
		limit = max(limit, (sum+i)/(i+1))
	}
	return limit
}

// early returns by when the first planned call must be made, so that all planned calls are made in time at the pace of
// base. That is before its due time if too many calls are planned close together, as where cohorts of different
// intervals meet. It isn't if there is only one group, spread evenly. If no more calls are planned than fit into one
// window, early returns the time never.
func (n *node) early() int64 {
	at, base := int64(never), n.base()
	for windows := 1; windows <= 16; windows++ {
		c := n.planned.nth(windows * base)
		if c == nil {
			break
		}
		at = min(at, c.due-int64(windows)*int64(window))
	}
	return at
}

// window is the time over which the pace of calls is counted.
const window = 100 * time.Millisecond

// weightOf returns the weight of a cohort with that interval in node.load.
func weightOf(interval int64) uint64 { return uint64(window) << 32 / uint64(interval) }

// used returns how many calls were made in the window that ends now.
func (n *node) used(now int64) int {
	for len(n.sent) > 0 && n.sent[0] <= now-int64(window) {
		pop(&n.sent)
	}
	return len(n.sent)
}

// free returns when the next call may be made.
func (n *node) free(now int64, limit int) int64 {
	used := n.used(now)
	if used < limit {
		return now
	}
	return n.sent[used-limit] + int64(window)
}
