package telemetry

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
)

// instruments are the instruments of a MeterProvider, by the names of their metrics. All but the gauges are looked up
// only once, when a recorder or a group is made.
type instruments struct {
	counters   map[string]metric.Int64Counter
	upDowns    map[string]metric.Int64UpDownCounter
	histograms map[string]metric.Float64Histogram
	gauges     map[string]metric.Float64ObservableGauge
	batchSize  metric.Int64Histogram
}

// notCounted are instruments that record nothing.
var notCounted, _ = newInstruments(noop.Meter{})

func meterOf(p metric.MeterProvider) metric.Meter {
	return p.Meter(ScopeName, metric.WithInstrumentationVersion(Version), metric.WithSchemaURL(semconv.SchemaURL))
}

// newInstruments makes the instruments that Metrics describes.
func newInstruments(meter metric.Meter) (*instruments, error) {
	i := &instruments{
		counters:   map[string]metric.Int64Counter{},
		upDowns:    map[string]metric.Int64UpDownCounter{},
		histograms: map[string]metric.Float64Histogram{},
		gauges:     map[string]metric.Float64ObservableGauge{},
	}
	var errs []error
	for _, m := range Metrics {
		unit, description := metric.WithUnit(m.Unit), metric.WithDescription(m.Description)
		buckets := metric.WithExplicitBucketBoundaries(m.Buckets...)
		var err error
		switch {
		case m.Kind == counter:
			i.counters[m.Name], err = meter.Int64Counter(m.Name, unit, description)
		case m.Kind == upDownCounter:
			i.upDowns[m.Name], err = meter.Int64UpDownCounter(m.Name, unit, description)
		case m.Kind == gauge:
			i.gauges[m.Name], err = meter.Float64ObservableGauge(m.Name, unit, description)
		case m.Name == MetricBatchSize.Name:
			i.batchSize, err = meter.Int64Histogram(m.Name, unit, description, buckets)
		default:
			i.histograms[m.Name], err = meter.Float64Histogram(m.Name, unit, description, buckets)
		}
		errs = append(errs, err)
	}
	return i, errors.Join(errs...)
}

// set is an attribute set in the form of options. It is built once, because building it takes four allocations and
// 750 ns.
type set struct {
	add     []metric.AddOption
	record  []metric.RecordOption
	observe []metric.ObserveOption
}

func newSet(attrs ...attribute.KeyValue) set {
	o := metric.WithAttributeSet(attribute.NewSet(attrs...))
	return set{[]metric.AddOption{o}, []metric.RecordOption{o}, []metric.ObserveOption{o}}
}

// sets are the attribute sets of a metric, one for each value of a label.
type sets []labeledSet

type labeledSet struct {
	value string
	set
}

// newSets returns the sets with base and each value of l. If l is the group, base has it already, and there is one set.
func newSets(l Label, base ...attribute.KeyValue) sets {
	if l.Key == KeyGroup {
		return sets{{set: newSet(base...)}}
	}
	var all sets
	for _, v := range l.Values {
		all = append(all, labeledSet{v, newSet(append(slices.Clip(base), l.Key.String(v))...)})
	}
	return all
}

// at returns the set for a value; the last set for a value that isn't in the list.
func (all sets) at(value string) *set {
	i := 0
	for i < len(all)-1 && all[i].value != value {
		i++
	}
	return &all[i].set
}

// counts is a counter with its attribute sets.
type counts struct {
	counter metric.Int64Counter
	sets    sets
}

// newCounts returns the counter of m with a set for each value of its last label. base has the values of its other
// labels, one of which may be the group. If the only label is the group, base has that.
func newCounts(i *instruments, m Metric, base ...attribute.KeyValue) counts {
	return counts{i.counters[m.Name], newSets(m.Labels[len(m.Labels)-1], base...)}
}

// inc counts one, for a value of the label; "" for a counter that has no label but the group.
func (c *counts) inc(ctx context.Context, value string) {
	c.counter.Add(ctx, 1, c.sets.at(value).add...)
}

// upDown is a counter of things that exist now. It keeps what was counted without an SDK: otherwise a lock that was
// taken before the program installed its SDK would be shown as not held, and as held -1 times after its release.
type upDown struct {
	counter metric.Int64UpDownCounter
	opts    []metric.AddOption
	pending atomic.Int64 // counted without an SDK
}

func (u *upDown) add(ctx context.Context, delta int64) {
	if !u.counter.Enabled(ctx) {
		u.pending.Add(delta)
		return
	}
	if u.pending.Load() != 0 {
		delta += u.pending.Swap(0)
	}
	u.counter.Add(ctx, delta, u.opts...)
}

// settle adds what is pending to the counter, if there is an SDK now.
func (u *upDown) settle(ctx context.Context) {
	if u.pending.Load() != 0 {
		u.add(ctx, 0)
	}
}
