package lockdebug

import (
	"errors"
	"strings"

	"github.com/lockdog/lockdog/lock"
	"github.com/lockdog/lockdog/lock/internal/redisfail"
)

// redactor replaces names and owners in one response. Filters and sorting use the result, so a query can't find out
// hidden text.
type redactor struct {
	names, owners replacements
}

// replacements replaces texts, and remembers the result for each.
type replacements struct {
	redact func(string) string // nil: texts stay unchanged
	seen   map[string]string
}

func (h *handler) redactor() redactor {
	return redactor{
		names:  replacements{h.RedactName, map[string]string{}},
		owners: replacements{h.RedactOwner, map[string]string{}},
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
	return strings.Join(parts, ",")
}

// textOf returns the text of an error, truncated; "" for nil. If anything is redacted, it returns only the kind of the
// error, because names and owners may be anywhere in the text.
func (r *redactor) textOf(err error) string {
	switch {
	case err == nil:
		return ""
	case r.names.redact != nil || r.owners.redact != nil:
		return kindOf(err)
	}
	text := err.Error()
	if len(text) > maxTextBytes {
		text = text[:maxTextBytes] + "…"
	}
	return text
}

// kindOf returns what kind of error it is.
func kindOf(err error) string {
	var lost *lock.LostError
	var canceled *lock.CanceledError
	switch {
	case errors.As(err, &lost):
		return "lost: " + string(lost.Cause)
	case errors.As(err, &canceled):
		return "canceled: " + string(canceled.Reason)
	}
	return "error: " + string(redisfail.Classify(err).Kind)
}
