package lockdebug

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/lockdog/lockdog/lock"
)

// redactor replaces names and owners in one response. Filters and sorting use the result, so a query can't find out
// hidden text.
type redactor struct {
	names, owners replacements
	multis        map[string]string // the names of Multis, redacted name by name: a Mutex may have the same name
	all           *strings.Replacer // of all three, for texts of errors; nil until needed
	known         int               // how many texts the replacer all knows
}

// replacements replaces texts, and remembers the result for each.
type replacements struct {
	redact func(string) string // nil: texts stay unchanged
	seen   map[string]string
}

// minReplaced is the minimum length of a name or an owner that is replaced everywhere in an error. Shorter ones are
// replaced only where they are quoted, because they may be a part of a word.
const minReplaced = 4

func (h *handler) redactor() redactor {
	return redactor{
		names:  replacements{h.RedactName, map[string]string{}},
		owners: replacements{h.RedactOwner, map[string]string{}},
		multis: map[string]string{},
	}
}

func (r *replacements) replace(s string) string {
	if r.redact == nil || s == "" {
		return s
	}
	if _, ok := r.seen[s]; !ok {
		r.seen[s] = r.redact(s)
	}
	return r.seen[s]
}

// multi replaces the name of a Multi: names joined by commas.
func (r *redactor) multi(s string) string {
	if r.names.redact == nil {
		return s
	}
	parts := strings.Split(s, ",")
	for i, part := range parts {
		parts[i] = r.names.replace(part)
	}
	r.multis[s] = strings.Join(parts, ",")
	return r.multis[s]
}

// textOf returns the text of an error, redacted and truncated; "" for nil.
func (r *redactor) textOf(err error) string {
	if err == nil {
		return ""
	}
	text := err.Error()
	if r.names.redact != nil || r.owners.redact != nil {
		r.learn(err)
		if n := len(r.names.seen) + len(r.owners.seen) + len(r.multis); r.all == nil || n > r.known {
			r.all, r.known = r.replacer(), n
		}
		text = r.all.Replace(text)
	}
	if len(text) > maxTextBytes {
		text = text[:maxTextBytes] + "…"
	}
	return text
}

// learn collects the names and owners in errors of package lock: they may be of locks that aren't listed.
func (r *redactor) learn(err error) {
	switch e := err.(type) { //nolint:errorlint // all that it wraps are looked at, too
	case *lock.HeldError:
		r.names.replace(e.Name)
		r.owners.replace(e.Owner)
	case *lock.ReplicasError:
		r.names.replace(e.Name)
	case *lock.LostError:
		r.names.replace(e.Name)
		r.owners.replace(e.ForcedBy())
	case *lock.CanceledError:
		r.names.replace(e.Name)
	}
	switch e := err.(type) { //nolint:errorlint // as above
	case interface{ Unwrap() error }:
		r.learn(e.Unwrap())
	case interface{ Unwrap() []error }:
		for _, one := range e.Unwrap() {
			r.learn(one)
		}
	}
}

// replacer returns a Replacer for all texts seen so far, the longest first. A text is also replaced in the quoted form
// that errors use. One shorter than minReplaced is replaced only in that form.
func (r *redactor) replacer() *strings.Replacer {
	by := map[string]string{}
	for _, seen := range []map[string]string{r.multis, r.names.seen, r.owners.seen} {
		for from, to := range seen {
			quoted := strconv.Quote(from)
			if len(from) < minReplaced {
				by[quoted] = strconv.Quote(to)
				continue
			}
			by[from], by[quoted[1:len(quoted)-1]] = to, to
		}
	}
	var list []string
	for _, from := range slices.SortedFunc(maps.Keys(by), func(a, b string) int { return len(b) - len(a) }) {
		list = append(list, from, by[from])
	}
	return strings.NewReplacer(list...)
}
