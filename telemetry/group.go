package telemetry

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// group is what the locks of one group share: their attribute sets and span names, built once, and what the
// observable gauges tell about them.
type group struct {
	name string

	acquireSpan, heldSpan, renewSpan, lostSpan, cancelSpan, releaseSpan, forceSpan, holdSpan string

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

	held    upDown
	waiting upDown

	appeared atomic.Bool // an acquire was seen: the gauges tell of it
	zeroed   atomic.Bool // its counters were started at 0

	mu      sync.Mutex // guards the rest and the links of the holds in the list
	first   *Hold      // the oldest
	last    *Hold
	failing int
}

func newGroup(name string, m *instruments) *group {
	kv := KeyGroup.String(name)
	base := []attribute.KeyValue{kv}
	option := metric.WithAttributeSet(attribute.NewSet(kv))
	second := func(m Metric) Label { return m.Labels[1] }
	return &group{
		name:        name,
		acquireSpan: SpanAcquire.Name + " " + name,
		heldSpan:    SpanHeld.Name + " " + name,
		renewSpan:   SpanRenew.Name + " " + name,
		lostSpan:    SpanLost.Name + " " + name,
		cancelSpan:  SpanCancel.Name + " " + name,
		releaseSpan: SpanRelease.Name + " " + name,
		forceSpan:   SpanForce.Name + " " + name,
		holdSpan:    SpanHold.Name + " " + name,

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

		held:    upDown{counter: m.held},
		waiting: upDown{counter: m.waiting},
	}
}

// appear starts the group's counters at 0, at its first acquire that somebody measures. A counter that is born
// at 1 never fires an alert on increase() > 0.
func (g *group) appear(ctx context.Context, m *instruments) {
	if !g.appeared.Load() {
		g.appeared.Store(true)
	}
	if g.zeroed.Load() || !m.acquisitions.Enabled(ctx) || !g.zeroed.CompareAndSwap(false, true) {
		return
	}
	nobody := context.Background() // an exemplar would lead from a loss to a lock that wasn't lost
	for _, z := range []struct {
		counter metric.Int64Counter
		sets    [][]metric.AddOption
	}{
		{m.acquisitions, g.acquisitions},
		{m.wakeups, g.wakeups},
		{m.takeovers, g.takeovers},
		{m.renewals, g.renewals},
		{m.late, [][]metric.AddOption{g.add}},
		{m.losses, g.losses},
		{m.cancellations, g.cancellations},
		{m.releases, g.releases},
		{m.forced, [][]metric.AddOption{g.add}},
	} {
		for _, set := range z.sets {
			z.counter.Add(nobody, 0, set...)
		}
	}
	m.held.Add(nobody, 0, g.add...)
	m.waiting.Add(nobody, 0, g.add...)
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
func (g *group) gauges(now time.Time) (oldest time.Duration, failing int, worst float64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.first != nil {
		oldest = max(now.Sub(g.first.start), 0)
	}
	for h := g.first; h != nil; h = h.next {
		if !h.unrenewed.Load() && h.state&holdLost == 0 {
			worst = max(worst, h.utilization(now))
		}
	}
	return oldest, g.failing, worst
}
