// Package work is the work of the comparison's processes: each runs one peer through one piece of work, in a closed
// loop.
package work

import (
	"time"

	"github.com/lockdog/lockdog/loadtest/internal/figures"
	"github.com/lockdog/lockdog/loadtest/internal/hist"
	"github.com/lockdog/lockdog/loadtest/peers/internal/peer"
	"github.com/lockdog/lockdog/loadtest/peers/internal/witness"
)

// The kinds of work.
const (
	Distinct = "distinct" // lock and release, names without contention
	Shared   = "shared"   // lock and release, one name for all
	Held     = "held"     // TryLock of a lock that another client holds
	Loss     = "loss"     // how long it takes until a holder is notified of the loss of its lock
)

// Config describes a process. It has a goroutine for each of the peer's Callers.
type Config struct {
	peer.Config
	Kind    string        `json:"kind"`
	Peer    string        `json:"peer"`
	Process int           `json:"process"` // number of this process, from 0
	Pause   time.Duration `json:"pause"`   // maximum after each lock; 0: none
	Warm    time.Duration `json:"warm"`
	Window  time.Duration `json:"window"`
	Witness string        `json:"witness"` // for Shared: file of the witness
}

// The requests, in the order in which they are sent.
const (
	Warm = "warm" // sets up and warms up
	Go   = "go"   // measures
)

// Result is what one process has measured. The window is Config.Window. An operation that ended after it counts in
// Total, but in no rate.
type Result struct {
	Seconds float64       `json:"seconds"` // the window, less if all ended earlier; for Loss the whole time
	Total   witness.Tally `json:"total"`
	Window  witness.Tally `json:"window"`
	Counts  []int64       `json:"counts"` // operations in the window, by goroutine
	Times   hist.Hist     `json:"times"`  // of operations, also of those after the window; for Shared only the waits
	// Handoffs has the time from the release to the grant, for grants to another process than the previous one, if the
	// new holder was waiting already.
	Handoffs hist.Hist `json:"handoffs"`
	// Stuck is the number of goroutines whose operation didn't end within the grace, although no other began.
	Stuck    int           `json:"stuck"`
	Unserved int           `json:"unserved"` // goroutines without an operation in the window, or stuck after it
	Overlaps int64         `json:"overlaps"` // more than 0: two holders at the same time, in all processes together
	Mallocs  uint64        `json:"mallocs"`  // heap objects allocated in Total
	Bytes    uint64        `json:"bytes"`    // bytes allocated in Total
	CPU      time.Duration `json:"cpu"`      // user and system time in Total
	// Told has the longest times until a holder was notified of a loss, and how often it took longer than twice the
	// lease.
	Told figures.Figures `json:"told,omitempty"`
}
