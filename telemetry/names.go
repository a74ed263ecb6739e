package telemetry

import (
	"slices"

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
	// defaultGroup is the group of a lock whose name has no colon, or nothing before it.
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

// The metrics. None has the lock's name: see the package documentation on cardinality.
var (
	MetricAcquisitions = Metric{
		Name: "lockdog.acquisitions", Prometheus: "lockdog_acquisitions_total", Kind: counter, Unit: "{acquisition}",
		Description: "Calls to Lock and TryLock that ended, by how they ended.",
		Labels: byGroupAnd(KeyOutcome,
			AcquireAcquired, AcquireReentered, AcquireHeld, AcquireTimeout, AcquireCanceled, AcquireError),
	}
	MetricAcquireDuration = Metric{
		Name: "lockdog.acquire.duration", Prometheus: "lockdog_acquire_duration_seconds",
		Kind: histogram, Buckets: durationBuckets, Unit: "s",
		Description: "Time from the call to the grant or the refusal, waiting included; reentries left out.",
		Labels:      byGroupAnd(KeyOutcome, AcquireAcquired, acquireFailed),
	}
	MetricWaiting = Metric{
		Name: "lockdog.acquire.waiting", Prometheus: "lockdog_acquire_waiting",
		Kind: upDownCounter, Unit: "{waiter}", Labels: byGroup,
		Description: "Calls that wait for a lock now.",
	}
	MetricWakeups = Metric{
		Name: "lockdog.acquire.wakeups", Prometheus: "lockdog_acquire_wakeups_total", Kind: counter, Unit: "{wakeup}",
		Description: "Times a waiter was woken, by what woke it: it asks again, or has been handed the lock.",
		Labels:      byGroupAnd(KeyWakeupSource, WakeupMessage, WakeupLocal, WakeupExpiry, WakeupPoll),
	}
	MetricTakeovers = Metric{
		Name: "lockdog.takeovers", Prometheus: "lockdog_takeovers_total", Kind: counter, Unit: "{takeover}",
		Description: "Grants to a waiter that heard no release: the holder had vanished, or the message was missed as the subscription was down. Not counted for a Quorum.",
		Labels:      byGroupAnd(KeyReason, TakeoverExpired, TakeoverMessageMissed),
	}
	MetricDeadlocks = Metric{
		Name: "lockdog.deadlocks", Prometheus: "lockdog_deadlocks_total",
		Kind: counter, Unit: "{deadlock}", Labels: byGroup,
		Description: "Waits that were found to be part of a deadlock: one for each waiter in the cycle, where it waits.",
	}
	MetricHeld = Metric{
		Name: "lockdog.held", Prometheus: "lockdog_held", Kind: upDownCounter, Unit: "{lock}", Labels: byGroup,
		Description: "Grants neither released nor lost, also while their holder winds down.",
	}
	MetricHoldDuration = Metric{
		Name: "lockdog.hold.duration", Prometheus: "lockdog_hold_duration_seconds",
		Kind: histogram, Buckets: holdBuckets, Unit: "s", Labels: byGroup,
		Description: "Time from grant to end, however it ended.",
	}
	MetricOldestAge = Metric{
		Name: "lockdog.hold.oldest.age", Prometheus: "lockdog_hold_oldest_age_seconds",
		Kind: gauge, Unit: "s", Labels: byGroup,
		Description: "Age of the oldest grant still held; 0 when none is.",
	}
	MetricFailing = Metric{
		Name: "lockdog.leases.failing", Prometheus: "lockdog_leases_failing",
		Kind: gauge, Unit: "{lock}", Labels: byGroup,
		Description: "Live leases whose last renewal attempt failed.",
	}
	MetricRenewals = Metric{
		Name: "lockdog.renewals", Prometheus: "lockdog_renewals_total", Kind: counter, Unit: "{renewal}",
		Description: "Renewals, one per lease and attempt, by what they came to.",
		Labels:      byGroupAnd(KeyOutcome, RenewalRenewed, RenewalMissing, RenewalTaken, RenewalError),
	}
	MetricLate = Metric{
		Name: "lockdog.renewals.late", Prometheus: "lockdog_renewals_late_total",
		Kind: counter, Unit: "{renewal}", Labels: byGroup,
		Description: "Renewals, failures and losses that came when over 0.8 of the lease was used up.",
	}
	MetricUtilization = Metric{
		Name: "lockdog.lease.utilization", Prometheus: "lockdog_lease_utilization",
		Kind: histogram, Buckets: utilizationBuckets, Unit: "1", Labels: byGroup,
		Description: "Time since the last confirmed renewal over the lease, at each outcome: the safety margin used up.",
	}
	MetricWorstUtilization = Metric{
		Name: "lockdog.lease.utilization.worst", Prometheus: "lockdog_lease_utilization_worst_ratio",
		Kind: gauge, Unit: "1", Labels: byGroup,
		Description: "Time since the last confirmed renewal over the lease, the worst of all live leases that are renewed; 0 when there are none.",
	}
	MetricLosses = Metric{
		Name: "lockdog.losses", Prometheus: "lockdog_losses_total", Kind: counter, Unit: "{lock}", Labels: byCause,
		Description: "Leases lost while somebody relied on them, by cause.",
	}
	MetricMembersLost = Metric{
		Name: "lockdog.members.lost", Prometheus: "lockdog_members_lost_total",
		Kind: counter, Unit: "{lock}", Labels: byCause,
		Description: "Locks lost of one name of a Multi, or at one node of a Quorum, by cause; whether the whole was lost, lockdog.losses says.",
	}
	MetricCancellations = Metric{
		Name: "lockdog.cancellations", Prometheus: "lockdog_cancellations_total", Kind: counter, Unit: "{cancellation}",
		Description: "Leases ended by their own side before the release, by reason.",
		Labels:      byGroupAnd(KeyReason, CancelContext, CancelMaxHold, CancelHeartbeat, CancelClosed),
	}
	MetricReleases = Metric{
		Name: "lockdog.releases", Prometheus: "lockdog_releases_total", Kind: counter, Unit: "{release}",
		Description: "Releases, by what they came to.",
		Labels:      byGroupAnd(KeyOutcome, ReleaseReleased, ReleaseLost, ReleaseError),
	}
	MetricReleaseDuration = Metric{
		Name: "lockdog.release.duration", Prometheus: "lockdog_release_duration_seconds",
		Kind: histogram, Buckets: durationBuckets, Unit: "s", Labels: byGroup,
		Description: "Time a release took.",
	}
	MetricForced = Metric{
		Name: "lockdog.force_unlocks", Prometheus: "lockdog_force_unlocks_total",
		Kind: counter, Unit: "{lock}", Labels: byGroup,
		Description: "Locks that ForceUnlock took away from their holders, counted where it was called.",
	}
	MetricErrors = Metric{
		Name: "lockdog.errors", Prometheus: "lockdog_errors_total", Kind: counter, Unit: "{error}",
		Description: "Calls to Redis that failed, by operation and kind of error.",
		Labels: []Label{
			label(KeyOperation, OpAcquire, OpRenew, OpRelease, OpSubscribe, OpInspect, OpForceUnlock),
			label(KeyErrorType, ErrorTimeout, ErrorNetwork, ErrorPool, ErrorReadonly, ErrorLoading, ErrorClusterdown,
				ErrorNoscript, ErrorACL, ErrorOOM, ErrorBusy, ErrorOther),
		},
	}
	MetricScheduleLag = Metric{
		Name: "lockdog.watchdog.schedule.lag", Prometheus: "lockdog_watchdog_schedule_lag_seconds",
		Kind: histogram, Buckets: durationBuckets, Unit: "s",
		Description: "How late a renewal call went out after it was due.",
	}
	MetricBatchSize = Metric{
		Name: "lockdog.watchdog.batch.size", Prometheus: "lockdog_watchdog_batch_size",
		Kind: histogram, Buckets: batchBuckets, Unit: "{lock}",
		Description: "Leases renewed by one call.",
	}
	MetricBatchDuration = Metric{
		Name: "lockdog.watchdog.batch.duration", Prometheus: "lockdog_watchdog_batch_duration_seconds",
		Kind: histogram, Buckets: durationBuckets, Unit: "s",
		Description: "Time a renewal call took.",
		Labels:      []Label{label(KeyOutcome, batchOK, batchPartial, batchError)},
	}
	MetricWatchdogLeases = Metric{
		Name: "lockdog.watchdog.leases", Prometheus: "lockdog_watchdog_leases", Kind: upDownCounter, Unit: "{lock}",
		Description: "Leases the watchdog looks after.",
	}
	MetricTickAge = Metric{
		Name: "lockdog.watchdog.tick.age", Prometheus: "lockdog_watchdog_tick_age_seconds", Kind: gauge, Unit: "s",
		Description: "Time since the watchdog last finished a pass, the worst of all clients; absent without leases.",
	}
	MetricPubSubConnected = Metric{
		Name: "lockdog.pubsub.connected", Prometheus: "lockdog_pubsub_connected", Kind: gauge, Unit: "{connection}",
		Description: "1 while all wanted subscriptions stand, else 0, the worst of all clients; absent while none is wanted.",
	}
	MetricPubSubReconnects = Metric{
		Name: "lockdog.pubsub.reconnects", Prometheus: "lockdog_pubsub_reconnects_total",
		Kind: counter, Unit: "{reconnect}",
		Description: "Times the subscription for wake-ups had to be made anew.",
	}
	MetricCommands = Metric{
		Name: "lockdog.redis.commands", Prometheus: "lockdog_redis_commands_total", Kind: counter, Unit: "{command}",
		Description: "Commands sent, as Redis receives them, by what for; one that carries several operations by its first.",
		Labels: []Label{
			label(KeyPurpose, PurposeAcquire, PurposeRenew, PurposeRelease, PurposeSubscribe, PurposeOther),
		},
	}
)

// Metrics lists all instruments. It must not be changed.
var Metrics = []Metric{
	MetricAcquisitions, MetricAcquireDuration, MetricWaiting, MetricWakeups, MetricTakeovers, MetricDeadlocks,
	MetricHeld, MetricHoldDuration, MetricOldestAge, MetricFailing,
	MetricRenewals, MetricLate, MetricUtilization, MetricWorstUtilization, MetricLosses, MetricMembersLost,
	MetricCancellations,
	MetricReleases, MetricReleaseDuration, MetricForced,
	MetricErrors, MetricScheduleLag, MetricBatchSize, MetricBatchDuration, MetricWatchdogLeases, MetricTickAge,
	MetricPubSubConnected, MetricPubSubReconnects, MetricCommands,
}
