package dispatch

import "time"

const (
	// leastShared is how many batches of shared calls may be in flight to a server nearby: one that Redis runs, one that it can start with,
	// and one whose replies are being read.
	leastShared = 3
	// batchTime is about how long a batch takes Redis and this process. For each of it in a round trip one more batch can be in flight
	// without waiting for the others.
	batchTime = 200 * time.Microsecond
	// rttInertia is how slowly an estimate grows.
	rttInertia = 8
)

// rttEstimate is an estimate of how long a round trip takes to a server that is idle. Zero: unknown.
type rttEstimate time.Duration

// learn notes how long a call or a batch took. The shortest time counts. A longer one counts only if nothing else was in flight when it was sent,
// because otherwise it may have waited for that: an estimate that grew with the number of batches would grow without end.
func (e *rttEstimate) learn(took time.Duration, alone bool) {
	switch took := rttEstimate(took); {
	case took <= 0:
	case *e == 0, took < *e:
		*e = took
	case alone:
		*e += (took - *e) / rttInertia
	}
}

// inFlightLimit is how many batches of shared calls may be in flight, over a pool of so many connections. Half of them
// stay free for the program.
func (e rttEstimate) inFlightLimit(poolSize int) int {
	n := leastShared + int(time.Duration(e)/batchTime)
	return max(min(n, poolSize/2, maxInFlight), leastShared)
}
