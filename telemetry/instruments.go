package telemetry

import (
	"context"
	"errors"
	"sync/atomic"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// instruments are a recorder's synchronous instruments. The SDK gives the same ones to every recorder of a
// MeterProvider, so their counts add up.
type instruments struct {
	acquisitions   metric.Int64Counter
	acquireTime    metric.Float64Histogram
	waiting        metric.Int64UpDownCounter
	wakeups        metric.Int64Counter
	takeovers      metric.Int64Counter
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

	errorSets   [][][]metric.AddOption // by Operation, ErrorType
	commandSets [][]metric.AddOption   // by Purpose
	batchSets   [][]metric.RecordOption
}

func meterOf(p metric.MeterProvider) metric.Meter {
	return p.Meter(ScopeName, metric.WithInstrumentationVersion(Version), metric.WithSchemaURL(SchemaURL))
}

func newInstruments(meter metric.Meter) (*instruments, error) {
	b := builder{meter: meter}
	i := &instruments{
		acquisitions:   b.counter(MetricAcquisitions),
		acquireTime:    b.histogram(MetricAcquireDuration),
		waiting:        b.upDown(MetricWaiting),
		wakeups:        b.counter(MetricWakeups),
		takeovers:      b.counter(MetricTakeovers),
		held:           b.upDown(MetricHeld),
		holdTime:       b.histogram(MetricHoldDuration),
		renewals:       b.counter(MetricRenewals),
		late:           b.counter(MetricLate),
		utilization:    b.histogram(MetricUtilization),
		losses:         b.counter(MetricLosses),
		membersLost:    b.counter(MetricMembersLost),
		cancellations:  b.counter(MetricCancellations),
		releases:       b.counter(MetricReleases),
		releaseTime:    b.histogram(MetricReleaseDuration),
		forced:         b.counter(MetricForced),
		errors:         b.counter(MetricErrors),
		scheduleLag:    b.histogram(MetricScheduleLag),
		batchSize:      b.intHistogram(MetricBatchSize),
		batchTime:      b.histogram(MetricBatchDuration),
		watchdogLeases: b.upDown(MetricWatchdogLeases),
		reconnects:     b.counter(MetricPubSubReconnects),
		commands:       b.counter(MetricCommands),

		commandSets: addSets(nil, MetricCommands.Labels[0]),
		batchSets:   recordSets(nil, MetricBatchDuration.Labels[0]),
	}
	op, kind := MetricErrors.Labels[0], MetricErrors.Labels[1]
	for _, v := range op.Values {
		i.errorSets = append(i.errorSets, addSets([]attribute.KeyValue{op.Key.String(v)}, kind))
	}
	return i, errors.Join(b.errs...)
}

// builder makes instruments as their Metric describes them and keeps the errors for the end.
type builder struct {
	meter metric.Meter
	errs  []error
}

func (b *builder) keep(err error) {
	if err != nil {
		b.errs = append(b.errs, err)
	}
}

func (b *builder) counter(m Metric) metric.Int64Counter {
	i, err := b.meter.Int64Counter(m.Name, metric.WithUnit(m.Unit), metric.WithDescription(m.Description))
	b.keep(err)
	return i
}

func (b *builder) upDown(m Metric) metric.Int64UpDownCounter {
	i, err := b.meter.Int64UpDownCounter(m.Name, metric.WithUnit(m.Unit), metric.WithDescription(m.Description))
	b.keep(err)
	return i
}

func (b *builder) histogram(m Metric) metric.Float64Histogram {
	i, err := b.meter.Float64Histogram(m.Name, metric.WithUnit(m.Unit), metric.WithDescription(m.Description),
		metric.WithExplicitBucketBoundaries(m.Buckets...))
	b.keep(err)
	return i
}

func (b *builder) intHistogram(m Metric) metric.Int64Histogram {
	i, err := b.meter.Int64Histogram(m.Name, metric.WithUnit(m.Unit), metric.WithDescription(m.Description),
		metric.WithExplicitBucketBoundaries(m.Buckets...))
	b.keep(err)
	return i
}

func (b *builder) gauge(m Metric) metric.Float64ObservableGauge {
	i, err := b.meter.Float64ObservableGauge(m.Name, metric.WithUnit(m.Unit), metric.WithDescription(m.Description))
	b.keep(err)
	return i
}

// The options of a measurement are built once per attribute set: making them at each call costs four
// allocations and 750 ns.

func addSets(base []attribute.KeyValue, l Label) [][]metric.AddOption {
	return sets(base, l, func(o metric.MeasurementOption) metric.AddOption { return o })
}

func recordSets(base []attribute.KeyValue, l Label) [][]metric.RecordOption {
	return sets(base, l, func(o metric.MeasurementOption) metric.RecordOption { return o })
}

func sets[T any](base []attribute.KeyValue, l Label, as func(metric.MeasurementOption) T) [][]T {
	all := make([][]T, len(l.Values))
	for i, v := range l.Values {
		set := attribute.NewSet(append(base[:len(base):len(base)], l.Key.String(v))...)
		all[i] = []T{as(metric.WithAttributeSet(set))}
	}
	return all
}

// at picks the options for e. A value outside the list is counted as the last one, which is the list's worst.
func at[E ~uint8, T any](all [][]T, e E) []T {
	return all[min(int(e), len(all)-1)]
}

// upDown is a counter of things that are there now. It remembers what was counted while no SDK was there to
// count it: else a leader's lock, taken before the program installed its SDK, would show as not held for
// days, and as held -1 times after its release.
type upDown struct {
	counter metric.Int64UpDownCounter
	pending atomic.Int64
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

// settle reports what is pending, if it can be by now.
func (u *upDown) settle(ctx context.Context, opts []metric.AddOption) {
	if u.pending.Load() != 0 {
		u.add(ctx, 0, opts)
	}
}
