package fleet

import (
	"errors"
	"fmt"
	"strings"
)

// patternError is the error of a pattern that checkPattern refuses.
func patternError(pattern string, err error) error {
	return fmt.Errorf("%w: the pattern %q %w: write \\ before what is to stand for itself", ErrInvalid, pattern, err)
}

// escape makes a pattern of a text that matches that text alone.
func escape(text string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`).Replace(text)
}

// checkPattern refuses what Redis would take for something that nobody means.
func checkPattern(pattern string) error {
	for pattern != "" {
		switch pattern[0] {
		case '\\':
			if len(pattern) == 1 {
				return errors.New(`ends in a \`)
			}
			pattern = pattern[2:]
		case '[':
			_, rest, closed := class(pattern, 0)
			if !closed {
				return errors.New("has a [ without a ]")
			}
			pattern = rest
		default:
			pattern = pattern[1:]
		}
	}
	return nil
}

// matches reports whether a name matches a pattern of Redis's, byte by byte as Redis does.
func matches(pattern, name string) bool {
	starred, again := "", "" // where to go on if the rest doesn't match: behind the last '*', with one byte more for it
	star := false
	for {
		switch {
		case pattern != "" && pattern[0] == '*':
			pattern = pattern[1:]
			starred, again, star = pattern, name, true
			continue
		case pattern == "" && name == "":
			return true
		case pattern != "" && name != "":
			if ok, rest := matchesByte(pattern, name[0]); ok {
				pattern, name = rest, name[1:]
				continue
			}
		}
		if !star || again == "" {
			return false
		}
		again = again[1:]
		pattern, name = starred, again
	}
}

// matchesByte reports whether what a pattern begins with, which is no '*', matches a byte; and the rest of the pattern.
func matchesByte(pattern string, c byte) (ok bool, rest string) {
	switch pattern[0] {
	case '?':
		return true, pattern[1:]
	case '[':
		ok, rest, _ = class(pattern, c)
		return ok, rest
	case '\\':
		if len(pattern) > 1 {
			pattern = pattern[1:]
		}
	}
	return pattern[0] == c, pattern[1:]
}

// class reports whether the class that a pattern begins with has a byte; the rest of the pattern; and whether the class was closed.
func class(pattern string, c byte) (has bool, rest string, closed bool) {
	p := pattern[1:]
	not := strings.HasPrefix(p, "^")
	if not {
		p = p[1:]
	}
	for p != "" && p[0] != ']' {
		switch {
		case p[0] == '\\' && len(p) >= 2:
			has = has || p[1] == c
			p = p[2:]
		case len(p) >= 3 && p[1] == '-':
			from, to := min(p[0], p[2]), max(p[0], p[2])
			has = has || from <= c && c <= to
			p = p[3:]
		default:
			has = has || p[0] == c
			p = p[1:]
		}
	}
	if p != "" {
		p, closed = p[1:], true
	}
	return has != not, p, closed
}
