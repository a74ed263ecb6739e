package redisfail

import (
	"context"
	"math/rand/v2"
	"time"
)

const (
	firstBackoff = 10 * time.Millisecond
	maxDoublings = 6
)

// Backoff returns the pause before retry n (the first is 1): from 5 ms to 0.96 s, with jitter.
func Backoff(n int) time.Duration {
	d := firstBackoff << min(n-1, maxDoublings)
	return d/2 + rand.N(d)
}

// Sleep pauses for d. It reports false if ctx ended first.
func Sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
