package watchdog

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Limits of the engine.
const (
	// DefaultBatchSize is how many leases one call renews at most, unless Config says otherwise.
	DefaultBatchSize = 256
	// MaxBatchSize is the largest batch that can be asked for.
	MaxBatchSize = 4096
)

const (
	// maxInFlight bounds the calls to one node that are under way at a time. With a latency of a millisecond these are
	// 8,000 calls, 2 million leases, a second.
	maxInFlight = 8
	// maxCallTimeout is the longest a call is given; less with a short lease (TTL/6) or a near deadline.
	maxCallTimeout = 5 * time.Second
)

// The errors that the engine reports as Result.Err. The first two are of a Renew that broke its contract.
var (
	errPanicked = errors.New("watchdog: the renewal panicked")
	errResults  = errors.New("watchdog: the renewal did not return one result per lease")
	errNoReason = errors.New("watchdog: the renewal failed without saying why")
	errNowhere  = errors.New("watchdog: the lease moved without saying where")
)

// Config is what an engine needs to know. All of it is fixed by New.
type Config struct {
	// BatchSize is how many leases one call renews at most. 0 means DefaultBatchSize; at most MaxBatchSize.
	BatchSize int
	// Renew makes one call to the server and fills b.Results. Required. It is called on a goroutine of its own, at
	// most 8 at a time for a node and never twice at a time for the same lease; it must return soon
	// after ctx ends. What is left at the zero Result is Failed; so is everything when it panics.
	Renew func(ctx context.Context, b *Batch)
	// BatchDone is called after the Holder.Renewal calls of a batch (and the Lost calls that follow from it), so that
	// they can be logged as one. Optional; as quick as a Holder.
	BatchDone func(b *Batch)
	// LossesDone is called after a run of Holder.Lost calls for leases whose deadline was reached, with their number,
	// so that they can be logged as one. (Those of missing and taken leases are followed by BatchDone.) Optional.
	LossesDone func(n int)
	// Panicked is told of a panic in any of the functions above or in a Holder. The engine lives on. Optional.
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
