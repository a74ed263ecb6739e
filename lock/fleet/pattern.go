package fleet

import (
	"cmp"
	"fmt"
	"regexp"
	"strings"
)

// matcher returns a function that reports whether a name matches a pattern in Redis's syntax; "" is "*". It rejects
// patterns that Redis accepts but nobody means, such as a [ without ].
func matcher(pattern string) (func(name string) bool, error) {
	re, refused := `(?s)\A`, ""
	for p := cmp.Or(pattern, "*"); p != "" && refused == ""; {
		c := p[0]
		p = p[1:]
		switch {
		case c == '*':
			re += `.*`
		case c == '?':
			re += `.`
		case c == '[':
			text, rest, closed := class(p)
			if !closed {
				refused = "has a [ without a ]"
			}
			re, p = re+text, rest
		case c != '\\':
			re += literal(c)
		case p == "":
			refused = `ends in a \`
		default:
			re, p = re+literal(p[0]), p[1:]
		}
	}
	if refused != "" {
		return nil, fmt.Errorf("%w: the pattern %q %s: write \\ before what is to stand for itself",
			ErrInvalid, pattern, refused)
	}
	matches := regexp.MustCompile(re + `\z`).MatchString
	return func(name string) bool { return matches(runes(name)) }, nil
}

// class translates a class of a pattern, whose text after '[' is p, to a regexp. It returns the rest of the pattern
// too. A class of Redis may be empty, one of a regexp may not: so each has the rune 0x100, which is in no name.
func class(p string) (re, rest string, closed bool) {
	re = `[\x{100}`
	if rest, not := strings.CutPrefix(p, "^"); not {
		re, p = `[^\x{100}`, rest
	}
	for p != "" && p[0] != ']' {
		switch {
		case p[0] == '\\' && len(p) >= 2:
			re, p = re+literal(p[1]), p[2:]
		case len(p) >= 3 && p[1] == '-':
			re, p = re+literal(min(p[0], p[2]))+"-"+literal(max(p[0], p[2])), p[3:]
		default:
			re, p = re+literal(p[0]), p[1:]
		}
	}
	rest, closed = strings.CutPrefix(p, "]")
	return re + "]", rest, closed
}

func literal(c byte) string { return fmt.Sprintf(`\x%02x`, c) }

// runes converts each byte of a name to a rune, because Redis matches byte by byte.
func runes(name string) string {
	list := make([]rune, len(name))
	for i := range list {
		list[i] = rune(name[i])
	}
	return string(list)
}

// escape returns a pattern that matches only the text.
func escape(text string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`).Replace(text)
}
