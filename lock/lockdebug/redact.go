package lockdebug

import (
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/lockdog/lockdog/lock"
)

// redactor replaces names and owners in what one answer shows. Filters and orders see what it leaves, so that nobody can ask
// for more than is shown.
type redactor struct {
	nameFunc, ownerFunc func(string) string
	names, owners       map[string]string // what has been replaced
	all                 *strings.Replacer // of those, made when first needed
}

// minReplaced is how many bytes a name has to have to be replaced in an error wherever it stands; a shorter one is where it is quoted.
const minReplaced = 4

func (h *handler) redactor() *redactor {
	return &redactor{nameFunc: h.redactName, ownerFunc: h.redactOwner, names: map[string]string{}, owners: map[string]string{}}
}

func replaced(by func(string) string, seen map[string]string, s string) string {
	if by == nil || s == "" {
		return s
	}
	out, ok := seen[s]
	if !ok {
		out = by(s)
		seen[s] = out
	}
	return out
}

func (r *redactor) name(s string) string  { return replaced(r.nameFunc, r.names, s) }
func (r *redactor) owner(s string) string { return replaced(r.ownerFunc, r.owners, s) }

// joined is the name of a Multi, whose names are joined by commas.
func (r *redactor) joined(kind, s string) string {
	if r.nameFunc == nil || kind != kindMulti {
		return r.name(s)
	}
	if out, ok := r.names[s]; ok {
		return out
	}
	parts := strings.Split(s, ",")
	for i, part := range parts {
		parts[i] = r.name(part)
	}
	r.names[s] = strings.Join(parts, ",")
	return r.names[s]
}

// lease replaces what is in a LeaseInfo, but for its error: that may have names that are seen later.
func (r *redactor) lease(l *lock.LeaseInfo, kind string) {
	l.Name, l.Owner, l.WaitsFor = r.joined(kind, l.Name), r.owner(l.Owner), r.owner(l.WaitsFor)
}

// text is what an error says, "" without one.
func (r *redactor) text(err error) string {
	if err == nil {
		return ""
	}
	text := err.Error()
	if r.nameFunc == nil && r.ownerFunc == nil {
		return short(text)
	}
	r.learn(err)
	if r.all == nil {
		r.all = r.replacer()
	}
	return short(r.all.Replace(text))
}

// learn looks for names and owners in the errors of package lock: they may be of locks that aren't shown.
func (r *redactor) learn(err error) {
	known := len(r.names) + len(r.owners)
	var held *lock.HeldError
	var lost *lock.LostError
	var canceled *lock.CanceledError
	var replicas *lock.ReplicasError
	switch {
	case errors.As(err, &held):
		r.name(held.Name)
		r.owner(held.Owner)
	case errors.As(err, &replicas):
		r.name(replicas.Name)
	}
	for e := err; errors.As(e, &lost); e = lost.Unwrap() {
		r.name(lost.Name)
	}
	for e := err; errors.As(e, &canceled); e = canceled.Unwrap() {
		r.name(canceled.Name)
	}
	if len(r.names)+len(r.owners) > known {
		r.all = nil
	}
}

// replacer replaces all that has been seen, the longest first, as it is and as errors quote it.
func (r *redactor) replacer() *strings.Replacer {
	type pair struct{ from, to string }
	var pairs []pair
	for _, seen := range []map[string]string{r.names, r.owners} {
		for from, to := range seen {
			if quoted := strconv.Quote(from); len(from) < minReplaced {
				pairs = append(pairs, pair{quoted, strconv.Quote(to)})
			} else {
				pairs = append(pairs, pair{from, to})
				if inner := quoted[1 : len(quoted)-1]; inner != from {
					pairs = append(pairs, pair{inner, to})
				}
			}
		}
	}
	slices.SortFunc(pairs, func(a, b pair) int { return len(b.from) - len(a.from) })
	var list []string
	for _, p := range pairs {
		list = append(list, p.from, p.to)
	}
	return strings.NewReplacer(list...)
}
