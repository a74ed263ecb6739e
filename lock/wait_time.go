package lock

import (
	"context"
	"time"

	"github.com/lockdog/lockdog/telemetry"
)

// TrackWaitTime returns a ctx that adds up how long calls wait for locks with it, or with a ctx that is derived from it. Call it where a request
// comes in, and WaitTime where its access log is written. It is for all clients and kinds. Below a TrackWaitTime the ctx of another one has a sum of its
// own, and adds to the outer one, too.
func TrackWaitTime(ctx context.Context) context.Context { return telemetry.TrackWaits(ctx) }

// WaitTime returns how long calls have waited for locks since TrackWaitTime made ctx, or the ctx that it is derived from; 0 without one. Any goroutine may
// call it at any time.
//
// A call waits from when it was told that the lock is held, or joined others that wait for it, until it returns; calls that fail count, too. One
// that still waits counts up to now. Calls that wait at the same time each count, so that the sum may be more than the time that has passed. A
// Multi, or a mutex of a Quorum, counts once. Calls that don't wait count as nothing: a TryLock, or a Lock that gets the lock at once.
func WaitTime(ctx context.Context) time.Duration { return telemetry.Waited(ctx) }
