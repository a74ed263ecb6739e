package telemetry

import (
	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
)

// The instrumentation scope.
const (
	// ScopeName is the scope of every span and metric.
	ScopeName = "github.com/lockdog/lockdog"
	// Version is the version of the library, that of its newest release in CHANGELOG.md.
	Version = "0.1.0"
	// SchemaURL is that of the semantic conventions the names keep to.
	SchemaURL = semconv.SchemaURL
)

// OtherGroup is the group of everything that came after a recorder's groups were used up.
const OtherGroup = "_other"

// DefaultGroup is the group of a lock whose name has no colon.
const DefaultGroup = "default"

// Kind is the kind of an instrument.
type Kind uint8

// The kinds of instruments.
const (
	Counter       Kind = iota // int64
	UpDownCounter             // int64
	Histogram                 // float64, or int64 for batch.size
	Gauge                     // observable: computed when metrics are collected
)

var kinds = []string{"counter", "updowncounter", "histogram", "gauge"}

// String is the kind in a word, as in docs/TELEMETRY.md.
func (k Kind) String() string { return text(kinds, k) }

// Label is an attribute of a metric. Values is the closed list of what it can be, in the order of the
// enumeration's constants; nil for the group.
type Label struct {
	Key    attribute.Key // as on spans
	Values []string      // all it can be; nil: open
}

// Metric describes one instrument.
type Metric struct {
	Name        string    // in OpenTelemetry
	Prometheus  string    // as scraped; a histogram's series add _bucket, _sum and _count
	Kind        Kind      // of instrument
	Unit        string    // UCUM
	Description string    // the help text
	Buckets     []float64 // histograms only: upper bounds, in Unit
	Labels      []Label   // its attributes
}

// Grouped tells whether the metric carries lockdog.group.
func (m Metric) Grouped() bool { return len(m.Labels) > 0 && m.Labels[0].Key == KeyGroup }

// The buckets of the histograms. A quantile is at most as far off as two bounds are apart: 5/3 for durations, 2 for holds.
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

var groupLabel = Label{Key: KeyGroup}

