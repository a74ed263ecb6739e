package watchdog

// stage is the state of a cohort.
type stage uint8

const (
	unused  stage = iota // in no list: new, discarded, or between two stages
	planned              // in its group's ring and its node's plan; its call is due at due
	resting              // its last call failed, or its lease moved again; the next try is due at due
	ready                // its call is due; it waits for its turn
	inFlight
)

// cohort is a set of leases of one group that are renewed by one call.
type cohort struct {
	group    *group
	leases   []*Lease
	due      int64 // of the next call, or of that in flight
	nearest  int64 // no lease's deadline is earlier; all may be later, as leases that leave don't update it
	noticed  int64 // when the scheduler saw that the call was due; 0: not yet
	nextBy   int64 // the latest time for the call after the one in flight, because of leases that joined meanwhile
	callBy   int64 // when the call in flight, or the last one, times out
	tries    int   // failed calls since the last success
	stage    stage
	offCycle bool  // outside the ring: it is renewed once, and then its leases join other cohorts, or it joins the ring
	watchPos int32 // in Engine.watches
	waitPos  int32 // in the node's resting, ready or offCycle
}

func (c *cohort) hasRoom() bool { return len(c.leases) < c.group.batch }

// newCohort returns an empty, unused cohort.
func (e *Engine) newCohort(g *group, offCycle bool) *cohort {
	var c *cohort
	if n := len(e.spare); n > 0 {
		c = e.spare[n-1]
		e.spare = e.spare[:n-1]
	} else {
		c = new(cohort)
	}
	*c = cohort{group: g, leases: c.leases, nearest: never, nextBy: never, offCycle: offCycle}
	g.cohorts++
	if !offCycle {
		g.count(1)
	}
	return c
}

// count adds n to the number of the group's cohorts that aren't off-cycle.
func (g *group) count(n int) {
	g.n += n
	g.node.load += uint64(n) * g.weight
}

// discard deletes an empty cohort.
func (e *Engine) discard(c *cohort) {
	g := c.group
	e.dequeue(c)
	e.watches.remove(c)
	g.cohorts--
	if !c.offCycle {
		g.count(-1)
	}
	c.stage = unused
	const keep = 64
	if len(e.spare) < keep {
		e.spare = append(e.spare, c)
	}
}

// join adds a lease to a cohort.
func (e *Engine) join(c *cohort, l *Lease) {
	g := c.group
	l.cohort, l.index = c, int32(len(c.leases))
	c.leases = append(c.leases, l)
	if c.stage == planned {
		g.room--
		if !c.hasRoom() {
			g.latest = nil
		}
	}
	if deadline := l.deadline.Load(); deadline < c.nearest {
		e.setNearest(c, deadline)
	}
}

// leave removes a lease from its cohort. It discards the cohort if it is empty then, and neither in flight nor unused.
func (e *Engine) leave(l *Lease) {
	c := l.cohort
	l.cohort, l.verify = nil, false
	last := len(c.leases) - 1
	moved := c.leases[last]
	c.leases[l.index] = moved
	moved.index = l.index
	c.leases[last] = nil
	c.leases = c.leases[:last]
	if c.stage == planned {
		g := c.group
		g.room++
		if last == g.batch-1 {
			g.latest = nil
		}
	}
	if last == 0 && c.stage != inFlight && c.stage != unused {
		e.discard(c)
	}
}

// move moves a lease to another cohort.
func (e *Engine) move(l *Lease, to *cohort) {
	e.leave(l)
	e.join(to, l)
}

// setNearest sets c.nearest, and with it the cohort's place in watches and, if the cohort is ready, in its queue.
func (e *Engine) setNearest(c *cohort, deadline int64) {
	c.nearest = deadline
	e.watches.set(c, deadline)
	e.wake(deadline)
	if c.stage == ready {
		c.queue().set(c, c.latestStart())
	}
}

// findNearest sets c.nearest to the earliest deadline of its leases.
func (e *Engine) findNearest(c *cohort) {
	nearest := int64(never)
	for _, l := range c.leases {
		nearest = min(nearest, l.deadline.Load())
	}
	if nearest != c.nearest {
		e.setNearest(c, nearest)
	}
}

// latestStart returns when the call must be made, whatever the pace, so that it has time to return before the nearest
// deadline.
func (c *cohort) latestStart() int64 { return c.nearest - c.group.budget }

// queue returns the heap in which the cohort waits when it is ready.
func (c *cohort) queue() *heap[*cohort] {
	if c.offCycle {
		return &c.group.node.offCycle
	}
	return &c.group.node.ready
}

// plan makes the cohort planned, to be renewed at due.
func (e *Engine) plan(c *cohort, due int64) {
	g := c.group
	c.stage, c.due, c.noticed, c.nextBy = planned, due, 0, never
	g.ring.insert(c)
	g.node.planned.insert(c)
	g.room += g.batch - len(c.leases)
	g.latest = nil
	e.schedule(g.node, min(due, g.node.mustStartBy()))
}

// rest retries the cohort after a pause, or at nextBy if that is sooner. If another off-cycle cohort of the group has
// room and is retried within twice the pause, an off-cycle cohort is merged into that one instead, so that leases that
// fail one by one share their retries.
func (e *Engine) rest(c *cohort, now, pause int64) {
	g := c.group
	if other := g.retrying; c.offCycle && other != nil && other.due-now <= 2*pause && e.absorb(other, c) {
		return
	}
	c.stage, c.due, c.noticed = resting, min(now+pause, max(c.nextBy, now)), 0
	g.node.resting.set(c, c.due)
	if c.offCycle {
		g.retrying = c
	}
	e.schedule(g.node, c.due)
}

// absorb moves all leases of from, an unused cohort, to into, and discards from. It reports false, and does nothing, if
// into hasn't room for them. Both are off-cycle.
func (e *Engine) absorb(into, from *cohort) bool {
	if len(into.leases)+len(from.leases) > into.group.batch {
		return false
	}
	into.tries = max(into.tries, from.tries)
	for len(from.leases) > 0 {
		e.move(from.leases[len(from.leases)-1], into)
	}
	e.discard(from)
	return true
}

// enqueue makes the cohort ready. If it is off-cycle, its leases are instead merged into the latest off-cycle cohort of
// its group that is ready, if that has room.
func (e *Engine) enqueue(c *cohort, now int64) {
	g := c.group
	e.dequeue(c)
	if other := g.expedited; c.offCycle && other != nil && e.absorb(other, c) {
		return
	}
	c.stage, c.noticed = ready, now
	c.queue().set(c, c.latestStart())
	if c.offCycle {
		g.expedited = c
	} else {
		g.backlog++
	}
}

// dequeue makes the cohort unused: it removes it from the heaps and lists of its stage.
func (e *Engine) dequeue(c *cohort) {
	g := c.group
	switch c.stage {
	case planned:
		g.ring.remove(c)
		g.node.planned.remove(c)
		g.room -= g.batch - len(c.leases)
		if g.latest == c {
			g.latest = nil
		}
	case resting:
		g.node.resting.remove(c)
		if g.retrying == c {
			g.retrying = nil
		}
	case ready:
		c.queue().remove(c)
		if !c.offCycle {
			g.backlog--
		} else if g.expedited == c {
			g.expedited = nil
		}
	case inFlight:
		if g.joinable == c {
			g.joinable = nil
		}
	}
	c.stage = unused
}
