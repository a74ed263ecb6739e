// Package wire is what the load test and its child processes say to each other: lines of JSON. The first line a child reads is
// its Config; each later one is a Request, and has one Reply. A child whose input ends, ends.
package wire

import (
	"fmt"

	"github.com/lockdog/lockdog/loadtest/internal/hist"
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

// Config says what a child is to be. Durations are in seconds.
type Config struct {
	Role    string   `json:"role"` // a mode, or Foreground
	Addrs   []string `json:"addrs"`
	Cluster bool     `json:"cluster"`
	Seed    uint64   `json:"seed"` // of the names, and of the foreground's arrivals
	// Of holders:
	First int     `json:"first"` // number of the first lock
	Locks int     `json:"locks"`
	Lease float64 `json:"lease"`
	Hold  float64 `json:"hold"`  // without renewal: the lease, which outlives the run
	Churn float64 `json:"churn"` // pairs of acquire and release a second, on names of their own
	// Of the foreground:
	Rate float64 `json:"rate"` // commands a second
}

// Name is that of the i-th lock of a run. Names are random, as in a cluster they spread over all slots.
func Name(seed uint64, i int) string {
	x := seed + uint64(i+1)*0x9E3779B97F4A7C15 // splitmix64: no two i give the same
	x = (x ^ x>>30) * 0xBF58476D1CE4E5B9
	x = (x ^ x>>27) * 0x94D049BB133111EB
	return fmt.Sprintf("loadtest:%016x", x^x>>31)
}

// The requests.
const (
	DoWarm    = "warm"    // takes the first lock, so that what a client needs once is there
	DoAcquire = "acquire" // takes the others; Over says in what time at the least
	DoWeigh   = "weigh"   // collects garbage and tells what memory is in use
	DoRead    = "read"    // tells what happened since the last time
	DoRelease = "release" // gives everything back; the last one
)

// Request asks a child to do something.
type Request struct {
	Do   string  `json:"do"`
	Over float64 `json:"over,omitempty"`
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

// Weight is the memory in use after a garbage collection.
type Weight struct {
	Heap       int64 `json:"heap"`   // bytes of live objects
	Stacks     int64 `json:"stacks"` // bytes of goroutine stacks
	Goroutines int   `json:"goroutines"`
}

// Reading is what happened since the last reading. Times are in seconds.
type Reading struct {
	CPU        float64 `json:"cpu"` // used by the process, in user and system mode
	Goroutines int     `json:"goroutines"`
	Held       int     `json:"held"`     // locks now
	Renewals   int64   `json:"renewals"` // locks renewed, each time
	Failed     int64   `json:"failed"`   // renewals that did not get an answer, and are tried again
	// Calls are the commands sent to Redis, by what for, as the child itself counts them. nil: it doesn't.
	Calls map[string]int64 `json:"calls"`
	// Losses are the leases lost, by cause.
	Losses map[string]int64 `json:"losses,omitempty"`

	Batch       hist.Hist `json:"batch,omitempty"`       // time that renewal calls took
	Lag         hist.Hist `json:"lag,omitempty"`         // how late they went out
	Utilization hist.Hist `json:"utilization,omitempty"` // lease used up at each renewal
	Latency     hist.Hist `json:"latency,omitempty"`     // of the foreground's commands
	Sent        int64     `json:"sent,omitempty"`        // commands of the foreground, failed ones included
	Errors      int64     `json:"errors,omitempty"`      // those that failed
}
