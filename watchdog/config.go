package watchdog

import (
	"context"
	"errors"
	"time"
)

// Limits of the engine.
const (
	// DefaultBatchSize is what package lock sets as Config.BatchSize, unless a program chooses another.
	DefaultBatchSize = 256
	// MaxBatchSize is the largest Config.BatchSize.
	MaxBatchSize = 4096
)

const (
	// maxInFlight limits the calls in flight to one node. With a latency of 1 ms it allows 8,000 calls, or 2 million
	// leases, a second.
	maxInFlight = 8
	// maxCallTimeout is the longest timeout of a call. A short lease (TTL/6) or a near deadline makes it shorter. It is
	// also the largest group.budget.
	maxCallTimeout = 5 * time.Second
)

// The values of Result.Err that the engine sets.
var (
	errPanicked = errors.New("watchdog: the renewal panicked")
	errNoReason = errors.New("watchdog: the renewal failed without saying why")
)

// Config is the configuration of an Engine. New reads it; later changes have no effect.
type Config struct {
	// BatchSize is the largest number of leases in one call, 1 to MaxBatchSize. Required, like Renew; the rest is
	// optional.
	BatchSize int
	// Renew renews the leases of a batch, by one call to the server or a few, and fills b.Results. Each call of Renew
	// has its own goroutine: at most 8 at a time for a node, and never two at a time for the same lease. It must
	// return soon after ctx ends. A result that isn't set is Failed. If Renew panics, all results are Failed.
	Renew func(ctx context.Context, b *Batch)
	// Done is called after a batch: after its calls of Holder.Renewal, and of the functions that Holder.Lost returned
	// for losses that the batch found. So these can be logged together. After a series of losses at deadlines, Done is
	// called with b nil.
	Done func(b *Batch)
	// Panicked is called after a panic in one of the functions above, in a Holder, or in a function that a Holder
	// returned. The engine goes on.
	Panicked func(v any, stack []byte)
}
