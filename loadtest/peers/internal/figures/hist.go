// Package figures computes what the comparison shows: quantiles, medians of rounds, ratios of medians, and whether targets are met.
package figures

import (
	"encoding/json"
	"fmt"
	"math/bits"
	"slices"
	"time"
)

// Hist counts durations in bins of at most 0.4 % of their value, so that those of several processes can be merged.
type Hist struct {
	bins []uint32
	n    int64
	most time.Duration
}

// A bin's number is the exponent of the duration in ns and the binBits bits after its first one.
const binBits = 8

// Add counts a duration.
func (h *Hist) Add(d time.Duration) {
	d = max(d, 0)
	h.add(binOf(d), 1)
	h.most = max(h.most, d)
}

func (h *Hist) add(bin int, n uint32) {
	if bin >= len(h.bins) {
		h.bins = append(h.bins, make([]uint32, bin+1-len(h.bins))...)
	}
	h.bins[bin] += n
	h.n += int64(n)
}

func binOf(d time.Duration) int {
	v := uint64(d)
	shift := max(bits.Len64(v)-1-binBits, 0) // below 512 ns each has a bin of its own
	return shift<<binBits + int(v>>shift)
}

// middle of a bin.
func middle(bin int) time.Duration {
	shift := max(bin>>binBits-1, 0)
	low := uint64(bin-shift<<binBits) << shift
	return time.Duration(low + 1<<shift/2)
}

// Merge adds what another has counted.
func (h *Hist) Merge(o Hist) {
	for bin, n := range o.bins {
		if n > 0 {
			h.add(bin, n)
		}
	}
	h.most = max(h.most, o.most)
}

// Count is how many there are.
func (h *Hist) Count() int64 { return h.n }

// Max is the longest; exact.
func (h *Hist) Max() time.Duration { return h.most }

// Quantile is the duration that a share q of all doesn't exceed, 0 when there are none.
func (h *Hist) Quantile(q float64) time.Duration {
	rank := max(q*float64(h.n), 1)
	seen := int64(0)
	for bin, n := range h.bins {
		if seen += int64(n); n > 0 && float64(seen) >= rank {
			return min(middle(bin), h.most)
		}
	}
	return h.most
}

// histJSON is a Hist on its way between processes: numbers of bins, and their counts.
type histJSON struct {
	Bins   []int         `json:"bins"`
	Counts []uint32      `json:"counts"`
	Max    time.Duration `json:"max_ns"`
}

// MarshalJSON implements json.Marshaler.
func (h Hist) MarshalJSON() ([]byte, error) {
	out := histJSON{Max: h.most}
	for bin, n := range h.bins {
		if n > 0 {
			out.Bins, out.Counts = append(out.Bins, bin), append(out.Counts, n)
		}
	}
	return json.Marshal(out)
}

// UnmarshalJSON implements json.Unmarshaler.
func (h *Hist) UnmarshalJSON(b []byte) error {
	var in histJSON
	if err := json.Unmarshal(b, &in); err != nil {
		return err
	}
	if len(in.Bins) != len(in.Counts) {
		return fmt.Errorf("%d bins, %d counts", len(in.Bins), len(in.Counts))
	}
	*h = Hist{most: in.Max}
	for i, bin := range in.Bins {
		h.add(bin, in.Counts[i])
	}
	return nil
}

// Median of some numbers; of none, false.
func Median(values []float64) (float64, bool) {
	if len(values) == 0 {
		return 0, false
	}
	v := slices.Sorted(slices.Values(values))
	mid := len(v) / 2
	if len(v)%2 == 1 {
		return v[mid], true
	}
	return (v[mid-1] + v[mid]) / 2, true
}
