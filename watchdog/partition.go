package watchdog

import "time"

// partition is what the engine knows of one place where leases live: what is planned there, what waits, how many
// calls are in flight. Partitions share nothing, so a sick one never delays another.
type partition struct {
	engine    *Engine
	name      string
	agendaPos int32
	groups    int
	calls     int
	load      uint64 // mean calls per window, as a 32.32 fixed-point number

	plan     order         // the planned cohorts of all groups
	resting  heap[*cohort] // failed ones, by the time of the next try
	ready    heap[*cohort] // due ones, by the latest time their call should start
	offCycle heap[*cohort] // the same, for leases out of rhythm
	sent     []int64       // the calls of the last window
}

func (e *Engine) partitionOf(name string) *partition {
	p := e.partitions[name]
	if p == nil {
		pos := func(c *cohort) *int32 { return &c.waitPos }
		p = &partition{
			engine: e, name: name,
			resting: heap[*cohort]{pos: pos}, ready: heap[*cohort]{pos: pos}, offCycle: heap[*cohort]{pos: pos},
		}
		e.partitions[name] = p
	}
	return p
}

// schedule has the scheduler look at the partition at that time at the latest.
func (e *Engine) schedule(p *partition, at int64) {
	if p.agendaPos != 0 && e.agenda.entries[p.agendaPos-1].at <= at {
		return
	}
	e.agenda.set(p, at)
	e.wake(at)
}

// pass makes the calls that are due and may be made, and says when to look again.
func (p *partition) pass(now int64) {
	e := p.engine
	for p.resting.minAt() <= now {
		e.enqueue(p.resting.entries[0].item, now)
	}
	for p.plan.firstDue() <= now {
		e.enqueue(p.plan.nth(0), now)
	}
	limit := p.limit(now)
	for p.calls < maxInFlight {
		c := p.pick(now, limit)
		if c == nil {
			break
		}
		e.startCall(c, now)
	}
	if at := p.nextPass(now, limit); at == never {
		e.agenda.remove(p)
	} else {
		e.agenda.set(p, max(at, now+1))
	}
}

// pick is the next cohort to be called now; nil when none may be.
func (p *partition) pick(now int64, limit int) *cohort {
	used := p.used(now)
	if p.ready.Len() > 0 && (used < limit || p.ready.minAt() <= now) {
		return p.ready.entries[0].item
	}
	if p.offCycle.Len() > 0 {
		// Leases out of rhythm take what the planned calls leave over, so that they delay nobody, until their
		// deadlines press.
		if p.offCycle.minAt() <= now || used < limit && p.spare(now, limit) {
			return p.offCycle.entries[0].item
		}
	}
	if p.ready.Len() == 0 && used < p.base() && p.early() <= now {
		c := p.plan.nth(0)
		p.engine.enqueue(c, now)
		return c
	}
	return nil
}

// spare reports whether a call made now leaves room for every planned one of the next window at its time.
func (p *partition) spare(now int64, limit int) bool {
	gone := 0 // calls that no longer count by then
	for k := 0; ; k++ {
		c := p.plan.nth(k)
		if c == nil || c.due > now+int64(window) {
			return true
		}
		for gone < len(p.sent) && p.sent[gone] <= c.due-int64(window) {
			gone++
		}
		if len(p.sent)-gone+k+2 > limit { // the k before it, itself and the one made now
			return false
		}
	}
}

// nextPass is when something may have to be done, if nothing new happens.
func (p *partition) nextPass(now int64, limit int) int64 {
	at := min(p.plan.firstDue(), p.resting.minAt())
	if p.calls >= maxInFlight {
		return at // a call that returns brings the next pass
	}
	free := p.free(now, limit)
	if p.ready.Len() > 0 {
		at = min(at, p.ready.minAt(), max(free, now+1))
	}
	if p.offCycle.Len() > 0 {
		// Held up by planned calls, it gets its chance when the first of them has gone: plan.firstDue, above.
		at = min(at, p.offCycle.minAt())
		if free > now {
			at = min(at, free)
		}
	}
	return min(at, max(p.early(), p.free(now, p.base())))
}

// base is how many calls may be made in any window: the mean, rounded up, plus one.
func (p *partition) base() int { return int((p.load+1<<32-1)>>32) + 1 }

// limit is base, or more when that would not do: the cohorts that wait, nearest deadline first, must all get their
// calls before it is too late for them. Then it is the smallest steady rate that achieves this.
func (p *partition) limit(now int64) int {
	limit := p.base()
	if p.ready.Len()+p.offCycle.Len() <= limit {
		return limit
	}
	const horizon = 256 // windows; what is farther away can wait
	var within [horizon]int
	for _, line := range [...]*heap[*cohort]{&p.ready, &p.offCycle} {
		for i := range line.entries {
			if slack := (line.entries[i].at - now) / int64(window); slack < horizon {
				within[max(slack, 0)]++
			}
		}
	}
	sum := 0
	for i, n := range within {
		sum += n
		limit = max(limit, (sum+i)/(i+1))
	}
	return limit
}

// early is when the first planned call must be made although it is not due yet, because too many are planned close
// together for all of them to be made in time at the permitted rate: cohorts of different intervals meet now and
// then. Within one group that is spread evenly it never comes before the due time.
func (p *partition) early() int64 {
	at, base := int64(never), p.base()
	for windows := 1; windows <= 16; windows++ {
		c := p.plan.nth(windows * base)
		if c == nil {
			break
		}
		at = min(at, c.due-int64(windows)*int64(window))
	}
	return at
}

// window is what the pace of calls is counted over.
const window = 100 * time.Millisecond

// weightOf is what a cohort of that interval adds to partition.load.
func weightOf(interval int64) uint64 { return uint64(window) << 32 / uint64(interval) }

// used is how many calls were made in the window that ends now.
func (p *partition) used(now int64) int {
	for len(p.sent) > 0 && p.sent[0] <= now-int64(window) {
		pop(&p.sent)
	}
	return len(p.sent)
}

// free is when the next call may be made.
func (p *partition) free(now int64, limit int) int64 {
	n := p.used(now)
	if n < limit {
		return now
	}
	return p.sent[n-limit] + int64(window)
}
