package watchdog

// stage is where a cohort is between two renewals.
type stage uint8

const (
	unused   stage = iota
	planned        // in its group's ring and its node's plan, to be renewed at due
	resting        // its last call failed, to be tried again at due
	ready          // due; waits for its turn
	inFlight       // its call is in flight
)

// cohort is a set of leases of one group that are renewed by one call.
type cohort struct {
	group    *group
	leases   []*Lease
	due      int64 // the renewal or retry it waits for, or that is in flight
	nearest  int64 // no lease's deadline is earlier (it may be later: leaving leases do not update it)
	noticed  int64 // when the scheduler saw that it was due; 0 before
	nextBy   int64 // the next renewal must not be later: of leases that joined in flight
	callBy   int64 // when the call in flight, or the last one, should have returned
	tries    int   // failed calls since the last success
	stage    stage
	offCycle bool  // outside the group's rhythm: leases to be renewed once, then to join other cohorts
	watchPos int32 // in Engine.watches
	waitPos  int32 // in the node's resting, ready or offCycle
}

func (c *cohort) hasRoom() bool { return len(c.leases) < c.group.batch }

// newCohort makes an empty cohort that waits nowhere.
func (e *Engine) newCohort(g *group, offCycle bool) *cohort {
	var c *cohort
	if n := len(e.spare); n > 0 {
		c = e.spare[n-1]
		e.spare = e.spare[:n-1]
	} else {
		c = new(cohort)
	}
	*c = cohort{group: g, leases: c.leases, nearest: never, nextBy: never, offCycle: offCycle}
	e.cohorts++
	g.cohorts++
	if !offCycle {
		g.count(1)
	}
	return c
}

// count adds n to the cohorts in the group's rhythm.
func (g *group) count(n int) {
	g.n += n
	g.node.load += uint64(n) * g.weight
}

// discard does away with an empty cohort.
func (e *Engine) discard(c *cohort) {
	g := c.group
	e.dequeue(c)
	e.watches.remove(c)
	e.cohorts--
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

// leave takes a lease out of its cohort; an empty cohort goes away.
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

// move takes a lease from its cohort to another.
func (e *Engine) move(l *Lease, to *cohort) {
	e.leave(l)
	e.join(to, l)
}

// setNearest moves the cohort's deadline watch, and its place in the queue when it waits for its turn.
func (e *Engine) setNearest(c *cohort, deadline int64) {
	c.nearest = deadline
	e.watches.set(c, deadline)
	e.wake(deadline)
	if c.stage == ready {
		c.queue().set(c, c.latestStart())
	}
}

// findNearest looks at every lease.
func (e *Engine) findNearest(c *cohort) {
	nearest := int64(never)
	for _, l := range c.leases {
		nearest = min(nearest, l.deadline.Load())
	}
	if nearest != c.nearest {
		e.setNearest(c, nearest)
	}
}

// latestStart is when a call must be made, whatever the pace, to return well before the nearest deadline.
func (c *cohort) latestStart() int64 { return c.nearest - c.group.budget }

// queue is where the cohort waits when it is ready.
func (c *cohort) queue() *heap[*cohort] {
	if c.offCycle {
		return &c.group.node.offCycle
	}
	return &c.group.node.ready
}

// plan has the cohort renewed at due.
func (e *Engine) plan(c *cohort, due int64) {
	g := c.group
	c.stage, c.due, c.noticed, c.nextBy = planned, due, 0, never
	g.ring.insert(c)
	g.node.plan.insert(c)
	g.room += g.batch - len(c.leases)
	g.latest = nil
	e.schedule(g.node, min(due, g.node.early()))
}

// rest retries the cohort after a pause. An off-cycle one joins another that rests about as long, so leases that fail one
// by one come to share their retries.
func (e *Engine) rest(c *cohort, now, pause int64) {
	g := c.group
	if other := g.retrying; c.offCycle && other != nil && other.due-now <= 2*pause && e.absorb(other, c) {
		return
	}
	c.stage, c.due, c.noticed = resting, now+pause, 0
	g.node.resting.set(c, c.due)
	if c.offCycle {
		g.retrying = c
	}
	e.schedule(g.node, c.due)
}

// absorb has an off-cycle cohort that waits take in another that waits nowhere, if it has room for all of it.
func (e *Engine) absorb(c, other *cohort) bool {
	if len(c.leases)+len(other.leases) > c.group.batch {
		return false
	}
	c.tries = max(c.tries, other.tries)
	for len(other.leases) > 0 {
		e.move(other.leases[len(other.leases)-1], c)
	}
	e.discard(other)
	return true
}

// enqueue has the cohort wait for its turn. Off-cycle ones of a group that wait at the same time become one.
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

// dequeue takes the cohort from wherever it waits.
func (e *Engine) dequeue(c *cohort) {
	g := c.group
	switch c.stage {
	case planned:
		g.ring.remove(c)
		g.node.plan.remove(c)
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
