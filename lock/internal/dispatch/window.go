package dispatch

import "time"

const (
	// leastShared is how many batches of shared calls may be in flight to a server nearby: one that Redis runs, one that it can start with,
	// and one whose replies are being read.
	leastShared = 3
	// batchTime is what a batch takes Redis and this process, roughly. While one is on its way, so many more can be sent without waiting for
	// each other there.
	batchTime = 200 * time.Microsecond
	// distanceInertia is how slowly a distance grows.
	distanceInertia = 8
)

// distance is how long a round trip to a server takes that finds it idle: what is known of it. The zero value knows nothing.
type distance time.Duration

// learn notes how long a call or a batch took. The shortest counts. A longer one counts only if nothing else was in flight as it was sent,
// because otherwise it may have waited for that: a distance which grew with the number of batches would grow without end.
func (d *distance) learn(took time.Duration, alone bool) {
	switch took := distance(took); {
	case took <= 0:
	case *d == 0, took < *d:
		*d = took
	case alone:
		*d += (took - *d) / distanceInertia
	}
}

// window is how many batches of shared calls may be in flight to a server at that distance, over a pool of so many connections. Half of them
// stay free for the program.
func (d distance) window(poolSize int) int {
	n := leastShared + int(time.Duration(d)/batchTime)
	return max(min(n, poolSize/2, maxInFlight), leastShared)
}
