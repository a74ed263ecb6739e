// Package text formats what Redis says about locks for people: in few words, and without characters that a terminal
// would obey.
package text

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/lockdog/lockdog/lock/fleet"
)

// Safe returns a text that is safe for a terminal: unprintable characters are written as in a Go string, or as U+FFFD.
// Anyone who can write to Redis can choose names.
func Safe(s string) string {
	if utf8.ValidString(s) && !strings.ContainsFunc(s, unprintable) {
		return s
	}
	quoted := strconv.QuoteToGraphic(s)
	quoted = strings.ReplaceAll(quoted[1:len(quoted)-1], `\"`, `"`)
	return strings.Map(func(r rune) rune {
		if unprintable(r) {
			return utf8.RuneError
		}
		return r
	}, quoted)
}

// unprintable reports whether a rune moves the cursor, is invisible, or changes the direction of a text.
func unprintable(r rune) bool { return !unicode.IsPrint(r) || unicode.Is(unicode.Bidi_Control, r) }

// OneLine returns the text of one error, or of several joined errors, on one line. Equal texts are in it only once.
func OneLine(s string) string {
	var texts []string
	for line := range strings.FieldsFuncSeq(s, func(r rune) bool { return r == '\n' || r == '\r' }) {
		line = Safe(strings.TrimPrefix(line, "fleet: ")) // users don't know our packages
		if !slices.Contains(texts, line) {
			texts = append(texts, line)
		}
	}
	return strings.Join(texts, "; ")
}

// Span formats a duration with at most two units. A negative one is the time of a lease that doesn't end.
func Span(d time.Duration) string {
	switch {
	case d < 0:
		return "no end"
	case d < 10*time.Second:
		return fmt.Sprintf("%.1fs", d.Seconds())
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < 24*time.Hour:
		return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
	}
	return fmt.Sprintf("%dd%02dh", int(d.Hours())/24, int(d.Hours())%24)
}

// Left formats the remaining time of a lease.
func Left(d time.Duration) string {
	if d < 0 {
		return "no end: it is held until it is released"
	}
	return Span(d) + " unless it is renewed"
}

// Age formats the time from since to now, "-" if since isn't known.
func Age(since, now time.Time) string {
	if since.IsZero() {
		return "-"
	}
	return Span(max(now.Sub(since), 0))
}

// Holder says in a few words who holds a lock.
func Holder(l fleet.Lock) string {
	switch {
	case l.Kind == fleet.Semaphore:
		return fmt.Sprintf("%d of %d permits", l.Held, l.Held+l.Available)
	case l.Kind == fleet.Number:
		return "number " + strconv.Itoa(l.Available)
	case l.Held == 0:
		return "free"
	case l.Held == 1 && len(l.Holders) == 0: // one of very many readers, of whom not all were read
		return Owner("", "", false)
	case l.Held == 1:
		return Owner(l.Holders[0].Owner, l.Holders[0].ClientID, l.Holders[0].Redisson)
	}
	return strconv.Itoa(l.Held) + " readers"
}

// Owner returns a name for an owner: its client's id, if that is known.
func Owner(owner, clientID string, redisson bool) string {
	switch {
	case clientID != "":
		return Safe(clientID)
	case redisson:
		return "Redisson " + Safe(owner)
	case owner == "":
		return "a client"
	}
	return Safe(owner)
}

// Since returns when the lock was acquired by its holder, or by the earliest of its present holders. It ignores holders
// whose time isn't known, and returns zero if there are no others.
func Since(l fleet.Lock) time.Time {
	var first time.Time
	for _, h := range l.Holders {
		if first.IsZero() || !h.Since.IsZero() && h.Since.Before(first) {
			first = h.Since
		}
	}
	return first
}

// Earlier compares times for sorting: the earlier first, unknown ones last.
func Earlier(a, b time.Time) int {
	if a.IsZero() || b.IsZero() {
		return b.Compare(a)
	}
	return a.Compare(b)
}

// Kind returns the kind and the mode of a lock.
func Kind(l fleet.Lock) string { return strings.TrimSpace(string(l.Kind) + " " + Safe(l.Mode)) }

// EscapeJSON escapes the unprintable characters that a line of JSON may contain.
func EscapeJSON(line string) string {
	var out strings.Builder
	for _, r := range line {
		if r == '\n' || !unprintable(r) {
			out.WriteRune(r)
			continue
		}
		for _, unit := range utf16.AppendRune(nil, r) {
			fmt.Fprintf(&out, `\u%04x`, unit)
		}
	}
	return out.String()
}
