package text_test

import (
	"testing"
	"time"

	"github.com/lockdog/lockdog/cmd/lockdog/internal/text"
	"github.com/lockdog/lockdog/lock/fleet"
)

func TestOneLine(t *testing.T) {
	if got := text.OneLine("fleet: no answer\n\nfleet: no answer\r\nrefused"); got != "no answer; refused" {
		t.Errorf("%q", got)
	}
}

func TestSpan(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-1: "no end", 0: "0.0s", 9900 * time.Millisecond: "9.9s", 59 * time.Second: "59s", 61 * time.Second: "1m01s", 3*time.Hour + 5*time.Minute: "3h05m", 49 * time.Hour: "2d01h",
	} {
		if got := text.Span(d); got != want {
			t.Errorf("%v: %q, want %q", d, got, want)
		}
	}
	now := time.Now()
	if text.Age(time.Time{}, now) != "-" || text.Age(now.Add(time.Hour), now) != "0.0s" || text.Age(now.Add(-time.Minute), now) != "1m00s" {
		t.Error("ages")
	}
}

func TestHolder_Unknown(t *testing.T) {
	if got := text.Holder(fleet.Lock{Kind: fleet.RW, Held: 1}); got != "a client" {
		t.Errorf("%q", got)
	}
}
