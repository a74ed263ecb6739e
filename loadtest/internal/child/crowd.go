package child

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// crowdSize is how many goroutines take and release locks at a time.
const crowdSize = 64

// crowd calls do for every i from first up to n, at even intervals over that time or as fast as it goes, and returns the
// first error.
func crowd(ctx context.Context, first, n int, over time.Duration, do func(ctx context.Context, i int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next atomic.Int64
	next.Store(int64(first) - 1)
	start := time.Now()
	var all sync.WaitGroup
	for range min(crowdSize, n-first) {
		all.Go(func() {
			for ctx.Err() == nil {
				i := int(next.Add(1))
				if i >= n {
					return
				}
				due := start.Add(time.Duration(float64(over) * float64(i-first) / float64(n-first)))
				if err := sleepUntil(ctx, due); err != nil {
					return
				}
				if err := do(ctx, i); err != nil {
					cancel(err)
					return
				}
			}
		})
	}
	all.Wait()
	return context.Cause(ctx)
}

// coarse is what timers can't do better than: who is that close to his time goes on.
const coarse = time.Millisecond

func sleepUntil(ctx context.Context, due time.Time) error {
	left := time.Until(due)
	if left < coarse {
		return ctx.Err()
	}
	timer := time.NewTimer(left)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
