package leader

import (
	"math/rand/v2"
	"time"
)

// logEvery is the minimum time between two log records about failed campaigns.
const logEvery = time.Minute

// backoff computes the pause before the next campaign. Only Run's goroutine uses it.
type backoff struct {
	failures int       // in a row
	logged   time.Time // when a failed campaign was last logged
}

// failed counts a failed campaign. It returns the number of failures in a row, and reports whether to log this one.
func (b *backoff) failed(now time.Time) (failures int, log bool) {
	b.failures++
	if !b.logged.IsZero() && now.Sub(b.logged) < logEvery {
		return b.failures, false
	}
	b.logged = now
	return b.failures, true
}

// termOf counts a term. A term shorter than maxBackoff is one more failure; after a longer term, next starts again at
// minBackoff.
func (b *backoff) termOf(length time.Duration, c *config) {
	if length >= c.maxBackoff {
		b.failures = 0
	}
	b.failures++
}

func (b *backoff) reset() { b.failures = 0 }

// next returns the pause before the next campaign.
func (b *backoff) next(c *config) time.Duration {
	d := c.minBackoff
	for n := 1; n < b.failures && d < c.maxBackoff; n++ {
		d = 2 * min(d, c.maxBackoff/2) // min: d can't overflow
	}
	return shortened(min(d, c.maxBackoff), 2)
}

// shortened returns d minus a random duration of up to d/n.
func shortened(d time.Duration, n int64) time.Duration {
	return d - time.Duration(rand.Int64N(int64(d)/n+1))
}
