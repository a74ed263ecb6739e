package load

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"
)

// atOnce is how many locks a child acquires or releases concurrently, at most. The churn, which acquires and releases
// other locks at the same time, has its own limit: see holder.churn.
const atOnce = 64

// paced calls do for 0, 1, 2... when each is due, each in a goroutine, at most limit concurrently. It stops after the
// last one, when ctx ends, or at the first error. It waits for its calls, and returns that error or the cause of ctx.
func paced(
	ctx context.Context, limit int, due func(i int) (at time.Time, ok bool),
	do func(ctx context.Context, i int, due time.Time) error,
) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	running := make(chan struct{}, limit)
	var all sync.WaitGroup
	for i := 0; ; i++ {
		at, ok := due(i)
		if !ok || Wait(ctx, time.Until(at)) != nil {
			break
		}
		running <- struct{}{}
		all.Go(func() {
			defer func() { <-running }()
			if err := do(ctx, i, at); err != nil {
				cancel(err)
			}
		})
	}
	all.Wait()
	return context.Cause(ctx)
}

// each calls do for every i from first to n-1: evenly spread over a time, or as fast as possible if that is 0.
func each(ctx context.Context, first, n int, over time.Duration, do func(ctx context.Context, i int) error) error {
	start := time.Now()
	return paced(ctx, atOnce,
		func(i int) (time.Time, bool) {
			return start.Add(time.Duration(float64(over) * float64(i) / float64(n-first))), first+i < n
		},
		func(ctx context.Context, i int, _ time.Time) error { return do(ctx, first+i) })
}

// arrivals returns random due times, rate per second on average, which don't depend on the calls: an open loop.
func arrivals(rate float64) func(int) (time.Time, bool) {
	next := time.Now()
	return func(int) (time.Time, bool) {
		next = next.Add(seconds(rand.ExpFloat64() / rate))
		return next, true
	}
}

// Wait waits for d, or until ctx ends.
func Wait(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return context.Cause(ctx)
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
