package dispatch

import (
	"sync"
	"time"
)

// Clock is what is known of a server's clock: it read seen (µs) at some local time between when and when+slack. The zero value knows nothing. It
// is safe for concurrent use.
type Clock struct {
	mu    sync.Mutex
	seen  int64
	when  time.Time
	slack time.Duration
}

// maxDrift is how far clocks run apart: what NTP slews at most.
const maxDrift = 500e-6

// Learn notes the time that a server put into its reply to a request sent at when. A request that was delayed, for want of a connection for
// example, makes the clock look ahead. So the tightest reply counts, unless a call has turned out to be late by what is known.
func (c *Clock) Learn(seen int64, when time.Time, late bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.seen != 0 && !late {
		age := float64(when.Sub(c.when).Microseconds())
		if float64(seen-c.seen) > age+max(age, 0)*maxDrift {
			return
		}
	}
	c.seen, c.when, c.slack = seen, when, max(time.Since(when), 0)
}

// At returns the latest time that the server's clock can show at a local time; 0 if it is unknown.
func (c *Clock) At(local time.Time) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.seen == 0 {
		return 0
	}
	return c.seen + local.Sub(c.when).Microseconds()
}

// ahead returns by how much At may be later than the server's clock.
func (c *Clock) ahead() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.slack
}

// Earliest returns the earliest local time at which the server's clock may have shown seen (µs). It reports false if nothing is known of the clock.
func (c *Clock) Earliest(seen int64) (time.Time, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.seen == 0 {
		return time.Time{}, false
	}
	d := time.Duration(seen-c.seen) * time.Microsecond
	return c.when.Add(d - time.Duration(float64(max(d, 0))*maxDrift)), true
}
