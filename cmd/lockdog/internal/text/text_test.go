package text_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/lockdog/lockdog/cmd/lockdog/internal/text"
	"github.com/lockdog/lockdog/lock/fleet"
)

// hostile are names that would do something to a terminal.
var hostile = []string{"\x1b]0;title\a", "a\nb\rc", "\u202eabc", "\u009b31m", "\x7f", "invalid \xff", "\u200b\ufeff", "\U000e0041"}

func TestSafe(t *testing.T) {
	for _, name := range []string{"orders:42", `a "quoted" name`, "ümlaut", `back\slash`, ""} {
		if got := text.Safe(name); got != name {
			t.Errorf("%q became %q", name, got)
		}
	}
	for _, name := range hostile {
		for _, got := range []string{text.Safe(name), text.OneLine(name)} {
			if got == "" || strings.ContainsAny(got, "\x1b\a\n\r\u202e\u009b\x7f\u200b\ufeff\U000e0041") || !utf8.ValidString(got) {
				t.Errorf("%q became %q", name, got)
			}
		}
	}
}

func TestOneLine(t *testing.T) {
	if got := text.OneLine("fleet: no answer\n\nfleet: no answer\r\nrefused"); got != "no answer; refused" {
		t.Errorf("%q", got)
	}
}

// What is escaped is the same JSON.
func TestEscapeJSON(t *testing.T) {
	for _, name := range hostile {
		line, err := json.Marshal(name)
		if err != nil {
			t.Fatal(err)
		}
		escaped := text.EscapeJSON(string(line))
		var before, after string
		if err := errors.Join(json.Unmarshal(line, &before), json.Unmarshal([]byte(escaped), &after)); err != nil || before != after {
			t.Errorf("%q became %q: %v", before, after, err)
		}
		if strings.ContainsAny(escaped, "\x1b\a\u202e\u009b\x7f\u200b\ufeff\U000e0041") {
			t.Errorf("%q", escaped)
		}
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