// The metrics. The lock's name is on none of them; see the package documentation on cardinality.
var (
	MetricAcquisitions = Metric{
		Name: "lockdog.acquisitions", Prometheus: "lockdog_acquisitions_total", Kind: Counter, Unit: "{acquisition}",
		Description: "Calls to Lock and TryLock that ended, by how they ended.",
		Labels:      []Label{groupLabel, {KeyOutcome, acquireOutcomes}},
	}
	MetricAcquireDuration = Metric{
		Name: "lockdog.acquire.duration", Prometheus: "lockdog_acquire_duration_seconds", Kind: Histogram, Unit: "s",
		Description: "Time from the call to the grant or the refusal, waiting included; reentries left out.",
		Buckets:     durationBuckets,
		Labels:      []Label{groupLabel, {KeyOutcome, acquireDurations}},
	}
	MetricWaiting = Metric{
		Name: "lockdog.acquire.waiting", Prometheus: "lockdog_acquire_waiting", Kind: UpDownCounter, Unit: "{waiter}",
		Description: "Calls that wait for a lock now.",
		Labels:      []Label{groupLabel},
	}
	MetricWakeups = Metric{
		Name: "lockdog.acquire.wakeups", Prometheus: "lockdog_acquire_wakeups_total", Kind: Counter, Unit: "{wakeup}",
		Description: "Times a waiter looked again, by what woke it.",
		Labels:      []Label{groupLabel, {KeyWakeupSource, wakeupSources}},
	}
	MetricTakeovers = Metric{
		Name: "lockdog.takeovers", Prometheus: "lockdog_takeovers_total", Kind: Counter, Unit: "{takeover}",
		Description: "Grants to a waiter that heard no release: the holder had vanished, or the message was missed as the subscription was down. Not counted for a Quorum.",
		Labels:      []Label{groupLabel, {KeyReason, takeoverReasons}},
	}
	MetricHeld = Metric{
		Name: "lockdog.held", Prometheus: "lockdog_held", Kind: UpDownCounter, Unit: "{lock}",
		Description: "Grants neither released nor lost, also while their holder winds down.",
		Labels:      []Label{groupLabel},
	}
	MetricHoldDuration = Metric{
		Name: "lockdog.hold.duration", Prometheus: "lockdog_hold_duration_seconds", Kind: Histogram, Unit: "s",
		Description: "Time from grant to end, however it ended.",
		Buckets:     holdBuckets,
		Labels:      []Label{groupLabel},
	}
	MetricOldestAge = Metric{
		Name: "lockdog.hold.oldest.age", Prometheus: "lockdog_hold_oldest_age_seconds", Kind: Gauge, Unit: "s",
		Description: "Age of the oldest grant still held; 0 when none is.",
		Labels:      []Label{groupLabel},
	}
	MetricFailing = Metric{
		Name: "lockdog.leases.failing", Prometheus: "lockdog_leases_failing", Kind: Gauge, Unit: "{lock}",
		Description: "Live leases whose last renewal attempt failed.",
		Labels:      []Label{groupLabel},
	}
	MetricRenewals = Metric{
		Name: "lockdog.renewals", Prometheus: "lockdog_renewals_total", Kind: Counter, Unit: "{renewal}",
		Description: "Renewals, one per lease and attempt, by what they came to.",
		Labels:      []Label{groupLabel, {KeyOutcome, renewalOutcomes}},
	}
	MetricLate = Metric{
		Name: "lockdog.renewals.late", Prometheus: "lockdog_renewals_late_total", Kind: Counter, Unit: "{renewal}",
		Description: "Renewals, failures and losses that came when over 0.8 of the lease was used up.",
		Labels:      []Label{groupLabel},
	}
	MetricUtilization = Metric{
		Name: "lockdog.lease.utilization", Prometheus: "lockdog_lease_utilization", Kind: Histogram, Unit: "1",
		Description: "Time since the last confirmed renewal over the lease, at each outcome: the safety margin used up.",
		Buckets:     utilizationBuckets,
		Labels:      []Label{groupLabel},
	}
	MetricWorstUtilization = Metric{
		Name: "lockdog.lease.utilization.worst", Prometheus: "lockdog_lease_utilization_worst_ratio", Kind: Gauge, Unit: "1",
		Description: "Time since the last confirmed renewal over the lease, the worst of all live leases that are renewed; 0 when there are none.",
		Labels:      []Label{groupLabel},
	}
	MetricLosses = Metric{
		Name: "lockdog.losses", Prometheus: "lockdog_losses_total", Kind: Counter, Unit: "{lock}",
		Description: "Leases lost while somebody relied on them, by cause.",
		Labels:      []Label{groupLabel, {KeyCause, lossCauses}},
	}
	MetricMembersLost = Metric{
		Name: "lockdog.members.lost", Prometheus: "lockdog_members_lost_total", Kind: Counter, Unit: "{lock}",
		Description: "Locks lost of one name of a Multi, or at one node of a Quorum, by cause; whether the whole was lost, lockdog.losses says.",
		Labels:      []Label{groupLabel, {KeyCause, lossCauses}},
	}
	MetricCancellations = Metric{
		Name: "lockdog.cancellations", Prometheus: "lockdog_cancellations_total", Kind: Counter, Unit: "{cancellation}",
		Description: "Leases ended by their own side before the release, by reason.",
		Labels:      []Label{groupLabel, {KeyReason, cancelReasons}},
	}
	MetricReleases = Metric{
		Name: "lockdog.releases", Prometheus: "lockdog_releases_total", Kind: Counter, Unit: "{release}",
		Description: "Releases, by what they came to.",
		Labels:      []Label{groupLabel, {KeyOutcome, releaseOutcomes}},
	}
	MetricReleaseDuration = Metric{
		Name: "lockdog.release.duration", Prometheus: "lockdog_release_duration_seconds", Kind: Histogram, Unit: "s",
		Description: "Time a release took.",
		Buckets:     durationBuckets,
		Labels:      []Label{groupLabel},
	}
	MetricForced = Metric{
		Name: "lockdog.force_unlocks", Prometheus: "lockdog_force_unlocks_total", Kind: Counter, Unit: "{lock}",
		Description: "Locks that ForceUnlock took away from their holders, counted where it was called.",
		Labels:      []Label{groupLabel},
	}
	MetricErrors = Metric{
		Name: "lockdog.errors", Prometheus: "lockdog_errors_total", Kind: Counter, Unit: "{error}",
		Description: "Calls to Redis that failed, by operation and kind of error.",
		Labels:      []Label{{KeyOperation, operations}, {KeyErrorType, errorTypes}},
	}
	MetricScheduleLag = Metric{
		Name: "lockdog.watchdog.schedule.lag", Prometheus: "lockdog_watchdog_schedule_lag_seconds", Kind: Histogram, Unit: "s",
		Description: "How late a renewal call went out after it was due.",
		Buckets:     durationBuckets,
	}
	MetricBatchSize = Metric{
		Name: "lockdog.watchdog.batch.size", Prometheus: "lockdog_watchdog_batch_size", Kind: Histogram, Unit: "{lock}",
		Description: "Leases renewed by one call.",
		Buckets:     batchBuckets,
	}
	MetricBatchDuration = Metric{
		Name: "lockdog.watchdog.batch.duration", Prometheus: "lockdog_watchdog_batch_duration_seconds", Kind: Histogram, Unit: "s",
		Description: "Time a renewal call took.",
		Buckets:     durationBuckets,
		Labels:      []Label{{KeyOutcome, batchOutcomes}},
	}
	MetricWatchdogLeases = Metric{
		Name: "lockdog.watchdog.leases", Prometheus: "lockdog_watchdog_leases", Kind: UpDownCounter, Unit: "{lock}",
		Description: "Leases the watchdog looks after.",
	}
	MetricTickAge = Metric{
		Name: "lockdog.watchdog.tick.age", Prometheus: "lockdog_watchdog_tick_age_seconds", Kind: Gauge, Unit: "s",
		Description: "Time since the watchdog last finished a pass, the worst of all clients; absent without leases.",
	}
	MetricPubSubConnected = Metric{
		Name: "lockdog.pubsub.connected", Prometheus: "lockdog_pubsub_connected", Kind: Gauge, Unit: "{connection}",
		Description: "1 while the subscription for wake-ups stands, else 0, the worst of all clients; absent while none is wanted.",
	}
	MetricPubSubReconnects = Metric{
		Name: "lockdog.pubsub.reconnects", Prometheus: "lockdog_pubsub_reconnects_total", Kind: Counter, Unit: "{reconnect}",
		Description: "Times the subscription for wake-ups had to be made anew.",
	}
	MetricCommands = Metric{
		Name: "lockdog.redis.commands", Prometheus: "lockdog_redis_commands_total", Kind: Counter, Unit: "{command}",
		Description: "Commands sent, as Redis receives them, by what for; one that carries several operations by its first.",
		Labels:      []Label{{KeyPurpose, purposes}},
	}
)

// Metrics lists every instrument. Read only.
var Metrics = []Metric{
	MetricAcquisitions, MetricAcquireDuration, MetricWaiting, MetricWakeups, MetricTakeovers,
	MetricHeld, MetricHoldDuration, MetricOldestAge, MetricFailing,
	MetricRenewals, MetricLate, MetricUtilization, MetricWorstUtilization, MetricLosses, MetricMembersLost,
	MetricCancellations,
	MetricReleases, MetricReleaseDuration, MetricForced,
	MetricErrors, MetricScheduleLag, MetricBatchSize, MetricBatchDuration, MetricWatchdogLeases, MetricTickAge,
	MetricPubSubConnected, MetricPubSubReconnects, MetricCommands,
}
