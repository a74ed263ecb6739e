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

// seconds is a duration, in JSON the number of seconds.
type seconds time.Duration

// MarshalJSON implements json.Marshaler.
func (s seconds) MarshalJSON() ([]byte, error) {
	return strconv.AppendFloat(nil, s.Float(), 'f', -1, 64), nil
}

// Float is the number of seconds, to the millisecond.
func (s seconds) Float() float64 { return math.Round(time.Duration(s).Seconds()*1000) / 1000 }

// String is the duration in one or two units; "0 s" if it is negative.
func (s seconds) String() string {
	d := max(time.Duration(s), 0)
	switch {
	case d < 10*time.Second:
		return strings.TrimSuffix(strconv.FormatFloat(math.Floor(d.Seconds()*10)/10, 'f', 1, 64), ".0") + " s"
	case d < time.Minute:
		return fmt.Sprintf("%d s", d/time.Second)
	case d < time.Hour:
		return twoUnits(d, time.Minute, "min", time.Second, "s")
	case d < 24*time.Hour:
		return twoUnits(d, time.Hour, "h", time.Minute, "min")
	default:
		return twoUnits(d, 24*time.Hour, "d", time.Hour, "h")
	}
}

// Fine is String, but below a second it is in milliseconds.
func (s seconds) Fine() string {
	if d := time.Duration(s); d >= 0 && d < time.Second {
		return strconv.FormatFloat(math.Round(d.Seconds()*10_000)/10, 'f', -1, 64) + " ms"
	}
	return s.String()
}

// twoUnits leaves out the smaller unit if there are none of it.
func twoUnits(d, large time.Duration, largeName string, small time.Duration, smallName string) string {
	text := fmt.Sprintf("%d %s", d/large, largeName)
	if rest := d % large / small; rest > 0 {
		text += fmt.Sprintf(" %d %s", rest, smallName)
	}
	return text
}

// Negative reports whether the duration is below zero.
func (s seconds) Negative() bool { return s < 0 }

// Abs is the duration without its sign.
func (s seconds) Abs() seconds { return max(s, -s) }

// since is the time from then to now; 0 if then is later, as a lock may be taken after now was read.
func since(then, now time.Time) seconds { return seconds(max(now.Sub(then), 0)) }

// utc is a time as it is shown: in UTC, to the millisecond.
func utc(t time.Time) time.Time { return t.UTC().Truncate(time.Millisecond) }

// stamp is a time as machines write it.
func stamp(t time.Time) string { return t.Format("2006-01-02T15:04:05.000Z07:00") }

// clock is the time of day.
func clock(t time.Time) string { return t.Format("15:04:05Z07:00") }

// visible quotes a text that has invisible characters in it: line breaks, marks of direction, invalid UTF-8.
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
