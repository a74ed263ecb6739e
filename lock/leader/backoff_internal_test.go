package leader

import (
	"math"
	"testing"
	"time"
)

// Pauses get longer, however long the longest may be.
func TestBackoffNeverOverflows(t *testing.T) {
	t.Parallel()
	c := &config{minBackoff: time.Second, maxBackoff: math.MaxInt64}
	b := &backoff{}
	for b.failures < 100 {
		b.failed(time.Time{})
		if d, least := b.next(c), time.Second<<min(b.failures-1, 32)/2; d < least {
			t.Fatalf("a pause of %v after %d failures", d, b.failures)
		}
	}
}
