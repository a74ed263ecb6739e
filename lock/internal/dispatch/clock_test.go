package dispatch

import (
	"testing"
	"time"
)

// TestClockEarliest checks the earliest local time at which a server's clock can have shown a time. Trust in a grant
// that was made then counts from this time.
func TestClockEarliest(t *testing.T) {
	t.Parallel()
	var c Clock
	const zero = int64(1_700_000_000_000_000)
	if at, ok := c.Earliest(zero); ok || !at.IsZero() {
		t.Errorf("of an unknown clock: %v", at)
	}
	start := time.Now()
	c.Learn(zero, start, false)
	for _, tt := range []struct{ shown, want time.Duration }{
		{0, 0},
		{-time.Second, -time.Second},
		{time.Second, time.Second - 500*time.Microsecond}, // the clocks may run apart
		{time.Hour, time.Hour - 1800*time.Millisecond},
	} {
		if at, ok := c.Earliest(zero + tt.shown.Microseconds()); !ok || at.Sub(start) != tt.want {
			t.Errorf("what it shows after %v may have been shown after %v, want %v", tt.shown, at.Sub(start), tt.want)
		}
	}
}

// The tightest reply counts, but no clock is trusted for ever.
func TestClock(t *testing.T) {
	t.Parallel()
	start := time.Now()
	const zero = int64(1_700_000_000_000_000) // what the server shows at start
	at := func(d time.Duration) int64 { return zero + d.Microseconds() }
	var c Clock
	if got, slack := c.At(start); got != 0 || slack != 0 {
		t.Errorf("an unknown clock shows %d", got)
	}
	steps := []struct {
		what          string
		sent          time.Duration // after start
		seen          time.Duration // what the server shows, after zero
		late          bool
		wantAfterHour time.Duration // what it is thought to show an hour after start at the latest
	}{
		{"the first answer, to a request of 50 ms", 0, 50 * time.Millisecond, false, time.Hour + 50*time.Millisecond},
		{"a faster one", time.Second, time.Second + time.Millisecond, false, time.Hour + time.Millisecond},
		{"a slower one", 2 * time.Second, 4 * time.Second, false, time.Hour + time.Millisecond},
		{"an older one that was slow", time.Second / 2, 3 * time.Second, false, time.Hour + time.Millisecond},
		{"one within what clocks drift apart", 101 * time.Second, 101*time.Second + 50*time.Millisecond, false, time.Hour + 50*time.Millisecond},
		{"the clock was set back", 200 * time.Second, 190 * time.Second, false, time.Hour - 10*time.Second},
		{"the clock was set ahead", 201 * time.Second, 260 * time.Second, false, time.Hour - 10*time.Second},
		{"... and a call was too late by it", 202 * time.Second, 262 * time.Second, true, time.Hour + time.Minute},
	}
	for _, s := range steps {
		c.Learn(at(s.seen), start.Add(s.sent), s.late)
		if got, _ := c.At(start.Add(time.Hour)); got != at(s.wantAfterHour) {
			t.Errorf("%s: off by %v", s.what, time.Duration(got-at(s.wantAfterHour))*time.Microsecond)
		}
	}
}
