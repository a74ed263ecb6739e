// Package report is what the load test hands out: rows of figures, as a table, as JSON and as a page.
package report

import (
	"cmp"
	"encoding/json"
	"math"
	"reflect"
	"slices"
)

// Figure is a number that may be missing: NaN, in JSON null.
type Figure float64

// None is a Figure that is missing.
func None() Figure { return Figure(math.NaN()) }

// Known reports whether there is a number.
func (f Figure) Known() bool { return !math.IsNaN(float64(f)) && !math.IsInf(float64(f), 0) }

// MarshalJSON implements json.Marshaler. Six digits are more than was measured.
func (f Figure) MarshalJSON() ([]byte, error) {
	if !f.Known() {
		return []byte("null"), nil
	}
	if f == 0 {
		return []byte("0"), nil
	}
	scale := math.Pow(10, 5-math.Floor(math.Log10(math.Abs(float64(f)))))
	return json.Marshal(math.Round(float64(f)*scale) / scale)
}

// UnmarshalJSON implements json.Unmarshaler.
func (f *Figure) UnmarshalJSON(b []byte) error {
	if string(b) == "null" {
		*f = None()
		return nil
	}
	return json.Unmarshal(b, (*float64)(f))
}

// Row is what was measured in one mode with one number of locks. What is said to be added is less what the run without renewal took, in
// the same round. Of several rounds it has the medians, but where the tag says otherwise.
type Row struct {
	Mode     string  `json:"mode"`
	Stage    string  `json:"stage,omitempty"` // of a wave or a soak
	Locks    int     `json:"locks"`
	Clients  int     `json:"clients"`
	Rounds   int     `json:"rounds"`
	Window   Figure  `json:"window_s"`
	Interval float64 `json:"interval_s"` // from renewal to renewal

	// Calls to Redis, per second.
	Predicted Figure `json:"predicted_calls_per_s"`
	Calls     Figure `json:"calls_per_s"`    // scripts received
	Received  Figure `json:"received_per_s"` // all commands received, those of new connections too
	Own       Figure `json:"own_per_s"`      // as the clients' own metrics count them, new connections left out
	InLua     Figure `json:"lua_per_s"`      // commands called by scripts
	Peak      Figure `json:"peak_100ms" over:"max"`

	// What they cost Redis.
	RedisCPU         Figure `json:"redis_cpu_percent"`                 // of one core, the whole process, added
	RedisPerRenewal  Figure `json:"redis_cpu_us_per_renewal"`          // the whole process, added
	ScriptPerRenewal Figure `json:"redis_script_us_per_renewal"`       // in scripts only
	NetIn            Figure `json:"net_in_bytes_per_s"`                // added
	NetOut           Figure `json:"net_out_bytes_per_s"`               // added
	Renewals         Figure `json:"renewals_per_s"`                    // locks renewed
	Late             Figure `json:"late_renewals" over:"sum"`          // that found over 0.8 of the lease used up
	Losses           Figure `json:"losses" over:"sum"`                 // locks
	Failed           Figure `json:"failed_renewals" over:"sum"`        // attempts that were tried again
	BatchP50         Figure `json:"batch_p50_ms"`                      // of renewal calls
	BatchP99         Figure `json:"batch_p99_ms"`                      //
	LagP99           Figure `json:"schedule_lag_p99_ms"`               // after a call was due
	Utilization      Figure `json:"lease_utilization_p999"`            // 1 is the end of the lease
	ClientPerRenewal Figure `json:"client_cpu_us_per_renewal"`         // added
	GoroutinesPer    Figure `json:"goroutines_per_lock"`               // threads, of a JVM
	Goroutines       Figure `json:"goroutines" over:"max"`             // of all processes
	HeapPer          Figure `json:"heap_bytes_per_lock"`               //
	StackPer         Figure `json:"stack_bytes_per_lock"`              // of goroutines
	LatencyP50       Figure `json:"foreground_p50_ms"`                 //
	LatencyP99       Figure `json:"foreground_p99_ms"`                 //
	LatencyP999      Figure `json:"foreground_p999_ms"`                //
	LatencyLow       Figure `json:"foreground_p99_low_ms" over:"min"`  // where p99 lies, as far as that many commands can tell (95 %)
	LatencyHigh      Figure `json:"foreground_p99_high_ms" over:"max"` //
	LatencyErrors    Figure `json:"foreground_errors" over:"sum"`      //

	LossCauses map[string]int64 `json:"loss_causes,omitempty"`
	// Commands are all that Redis executed in the first round's window, by name, the sampler's own left out.
	Commands map[string]int64 `json:"commands,omitempty"`
	// Timeline is the scripts received in each 100 ms of the first round, from the first acquire on.
	Timeline []Figure `json:"timeline_100ms,omitempty"`
	// Events are what happened on the way, in seconds after the timeline began.
	Events []Event `json:"events,omitempty"`
}

