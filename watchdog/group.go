package watchdog

import (
	"math/bits"
)

type groupKey struct {
	node          string
	interval, ttl int64
}

// group has the cohorts of one node, interval and TTL. It spreads their renewals over the interval.
type group struct {
	engine   *Engine
	node     *node
	interval int64
	timeout  int64  // of a call; shorter before a deadline
	budget   int64  // how long before a deadline a call is made, whatever the pace
	weight   uint64 // of one cohort in node.load
	ttl      int64
	batch    int // leases per cohort at most

	ring      order   // the planned cohorts
	room      int     // free places in the ring's cohorts
	latest    *cohort // of the ring's cohorts with room, the one that is renewed last; nil: not known
	joinable  *cohort // the last cohort of the ring whose call started with room in it, if still in flight; nil: none
	expedited *cohort // off-cycle and ready: for leases to be renewed at once; nil: none
	retrying  *cohort // off-cycle and resting: others that failed are merged into it; nil: none
	n         int     // cohorts that aren't off-cycle, in any stage
	cohorts   int     // all cohorts
	backlog   int     // how many of the n cohorts are ready
	origin    int64   // from which the phases of new cohorts are counted
	turn      uint64  // the number of phases since origin
}

func (e *Engine) groupOf(key groupKey) *group {
	if g := e.groups[key]; g != nil {
		return g
	}
	node := e.nodeOf(key.node)
	node.groups++
	g := &group{
		engine: e, node: node, interval: key.interval, ttl: key.ttl, batch: e.cfg.BatchSize,
		timeout: min(key.ttl/6, int64(maxCallTimeout)), budget: min(key.ttl/15, int64(maxCallTimeout)),
		weight: weightOf(key.interval),
	}
	e.groups[key] = g
	return g
}

// seat returns the cohort for a new lease whose first renewal must not be later than by. It returns the last planned
// cohort that has room and is renewed at by or earlier. If there is none, but the last planned cohort with room is
// renewed only a little later, seat moves that cohort to by. Otherwise it returns the joinable cohort in flight, if its
// call ends by then, or a new cohort. So calls are few. A lease that joins a cohort may be renewed much sooner than by,
// but costs no further call.
func (g *group) seat(by int64) *cohort {
	e := g.engine
	if g.latest == nil && g.room > 0 {
		g.latest = g.ring.latestWithRoom(never)
	}
	last := g.latest
	if last != nil {
		if last.due <= by {
			return last
		}
		if c := g.ring.latestWithRoom(by); c != nil {
			return c
		}
		// Leases granted at the same time are not watched in the order of their requests. To renew the cohort a little
		// earlier costs less than a new cohort.
		if last.due-by <= g.interval/16 {
			e.dequeue(last)
			e.plan(last, by)
			return last
		}
	}
	// A cohort in flight is renewed again within an interval of its call, and by nextBy. But the call may hang until
	// its timeout. A call that has outlived its timeout may never return.
	if c := g.joinable; c != nil && c.hasRoom() && e.now() < c.callBy && c.callBy <= by {
		c.nextBy = min(c.nextBy, by)
		return c
	}
	c := e.newCohort(g, false)
	e.plan(c, g.phase(by))
	return c
}

// expedite returns the off-cycle cohort whose call is made as soon as the pace allows.
func (g *group) expedite(now int64) *cohort {
	if c := g.expedited; c != nil && c.hasRoom() {
		return c
	}
	g.expedited = nil
	c := g.engine.newCohort(g, true)
	c.due = now
	g.engine.enqueue(c, now)
	g.engine.schedule(g.node, now)
	return c
}

// phase returns the renewal time of a new cohort, not after by. For the first cohort that is by. The others follow the
// golden ratio: each time lies in one of the widest gaps, and all parts of the interval stay equally full, however many
// cohorts come at the same instant. If the ring has become uneven, so that the time would be close to another renewal,
// the time is the middle of the gap instead. If this gap is less than half as wide as the widest gap, the widest gap
// takes its place.
func (g *group) phase(by int64) int64 {
	if g.n == 1 { // the new cohort
		g.origin, g.turn = by, 0
		return by
	}
	const golden = 0x9E3779B97F4A7C15 // 2^64 / φ
	g.turn++
	offset, _ := bits.Mul64(g.turn*golden, uint64(g.interval))
	now := g.engine.now()
	at := now + mod(g.origin+int64(offset)-now, g.interval)

	if len(g.ring) == 0 {
		return min(at, by)
	}
	// before and after: the renewals around at. The ring closes: after the last one comes the first, an interval later.
	first, last := g.ring.firstDue(), g.ring.lastDue()
	before, after := last-g.interval, first+g.interval
	i := g.ring.countUntil(at)
	if i > 0 {
		before = g.ring[i-1].due
	}
	if i < len(g.ring) {
		after = g.ring[i].due
	}
	start, width := g.ring.widestGap()
	if closing := first + g.interval - last; closing > width {
		start, width = last, closing
	}
	if 2*(after-before) < width {
		before, after = start, start+width
	}
	if third := (after - before) / 3; at < before+third || at > after-third {
		at = now + mod(before+(after-before)/2-now, g.interval)
	}
	return min(at, by)
}

// mod returns x modulo m, from 1 to m.
func mod(x, m int64) int64 {
	if x %= m; x <= 0 {
		x += m
	}
	return x
}

// next returns the next renewal time of a cohort that was renewed by a request. sent is when the request was sent. The
// time is the earliest of these: sent plus the interval; c.nextBy; and, if the ring isn't empty, interval/n after the
// ring's last cohort (or after sent, if that is later). So an uneven ring becomes even within n calls, and no lease
// waits longer than its interval. Overdue cohorts (backlog) come before this one, so each of them adds another
// interval/n.
func (g *group) next(c *cohort, sent int64) int64 {
	due := min(sent+g.interval, c.nextBy)
	if len(g.ring) == 0 {
		return due
	}
	share := g.interval / int64(g.n)
	return min(due, max(g.ring.lastDue(), sent)+share*int64(1+g.backlog))
}

// settle plans a cohort whose leases were all renewed by a request, or joined since. sent is when the request was sent.
// If the ring's other cohorts have room for all its leases, the leases are moved to those that are renewed in time for
// them. The leases of an off-cycle cohort are moved as far as there is room. The cohort is discarded if it is empty
// then; otherwise it joins the ring.
func (g *group) settle(c *cohort, sent int64) {
	e := g.engine
	by := min(sent+g.interval, c.nextBy)
	if c.offCycle || g.room >= len(c.leases) {
		for len(c.leases) > 0 {
			to := g.ring.latestWithRoom(by)
			if to == nil {
				break
			}
			for to.hasRoom() && len(c.leases) > 0 {
				e.move(c.leases[len(c.leases)-1], to)
			}
		}
	}
	if len(c.leases) == 0 {
		e.discard(c)
		return
	}
	if c.offCycle {
		c.offCycle = false
		g.count(1)
	}
	e.findNearest(c)
	c.tries = 0
	e.plan(c, g.next(c, sent))
}
