package telemetry

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
)

// instruments are a recorder's synchronous instruments. The SDK gives the same instruments to all recorders of a
// MeterProvider, so that their counts are added.
type instruments struct {
	acquisitions   metric.Int64Counter
	acquireTime    metric.Float64Histogram
	waiting        metric.Int64UpDownCounter
	wakeups        metric.Int64Counter
	takeovers      metric.Int64Counter
	deadlocks      metric.Int64Counter
	held           metric.Int64UpDownCounter
	holdTime       metric.Float64Histogram
	renewals       metric.Int64Counter
	late           metric.Int64Counter
	utilization    metric.Float64Histogram
	losses         metric.Int64Counter
	membersLost    metric.Int64Counter
	cancellations  metric.Int64Counter
	releases       metric.Int64Counter
	releaseTime    metric.Float64Histogram
	forced         metric.Int64Counter
	errors         metric.Int64Counter
	scheduleLag    metric.Float64Histogram
	batchSize      metric.Int64Histogram
	batchTime      metric.Float64Histogram
	watchdogLeases metric.Int64UpDownCounter
	reconnects     metric.Int64Counter
	commands       metric.Int64Counter

	errorSets   map[Operation]sets
	commandSets sets
	batchSets   sets
}

func meterOf(p metric.MeterProvider) metric.Meter {
	return p.Meter(ScopeName, metric.WithInstrumentationVersion(Version), metric.WithSchemaURL(semconv.SchemaURL))
}

func newInstruments(meter metric.Meter) (*instruments, error) {
	var b builder
	i := &instruments{
		acquisitions:   build(&b, MetricAcquisitions, meter.Int64Counter),
		acquireTime:    build(&b, MetricAcquireDuration, meter.Float64Histogram),
		waiting:        build(&b, MetricWaiting, meter.Int64UpDownCounter),
		wakeups:        build(&b, MetricWakeups, meter.Int64Counter),
		takeovers:      build(&b, MetricTakeovers, meter.Int64Counter),
		deadlocks:      build(&b, MetricDeadlocks, meter.Int64Counter),
		held:           build(&b, MetricHeld, meter.Int64UpDownCounter),
		holdTime:       build(&b, MetricHoldDuration, meter.Float64Histogram),
		renewals:       build(&b, MetricRenewals, meter.Int64Counter),
		late:           build(&b, MetricLate, meter.Int64Counter),
		utilization:    build(&b, MetricUtilization, meter.Float64Histogram),
		losses:         build(&b, MetricLosses, meter.Int64Counter),
		membersLost:    build(&b, MetricMembersLost, meter.Int64Counter),
		cancellations:  build(&b, MetricCancellations, meter.Int64Counter),
		releases:       build(&b, MetricReleases, meter.Int64Counter),
		releaseTime:    build(&b, MetricReleaseDuration, meter.Float64Histogram),
		forced:         build(&b, MetricForced, meter.Int64Counter),
		errors:         build(&b, MetricErrors, meter.Int64Counter),
		scheduleLag:    build(&b, MetricScheduleLag, meter.Float64Histogram),
		batchSize:      build(&b, MetricBatchSize, meter.Int64Histogram),
		batchTime:      build(&b, MetricBatchDuration, meter.Float64Histogram),
		watchdogLeases: build(&b, MetricWatchdogLeases, meter.Int64UpDownCounter),
		reconnects:     build(&b, MetricPubSubReconnects, meter.Int64Counter),
		commands:       build(&b, MetricCommands, meter.Int64Counter),

		errorSets:   map[Operation]sets{},
		commandSets: newSets(MetricCommands.Labels[0]),
		batchSets:   newSets(MetricBatchDuration.Labels[0]),
	}
	op, errorType := MetricErrors.Labels[0], MetricErrors.Labels[1]
	for _, v := range op.Values {
		i.errorSets[Operation(v)] = newSets(errorType, op.Key.String(v))
	}
	return i, b.err
}

// builder collects the errors of build.
type builder struct{ err error }

// build makes the instrument that m describes, by a method of the meter.
func build[I, O any](b *builder, m Metric, create func(string, ...O) (I, error)) I {
	opts := []any{metric.WithUnit(m.Unit), metric.WithDescription(m.Description)}
	if m.Buckets != nil {
		opts = append(opts, metric.WithExplicitBucketBoundaries(m.Buckets...))
	}
	var own []O
	for _, o := range opts {
		own = append(own, o.(O))
	}
	i, err := create(m.Name, own...)
	b.err = errors.Join(b.err, err)
	return i
}

// set is an attribute set in the form of options. It is built once, because building it takes four allocations and
// 750 ns.
type set struct {
	add    []metric.AddOption
	record []metric.RecordOption
}

func newSet(attrs ...attribute.KeyValue) set {
	o := metric.WithAttributeSet(attribute.NewSet(attrs...))
	return set{[]metric.AddOption{o}, []metric.RecordOption{o}}
}

// sets are the attribute sets of a metric, one for each value of a label.
type sets []labeledSet

type labeledSet struct {
	value string
	set
}

func newSets(l Label, base ...attribute.KeyValue) sets {
	var all sets
	for _, v := range l.Values {
		all = append(all, labeledSet{v, newSet(append(slices.Clip(base), l.Key.String(v))...)})
	}
	return all
}

// at returns the set for a value; the last set for a value that isn't in the list.
func at[V ~string](all sets, value V) *set {
	i := 0
	for i < len(all)-1 && all[i].value != string(value) {
		i++
	}
	return &all[i].set
}

// upDown is a counter of things that exist now. It keeps what was counted without an SDK: otherwise a lock that was
// taken before the program installed its SDK would be shown as not held, and as held -1 times after its release.
type upDown struct {
	counter metric.Int64UpDownCounter
	pending atomic.Int64 // counted without an SDK
}

func (u *upDown) add(ctx context.Context, delta int64, opts []metric.AddOption) {
	if !u.counter.Enabled(ctx) {
		u.pending.Add(delta)
		return
	}
	if u.pending.Load() != 0 {
		delta += u.pending.Swap(0)
	}
	u.counter.Add(ctx, delta, opts...)
}

// settle adds what is pending to the counter, if there is an SDK now.
func (u *upDown) settle(ctx context.Context, opts []metric.AddOption) {
	if u.pending.Load() != 0 {
		u.add(ctx, 0, opts)
	}
}
