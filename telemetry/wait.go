package telemetry

import (
	"context"
	"sync"
	"time"
)

// waits sums the times that the acquires below a ctx have waited.
type waits struct {
	outer *waits // of the parent ctx, which sums the same waits, too; nil: none
	began time.Time

	mu      sync.Mutex
	running int           // waits that haven't ended
	sum     time.Duration // of the waits that have ended; for each running one, minus the time from began to its start
}

type waitsKey struct{}

// TrackWaits returns a ctx that sums the waits of the acquires below it: see Waited.
func TrackWaits(ctx context.Context) context.Context {
	outer, _ := ctx.Value(waitsKey{}).(*waits)
	return context.WithValue(ctx, waitsKey{}, &waits{outer: outer, began: time.Now()})
}

// Waited returns how long the acquires below the innermost TrackWaits of ctx have waited so far; 0 if there is none.
func Waited(ctx context.Context) time.Duration {
	w, ok := ctx.Value(waitsKey{}).(*waits)
	if !ok {
		return 0
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.sum + time.Duration(w.running)*time.Since(w.began)
}

// change adds delta to the running waits of w and its outer ones.
func (w *waits) change(delta int, now time.Time) {
	for ; w != nil; w = w.outer {
		w.mu.Lock()
		w.running += delta
		w.sum -= time.Duration(delta) * now.Sub(w.began)
		w.mu.Unlock()
	}
}
