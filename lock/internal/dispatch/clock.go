package dispatch

import (
	"sync"
	"time"
)

// Clock is what is known of a server's clock: it showed seen (µs) at some local time between when and when+slack. The
// zero value knows nothing. It is safe for concurrent use.
type Clock struct {
	mu    sync.Mutex
	seen  int64
	when  time.Time
	slack time.Duration
}

// maxDrift is how much faster one clock may run than another: the kernel and ntpd slew a clock by no more. chronyd may
// slew it by more: see docs/PRODUCTION.md.
const maxDrift = 500e-6

// Learn takes the time from a server's reply to a request that was sent at when. If the request was delayed, by waiting
// for a connection for example, the server's clock seems to be ahead. So the reply with the least delay counts. But if
// the server refused the call as late, what is known may be wrong, and this reply counts in any case.
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

// At returns the latest time, in µs, that the server's clock can show at a local time, if both clocks run at the same
// rate; 0: unknown. slack is how far the server's clock may be behind that time.
func (c *Clock) At(local time.Time) (latest int64, slack time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.seen == 0 {
		return 0, 0
	}
	return c.seen + local.Sub(c.when).Microseconds(), c.slack
}

// Earliest returns the earliest local time at which the server's clock can have shown seen (µs), or false if unknown.
// It allows for drift only after the last reading of that clock: seen isn't long before it.
func (c *Clock) Earliest(seen int64) (time.Time, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.seen == 0 {
		return time.Time{}, false
	}
	d := time.Duration(seen-c.seen) * time.Microsecond
	return c.when.Add(d - time.Duration(float64(max(d, 0))*maxDrift)), true
}
