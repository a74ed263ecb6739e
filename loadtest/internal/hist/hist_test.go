package hist_test

import (
	"context"
	"encoding/json"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	sdk "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.uber.org/goleak"

	"github.com/lockdog/lockdog/loadtest/internal/hist"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestHist_QuantilesOfExponential compares them with the exact ones, of values that came through two histograms of different scales.
func TestHist_QuantilesOfExponential(t *testing.T) {
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
		h.AddExponential(p)
	}
	if h.Count() != 20_000 {
		t.Fatalf("%d values", h.Count())
	}
	for _, q := range []float64{.01, .5, .9, .99, .999, 1} {
		exact := values[max(int(q*20_000)-1, 0)]
		if got := h.Quantile(q).Seconds(); math.Abs(got-exact) > .03*exact {
			t.Errorf("q %v: %v, exactly %v", q, got, exact)
		}
	}
	if got := h.Quantile(1).Seconds(); got > values[len(values)-1] {
		t.Errorf("%v is more than the largest value", got)
	}
}

// TestHist_AddExponential: the extremes that a data point tells bound all quantiles.
func TestHist_AddExponential(t *testing.T) {
	t.Parallel()
	var h hist.Hist
	if got := h.Quantile(.5); got != 0 {
		t.Errorf("of nothing: %v", got)
	}
	h.AddExponential(metricdata.ExponentialHistogramDataPoint[float64]{ZeroCount: 3})
	if h.Count() != 3 || h.Quantile(.99) != 0 {
		t.Errorf("of zeros: %d, %v", h.Count(), h.Quantile(.99))
	}
	h.AddExponential(metricdata.ExponentialHistogramDataPoint[float64]{ // from 16 to 32, but 20 at most
		Min: metricdata.NewExtrema(20.), Max: metricdata.NewExtrema(20.),
		PositiveBucket: metricdata.ExponentialBucket{Offset: 4, Counts: []uint64{1}},
	})
	if got := h.Quantile(.75); got != 0 {
		t.Errorf("three of four are 0, not %v", got)
	}
	if got := h.Quantile(1); got != 20*time.Second {
		t.Errorf("the largest is 20 s, not %v", got)
	}
}

// TestHist_Quantile: they differ from the exact ones by 0.2 %, at most; also after a journey as JSON, and merged.
func TestHist_Quantile(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	var one, two hist.Hist
	var all []time.Duration
	for i := range 100_000 {
		d := time.Duration(math.Exp(rng.Float64() * 25)) // 1 ns to 72 s
		all = append(all, d)
		if i%3 == 0 {
			one.Add(d)
		} else {
			two.Add(d)
		}
	}
	text, err := json.Marshal(two)
	if err != nil {
		t.Fatal(err)
	}
	var read hist.Hist
	if err := json.Unmarshal(text, &read); err != nil {
		t.Fatal(err)
	}
	one.Merge(read)
	slices.Sort(all)
	if one.Count() != int64(len(all)) || one.Most != all[len(all)-1] {
		t.Errorf("%d, at most %v; want %d, %v", one.Count(), one.Most, len(all), all[len(all)-1])
	}
	for _, q := range []float64{0, .001, .25, .5, .9, .99, .9999, 1} {
		want := all[max(int(math.Ceil(q*float64(len(all))))-1, 0)]
		if got := one.Quantile(q); math.Abs(float64(got-want)) > .002*float64(want)+1 {
			t.Errorf("quantile %v: %v, want %v", q, got, want)
		}
	}
}

func TestHist_Edges(t *testing.T) {
	t.Parallel()
	var h hist.Hist
	if h.Quantile(.5) != 0 || h.Most != 0 || h.Count() != 0 {
		t.Error("an empty one has something")
	}
	h.Add(-time.Second) // a clock that stepped
	h.Add(math.MaxInt64)
	if h.Quantile(.5) != 0 || h.Quantile(1) < math.MaxInt64/1000*996 || h.Count() != 2 {
		t.Errorf("%v, %v, %d", h.Quantile(.5), h.Quantile(1), h.Count())
	}
	var small hist.Hist
	small.Add(time.Millisecond)
	small.Merge(h)
	if small.Most != math.MaxInt64 || small.Count() != 3 {
		t.Errorf("merged: at most %v, %d", small.Most, small.Count())
	}
	if text, err := json.Marshal(hist.Hist{}); err != nil || json.Unmarshal(text, &h) != nil || h.Count() != 0 {
		t.Errorf("of an empty one: %s, %v", text, err)
	}
}
