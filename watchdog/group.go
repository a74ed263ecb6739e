package watchdog

import (
	"math/bits"
)

type groupKey struct {
	node          string
	interval, ttl int64
}

// group is the cohorts of one node, interval and TTL. Its ring spreads their renewals over the interval.
type group struct {
	engine   *Engine
	node     *node
	interval int64
	timeout  int64  // of a call; shorter before a deadline
	budget   int64  // what a call is made ahead of a deadline, whatever the pace
	weight   uint64 // what one cohort adds to node.load
	ttl      int64
	batch    int // leases per cohort at most

	ring      order   // the planned cohorts
	room      int     // free places in them
	latest    *cohort // the one with room that is renewed last; nil: not known
	joinable  *cohort // the last one whose call was started, while that is in flight
	expedited *cohort // off-cycle and ready: takes leases to be renewed once, at once
	retrying  *cohort // off-cycle and resting: takes others that failed
	n         int     // cohorts in the rhythm, wherever they are
	cohorts   int     // all of them, off-cycle ones too
	backlog   int     // of the n: ready, waiting for their turn
	origin    int64   // where the phases of new cohorts are counted from
	turn      uint64
}

func (e *Engine) groupOf(key groupKey) *group {
	if g := e.groups[key]; g != nil {
		return g
	}
	node := e.nodeOf(key.node)
	node.groups++
	g := &group{
		engine: e, node: node, interval: key.interval, ttl: key.ttl, batch: e.cfg.BatchSize,
		timeout: min(key.ttl/6, int64(maxCallTimeout)), budget: min(key.ttl/15, int64(maxCallTimeout)), weight: weightOf(key.interval),
	}
	e.groups[key] = g
	return g
}

// seat finds the cohort for a new lease whose first renewal must not be later than by: of those with room the one
// that is renewed last, so that calls stay few and no lease is renewed sooner than it needs.
func (g *group) seat(by int64) *cohort {
	e := g.engine
	if g.latest == nil && g.room > 0 {
		g.latest = g.ring.latestWithRoom(never)
	}
	late := g.latest
	if late != nil {
		if late.due <= by {
			return late
		}
		if c := g.ring.latestWithRoom(by); c != nil {
			return c
		}
		// Leases granted at the same time are not watched in the order of their requests. Rather than a new cohort,
		// the one there is goes out a little earlier.
		if late.due-by <= g.interval/16 {
			e.dequeue(late)
			e.plan(late, by)
			return late
		}
	}
	// In flight is good as well: it is renewed again an interval after it was sent, which is before this lease's. A call that has outlived
	// its timeout may never return.
	if c := g.joinable; c != nil && c.hasRoom() && e.now() < c.callBy {
		c.nextBy = min(c.nextBy, by)
		return c
	}
	c := e.newCohort(g, false)
	e.plan(c, g.phase(by))
	return c
}

// expedite returns the off-cycle cohort that is called as soon as the pace allows.
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

// phase finds a renewal time for a new cohort, not after by. The first one's is by itself. The others follow
// the golden ratio, which cuts one of the widest gaps each time and keeps any stretch of the interval as full as
// any other, however many come at the same instant. Where the ring has become uneven, and the cut would be in a
// narrow gap or close to an end, the middle is taken, of the widest gap then.
func (g *group) phase(by int64) int64 {
	if g.n == 1 { // this one
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
	// The ring closes: after the last renewal comes the first one, an interval later.
	first, last := g.ring.firstDue(), g.ring.lastDue()
	before, after := last-g.interval, first+g.interval
	b, a := g.ring.around(at)
	if b != nil {
		before = b.due
	}
	if a != nil {
		after = a.due
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

// mod is x modulo m, from 1 to m.
func mod(x, m int64) int64 {
	if x %= m; x <= 0 {
		x += m
	}
	return x
}

// next is when a cohort that was renewed by a request sent at that time is renewed again: an interval later, or
// sooner if that is less than an even share after the last one of the ring. So the ring, once uneven, closes up within
// a round, n calls an interval, and no lease ever waits longer than its interval. Those that are overdue get their
// shares first: their turn comes before.
func (g *group) next(c *cohort, sent int64) int64 {
	due := min(sent+g.interval, c.nextBy)
	if len(g.ring) == 0 {
		return due
	}
	share := g.interval / int64(g.n)
	return min(due, max(g.ring.lastDue(), sent)+share*int64(1+g.backlog))
}

// settle finds the place of a cohort whose leases were all renewed, by a request sent at that time (or joined since).
// When the others of the ring have room for all of them it dissolves; so does an off-cycle one as far as there is room.
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
