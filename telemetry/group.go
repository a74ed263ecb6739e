package telemetry

import (
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// group is what the locks of one group share: their attribute sets and span names, built once, and what the
// observable gauges tell about them.
type group struct {
	name   string
	alone  role
	member *tally

	observe []metric.ObserveOption
	add     []metric.AddOption
	record  []metric.RecordOption

	acquisitions  [][]metric.AddOption
	acquireTime   [][]metric.RecordOption
	wakeups       [][]metric.AddOption
	takeovers     [][]metric.AddOption
	renewals      [][]metric.AddOption
	losses        [][]metric.AddOption
	cancellations [][]metric.AddOption
	releases      [][]metric.AddOption

	waiting upDown

	appeared atomic.Bool // an acquire was seen: the gauges tell of it

	mu      sync.Mutex // guards the rest and the links of the holds in the list
	first   *Hold      // the oldest
	last    *Hold
	failing int
}

func newGroup(name string, m, ofMember *instruments) *group {
	kv := KeyGroup.String(name)
	base := []attribute.KeyValue{kv}
	option := metric.WithAttributeSet(attribute.NewSet(kv))
	second := func(m Metric) Label { return m.Labels[1] }
	g := &group{
		name:   name,
		member: newTally(name, memberOf, ofMember),

		observe: []metric.ObserveOption{option},
		add:     []metric.AddOption{option},
		record:  []metric.RecordOption{option},

		acquisitions:  addSets(base, second(MetricAcquisitions)),
		acquireTime:   recordSets(base, second(MetricAcquireDuration)),
		wakeups:       addSets(base, second(MetricWakeups)),
		takeovers:     addSets(base, second(MetricTakeovers)),
		renewals:      addSets(base, second(MetricRenewals)),
		losses:        addSets(base, second(MetricLosses)),
		cancellations: addSets(base, second(MetricCancellations)),
		releases:      addSets(base, second(MetricReleases)),

		waiting: upDown{counter: m.waiting},
	}
	g.alone = role{group: g, tally: newTally(name, "", m)}
	return g
}

// enter puts h at the young end of the list.
func (g *group) enter(h *Hold) {
	g.mu.Lock()
	defer g.mu.Unlock()
	h.prev = g.last
	if g.last != nil {
		g.last.next = h
	} else {
		g.first = h
	}
	g.last = h
}

// exit takes h out of the list. It tells whether h was in it, so that a hold ends once.
func (g *group) exit(h *Hold) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if h.state&holdEnded != 0 {
		return false
	}
	h.state |= holdEnded
	g.setFailing(h, false)
	if h.prev != nil {
		h.prev.next = h.next
	} else {
		g.first = h.next
	}
	if h.next != nil {
		h.next.prev = h.prev
	} else {
		g.last = h.prev
	}
	h.prev, h.next = nil, nil
	return true
}

// setFailing notes whether h's last renewal failed and tells whether that is news. g.mu must be held.
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

// gauges tells the age of the oldest hold, how many leases are failing, and how much the worst of those that are renewed has used up.
// Members of a lock are failing by themselves; the rest is their whole's.
func (g *group) gauges(now time.Time) (oldest time.Duration, failing int, worst float64) {
	g.mu.Lock()
	var wholes []*Hold
	for h := g.first; h != nil; h = h.next {
		if h.lock.role.isMember() {
			continue
		}
		oldest = max(oldest, now.Sub(h.start))
		switch {
		case h.unrenewed.Load() || h.state&holdLost != 0:
		case h.lock.role.confirmed != nil:
			wholes = append(wholes, h)
		default:
			worst = max(worst, h.utilization(now))
		}
	}
	failing = g.failing
	g.mu.Unlock()
	for _, h := range wholes { // not with mu held, as package lock is asked
		worst = max(worst, h.utilization(now))
	}
	return oldest, failing, worst
}
