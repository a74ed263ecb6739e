package lockdebug

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// The values of ?format=.
const (
	formatHTML    = "html"
	formatJSON    = "json"
	formatProfile = "profile"
)

// The values of ?sort=.
const (
	sortTrouble   = "trouble"
	sortAge       = "age"
	sortRemaining = "remaining"
	sortName      = "name"
)

// maxTextBytes bounds texts: the longest name has as many bytes.
const maxTextBytes = 1024

// parameters are what a query can have.
var parameters = []parameter{
	{key: "q"},
	{key: "group"},
	{key: "state", choices: []string{stateHeld, stateFailing, stateExpiring, stateDegraded, stateCanceled, stateWaiting, stateLost, stateClosed}},
	{key: "sort", preset: sortTrouble, choices: []string{sortTrouble, sortAge, sortRemaining, sortName}},
	{key: "page", preset: "1", most: 1_000_000},
	{key: "per", preset: "100", most: 1000},
	{key: "refresh", preset: "5", most: 3600, or: "off"},
	{key: "seconds", most: 300},
	{key: "format", choices: []string{formatHTML, formatJSON, formatProfile}},
}

type parameter struct {
	key, preset string
	choices     []string // if any, one of them
	most        int      // if positive, a number from 1 to most
	or          string   // or this, instead of a number
}

// parse returns a value in its normal form.
func (p *parameter) parse(value string) (string, error) {
	switch {
	case value == "", p.or != "" && value == p.or:
	case p.choices != nil:
		if !slices.Contains(p.choices, value) {
			return "", fmt.Errorf("%s is %.64q; allowed: %s", p.key, value, strings.Join(p.choices, ", "))
		}
	case p.most > 0:
		n, err := strconv.Atoi(value)
		if err != nil || n < 1 || n > p.most {
			allowed := fmt.Sprintf("1 to %d", p.most)
			if p.or != "" {
				allowed = p.or + ", or " + allowed
			}
			return "", fmt.Errorf("%s is %.64q; allowed: %s", p.key, value, allowed)
		}
		return strconv.Itoa(n), nil
	case len(value) > maxTextBytes:
		return "", fmt.Errorf("%s has %d bytes; at most %d are allowed", p.key, len(value), maxTextBytes)
	}
	return value, nil
}

// query has the value of each parameter.
type query map[string]string

func defaultQuery() query {
	q := query{}
	for _, p := range parameters {
		q[p.key] = p.preset
	}
	return q
}

// parseQuery returns the query of a request. The error names what is allowed instead of each bad value; the other values are set
// even then.
func parseQuery(raw string) (query, error) {
	q := defaultQuery()
	values, err := url.ParseQuery(raw)
	if err != nil {
		return q, fmt.Errorf("the query can't be read: %w", err)
	}
	var errs []error
	for _, p := range parameters {
		value, err := p.parse(values.Get(p.key))
		if value != "" {
			q[p.key] = value
		}
		errs = append(errs, err)
	}
	return q, errors.Join(errs...)
}

// number returns the value of a parameter that is a number.
func (q query) number(key string) int {
	n, _ := strconv.Atoi(q[key]) // parseQuery has checked it
	return n
}

// Filtered reports whether the query leaves anything out.
func (q query) Filtered() bool { return q["q"] != "" || q["group"] != "" || q["state"] != "" }

// link returns the query with some values changed, as a relative link without defaults: it works wherever the page is mounted.
func (q query) link(changes ...string) string {
	values := url.Values{}
	for _, p := range parameters {
		value := q[p.key]
		for i := 0; i < len(changes); i += 2 {
			if changes[i] == p.key {
				value = changes[i+1]
			}
		}
		if value != p.preset {
			values.Set(p.key, value)
		}
	}
	return "?" + values.Encode()
}

// String is the link to the query itself.
func (q query) String() string { return q.link() }

// The links of the page. One that changes what is listed leads to the first page.

func (q query) ToPage(n int) string        { return q.link("page", strconv.Itoa(n)) }
func (q query) ToGroup(name string) string { return q.link("group", name, "page", "1") }
func (q query) ToText(text string) string  { return q.only("q", text) }
func (q query) ToState(name string) string { return q.only("state", name) }
func (q query) ToRefresh(s string) string  { return q.link("refresh", s) }
func (q query) ToJSON() string             { return q.link("format", formatJSON, "refresh", "5") }

// ToProfile is the link to the contention profile.
func (q query) ToProfile() string { return "?" + url.Values{"format": {formatProfile}}.Encode() }

// only is the link to a query with this filter and no other.
func (q query) only(key, value string) string {
	return q.link("page", "1", "q", "", "group", "", "state", "", key, value)
}
