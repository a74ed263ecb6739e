package lock

import (
	"sync"
	"time"
)

// serverClock is what is known of a server's clock: it showed seen, in µs, at or after the local time at.
type serverClock struct {
	mu    sync.Mutex
	seen  int64
	when  time.Time
	slack time.Duration // it showed seen at most so long after when
}

// maxDrift is how far clocks run apart: what NTP slews at most.
const maxDrift = 500e-6

// learn notes the time that a server put into its answer to a request sent at when. A request that was long on its way
// (for want of a connection, say) makes the clock look ahead: the tightest answer counts, unless wrong says that a call
// came too late by it.
func (c *serverClock) learn(seen int64, when time.Time, wrong bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.seen != 0 && !wrong {
		age := float64(when.Sub(c.when).Microseconds())
		if float64(seen-c.seen) > age+max(age, 0)*maxDrift {
			return
		}
	}
	c.seen, c.when, c.slack = seen, when, max(time.Since(when), 0)
}

// at is the latest time that the server's clock can show at a local time, 0 when nothing is known of it.
func (c *serverClock) at(local time.Time) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.seen == 0 {
		return 0
	}
	return c.seen + local.Sub(c.when).Microseconds()
}

// ahead is by how much at may be later than the server's clock.
func (c *serverClock) ahead() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.slack
}
