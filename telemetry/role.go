package telemetry

import (
	"context"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
)

// role decides what is recorded of a lock:
//
//	        spans                 counts, and is in the gauges   renewals
//	alone   acquire orders, ...   yes                            its own
//	whole   acquire orders, ...   yes                            has none, but those of its members
//	member  acquire member ...    waits; lockdog.members.lost    its own
//
// A whole is the lease of a Multi or of a Quorum's lock; members are its names, or its nodes. Renewals, and calls that failed, are
// counted where they are made: of those that are alone, and of members.
type role struct {
	*group
	*tally
	node      func() string    // of a member: the server where it lives
	confirmed func() time.Time // of a whole: when what it lives by was last renewed
}

func (r *role) isMember() bool { return r.node != nil }

// tally is what the locks of a group in one role share: their instruments, and the names of their spans.
type tally struct {
	metrics *instruments
	held    upDown
	zeroed  atomic.Bool // its counters were started at 0

	acquireSpan, deadlockSpan, heldSpan, renewSpan, lostSpan, cancelSpan, releaseSpan, forceSpan, holdSpan string
}

func newTally(group, of string, m *instruments) *tally {
	name := func(s Span) string { return s.Name + of + " " + group }
	return &tally{
		metrics:      m,
		held:         upDown{counter: m.held},
		acquireSpan:  name(SpanAcquire),
		deadlockSpan: name(SpanDeadlock),
		heldSpan:     name(SpanHeld),
		renewSpan:    SpanRenew.Name + " " + group, // only what is alone and members have it
		lostSpan:     name(SpanLost),
		cancelSpan:   name(SpanCancel),
		releaseSpan:  name(SpanRelease),
		forceSpan:    name(SpanForce),
		holdSpan:     name(SpanHold),
	}
}

// ofMember are the instruments of members. Those that count the whole count nothing here; losses have a counter for members.
func (i *instruments) ofMember() *instruments {
	m := *i
	m.acquisitions, m.cancellations, m.releases = noop.Int64Counter{}, noop.Int64Counter{}, noop.Int64Counter{}
	m.acquireTime, m.holdTime, m.releaseTime = noop.Float64Histogram{}, noop.Float64Histogram{}, noop.Float64Histogram{}
	m.held = noop.Int64UpDownCounter{}
	m.losses = i.membersLost
	return &m
}

// Whole describes the lock called name of which l is the first member. It is counted in that one's group. confirmed is asked when metrics are
// collected: when the renewals that it lives by were sent.
func (l *Lock) Whole(name string, confirmed func() time.Time) Lock {
	g := l.role.group
	return Lock{
		rec: l.rec, name: printable(name), kind: l.kind, spans: l.spans,
		role: &role{group: g, tally: g.alone.tally, confirmed: confirmed},
	}
}

// Member describes the same lock as a member of another. node tells where it lives.
func (l *Lock) Member(node func() string) Lock {
	m := *l
	m.role = &role{group: l.role.group, tally: l.role.member, node: node}
	return m
}

// located adds the node of a member to the attributes of a span.
func (r *role) located(attrs []attribute.KeyValue) []attribute.KeyValue {
	if !r.isMember() {
		return attrs
	}
	return append(attrs, KeyNode.String(r.node()))
}

// appear starts the counters of the group for locks in this role at 0, at the first acquire that somebody measures. A counter that is born
// at 1 never fires an alert on increase() > 0.
func (r *role) appear(ctx context.Context) {
	g, m := r.group, r.metrics
	if !g.appeared.Load() {
		g.appeared.Store(true)
	}
	if r.zeroed.Load() || !m.renewals.Enabled(ctx) || !r.zeroed.CompareAndSwap(false, true) {
		return
	}
	nobody := context.Background() // an exemplar would lead from a loss to a lock that wasn't lost
	one := sets{{set: g.set}}
	for _, z := range []struct {
		counter metric.Int64Counter
		sets    sets
	}{
		{m.acquisitions, g.acquisitions},
		{m.wakeups, g.wakeups},
		{m.takeovers, g.takeovers},
		{m.renewals, g.renewals},
		{m.deadlocks, one},
		{m.late, one},
		{m.losses, g.losses},
		{m.cancellations, g.cancellations},
		{m.releases, g.releases},
		{m.forced, one},
	} {
		for _, s := range z.sets {
			z.counter.Add(nobody, 0, s.add...)
		}
	}
	m.held.Add(nobody, 0, g.add...)
	m.waiting.Add(nobody, 0, g.add...)
}
