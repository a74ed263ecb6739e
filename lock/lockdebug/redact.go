package lockdebug

import (
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/lockdog/lockdog/lock"
)

// redactor replaces names and owners in one response. Filters and sorting use the result: a client can't query what isn't shown.
type redactor struct {
	names, owners replacements
	all           *strings.Replacer // of both, in texts; nil until needed
}

// replacements are the texts that were replaced, and what they were replaced by.
type replacements struct {
	redact func(string) string // nil: texts stay as they are
	seen   map[string]string
}

// minReplaced is the length from which a name is replaced anywhere in an error; shorter ones only where they are quoted.
const minReplaced = 4

func (h *handler) redactor() *redactor {
	return &redactor{
		names:  replacements{h.redactName, map[string]string{}},
		owners: replacements{h.redactOwner, map[string]string{}},
	}
}

func (r *replacements) replace(s string) string {
	if r.redact == nil || s == "" {
		return s
	}
	out, ok := r.seen[s]
	if !ok {
		out = r.redact(s)
		r.seen[s] = out
	}
	return out
}

// joined replaces the name of a Multi, whose names are joined by commas.
func (r *replacements) joined(s string) string {
	if _, ok := r.seen[s]; !ok && r.redact != nil {
		parts := strings.Split(s, ",")
		for i, part := range parts {
			parts[i] = r.replace(part)
		}
		r.seen[s] = strings.Join(parts, ",")
	}
	return r.replace(s)
}

// lease redacts a lease and its members, except their errors: these may have names in them that are seen later.
func (r *redactor) lease(l *lease) {
	name := r.names.replace
	if l.id != 0 && l.Kind == kindMulti {
		name = r.names.joined
	}
	l.Name, l.Owner, l.WaitsFor = name(l.Name), r.owners.replace(l.Owner), r.owners.replace(l.WaitsFor)
	for i := range l.members {
		r.lease(&l.members[i])
	}
}

// text returns the text of an error, redacted and not too long; "" without one.
func (r *redactor) text(err error) string {
	if err == nil {
		return ""
	}
	text := err.Error()
	if r.names.redact != nil || r.owners.redact != nil {
		r.learn(err)
		if r.all == nil {
			r.all = r.replacer()
		}
		text = r.all.Replace(text)
	}
	if len(text) > maxTextBytes {
		text = text[:maxTextBytes] + "…"
	}
	return text
}

// learn finds names and owners in the errors of package lock: those of locks that aren't listed.
func (r *redactor) learn(err error) {
	known := len(r.names.seen) + len(r.owners.seen)
	var held *lock.HeldError
	var replicas *lock.ReplicasError
	if errors.As(err, &held) {
		r.names.replace(held.Name)
		r.owners.replace(held.Owner)
	}
	if errors.As(err, &replicas) {
		r.names.replace(replicas.Name)
	}
	var lost *lock.LostError
	for e := err; errors.As(e, &lost); e = lost.Unwrap() {
		r.names.replace(lost.Name)
	}
	var canceled *lock.CanceledError
	for e := err; errors.As(e, &canceled); e = canceled.Unwrap() {
		r.names.replace(canceled.Name)
	}
	if len(r.names.seen)+len(r.owners.seen) > known {
		r.all = nil
	}
}

// replacer replaces what was seen, the longest first, also in the form in which errors quote it.
func (r *redactor) replacer() *strings.Replacer {
	type pair struct{ from, to string }
	var pairs []pair
	for _, seen := range []map[string]string{r.names.seen, r.owners.seen} {
		for from, to := range seen {
			quoted := strconv.Quote(from)
			if len(from) < minReplaced {
				pairs = append(pairs, pair{quoted, strconv.Quote(to)})
				continue
			}
			pairs = append(pairs, pair{from, to})
			if inner := quoted[1 : len(quoted)-1]; inner != from {
				pairs = append(pairs, pair{inner, to})
			}
		}
	}
	slices.SortFunc(pairs, func(a, b pair) int { return len(b.from) - len(a.from) })
	list := make([]string, 0, 2*len(pairs))
	for _, p := range pairs {
		list = append(list, p.from, p.to)
	}
	return strings.NewReplacer(list...)
}
