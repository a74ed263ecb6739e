package leader

import (
	"math"
	"strings"
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

// A client is one for OnNewLeader, whichever of its owners leads.
func TestClientOf(t *testing.T) {
	t.Parallel()
	for _, same := range [][2]string{
		{"app/1:0123-1", "app/1:0123-2"}, {"app-1:0123-1", "app-1:0123-7:write"}, {"5c0e-11:1", "5c0e-11:52"}, // Redisson's: a thread
	} {
		one, _ := clientOf(same[0])
		if other, id := clientOf(same[1]); one != other || id != same[1][:strings.IndexByte(same[1], ':')] {
			t.Errorf("%q: %q and %q, id %q", same, one, other, id)
		}
	}
	one, _ := clientOf("app:0123-1")
	if other, _ := clientOf("app:0124-1"); one == other {
		t.Errorf("two clients are %q", one)
	}
}
