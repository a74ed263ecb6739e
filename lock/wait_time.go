package lock

import (
	"context"
	"time"

	"github.com/lockdog/lockdog/telemetry"
)

// TrackWaitTime returns a ctx that adds up how long calls wait for locks, with it or with a ctx derived from it. Call
// it where a request comes in, and WaitTime where its access log is written. It counts for all clients and kinds. If
// ctx comes from an outer TrackWaitTime, the new ctx has a separate sum, and its waits count in the outer sum, too.
func TrackWaitTime(ctx context.Context) context.Context { return telemetry.TrackWaits(ctx) }

// WaitTime returns how long calls have waited for locks since TrackWaitTime made ctx, or the ctx from which ctx is
// derived; 0 without TrackWaitTime. Any goroutine may call it at any time.
//
// A call waits from the moment when its first try has failed, or when it joins others that wait for the lock, until it
// returns. Calls that fail count, too. A call that still waits counts up to now. Calls that wait at the same time each
// count, so the sum may be more than the time that has passed. A Multi, or a mutex of a Quorum, counts once. Calls that
// don't wait count as nothing: a TryLock, or a Lock that gets the lock at once.
func WaitTime(ctx context.Context) time.Duration { return telemetry.Waited(ctx) }
