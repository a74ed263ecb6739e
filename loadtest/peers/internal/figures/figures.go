// Package figures computes what the comparison shows: medians of rounds, ratios of medians, and whether targets are met.
package figures

import "slices"

// Key names a figure.
type Key string

// The figures. An operation is a lock and its release, or a TryLock; a handoff is a grant to another goroutine than the
// last one's, or, where several processes share the lock, to another process.
const (
	P50        Key = "p50_us"         // of an operation; of the wait, where all want one lock
	P99        Key = "p99_us"         //
	Longest    Key = "longest_ms"     //
	Rate       Key = "ops_per_s"      //
	Handoffs   Key = "handoffs_per_s" //
	HandoffP50 Key = "handoff_p50_us" // from the release to the grant, where the next holder was waiting
	Commands   Key = "commands"       // that came to Redis over the network, per operation or handoff
	InLua      Key = "commands_lua"   // that scripts called
	Goroutines Key = "goroutines"     // most operations of a goroutine / least
	Processes  Key = "processes"      // most operations of a process / least
	Allocs     Key = "allocs"         // per operation, of the whole process
	Bytes      Key = "alloc_bytes"    //
	ClientCPU  Key = "client_cpu_us"  // per operation, of all processes
	RedisCPU   Key = "redis_cpu_us"   // per operation
	Overlaps   Key = "overlaps"       // grants while another held the lock
	ToldDel    Key = "told_del_ms"    // longest time until a holder was told that its lock was gone
	ToldFlush  Key = "told_flush_ms"
	ToldForce  Key = "told_force_ms"
	ToldNever  Key = "told_never" // how often it wasn't
	Stuck      Key = "stuck"      // waiters that nothing woke when the lock was free
	Unserved   Key = "unserved"   // callers without an operation in the window, or stuck after it
	RoundTrip  Key = "rtt_us"     // of a PING, as the clients are connected, while there is no other traffic
)

// Figures are those of one measurement. What wasn't measured is left out.
type Figures map[Key]float64

// Rounds are the measurements of one peer at one work, the first round's first.
type Rounds []Figures

// worst are the figures of which the worst round counts. Of the others the median does.
var worst = []Key{Overlaps, ToldDel, ToldFlush, ToldForce, ToldNever, Stuck, Unserved}

// values are those of all rounds.
func (r Rounds) values(k Key) []float64 {
	var v []float64
	for _, f := range r {
		if x, ok := f[k]; ok {
			v = append(v, x)
		}
	}
	return v
}

// Get is the figure of all rounds, false where it wasn't measured.
func (r Rounds) Get(k Key) (float64, bool) {
	v := r.values(k)
	if slices.Contains(worst, k) && len(v) > 0 {
		return slices.Max(v), true
	}
	return Median(v)
}

// Span is the least and the most of all rounds, false of fewer than two.
func (r Rounds) Span(k Key) (low, high float64, ok bool) {
	v := r.values(k)
	if len(v) < 2 {
		return 0, 0, false
	}
	return slices.Min(v), slices.Max(v), true
}

// Ratio is the most divided by the least.
func Ratio(counts []int64) float64 {
	return float64(slices.Max(counts)) / max(float64(slices.Min(counts)), 0.5) // one that got none: twice as bad as one
}

// Median of some numbers; of none, false.
func Median(values []float64) (float64, bool) {
	if len(values) == 0 {
		return 0, false
	}
	v := slices.Sorted(slices.Values(values))
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2, true
}