// Event is a mark on a timeline.
type Event struct {
	At   float64 `json:"at_s"`
	What string  `json:"what"`
}

// Median makes one row of those of several rounds.
func Median(rounds []Row) Row {
	row := rounds[0]
	row.Rounds = len(rounds)
	out := reflect.ValueOf(&row).Elem()
	for i := range out.NumField() {
		field := out.Type().Field(i)
		if field.Type != reflect.TypeFor[Figure]() {
			continue
		}
		values := make([]float64, 0, len(rounds))
		for _, r := range rounds {
			if f := Figure(reflect.ValueOf(r).Field(i).Float()); f.Known() {
				values = append(values, float64(f))
			}
		}
		out.Field(i).SetFloat(combine(values, field.Tag.Get("over")))
	}
	row.LossCauses = make(map[string]int64)
	for _, r := range rounds {
		for cause, n := range r.LossCauses {
			row.LossCauses[cause] += n
		}
	}
	return row
}

func combine(values []float64, over string) float64 {
	n := len(values)
	if n == 0 {
		return math.NaN()
	}
	switch over {
	case "max":
		return slices.Max(values)
	case "min":
		return slices.Min(values)
	case "sum":
		sum := 0.0
		for _, v := range values {
			sum += v
		}
		return sum
	}
	slices.Sort(values)
	return (values[(n-1)/2] + values[n/2]) / 2
}

// Sort puts rows in the order of locks and modes.
func Sort(rows []Row, modes []string) {
	slices.SortStableFunc(rows, func(a, b Row) int {
		return cmp.Or(cmp.Compare(a.Locks, b.Locks), cmp.Compare(slices.Index(modes, a.Mode), slices.Index(modes, b.Mode)))
	})
}

// Target is something that was promised.
type Target struct {
	What string `json:"what"`
	Want string `json:"want"`
	Got  string `json:"got"`
	Met  bool   `json:"met"`
	Hard bool   `json:"hard"` // the run has failed when it is missed
}

// Report is a whole run.
type Report struct {
	Kind     string   `json:"kind"` // compare, soak or wave
	Command  string   `json:"command"`
	Started  string   `json:"started"` // RFC 3339
	Took     float64  `json:"took_s"`
	Complete bool     `json:"complete"` // not interrupted, and nothing failed on the way
	Machine  Machine  `json:"machine"`
	Settings Settings `json:"settings"`
	Notes    []string `json:"notes,omitempty"`
	Rows     []Row    `json:"rows"`
	Targets  []Target `json:"targets"`
	// Predictions are what to compare the calls with, over many numbers of locks.
	Predictions []Curve `json:"predictions,omitempty"`
}

// Curve is the calls per second that a mode should make.
type Curve struct {
	Mode  string   `json:"mode"`
	Locks []int    `json:"locks"`
	Calls []Figure `json:"calls"`
}

// Machine is where it ran.
type Machine struct {
	OS    string `json:"os"`
	CPUs  int    `json:"cpus"`
	CPU   string `json:"cpu,omitempty"`
	Go    string `json:"go"`
	Redis string `json:"redis"`
	Load  string `json:"load_average,omitempty"` // at the start
}

// Settings are those that the figures depend on. Times are in seconds.
type Settings struct {
	Lease      float64 `json:"lease_s"`
	Interval   float64 `json:"interval_s"`
	Batch      int     `json:"batch"`
	Clients    int     `json:"clients"`
	Nodes      int     `json:"nodes"`
	RTT        float64 `json:"rtt_s"` // that was added between holders and Redis
	Foreground float64 `json:"foreground_per_s"`
	Churn      float64 `json:"churn_per_s"`
	Seed       uint64  `json:"seed"`
	Context    string  `json:"holder_context"` // what holders give to Lock: it decides what a lock keeps in memory
}
