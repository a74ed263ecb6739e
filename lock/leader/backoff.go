package leader

import (
	"math/rand/v2"
	"time"
)

// logEvery bounds the log of campaigns that fail.
const logEvery = time.Minute

// backoff is how long to pause before the next campaign. Only Run's goroutine uses it.
type backoff struct {
	failures int       // in a row
	logged   time.Time // when a failed campaign was logged last
}

// failed counts a campaign that failed. It returns how many failed in a row, and reports whether to log it.
func (b *backoff) failed(now time.Time) (failures int, log bool) {
	b.failures++
	if b.failures > 1 && now.Sub(b.logged) < logEvery {
		return b.failures, false
	}
	b.logged = now
	return b.failures, true
}

// termOf counts a term, which failed if it was short.
func (b *backoff) termOf(length time.Duration, c *config) {
	if length >= c.maxBackoff {
		b.failures = 0
	}
	b.failures++
}

func (b *backoff) reset() { b.failures = 0 }

// next is the pause after what was counted last.
func (b *backoff) next(c *config) time.Duration {
	d := c.minBackoff
	for n := 1; n < b.failures && d < c.maxBackoff; n++ {
		d = 2 * min(d, c.maxBackoff/2) // which doesn't overflow
	}
	return shortened(min(d, c.maxBackoff), 2)
}

// shortened returns d less a random part of up to 1/n of it.
func shortened(d time.Duration, n int64) time.Duration {
	return d - time.Duration(rand.Int64N(int64(d)/n+1))
}
