package hist_test

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.uber.org/goleak"

	"github.com/lockdog/lockdog/loadtest/internal/hist"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestQuantiles compares them with the exact ones, of values that came through two histograms of different scales.
func TestQuantiles(t *testing.T) {
	t.Parallel()
	reader := sdk.NewManualReader()
	provider := sdk.NewMeterProvider(sdk.WithReader(reader), sdk.WithView(sdk.NewView(sdk.Instrument{Name: "*"},
		sdk.Stream{Aggregation: sdk.AggregationBase2ExponentialHistogram{MaxSize: 640, MaxScale: 20}})))
	instrument, err := provider.Meter("test").Float64Histogram("latency")
	if err != nil {
		t.Fatal(err)
	}
	random := rand.New(rand.NewPCG(1, 2))
	var values []float64
	for i := range 20_000 {
		v := 0.001 * math.Exp(random.NormFloat64()*float64(1+i%2))
		values = append(values, v)
		instrument.Record(context.Background(), v, metric.WithAttributes(attribute.Int("half", i%2)))
	}
	slices.Sort(values)
	var data metricdata.ResourceMetrics
	if err := reader.Collect(context.Background(), &data); err != nil {
		t.Fatal(err)
	}
	var h hist.Hist
	for _, p := range data.ScopeMetrics[0].Metrics[0].Data.(metricdata.ExponentialHistogram[float64]).DataPoints {
		h = append(h, hist.FromExponential(p)...)
	}
	if h.Count() != 20_000 {
		t.Fatalf("%d values", h.Count())
	}
	for _, q := range []float64{.01, .5, .9, .99, .999, 1} {
		exact := values[max(int(q*20_000)-1, 0)]
		if got := h.Quantile(q); math.Abs(got-exact) > .03*exact {
			t.Errorf("q %v: %v, exactly %v", q, got, exact)
		}
	}
	if got := h.Quantile(1); got > values[len(values)-1] {
		t.Errorf("%v is more than the largest value", got)
	}
}

func TestEdges(t *testing.T) {
	t.Parallel()
	if got := (hist.Hist{}).Quantile(.5); got != 0 {
		t.Errorf("of nothing: %v", got)
	}
	zeros := hist.FromExponential(metricdata.ExponentialHistogramDataPoint[float64]{ZeroCount: 3})
	if zeros.Count() != 3 || zeros.Quantile(.99) != 0 {
		t.Errorf("of zeros: %v", zeros)
	}
	mixed := append(zeros, hist.Bin{Low: 10, High: 20, N: 1})
	if got := mixed.Quantile(.75); got != 0 {
		t.Errorf("three of four are 0, not %v", got)
	}
	if got := mixed.Quantile(1); got != 20 {
		t.Errorf("the largest is 20, not %v", got)
	}
}
