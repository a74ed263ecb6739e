package telemetry

import (
	"slices"
	"strings"

	"go.opentelemetry.io/otel/attribute"
)

// The instrumentation scope.
const (
	// ScopeName is the scope of every span and metric.
	ScopeName = "github.com/lockdog/lockdog"
	// Version is the version of the library, the newest one in CHANGELOG.md.
	Version = "0.1.0"
)

const (
	// otherGroup is the group of all locks for which no new group may be made.
	otherGroup = "_other"
	// defaultGroup is the group of a lock without WithGroup whose name has no colon, or nothing before it.
	defaultGroup = "default"
)

// The kinds of instruments.
const (
	counter       = "counter"       // int64
	upDownCounter = "updowncounter" // int64
	histogram     = "histogram"     // float64, or int64 for batch.size
	gauge         = "gauge"         // observable: computed when metrics are collected
)

// Label is an attribute of a metric.
type Label struct {
	Key    attribute.Key // as on spans
	Values []string      // the closed list of its values; nil for the group
}

func label[V ~string](key attribute.Key, values ...V) Label {
	l := Label{Key: key}
	for _, v := range values {
		l.Values = append(l.Values, string(v))
	}
	return l
}

// Metric describes one instrument.
type Metric struct {
	Name        string    // in OpenTelemetry
	Prometheus  string    // as scraped; a histogram's series add _bucket, _sum and _count
	Kind        string    // counter, updowncounter, histogram or gauge
	Unit        string    // UCUM
	Description string    // the help text
	Buckets     []float64 // histograms only: upper bounds, in Unit
	Labels      []Label   // its attributes
}

// The buckets of the histograms. The error of a quantile is at most the ratio of two neighbouring bounds: up to 5/3 for
// durations, 2 for holds.
var (
	durationBuckets = []float64{
		.0005, .00075, .001, .0015, .002, .003, .005, .0075, .01, .015, .02, .03, .05, .075, .1, .15, .2, .3, .5, .75,
		1, 1.5, 2, 3, 5, 7.5, 10, 15, 20, 30, 45, 60,
	}
	holdBuckets = []float64{
		.01, .02, .03, .05, .1, .2, .3, .5, 1, 2, 3, 5, 10, 20, 30, 60,
		120, 240, 480, 900, 1800, 3600, 7200, 14400, 28800, 43200, 86400,
	}
	utilizationBuckets = []float64{.1, .2, .3, .34, .4, .5, .6, .7, .8, .9, 1, 1.5}
	batchBuckets       = []float64{1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096}
)

var byGroup = []Label{{Key: KeyGroup}}

func byGroupAnd[V ~string](key attribute.Key, values ...V) []Label {
	return append(slices.Clip(byGroup), label(key, values...))
}

var byCause = byGroupAnd(KeyCause, LossMissing, LossTaken, LossExpired, LossUnreachable, LossStalled, LossForced)

// newMetric describes an instrument. In Prometheus its name has underscores for dots, and a suffix: _seconds for the
// unit s, _ratio for a gauge of the unit 1, otherwise _total for a counter.
func newMetric(kind, name, unit string, labels []Label, description string) Metric {
	prometheus := strings.ReplaceAll(name, ".", "_")
	switch {
	case unit == "s":
		prometheus += "_seconds"
	case unit == "1" && kind == gauge:
		prometheus += "_ratio"
	case kind == counter:
		prometheus += "_total"
	}
	return Metric{
		Name: name, Prometheus: prometheus, Kind: kind, Unit: unit, Description: description, Labels: labels,
	}
}

func newHistogram(name, unit string, buckets []float64, labels []Label, description string) Metric {
	m := newMetric(histogram, name, unit, labels, description)
	m.Buckets = buckets
	return m
}

