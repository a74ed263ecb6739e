// Package hist merges histograms of several processes and takes quantiles of them. They come from OpenTelemetry's exponential
// histograms, whose buckets are a few percent wide.
package hist

import (
	"cmp"
	"math"
	"slices"

	"go.opentelemetry.io/otel/sdk/metric/metricdata"
)

// Bin counts values from Low to High, which belongs to it.
type Bin struct {
	Low  float64 `json:"low"`
	High float64 `json:"high"`
	N    uint64  `json:"n"`
}

// Hist is a histogram; bins may be in any order, and overlap.
type Hist []Bin

// FromExponential reads a collected data point. Values are not negative.
func FromExponential(p metricdata.ExponentialHistogramDataPoint[float64]) Hist {
	h := make(Hist, 0, len(p.PositiveBucket.Counts)+1)
	if p.ZeroCount > 0 {
		h = append(h, Bin{N: p.ZeroCount})
	}
	lowest, hasLow := p.Min.Value()
	highest, hasHigh := p.Max.Value()
	base := math.Exp2(math.Exp2(-float64(p.Scale)))
	for i, n := range p.PositiveBucket.Counts {
		if n == 0 {
			continue
		}
		at := float64(int(p.PositiveBucket.Offset) + i)
		b := Bin{Low: math.Pow(base, at), High: math.Pow(base, at+1), N: n}
		// The extremes are known exactly; no quantile may lie beyond them.
		if hasLow {
			b.Low = max(b.Low, lowest)
		}
		if hasHigh {
			b.High = max(min(b.High, highest), b.Low)
		}
		h = append(h, b)
	}
	return h
}

// Count is the number of values.
func (h Hist) Count() (n uint64) {
	for _, b := range h {
		n += b.N
	}
	return n
}

// Quantile is the value that a share q of all values does not exceed, taken as evenly spread within a bin. It is 0 when there
// are none.
func (h Hist) Quantile(q float64) float64 {
	total := h.Count()
	if total == 0 {
		return 0
	}
	bins := slices.Clone(h)
	slices.SortFunc(bins, func(a, b Bin) int {
		return cmp.Or(cmp.Compare(a.High, b.High), cmp.Compare(a.Low, b.Low))
	})
	rank := q * float64(total)
	before := 0.0
	for _, b := range bins {
		if n := float64(b.N); before+n >= rank {
			return b.Low + (b.High-b.Low)*max(rank-before, 0)/n
		}
		before += float64(b.N)
	}
	return bins[len(bins)-1].High
}
