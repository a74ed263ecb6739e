package telemetry

import (
	"sync"
	"sync/atomic"
	"time"
)

// group has what the locks of a group share in all roles, and the data of the observable gauges.
type group struct {
	name       string
	standalone role
	member     func() *tally // made when it is first needed

	attrs   set
	waiting upDown

	counting atomic.Bool // role.startCounting was called: the group is in the gauges

	mu      sync.Mutex // guards the rest, and state, prev and next of the group's holds
	holds   Hold       // the sentinel of the circular list of holds
	failing int        // holds whose last renewal failed
}

func newGroup(name string, i *instruments) *group {
	g := &group{
		name:   name,
		member: sync.OnceValue(func() *tally { return newTally(name, memberOf, i) }),
		attrs:  newSet(KeyGroup.String(name)),
	}
	g.waiting = upDown{counter: i.upDowns[MetricWaiting.Name], opts: g.attrs.add}
	g.holds.prev, g.holds.next = &g.holds, &g.holds
	g.standalone = role{group: g, tally: newTally(name, "", i)}
	return g
}

// enter adds h to the list.
func (g *group) enter(h *Hold) {
	g.mu.Lock()
	defer g.mu.Unlock()
	h.prev, h.next = g.holds.prev, &g.holds
	h.prev.next, h.next.prev = h, h
}

// exit removes h from the list, and reports whether h was in it: a hold ends once.
func (g *group) exit(h *Hold) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if h.state&holdEnded != 0 {
		return false
	}
	h.state |= holdEnded
	g.setFailing(h, false)
	h.prev.next, h.next.prev = h.next, h.prev
	h.prev, h.next = nil, nil
	return true
}

// setFailing notes whether h's last renewal failed, and reports whether that has changed. g.mu must be held.
func (g *group) setFailing(h *Hold, failing bool) bool {
	was := h.state&holdFailing != 0
	if was == failing || failing && h.state&(holdEnded|holdLost) != 0 {
		return false
	}
	h.state ^= holdFailing
	h.failing.Store(failing)
	if failing {
		g.failing++
	} else {
		g.failing--
	}
	return true
}

// gauges returns the age of the oldest hold, the number of failing leases, and the highest utilization of the leases
// that are renewed. Members only count for failing; their composite counts for the other two.
func (g *group) gauges(now time.Time) (oldest time.Duration, failing int, worst float64) {
	g.mu.Lock()
	var composites []*Hold
	for h := g.holds.next; h != &g.holds; h = h.next {
		if h.lock.role.isMember() {
			continue
		}
		oldest = max(oldest, now.Sub(h.start))
		switch {
		case h.unrenewed.Load() || h.state&holdLost != 0:
		case h.lock.role.isComposite():
			composites = append(composites, h)
		default:
			worst = max(worst, h.utilization(now))
		}
	}
	failing = g.failing
	g.mu.Unlock()
	for _, h := range composites { // without mu, as utilization calls package lock
		worst = max(worst, h.utilization(now))
	}
	return oldest, failing, worst
}