// The metrics. None has the lock's name: see the package documentation on cardinality.
var (
	MetricAcquisitions = newMetric(counter, "lockdog.acquisitions", "{acquisition}",
		byGroupAnd(KeyOutcome,
			AcquireAcquired, AcquireReentered, AcquireHeld, AcquireTimeout, AcquireCanceled, AcquireError),
		"Calls to Lock and TryLock that ended, by how they ended.")
	MetricAcquireDuration = newHistogram("lockdog.acquire.duration", "s", durationBuckets,
		byGroupAnd(KeyOutcome, AcquireAcquired, acquireFailed),
		"Time from the call to the grant or the refusal, waiting included; reentries left out.")
	MetricWaiting = newMetric(upDownCounter, "lockdog.acquire.waiting", "{waiter}", byGroup,
		"Calls that wait for a lock now.")
	MetricWakeups = newMetric(counter, "lockdog.acquire.wakeups", "{wakeup}",
		byGroupAnd(KeyWakeupSource, WakeupMessage, WakeupLocal, WakeupExpiry, WakeupPoll),
		"Times a waiter was woken, by what woke it: it asks again, or has been handed the lock.")
	MetricTakeovers = newMetric(counter, "lockdog.takeovers", "{takeover}",
		byGroupAnd(KeyReason, TakeoverExpired, TakeoverMessageMissed),
		"Grants to a waiter that heard no release: the holder had vanished, or the message was missed as the subscription was down. Not counted for a Quorum.")
	MetricDeadlocks = newMetric(counter, "lockdog.deadlocks", "{deadlock}", byGroup,
		"Waits that were found to be part of a deadlock: one for each waiter in the cycle, where it waits.")
	MetricHeld = newMetric(upDownCounter, "lockdog.held", "{lock}", byGroup,
		"Grants neither released nor lost, also while their holder winds down.")
	MetricHoldDuration = newHistogram("lockdog.hold.duration", "s", holdBuckets, byGroup,
		"Time from grant to end, however it ended.")
	MetricOldestAge = newMetric(gauge, "lockdog.hold.oldest.age", "s", byGroup,
		"Age of the oldest grant still held; 0 when none is.")
	MetricFailing = newMetric(gauge, "lockdog.leases.failing", "{lock}", byGroup,
		"Live leases whose last renewal attempt failed.")
	MetricRenewals = newMetric(counter, "lockdog.renewals", "{renewal}",
		byGroupAnd(KeyOutcome, RenewalRenewed, RenewalMissing, RenewalTaken, RenewalError),
		"Renewals, one per lease and attempt, by what they came to.")
	MetricLate = newMetric(counter, "lockdog.renewals.late", "{renewal}", byGroup,
		"Renewals, failures and losses that came when over 0.8 of the lease was used up.")
	MetricUtilization = newHistogram("lockdog.lease.utilization", "1", utilizationBuckets, byGroup,
		"Time since the last confirmed renewal over the lease, at each outcome: the safety margin used up.")
	MetricWorstUtilization = newMetric(gauge, "lockdog.lease.utilization.worst", "1", byGroup,
		"Time since the last confirmed renewal over the lease, the worst of all live leases that are renewed; 0 when there are none.")
	MetricLosses = newMetric(counter, "lockdog.losses", "{lock}", byCause,
		"Leases lost while somebody relied on them, by cause.")
	MetricMembersLost = newMetric(counter, "lockdog.members.lost", "{lock}", byCause,
		"Locks lost of one name of a Multi, or at one node of a Quorum, by cause; whether the whole was lost, lockdog.losses says.")
	MetricCancellations = newMetric(counter, "lockdog.cancellations", "{cancellation}",
		byGroupAnd(KeyReason, CancelContext, CancelMaxHold, CancelHeartbeat, CancelClosed),
		"Leases ended by their own side before the release, by reason.")
	MetricReleases = newMetric(counter, "lockdog.releases", "{release}",
		byGroupAnd(KeyOutcome, ReleaseReleased, ReleaseLost, ReleaseError, ReleaseCrashed),
		"Releases, by what they came to; crashed: by the agent, as the holder's process had died.")
	MetricReleaseDuration = newHistogram("lockdog.release.duration", "s", durationBuckets, byGroup,
		"Time a release took.")
	MetricForced = newMetric(counter, "lockdog.force_unlocks", "{lock}", byGroup,
		"Locks that ForceUnlock took away from their holders, counted where it was called.")
	MetricErrors = newMetric(counter, "lockdog.errors", "{error}", []Label{
		label(KeyOperation, OpAcquire, OpRenew, OpRelease, OpSubscribe, OpInspect, OpForceUnlock),
		label(KeyErrorType, ErrorTimeout, ErrorNetwork, ErrorPool, ErrorReadonly, ErrorLoading, ErrorClusterdown,
			ErrorNoscript, ErrorACL, ErrorOOM, ErrorBusy, ErrorOther),
	}, "Calls to Redis that failed, by operation and kind of error.")
	MetricScheduleLag = newHistogram("lockdog.watchdog.schedule.lag", "s", durationBuckets, nil,
		"How late a renewal call went out after it was due.")
	MetricBatchSize = newHistogram("lockdog.watchdog.batch.size", "{lock}", batchBuckets, nil,
		"Leases renewed by one call.")
	MetricBatchDuration = newHistogram("lockdog.watchdog.batch.duration", "s", durationBuckets, []Label{
		label(KeyOutcome, batchOK, batchPartial, batchError),
	}, "Time a renewal call took; by an agent, with its wait for other leases.")
	MetricAgentRequests = newMetric(counter, "lockdog.agent.requests", "{request}", []Label{
		label(KeyOutcome, batchOK, batchPartial, batchError),
	}, "Requests to the agent of the machine (WithAgent): ok if it renewed all leases, error if none. One released meanwhile is not renewed. That it can't be told which locks are held is an error, too; that it can again, ok.")
	MetricWatchdogLeases = newMetric(upDownCounter, "lockdog.watchdog.leases", "{lock}", nil,
		"Leases the watchdog looks after.")
	MetricTickAge = newMetric(gauge, "lockdog.watchdog.tick.age", "s", nil,
		"Time since the watchdog last finished a pass, the worst of all clients; absent without leases.")
	MetricPubSubConnected = newMetric(gauge, "lockdog.pubsub.connected", "{connection}", nil,
		"1 while all wanted subscriptions stand, else 0, the worst of all clients; absent while none is wanted.")
	MetricPubSubReconnects = newMetric(counter, "lockdog.pubsub.reconnects", "{reconnect}", nil,
		"Times the subscription for wake-ups had to be made anew.")
	MetricCommands = newMetric(counter, "lockdog.redis.commands", "{command}", []Label{
		label(KeyPurpose, PurposeAcquire, PurposeRenew, PurposeRelease, PurposeSubscribe, PurposeOther),
	}, "Commands sent, as Redis receives them, by what for; one that carries several operations by its first.")
)

// Metrics lists all instruments. It must not be changed.
var Metrics = []Metric{
	MetricAcquisitions, MetricAcquireDuration, MetricWaiting, MetricWakeups, MetricTakeovers, MetricDeadlocks,
	MetricHeld, MetricHoldDuration, MetricOldestAge, MetricFailing,
	MetricRenewals, MetricLate, MetricUtilization, MetricWorstUtilization, MetricLosses, MetricMembersLost,
	MetricCancellations,
	MetricReleases, MetricReleaseDuration, MetricForced,
	MetricErrors, MetricScheduleLag, MetricBatchSize, MetricBatchDuration, MetricAgentRequests,
	MetricWatchdogLeases, MetricTickAge,
	MetricPubSubConnected, MetricPubSubReconnects, MetricCommands,
}
