package telemetry

import (
	"context"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
)

// role says what is recorded of a lock:
//
//	        spans                 counted, and in the gauges               renewals
//	alone   acquire orders, ...   yes                                      its own
//	whole   acquire orders, ...   yes, but not the waits of a Multi        none; its members have them
//	member  acquire member ...    waits of a Multi; lockdog.members.lost   its own
//
// A whole is a Multi or a Quorum's lock; its members are its names, or its nodes. All other locks are alone. Renewals
// and failing leases are counted for locks that are alone, and for members. A failed call is counted where it is made.
type role struct {
	*group
	*tally
	node      func() string    // of a member: its server; nil: no member
	confirmed func() time.Time // of a whole: when the renewals that it depends on were sent; nil: no whole
}

func (r *role) isMember() bool { return r.node != nil }

// tally has what the locks of a group in one role share: their instruments, and the names of their spans.
type tally struct {
	metrics *instruments
	held    upDown
	zeroed  atomic.Bool // see appear

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
		renewSpan:    SpanRenew.Name + " " + group, // the same for members
		lostSpan:     name(SpanLost),
		cancelSpan:   name(SpanCancel),
		releaseSpan:  name(SpanRelease),
		forceSpan:    name(SpanForce),
		holdSpan:     name(SpanHold),
	}
}

// ofMember returns the instruments of members. What is counted for the whole isn't counted for its members. Their
// losses have a counter of their own.
func (i *instruments) ofMember() *instruments {
	m := *i
	m.acquisitions, m.cancellations, m.releases = noop.Int64Counter{}, noop.Int64Counter{}, noop.Int64Counter{}
	m.acquireTime, m.holdTime, m.releaseTime = noop.Float64Histogram{}, noop.Float64Histogram{}, noop.Float64Histogram{}
	m.held = noop.Int64UpDownCounter{}
	m.losses = i.membersLost
	return &m
}

// Whole returns the telemetry of a whole with a name, whose first member is l. It is counted in the group of l.
// confirmed returns when the renewals that the whole depends on were sent. It is called when metrics are collected, and
// when the whole is lost.
func (l *Lock) Whole(name string, confirmed func() time.Time) Lock {
	g := l.role.group
	return Lock{
		rec: l.rec, name: printable(name), kind: l.kind, spans: l.spans,
		role: &role{group: g, tally: g.alone.tally, confirmed: confirmed},
	}
}

// Member returns the telemetry of l as a member of a whole. node returns its server.
func (l *Lock) Member(node func() string) Lock {
	m := *l
	m.role = &role{group: l.role.group, tally: l.role.member, node: node}
	return m
}

// located adds a member's server to the attributes of a span.
func (r *role) located(attrs []attribute.KeyValue) []attribute.KeyValue {
	if !r.isMember() {
		return attrs
	}
	return append(attrs, KeyNode.String(r.node()))
}

// appear starts the counters of the group for this role at 0, when the first operation with an SDK starts. A counter
// that starts at 1 never fires an alert on increase() > 0.
func (r *role) appear(ctx context.Context) {
	g, m := r.group, r.metrics
	if !g.appeared.Load() {
		g.appeared.Store(true)
	}
	if r.zeroed.Load() || !m.renewals.Enabled(ctx) || !r.zeroed.CompareAndSwap(false, true) {
		return
	}
	nobody := context.Background() // no exemplar: it would lead from a loss to a lock that wasn't lost
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
