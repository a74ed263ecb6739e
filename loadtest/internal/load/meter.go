package load

import (
	"context"
	"fmt"
	"runtime"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/lockdog/lockdog/loadtest/internal/fleet"
	"github.com/lockdog/lockdog/loadtest/internal/hist"
	"github.com/lockdog/lockdog/telemetry"
)

// The histograms that are read have exponential buckets, which are 1 to 5 % wide for all values.
const (
	histBuckets = 320
	histScale   = 20
)

// counted has the counters that are read, and the attribute by whose values they are counted.
var counted = map[string]attribute.Key{
	Renewals: telemetry.KeyOutcome, Calls: telemetry.KeyPurpose, Losses: telemetry.KeyCause, Late: "",
}

// meter is the OpenTelemetry SDK with a manual reader. Each reading starts at zero.
type meter struct {
	reader   *sdk.ManualReader
	provider *sdk.MeterProvider
	cpu      time.Duration
}

func newMeter() *meter {
	reader := sdk.NewManualReader(sdk.WithTemporalitySelector(sdk.DeltaTemporalitySelector))
	var views []sdk.View
	for _, name := range []string{Batch, Lag, Utilization} {
		views = append(views, sdk.NewView(sdk.Instrument{Name: name},
			sdk.Stream{
				Aggregation: sdk.AggregationBase2ExponentialHistogram{MaxSize: histBuckets, MaxScale: histScale},
			}))
	}
	return &meter{
		reader: reader, provider: sdk.NewMeterProvider(sdk.WithReader(reader), sdk.WithView(views...)),
		cpu: fleet.CPUTime(),
	}
}

// histogram makes an instrument for modes other than lockdog's.
func (m *meter) histogram(name string) metric.Float64Histogram {
	h, _ := m.provider.Meter("loadtest").Float64Histogram(name) // an error is about the name
	return h
}

// counter returns a function that counts one event with that value of the counter's attribute.
func (m *meter) counter(name, value string) func(context.Context) {
	c, _ := m.provider.Meter("loadtest").Int64Counter(name)
	opt := metric.WithAttributeSet(attribute.NewSet(counted[name].String(value)))
	return func(ctx context.Context) { c.Add(ctx, 1, opt) }
}

// read reports what was recorded since the last call of read.
func (m *meter) read(ctx context.Context) (Reading, error) {
	var data metricdata.ResourceMetrics
	if err := m.reader.Collect(ctx, &data); err != nil {
		return Reading{}, fmt.Errorf("collect metrics: %w", err)
	}
	now := fleet.CPUTime()
	r := Reading{
		CPU: (now - m.cpu).Seconds(), Goroutines: runtime.NumGoroutine(),
		Counts: make(map[string]int64), Times: make(map[string]hist.Hist),
	}
	m.cpu = now
	for _, scope := range data.ScopeMetrics {
		for _, one := range scope.Metrics {
			switch d := one.Data.(type) {
			case metricdata.Sum[int64]:
				key, ok := counted[one.Name]
				for _, p := range d.DataPoints {
					if value, _ := p.Attributes.Value(key); ok && p.Value != 0 {
						r.Counts[one.Name+"/"+value.AsString()] += p.Value
					}
				}
			case metricdata.ExponentialHistogram[float64]:
				h := r.Times[one.Name]
				for _, p := range d.DataPoints {
					h.AddExponential(p)
				}
				r.Times[one.Name] = h
			}
		}
	}
	return r, nil
}
