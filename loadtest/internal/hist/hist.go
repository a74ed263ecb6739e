// Package hist counts durations in HDR histograms that child processes send as JSON and their parent merges.
package hist

import (
	"encoding/json"
	"math"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
)

const digits = 3 // significant ones: a quantile is at most 0.1 % too large

// Hist counts durations. The zero value is empty and ready to use.
type Hist struct {
	bins *hdrhistogram.Histogram // in ns; nil while empty
	most time.Duration           // exact
}

// Add counts a duration. A negative one, of a clock that stepped, counts as 0.
func (h *Hist) Add(d time.Duration) { h.add(d, 1) }

func (h *Hist) add(d time.Duration, n int64) {
	if h.bins == nil {
		h.bins = hdrhistogram.New(1, math.MaxInt64, digits)
	}
	d = max(d, 0)
	_ = h.bins.RecordValues(int64(d), n) // the range has every duration
	h.most = max(h.most, d)
}

// AddExponential adds a data point of an OpenTelemetry histogram, in seconds. Its buckets are a few percent wide; each value
// counts as the middle of its bucket.
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
	if ok && h.bins != nil {
		h.most = max(h.most, seconds(most))
	}
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// Merge adds what another has counted.
func (h *Hist) Merge(o Hist) {
	if o.bins == nil {
		return
	}
	h.add(o.most, 0)
	h.bins.Merge(o.bins)
}

// Count is the number of durations.
func (h *Hist) Count() int64 {
	if h.bins == nil {
		return 0
	}
	return h.bins.TotalCount()
}

// Max is the longest duration.
func (h *Hist) Max() time.Duration { return h.most }

// Quantile is the duration that a share q of all does not exceed; 0 of none.
func (h *Hist) Quantile(q float64) time.Duration {
	if h.bins == nil || q >= 1 {
		return h.most
	}
	return min(time.Duration(h.bins.ValueAtQuantile(100*q)), h.most)
}

// message is a Hist in JSON.
type message struct {
	Bins string        `json:"bins"` // in the format of HdrHistogram, base64
	Most time.Duration `json:"max_ns"`
}

// MarshalJSON implements json.Marshaler.
func (h Hist) MarshalJSON() ([]byte, error) {
	if h.bins == nil {
		return []byte("null"), nil
	}
	bins, err := h.bins.Encode(hdrhistogram.V2CompressedEncodingCookieBase)
	if err != nil {
		return nil, err
	}
	return json.Marshal(message{string(bins), h.most})
}

// UnmarshalJSON implements json.Unmarshaler.
func (h *Hist) UnmarshalJSON(b []byte) error {
	*h = Hist{}
	if string(b) == "null" {
		return nil
	}
	var m message
	if err := json.Unmarshal(b, &m); err != nil {
		return err
	}
	bins, err := hdrhistogram.Decode([]byte(m.Bins))
	if err != nil {
		return err
	}
	h.bins, h.most = bins, m.Most
	return nil
}
