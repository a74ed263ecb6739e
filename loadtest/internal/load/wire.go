package load

import (
	"fmt"
	"strings"

	"github.com/lockdog/lockdog/loadtest/internal/hist"
	"github.com/lockdog/lockdog/telemetry"
)

// The modes of holders.
const (
	None     = "none"     // locks held, never renewed
	PerLock  = "per-lock" // the classic watchdog: a goroutine, a ticker and a call for each lock
	Batched  = "batched"  // lockdog with its default options
	Agent    = "agent"    // lockdog whose leases are renewed by the agent of the machine: one more child
	Redisson = "redisson" // org.redisson: a Java program that uses the same protocol
)

// Config describes a child. Durations are in seconds.
type Config struct {
	Mode    string   `json:"mode"`
	Socket  string   `json:"socket,omitempty"` // in the mode Agent: the agent's
	Serve   bool     `json:"serve,omitempty"`  // this child is the agent
	Addrs   []string `json:"addrs"`
	Cluster bool     `json:"cluster"`
	RTT     float64  `json:"rtt,omitempty"` // added between this child and Redis
	First   int      `json:"first"`         // number of the first lock
	Locks   int      `json:"locks"`
	Lease   float64  `json:"lease"`
	Hold    float64  `json:"hold"`  // the lease in the mode without renewal: longer than the run
	Churn   float64  `json:"churn"` // pairs of acquire and release per second, on other names
}

// Name returns the name of the i-th lock. Names look random, so that they are spread over all slots of a cluster.
func Name(i int) string {
	x := uint64(i+1) * 0x9E3779B97F4A7C15 // splitmix64: different i give different names
	x = (x ^ x>>30) * 0xBF58476D1CE4E5B9
	x = (x ^ x>>27) * 0x94D049BB133111EB
	return fmt.Sprintf("loadtest:%016x", x^x>>31)
}

// The requests.
const (
	Warm    = "warm"    // within the given time: sets up what is needed only once, such as connections, and acquires the first lock
	Acquire = "acquire" // acquires the other locks, in the given time or as fast as possible, and starts the churn
	Weigh   = "weigh"   // collects garbage, and reports the memory in use and the goroutines
	Read    = "read"    // reports what happened since the last Read
	Release = "release" // releases everything
)

// The metrics of lockdog that are read. The per-lock mode uses them, too.
var (
	Renewals = telemetry.MetricRenewals.Name      // counts, by outcome
	Calls    = telemetry.MetricCommands.Name      // by purpose
	Late     = telemetry.MetricLate.Name          // renewals, failures and losses after more than 0.8 of the lease
	Losses   = telemetry.MetricLosses.Name        // by cause
	Batch    = telemetry.MetricBatchDuration.Name // histogram: duration of renewal calls
	Lag      = telemetry.MetricScheduleLag.Name   // histogram: how late they were sent
	// Utilization: histogram of the share of the lease used up at each outcome of a renewal; 1 s is all of it.
	Utilization = telemetry.MetricUtilization.Name
)

// Reading is a child's answer. Each request sets only a part of it.
type Reading struct {
	CPU        float64 `json:"cpu"` // seconds of user and system time of the process since the last Read
	Goroutines int     `json:"goroutines"`
	// Counts are events since the last Read, by metric, slash, and the value of its attribute. nil: this child doesn't
	// count.
	Counts map[string]int64 `json:"counts"`
	// Times are histograms since the last Read, by metric.
	Times map[string]hist.Hist `json:"times"`

	Heap   int64 `json:"heap"`   // bytes of live objects
	Stacks int64 `json:"stacks"` // bytes of goroutine stacks

	Released int `json:"released"` // locks that were still ours at the release
	Lost     int `json:"lost"`     // locks that weren't
}

// Total returns the number of events of a metric.
func (r *Reading) Total(metric string) (n int64) {
	for event, k := range r.Counts {
		if strings.HasPrefix(event, metric+"/") {
			n += k
		}
	}
	return n
}

// Count returns the number of events of a metric with a value of its attribute.
func (r *Reading) Count(metric, value string) int64 { return r.Counts[metric+"/"+value] }

// Add adds the reading of another process, or a later one.
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
