package figures_test

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/lockdog/lockdog/loadtest/peers/internal/figures"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Quantiles differ from the exact ones by half a bin, 0.2 %, at most; also after a journey as JSON, and merged.
func TestQuantile(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	var one, two figures.Hist
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
	var read figures.Hist
	if err := json.Unmarshal(text, &read); err != nil {
		t.Fatal(err)
	}
	one.Merge(read)
	slices.Sort(all)
	if one.Count() != int64(len(all)) || one.Max() != all[len(all)-1] {
		t.Errorf("%d, at most %v; want %d, %v", one.Count(), one.Max(), len(all), all[len(all)-1])
	}
	for _, q := range []float64{0, .001, .25, .5, .9, .99, .9999, 1} {
		want := all[max(int(math.Ceil(q*float64(len(all))))-1, 0)]
		if got := one.Quantile(q); math.Abs(float64(got-want)) > .002*float64(want)+1 {
			t.Errorf("quantile %v: %v, want %v", q, got, want)
		}
	}
}

func TestHistEdges(t *testing.T) {
	t.Parallel()
	var h figures.Hist
	if h.Quantile(.5) != 0 || h.Max() != 0 || h.Count() != 0 {
		t.Error("an empty one has something")
	}
	h.Add(-time.Second) // a clock that stepped
	h.Add(math.MaxInt64)
	if h.Quantile(.5) != 0 || h.Quantile(1) < math.MaxInt64/1000*996 || h.Count() != 2 {
		t.Errorf("%v, %v, %d", h.Quantile(.5), h.Quantile(1), h.Count())
	}
	var small figures.Hist
	small.Add(time.Millisecond)
	small.Merge(h)
	if small.Max() != math.MaxInt64 || small.Count() != 3 {
		t.Errorf("merged: at most %v, %d", small.Max(), small.Count())
	}
	if json.Unmarshal([]byte(`{"bins":[1,2],"counts":[1]}`), &h) == nil {
		t.Error("accepted bins without counts")
	}
}

func TestMedian(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		values []float64
		want   float64
		known  bool
	}{
		{nil, 0, false},
		{[]float64{7}, 7, true},
		{[]float64{9, 1}, 5, true},
		{[]float64{100, 1, 3}, 3, true},
		{[]float64{4, 1, 3, 100}, 3.5, true},
	} {
		got, known := figures.Median(c.values)
		if got != c.want || known != c.known {
			t.Errorf("%v: %v %v", c.values, got, known)
		}
	}
}
