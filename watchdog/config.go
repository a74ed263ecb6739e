package watchdog

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Limits of the engine.
const (
	// DefaultBatchSize is the largest number of leases in one call, unless Config.BatchSize is set.
	DefaultBatchSize = 256
	// MaxBatchSize is the largest Config.BatchSize.
	MaxBatchSize = 4096
)

const (
	// maxInFlight limits the calls in flight to one node. With a latency of 1 ms it allows 8,000 calls, or 2 million
	// leases, a second.
	maxInFlight = 8
	// maxCallTimeout is the longest timeout of a call. A short lease (TTL/6) or a near deadline makes it shorter.
	maxCallTimeout = 5 * time.Second
)

// The values of Result.Err that the engine sets, when Config.Renew breaks its contract.
var (
	errPanicked = errors.New("watchdog: the renewal panicked")
	errResults  = errors.New("watchdog: the renewal did not return one result per lease")
	errNoReason = errors.New("watchdog: the renewal failed without saying why")
	errNowhere  = errors.New("watchdog: the lease moved without saying where")
)

// Config is the configuration of an Engine. New reads it; later changes have no effect.
type Config struct {
	// BatchSize is the largest number of leases in one call. 0 means DefaultBatchSize; at most MaxBatchSize.
	BatchSize int
	// Renew makes one call to the server and fills b.Results. Required. Each call has its own goroutine: at most 8 at a
	// time for a node, and never two at a time for the same lease. It must return soon after ctx ends. A result that
	// isn't set is Failed. If Renew panics, all results are Failed.
	Renew func(ctx context.Context, b *Batch)
	// BatchDone is called after the Holder.Renewal calls of a batch, and after the Holder.Lost calls that these lead
	// to, so that they can be logged together. Optional. It should return as quickly as a Holder.
	BatchDone func(b *Batch)
	// LossesDone is called after a series of Holder.Lost calls for leases whose deadline was reached, with their
	// number, so that they can be logged together. (BatchDone follows the losses of missing and taken leases.)
	// Optional.
	LossesDone func(n int)
	// Panicked is called after a panic in one of the functions above or in a Holder. The engine goes on. Optional.
	Panicked func(v any, stack []byte)
}

func (c *Config) check() error {
	if c.Renew == nil {
		return errors.New("watchdog: Config.Renew is required")
	}
	if c.BatchSize == 0 {
		c.BatchSize = DefaultBatchSize
	}
	if c.BatchSize < 1 || c.BatchSize > MaxBatchSize {
		return fmt.Errorf("watchdog: Config.BatchSize is %d, want 1 to %d", c.BatchSize, MaxBatchSize)
	}
	return nil
}
