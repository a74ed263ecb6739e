// Package work is what the processes of the comparison do: each runs one peer through one piece of work, in a closed loop.
package work

import (
	"fmt"
	"time"

	"github.com/lockdog/lockdog/loadtest/internal/hist"
)

// The kinds of work.
const (
	Distinct = "distinct" // lock and release, names without contention
	Shared   = "shared"   // lock and release, one name for all
	Held     = "held"     // TryLock of a lock that another client holds
	Loss     = "loss"     // how long until a holder is told that its lock is gone
)

// Config describes a process.
type Config struct {
	Kind       string        `json:"kind"`
	Peer       string        `json:"peer"`
	Addrs      []string      `json:"addrs"`
	Cluster    bool          `json:"cluster"`
	Lease      time.Duration `json:"lease"`
	Process    int           `json:"process"` // number of this one, from 0
	Goroutines int           `json:"goroutines"`
	Pause      time.Duration `json:"pause"` // after each lock at most; 0: none
	Warm       time.Duration `json:"warm"`
	Window     time.Duration `json:"window"`
	Witness    string        `json:"witness"` // file of the Shared's witness
}

// The requests, in their order.
const (
	Warm = "warm" // does what comes before the window
	Go   = "go"   // measures
)

// Result is what one process has measured. The window is that of Config; an operation that was under way at its end
// counts in All, but in no rate.
type Result struct {
	Seconds  float64         `json:"seconds"`   // the window
	All      int64           `json:"all"`       // operations
	Counts   []int64         `json:"counts"`    // those in the window, of each goroutine
	Times    hist.Hist       `json:"times"`     // of each operation; of a Shared the wait only
	Handed   int64           `json:"handed"`    // a Shared's grants to another goroutine than the last
	Between  int64           `json:"between"`   // ... than the last, in another process
	Handoffs hist.Hist       `json:"handoffs"`  // of those, when awaited: from the release to the grant
	Window   Handed          `json:"in_window"` // the same counts in the window
	Stuck    int             `json:"stuck"`     // goroutines whose operation did not end within the grace, when nobody began another
	Unserved int             `json:"unserved"`  // goroutines without an operation in the window, or stuck after it
	Overlaps int64           `json:"overlaps"`  // two holders at a time, as all processes saw
	Mallocs  uint64          `json:"mallocs"`   // heap objects allocated for All
	Bytes    uint64          `json:"bytes"`     // ... and their bytes
	CPU      time.Duration   `json:"cpu"`       // used for All, in user and system mode
	Told     map[string]Told `json:"told,omitempty"`
}

// Handed are grants to others than the last holder.
type Handed struct {
	Handed  int64 `json:"handed"`
	Between int64 `json:"between"`
}

// The ways to lose a lock.
const (
	ByDel      = "DEL"
	ByFlushall = "FLUSHALL"
	ByForce    = "forced unlock"
)

// LossWays are all.
var LossWays = []string{ByDel, ByFlushall, ByForce}

// Told is how long holders did not know of a loss.
type Told struct {
	After []time.Duration `json:"after"`
	Never int             `json:"never"` // not for longer than a lease
}

// check finds impossible configurations.
func (c *Config) check() error {
	switch {
	case c.Goroutines < 1, c.Warm <= 0, c.Window <= 0, c.Lease <= 0, len(c.Addrs) == 0:
		return fmt.Errorf("incomplete configuration: %+v", *c)
	case c.Kind == Shared && c.Witness == "":
		return fmt.Errorf("%s: no witness", c.Kind)
	}
	return nil
}
