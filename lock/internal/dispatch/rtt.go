package dispatch

import "time"

const (
	// leastShared is how many batches of pending calls may be in flight in any case: one that Redis runs, one that it
	// can run next, and one whose replies are being read.
	leastShared = 3
	// batchTime is about how long Redis and this process work on a batch. In a round trip of n * batchTime, n more
	// batches can be in flight without waiting for each other.
	batchTime = 200 * time.Microsecond
	// streamTime is used instead of batchTime where batches share a connection, on which one more batch costs less.
	streamTime = 100 * time.Microsecond
	// A longer round trip moves the estimate by 1/rttInertia of the difference.
	rttInertia = 8
)

// rttEstimate estimates how long a round trip to an idle server takes. Zero: unknown.
type rttEstimate time.Duration

// learn improves the estimate by the time that a call or a batch took (0: unknown). The first time counts in any case,
// and so does a shorter time. A longer time counts only if undisturbed: it is that of a single call, and nothing else
// was in flight when the call was sent. Any other call or batch may have waited for others. If its time counted, more
// batches would be allowed, which would wait for each other even longer, and so on up to the largest number of batches.
func (e *rttEstimate) learn(took time.Duration, undisturbed bool) {
	switch took := rttEstimate(took); {
	case took <= 0:
	case *e == 0, took < *e:
		*e = took
	case undisturbed:
		*e += (took - *e) / rttInertia
	}
}

// isFar reports whether the server is so far away that batches should share one connection. At a near server, sharing
// would only cost them time.
func (e rttEstimate) isFar() bool { return time.Duration(e) > time.Millisecond }

// inFlightLimit returns how many batches of pending calls may be in flight. Half of a large pool stays free, unless the
// batches share a connection of their own.
func (e rttEstimate) inFlightLimit(poolSize int, stream bool) int {
	if stream {
		return min(leastShared+int(time.Duration(e)/streamTime), maxInFlight)
	}
	return max(min(leastShared+int(time.Duration(e)/batchTime), poolSize/2, maxInFlight), leastShared)
}
