package telemetry

import (
	"context"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/metric"
)

// role says what is recorded of a lock:
//
//	            spans                 counted, and in the gauges               renewals
//	standalone  acquire orders, ...   yes                                      its own
//	composite   acquire orders, ...   yes, but not the waits of a Multi        none; its members have them
//	member      acquire member ...    waits of a Multi; lockdog.members.lost   its own
//
// A composite is the lock of a Multi or a Quorum. Its members are its names, or its nodes. All other locks are
// standalone. Renewals, failing leases and forced unlocks are counted for standalone locks and for members. A failed
// call is counted where it is made.
type role struct {
	group *group
	*tally
	node      func() string    // of a member: its server; nil: no member
	confirmed func() time.Time // of a composite: when the renewals that it depends on were sent; nil: no composite
}

func (r *role) isMember() bool    { return r.node != nil }
func (r *role) isComposite() bool { return r.confirmed != nil }

// tally has what the locks of a group in one role share: their instruments, with the attribute sets of the group, and
// the names of their spans. Standalone and composite locks share one tally. All of it is built once.
type tally struct {
	acquisitions, wakeups, takeovers, deadlocks, renewals, late, losses, cancellations, releases, forced counts

	all []*counts // of the above

	held                               upDown
	acquireTime                        metric.Float64Histogram
	acquireSets                        sets
	holdTime, releaseTime, utilization metric.Float64Histogram

	zeroed atomic.Bool // see startCounting

	acquireSpan, deadlockSpan, heldSpan, renewSpan, lostSpan, cancelSpan, releaseSpan, forceSpan, holdSpan string
}

// newTally returns the tally of a group. If the parameter of is memberOf, it is that of members, otherwise it is empty.
func newTally(group, of string, i *instruments) *tally {
	name := func(s Span) string { return s.Name + of + " " + group }
	kv := KeyGroup.String(group)
	ofComposite, losses := i, MetricLosses
	if of == memberOf {
		// What is counted for the composite isn't counted for its members. Their losses have a counter of their own.
		ofComposite, losses = notCounted, MetricMembersLost
	}
	t := &tally{
		acquisitions:  newCounts(ofComposite, MetricAcquisitions, kv),
		wakeups:       newCounts(i, MetricWakeups, kv),
		takeovers:     newCounts(i, MetricTakeovers, kv),
		deadlocks:     newCounts(i, MetricDeadlocks, kv),
		renewals:      newCounts(i, MetricRenewals, kv),
		late:          newCounts(i, MetricLate, kv),
		losses:        newCounts(i, losses, kv),
		cancellations: newCounts(ofComposite, MetricCancellations, kv),
		releases:      newCounts(ofComposite, MetricReleases, kv),
		forced:        newCounts(i, MetricForced, kv),

		held:        upDown{counter: ofComposite.upDowns[MetricHeld.Name], opts: newSet(kv).add},
		acquireTime: ofComposite.histograms[MetricAcquireDuration.Name],
		acquireSets: newSets(MetricAcquireDuration.Labels[1], kv),
		holdTime:    ofComposite.histograms[MetricHoldDuration.Name],
		releaseTime: ofComposite.histograms[MetricReleaseDuration.Name],
		utilization: i.histograms[MetricUtilization.Name],

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
	t.all = []*counts{
		&t.acquisitions, &t.wakeups, &t.takeovers, &t.deadlocks, &t.renewals, &t.late, &t.losses, &t.cancellations,
		&t.releases, &t.forced,
	}
	return t
}

// Composite returns the telemetry of the lock of a Multi or a Quorum that is called name. Its first member is l, and it
// is counted in the group of l. confirmed returns when the acquires or renewals that the lock depends on were sent. It
// is called when metrics are collected, and when the lock is lost.
func (l *Lock) Composite(name string, confirmed func() time.Time) Lock {
	g := l.role.group
	return Lock{
		rec: l.rec, name: printable(name), kind: l.kind, spans: l.spans,
		role: &role{group: g, tally: g.standalone.tally, confirmed: confirmed},
	}
}

// Member returns the telemetry of l as a member of a composite. node returns its server.
func (l *Lock) Member(node func() string) Lock {
	m := *l
	m.role = &role{group: l.role.group, tally: l.role.group.member(), node: node}
	return m
}

// startCounting is called at the start of an operation. It puts the group into the gauges and, once there is an SDK,
// starts the counters of the group for this role at 0. A counter that starts at 1 never fires an alert on increase() >
// 0.
func (r *role) startCounting(ctx context.Context) {
	g := r.group
	if !g.counting.Load() {
		g.counting.Store(true)
	}
	if r.zeroed.Load() || !r.renewals.counter.Enabled(ctx) || !r.zeroed.CompareAndSwap(false, true) {
		return
	}
	nobody := context.Background() // no exemplar: it would lead from a loss to a lock that wasn't lost
	for _, c := range r.all {
		for _, s := range c.sets {
			c.counter.Add(nobody, 0, s.add...)
		}
	}
	r.held.counter.Add(nobody, 0, g.attrs.add...)
	g.waiting.counter.Add(nobody, 0, g.attrs.add...)
}

// recordUtilization records how much of a lease was used up.
func (r *role) recordUtilization(ctx context.Context, used float64) {
	r.utilization.Record(ctx, used, r.group.attrs.record...)
	if used > lateAt {
		r.late.inc(ctx, "")
	}
}
