package child

import (
	"fmt"
	"strings"
	"time"

	"github.com/lockdog/lockdog/loadtest/internal/hist"
	"github.com/lockdog/lockdog/telemetry"
)

// The modes of holders.
const (
	None     = "none"     // locks held, never renewed
	PerLock  = "per-lock" // the classic watchdog: a goroutine, a ticker and a call for each lock
	Batched  = "batched"  // lockdog with its default options
	Redisson = "redisson" // org.redisson, which is no child of this package but speaks as they do
)

// Foreground is the role of the child that sends ordinary traffic.
const Foreground = "foreground"

// Config describes a child. Durations are in seconds.
type Config struct {
	Role    string   `json:"role"` // a mode, or Foreground
	Addrs   []string `json:"addrs"`
	Cluster bool     `json:"cluster"`
	RTT     float64  `json:"rtt,omitempty"` // that was added between this child and Redis
	// Of holders:
	First int     `json:"first"` // number of the first lock
	Locks int     `json:"locks"`
	Lease float64 `json:"lease"`
	Hold  float64 `json:"hold"`  // without renewal: the lease, which outlives the run
	Churn float64 `json:"churn"` // pairs of acquire and release per second, on other names
	// Of the foreground:
	Rate float64 `json:"rate"` // commands per second
}

// Name is that of the i-th lock. Names look random, so that they spread over all slots of a cluster.
func Name(i int) string {
	x := uint64(i+1) * 0x9E3779B97F4A7C15 // splitmix64: no two i give the same
	x = (x ^ x>>30) * 0xBF58476D1CE4E5B9
	x = (x ^ x>>27) * 0x94D049BB133111EB
	return fmt.Sprintf("loadtest:%016x", x^x>>31)
}

// The requests, in their order.
const (
	Warm    = "warm"    // acquires the first lock, so that all that a client needs once exists
	Acquire = "acquire" // acquires the others, in the time that is given or as fast as it can
	Weigh   = "weigh"   // collects garbage and reports the memory in use
	Read    = "read"    // reports what happened since the last time
	Release = "release" // releases everything
)

// The metrics that are read: lockdog's, into which the per-lock mode records, too, and the foreground's.
var (
	Renewals    = telemetry.MetricRenewals.Name      // counts, by outcome
	Calls       = telemetry.MetricCommands.Name      // by purpose
	Late        = telemetry.MetricLate.Name          // renewals, failures and losses that found over 0.8 of the lease used up
	Losses      = telemetry.MetricLosses.Name        // by cause
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

// Reading is what a child answers: of each request a part.
type Reading struct {
	CPU        float64 `json:"cpu"` // seconds used by the process since the last time, in user and system mode
	Goroutines int     `json:"goroutines"`
	// Counts are events since the last time, by metric, slash, and the value of its attribute. nil: this child does not count.
	Counts map[string]int64 `json:"counts"`
	// Times are histograms since the last time, by metric.
	Times map[string]hist.Hist `json:"times"`

	Heap   int64 `json:"heap"`   // bytes of live objects
	Stacks int64 `json:"stacks"` // bytes of goroutine stacks

	Released int `json:"released"` // locks that were still ours
	Lost     int `json:"lost"`     // ... and those that were not
}

// Total is the number of events of a metric.
func (r *Reading) Total(metric string) (n int64) {
	for event, k := range r.Counts {
		if strings.HasPrefix(event, metric+"/") {
			n += k
		}
	}
	return n
}

// Count is the number of events with a value.
func (r *Reading) Count(metric, value string) int64 { return r.Counts[metric+"/"+value] }

// Add adds what another process, or a later reading, has.
func (r *Reading) Add(o *Reading) {
	r.CPU += o.CPU
	r.Goroutines += o.Goroutines
	r.Heap += o.Heap
	r.Stacks += o.Stacks
	r.Released += o.Released
	r.Lost += o.Lost
	if o.Counts != nil && r.Counts == nil {
		r.Counts = make(map[string]int64)
	}
	for event, n := range o.Counts {
		r.Counts[event] += n
	}
	if r.Times == nil {
		r.Times = make(map[string]hist.Hist)
	}
	for metric, times := range o.Times {
		sum := r.Times[metric]
		sum.Merge(times)
		r.Times[metric] = sum
	}
}

// Quantile is one of a metric's times, rounded for people.
func (r *Reading) Quantile(metric string, q float64) time.Duration {
	h := r.Times[metric]
	return h.Quantile(q).Round(time.Millisecond)
}
