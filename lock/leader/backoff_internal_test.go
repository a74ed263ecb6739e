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

// One failed campaign a minute is logged, also where others come between that only find another leader.
func TestBackoffLogsOnceAMinute(t *testing.T) {
	t.Parallel()
	b, now, logged := &backoff{}, time.Unix(0, 0), 0
	for range 120 {
		if _, log := b.failed(now); log {
			logged++
		}
		b.reset()
		now = now.Add(time.Second)
	}
	if logged != 2 {
		t.Errorf("%d records in two minutes", logged)
	}
}
