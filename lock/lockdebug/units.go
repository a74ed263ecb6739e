package lockdebug

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// seconds is a duration that JSON has in seconds, to the millisecond.
type seconds time.Duration

// MarshalJSON implements json.Marshaler.
func (s seconds) MarshalJSON() ([]byte, error) {
	return strconv.AppendFloat(nil, s.Float(), 'f', -1, 64), nil
}

// Float is the number of seconds, to the millisecond.
func (s seconds) Float() float64 { return math.Round(time.Duration(s).Seconds()*1000) / 1000 }

// String is for people: two units at most, as nobody looks at the seconds of a day. What is below zero is no time.
func (s seconds) String() string {
	d := max(time.Duration(s), 0)
	switch {
	case d < 10*time.Second:
		return strings.TrimSuffix(strconv.FormatFloat(math.Floor(d.Seconds()*10)/10, 'f', 1, 64), ".0") + " s"
	case d < time.Minute:
		return fmt.Sprintf("%d s", d/time.Second)
	case d < time.Hour:
		return two(d, time.Minute, "min", time.Second, "s")
	case d < 24*time.Hour:
		return two(d, time.Hour, "h", time.Minute, "min")
	default:
		return two(d, 24*time.Hour, "d", time.Hour, "h")
	}
}

// two is a duration in two units, the smaller only if there are any of it.
func two(d, large time.Duration, largeName string, small time.Duration, smallName string) string {
	text := fmt.Sprintf("%d %s", d/large, largeName)
	if rest := d % large / small; rest > 0 {
		text += fmt.Sprintf(" %d %s", rest, smallName)
	}
	return text
}

// Negative says whether it is below zero, and Abs is what it is without the sign.
func (s seconds) Negative() bool { return s < 0 }
func (s seconds) Abs() seconds   { return max(s, -s) }

// since is the time from then to now, 0 if then is later: a lock may have been taken since we looked at the clock.
func since(then, now time.Time) seconds { return seconds(max(now.Sub(then), 0)) }

// utc is a time as it is shown: in UTC, to the millisecond.
func utc(t time.Time) time.Time { return t.UTC().Truncate(time.Millisecond) }

// short is text that nobody need be afraid of: its beginning, where it is longer than any that we write.
func short(s string) string {
	if len(s) <= maxTextBytes {
		return s
	}
	return s[:maxTextBytes] + "…"
}

// visible is text that can hide nothing: what has marks of direction, line breaks or other unprintable things in it is
// quoted as Go quotes it.
func visible(s string) string {
	if utf8.ValidString(s) && strings.IndexFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) < 0 {
		return s
	}
	return strconv.Quote(s)
}

// thousands is a count with its digits in groups: 10,000.
func thousands(n int) string {
	digits := strconv.Itoa(n)
	for at := len(digits) - 3; at > 0; at -= 3 {
		digits = digits[:at] + "," + digits[at:]
	}
	return digits
}
