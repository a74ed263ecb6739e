// Package wire is what the load test and its child processes say to each other. The first line that a child reads is its
// Config; each later one is a Request, and has one Reply. At the end of its input a child releases what it holds.
package wire

import (
	"fmt"

	"github.com/lockdog/lockdog/loadtest/internal/hist"
	"github.com/lockdog/lockdog/telemetry"
)

// The modes of holders.
const (
	None     = "none"     // locks held, never renewed
	PerLock  = "per-lock" // the classic watchdog: a goroutine, a ticker and a call for each lock
	Batched  = "batched"  // lockdog with its default options
	Redisson = "redisson" // org.redisson
)

// Foreground is the role of the child that sends ordinary traffic.
const Foreground = "foreground"

// Config describes a child. Durations are in seconds.
type Config struct {
	Role    string   `json:"role"` // a mode, or Foreground
	Addrs   []string `json:"addrs"`
	Cluster bool     `json:"cluster"`
	RTT     float64  `json:"rtt,omitempty"` // that was added between this child and Redis
	Seed    uint64   `json:"seed"`          // of the names, and of the foreground's arrivals
	// Of holders:
	First int     `json:"first"` // number of the first lock
	Locks int     `json:"locks"`
	Lease float64 `json:"lease"`
	Hold  float64 `json:"hold"`  // without renewal: the lease, which outlives the run
	Churn float64 `json:"churn"` // pairs of acquire and release per second, on other names
	// Of the foreground:
	Rate float64 `json:"rate"` // commands per second
}

// Name is that of the i-th lock of a run. Names are random, so they spread over all slots of a cluster.
func Name(seed uint64, i int) string {
	x := seed + uint64(i+1)*0x9E3779B97F4A7C15 // splitmix64: no two i give the same
	x = (x ^ x>>30) * 0xBF58476D1CE4E5B9
	x = (x ^ x>>27) * 0x94D049BB133111EB
	return fmt.Sprintf("loadtest:%016x", x^x>>31)
}

// The requests.
const (
	DoWarm    = "warm"    // acquires the first lock, so that all that a client needs once exists
	DoAcquire = "acquire" // acquires the others, in the time of Over or as fast as it can
	DoWeigh   = "weigh"   // collects garbage and reports the memory in use
	DoRead    = "read"    // reports what happened since the last time
	DoRelease = "release" // releases everything; the last one
)

// Request asks a child to do something.
type Request struct {
	Do   string  `json:"do"`
	Over float64 `json:"over,omitempty"` // seconds
}

// Reply is a child's answer.
type Reply struct {
	Did      string   `json:"did"` // the request
	Error    string   `json:"error,omitempty"`
	Weight   *Weight  `json:"weight,omitempty"`   // to DoWeigh
	Reading  *Reading `json:"reading,omitempty"`  // to DoRead
	Released int      `json:"released,omitempty"` // to DoRelease: locks that were still ours
	Lost     int      `json:"lost,omitempty"`     // ... and those that were not
}

// Failure implements fleet.Reply.
func (r Reply) Failure() string { return r.Error }

// Weight is the memory in use after a garbage collection.
type Weight struct {
	Heap       int64 `json:"heap"`   // bytes of live objects
	Stacks     int64 `json:"stacks"` // bytes of goroutine stacks
	Goroutines int   `json:"goroutines"`
}

// The metrics that are read: lockdog's, into which the per-lock mode records, too, and the foreground's.
var (
	Renewals    = telemetry.MetricRenewals.Name // counts, by outcome
	Calls       = telemetry.MetricCommands.Name // by purpose
	Late        = telemetry.MetricLate.Name     // renewals, failures and losses that found over 0.8 of the lease used up
	Losses      = telemetry.MetricLosses.Name   // by cause
	Held        = telemetry.MetricHeld.Name
	Batch       = telemetry.MetricBatchDuration.Name // histograms: time that renewal calls took
	Lag         = telemetry.MetricScheduleLag.Name   // how late they were sent
	Utilization = telemetry.MetricUtilization.Name   // lease used up at each renewal; 1 s is all of it
)

// The metrics of the foreground.
const (
	Latency = "loadtest.latency"
	Sent    = "loadtest.sent" // failed ones included
	Errors  = "loadtest.errors"
)

// Reading is what happened since the last reading.
type Reading struct {
	CPU        float64 `json:"cpu"` // seconds used by the process, in user and system mode
	Goroutines int     `json:"goroutines"`
	Held       int     `json:"held"` // locks now
	// Counts are events, by metric and value of its attribute. nil: this child does not count.
	Counts map[string]map[string]int64 `json:"counts"`
	// Times are histograms, by metric.
	Times map[string]*hist.Hist `json:"times"`
}

// Count adds n events.
func (r *Reading) Count(metric, value string, n int64) {
	if r.Counts == nil {
		r.Counts = make(map[string]map[string]int64)
	}
	if r.Counts[metric] == nil {
		r.Counts[metric] = make(map[string]int64)
	}
	r.Counts[metric][value] += n
}

// Total is the number of events of a metric.
func (r *Reading) Total(metric string) (n int64) {
	for _, k := range r.Counts[metric] {
		n += k
	}
	return n
}

// Time is the histogram of a metric, to be added to or read.
func (r *Reading) Time(metric string) *hist.Hist {
	if r.Times == nil {
		r.Times = make(map[string]*hist.Hist)
	}
	if r.Times[metric] == nil {
		r.Times[metric] = &hist.Hist{}
	}
	return r.Times[metric]
}

// Add adds what another process, or a later reading, has.
func (r *Reading) Add(o *Reading) {
	r.CPU += o.CPU
	r.Goroutines += o.Goroutines
	r.Held += o.Held
	if o.Counts != nil && r.Counts == nil {
		r.Counts = make(map[string]map[string]int64)
	}
	for metric, counts := range o.Counts {
		for value, n := range counts {
			r.Count(metric, value, n)
		}
	}
	for metric, times := range o.Times {
		if times != nil {
			r.Time(metric).Merge(*times)
		}
	}
}
