// Package hist has histograms of durations. Child processes send them as JSON to their parent, which merges them.
package hist

import (
	"maps"
	"math"
	"slices"
	"time"

	"go.opentelemetry.io/otel/sdk/metric/metricdata"
)

// width is the width of a bin relative to its values. So the error of a quantile is at most half of that, except for
// values of AddExponential.
const width = 0.001

// Hist counts durations. The zero value is empty and ready to use.
type Hist struct {
	Bins map[int]int64 `json:"bins"`   // counts by log(duration in ns) / width, rounded down; -1: zero duration
	Most time.Duration `json:"max_ns"` // exact
}

// Add counts a duration. A negative duration, from a clock that stepped, counts as 0.
func (h *Hist) Add(d time.Duration) { h.add(d, 1) }

func (h *Hist) add(d time.Duration, n int64) {
	if h.Bins == nil {
		h.Bins = make(map[int]int64)
	}
	bin := -1
	if d > 0 {
		bin = int(math.Log(float64(d)) / width)
	}
	h.Bins[bin] += n
	h.Most = max(h.Most, d)
}

// AddExponential adds a data point of an OpenTelemetry histogram in seconds. Its buckets are a few percent wide. Each
// value counts as the middle of its bucket, within the data point's minimum and maximum.
func (h *Hist) AddExponential(p metricdata.ExponentialHistogramDataPoint[float64]) {
	if p.ZeroCount > 0 {
		h.add(0, int64(p.ZeroCount))
	}
	least, _ := p.Min.Value()
	most, ok := p.Max.Value()
	if !ok {
		most = math.Inf(1)
	}
	base := math.Exp2(math.Exp2(-float64(p.Scale)))
	for i, n := range p.PositiveBucket.Counts {
		if n > 0 {
			middle := math.Pow(base, float64(int(p.PositiveBucket.Offset)+i)+.5)
			h.add(seconds(min(max(middle, least), most)), int64(n))
		}
	}
	if ok {
		h.Most = max(h.Most, seconds(most))
	}
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// Merge adds the counts of another histogram.
func (h *Hist) Merge(o Hist) {
	if h.Bins == nil {
		h.Bins = make(map[int]int64)
	}
	for bin, n := range o.Bins {
		h.Bins[bin] += n
	}
	h.Most = max(h.Most, o.Most)
}

// Count returns the number of durations.
func (h *Hist) Count() (n int64) {
	for _, k := range h.Bins {
		n += k
	}
	return n
}

// Quantile returns the duration that a share q of all durations doesn't exceed. It returns 0 if there are none.
func (h *Hist) Quantile(q float64) time.Duration {
	rank := max(int64(math.Ceil(q*float64(h.Count()))), 1)
	for _, bin := range slices.Sorted(maps.Keys(h.Bins)) {
		if rank -= h.Bins[bin]; rank > 0 {
			continue
		}
		if middle := math.Exp((float64(bin) + .5) * width); bin < 0 {
			return 0
		} else if q < 1 && middle < float64(h.Most) {
			return time.Duration(middle)
		}
		break
	}
	return h.Most
}
