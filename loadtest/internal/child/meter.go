package child

import (
	"context"
	"fmt"
	"runtime"
	"syscall"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/lockdog/lockdog/loadtest/internal/hist"
	"github.com/lockdog/lockdog/loadtest/internal/wire"
	"github.com/lockdog/lockdog/telemetry"
)

// metricLatency is the foreground's. All others are lockdog's own; the per-lock mode records into them, too.
const metricLatency = "loadtest.latency"

// The histograms that are read get exponential buckets in place of their own: these are 1 to 5 % wide, whatever the values.
const (
	histBuckets = 320
	histScale   = 20
)

var histograms = []string{
	telemetry.MetricBatchDuration.Name, telemetry.MetricScheduleLag.Name, telemetry.MetricUtilization.Name, metricLatency,
}

// meter is the OpenTelemetry SDK, read by hand. Each reading starts anew.
type meter struct {
	reader   *sdk.ManualReader
	provider *sdk.MeterProvider
	cpu      float64
}

func newMeter() (*meter, error) {
	reader := sdk.NewManualReader(sdk.WithTemporalitySelector(func(k sdk.InstrumentKind) metricdata.Temporality {
		if k == sdk.InstrumentKindUpDownCounter {
			return metricdata.CumulativeTemporality
		}
		return metricdata.DeltaTemporality
	}))
	var views []sdk.View
	for _, name := range histograms {
		views = append(views, sdk.NewView(sdk.Instrument{Name: name},
			sdk.Stream{Aggregation: sdk.AggregationBase2ExponentialHistogram{MaxSize: histBuckets, MaxScale: histScale}}))
	}
	m := &meter{reader: reader, provider: sdk.NewMeterProvider(sdk.WithReader(reader), sdk.WithView(views...))}
	m.cpu = cpuTime()
	return m, nil
}

// histogram makes one of the instruments that lockdog has, for who is not lockdog.
func (m *meter) histogram(name, unit string) (metric.Float64Histogram, error) {
	return m.provider.Meter("loadtest").Float64Histogram(name, metric.WithUnit(unit))
}

func (m *meter) counter(name string) (metric.Int64Counter, error) {
	return m.provider.Meter("loadtest").Int64Counter(name)
}

// read tells what was recorded since the last time.
func (m *meter) read(ctx context.Context) (*wire.Reading, error) {
	var data metricdata.ResourceMetrics
	if err := m.reader.Collect(ctx, &data); err != nil {
		return nil, fmt.Errorf("collect metrics: %w", err)
	}
	now := cpuTime()
	r := &wire.Reading{
		CPU: now - m.cpu, Goroutines: runtime.NumGoroutine(),
		Calls: make(map[string]int64), Losses: make(map[string]int64),
	}
	m.cpu = now
	for _, scope := range data.ScopeMetrics {
		for _, one := range scope.Metrics {
			switch d := one.Data.(type) {
			case metricdata.Sum[int64]:
				for _, p := range d.DataPoints {
					count(r, one.Name, p)
				}
			case metricdata.ExponentialHistogram[float64]:
				for _, p := range d.DataPoints {
					if h := histOf(r, one.Name); h != nil {
						*h = append(*h, hist.FromExponential(p)...)
					}
				}
			}
		}
	}
	return r, nil
}

func count(r *wire.Reading, name string, p metricdata.DataPoint[int64]) {
	value := func(key attribute.Key) string {
		v, _ := p.Attributes.Value(key)
		return v.AsString()
	}
	switch name {
	case telemetry.MetricHeld.Name:
		r.Held += int(p.Value)
	case telemetry.MetricRenewals.Name:
		switch telemetry.Outcome(value(telemetry.KeyOutcome)) {
		case telemetry.RenewalRenewed:
			r.Renewals += p.Value
		case telemetry.RenewalError:
			r.Failed += p.Value
		}
	case telemetry.MetricCommands.Name:
		r.Calls[value(telemetry.KeyPurpose)] += p.Value
	case telemetry.MetricLosses.Name:
		if p.Value > 0 {
			r.Losses[value(telemetry.KeyCause)] += p.Value
		}
	case metricSent:
		r.Sent += p.Value
	case metricErrors:
		r.Errors += p.Value
	}
}

func histOf(r *wire.Reading, name string) *hist.Hist {
	switch name {
	case telemetry.MetricBatchDuration.Name:
		return &r.Batch
	case telemetry.MetricScheduleLag.Name:
		return &r.Lag
	case telemetry.MetricUtilization.Name:
		return &r.Utilization
	case metricLatency:
		return &r.Latency
	}
	return nil
}

// weigh tells what memory live objects and stacks take.
func weigh() *wire.Weight {
	// Twice: what the first one finds dead but finalizable, the second one frees; and it shrinks stacks.
	runtime.GC()
	runtime.GC()
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	return &wire.Weight{Heap: int64(mem.HeapAlloc), Stacks: int64(mem.StackInuse), Goroutines: runtime.NumGoroutine()}
}

// cpuTime is what this process has used, in seconds.
func cpuTime() float64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0 // can't be, with these arguments
	}
	seconds := func(t syscall.Timeval) float64 { return float64(t.Sec) + float64(t.Usec)/1e6 }
	return seconds(u.Utime) + seconds(u.Stime)
}
