package watchdog

import "time"

// node has the cohorts and calls of one server. Nodes share no cohort and no limit of calls, so a server that hangs
// never delays the calls to another.
//
// Calls are paced: a pace is how many of them may begin within any window of 100 ms. The basePace is enough for the
// mean of the planned calls. With 10,000 leases of 30 s there are 40 cohorts, each with a call every 10 s: 0.4 calls
// per window, and a basePace of 2. The pace is raised only if waiting calls could otherwise miss their deadlines. If
// too many calls are planned close together for the basePace, the first of them are made early, by mustStartBy.
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

// makeCalls starts the calls that may be made now: those that are due, and those that must be early (mustStartBy). It
// sets the time of the next pass.
func (n *node) makeCalls(now int64) {
	e := n.engine
	for n.resting.minAt() <= now {
		e.enqueue(n.resting.entries[0].item, now)
	}
	for n.planned.firstDue() <= now {
		e.enqueue(n.planned.nth(0), now)
	}
	pace := n.pace(now)
	for n.calls < maxInFlight {
		c := n.pick(now, pace)
		if c == nil {
			break
		}
		e.startCall(c, now)
	}
	if at := n.nextPass(now, pace); at == never {
		e.agenda.remove(n)
	} else {
		e.agenda.set(n, max(at, now+1))
	}
}

// pick returns the cohort whose call is to be made now; nil: none.
func (n *node) pick(now int64, pace int) *cohort {
	made := n.madeInWindow(now)
	if n.ready.Len() > 0 && (made < pace || n.ready.minAt() <= now) {
		return n.ready.entries[0].item
	}
	if n.offCycle.Len() > 0 {
		// Off-cycle calls are made only if they don't delay planned calls, or if their own deadlines are near.
		if n.offCycle.minAt() <= now || made < pace && n.leavesRoom(now, pace) {
			return n.offCycle.entries[0].item
		}
	}
	if n.ready.Len() == 0 && made < n.basePace() && n.mustStartBy() <= now {
		c := n.planned.nth(0)
		n.engine.enqueue(c, now)
		return c
	}
	return nil
}

// leavesRoom reports whether, after a call made now, every planned call of the next window can be made at its time.
func (n *node) leavesRoom(now int64, pace int) bool {
	gone := 0 // calls in sent that aren't in the window that ends at c.due
	for k := 0; ; k++ {
		c := n.planned.nth(k)
		if c == nil || c.due > now+int64(window) {
			return true
		}
		for gone < len(n.sent) && n.sent[gone] <= c.due-int64(window) {
			gone++
		}
		if len(n.sent)-gone+k+2 > pace { // k planned calls before c's, c's call, and the call made now
			return false
		}
	}
}

// nextPass returns when the next pass is needed, if nothing new happens.
func (n *node) nextPass(now int64, pace int) int64 {
	at := min(n.planned.firstDue(), n.resting.minAt())
	if n.calls >= maxInFlight {
		return at // a call that returns schedules a pass if others wait
	}
	allowed := n.allowedAt(now, pace)
	if n.ready.Len() > 0 {
		at = min(at, n.ready.minAt(), max(allowed, now+1))
	}
	if n.offCycle.Len() > 0 {
		// If the off-cycle call would delay planned calls, it may follow the first of these. Then it needs no time
		// here: at is planned.firstDue or earlier.
		at = min(at, n.offCycle.minAt())
		if allowed > now {
			at = min(at, allowed)
		}
	}
	return min(at, max(n.mustStartBy(), n.allowedAt(now, n.basePace())))
}

// basePace returns the usual pace: the mean of the planned calls per window, rounded up, plus one.
func (n *node) basePace() int { return int((n.load+1<<32-1)>>32) + 1 }

// pace returns the pace at which calls may be made now: basePace or, if that is higher, the lowest pace at which each
// waiting cohort gets its call by its latestStart, nearest deadline first.
func (n *node) pace(now int64) int {
	pace := n.basePace()
	if n.ready.Len()+n.offCycle.Len() <= pace {
		return pace
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
		pace = max(pace, (sum+i)/(i+1))
	}
	return pace
}

// mustStartBy returns by when the first planned call must be made, so that the calls that follow it are made in time at
// the basePace. It looks 16 windows ahead: the cohort with w*basePace cohorts before it can't be called earlier than w
// windows after the first. That is before its due time if too many calls are planned close together, as where cohorts
// of different intervals meet. It isn't if there is only one group, spread evenly. If no more calls are planned than
// fit into one window, mustStartBy returns the time never.
func (n *node) mustStartBy() int64 {
	at, pace := int64(never), n.basePace()
	for windows := 1; windows <= 16; windows++ {
		c := n.planned.nth(windows * pace)
		if c == nil {
			break
		}
		at = min(at, c.due-int64(windows)*int64(window))
	}
	return at
}

// window is the time over which calls are counted for a pace.
const window = 100 * time.Millisecond

// weightOf returns the weight of a cohort with that interval in node.load.
func weightOf(interval int64) uint64 { return uint64(window) << 32 / uint64(interval) }

// madeInWindow returns how many calls were made in the window that ends now.
func (n *node) madeInWindow(now int64) int {
	for len(n.sent) > 0 && n.sent[0] <= now-int64(window) {
		pop(&n.sent)
	}
	return len(n.sent)
}

// allowedAt returns when the next call may be made at a pace; now: at once.
func (n *node) allowedAt(now int64, pace int) int64 {
	made := n.madeInWindow(now)
	if made < pace {
		return now
	}
	return n.sent[made-pace] + int64(window)
}
