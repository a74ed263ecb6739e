package lockdebug

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The values of format and sort that the code compares with.
const (
	formatHTML    = "html"
	formatProfile = "profile"

	sortTrouble   = "trouble"
	sortAge       = "age"
	sortRemaining = "remaining"
	sortName      = "name"
)

// maxTextBytes is the maximum length of a text: that of the longest name.
const maxTextBytes = 1024

// parameters has the parameters of a query.
var parameters = []parameter{
	{key: "q"},
	{key: "group"},
	{key: "state", choices: []string{
		stateHeld, stateFailing, stateExpiring, stateDegraded, stateCanceled, stateWaiting, stateLost, stateClosed,
	}},
	{key: "sort", preset: sortTrouble, choices: []string{sortTrouble, sortAge, sortRemaining, sortName}},
	{key: "page", preset: "1", most: 1_000_000},
	{key: "per", preset: "100", most: 1000},
	{key: "refresh", choices: []string{"off"}, most: 3600}, // only the page uses it
	{key: "seconds", most: 300},
	{key: "format", choices: []string{formatHTML, "json", formatProfile}},
}

// parameter is a parameter whose value must be one of the choices, or a number from 1 to most. Without both it may be
// any text of up to maxTextBytes.
type parameter struct {
	key, preset string
	choices     []string
	most        int
}

// check returns an error that says what is wrong with a value.
func (p *parameter) check(value string) error {
	n, err := strconv.Atoi(value)
	allowed := strings.Join(p.choices, ", ")
	switch {
	case value == "", slices.Contains(p.choices, value), err == nil && 1 <= n && n <= p.most:
		return nil
	case p.most > 0:
		allowed = strings.TrimPrefix(fmt.Sprintf("%s, or 1 to %d", allowed, p.most), ", or ")
	case p.choices == nil && len(value) > maxTextBytes:
		return fmt.Errorf("%s has %d bytes; at most %d are allowed", p.key, len(value), maxTextBytes)
	case p.choices == nil:
		return nil
	}
	return fmt.Errorf("%s is %.64q; allowed: %s", p.key, value, allowed)
}

// query maps each parameter to its value.
type query map[string]string

// parseQuery parses the query of a request. The error names the allowed values for each bad value. The query has the
// other values even then.
func parseQuery(raw string) (query, error) {
	values, err := url.ParseQuery(raw)
	if err != nil {
		err = fmt.Errorf("the query can't be read: %w", err)
	}
	q, errs := query{}, []error{err}
	for _, p := range parameters {
		q[p.key] = p.preset
		value := values.Get(p.key)
		if err := p.check(value); err != nil {
			errs = append(errs, err)
		} else if value != "" {
			q[p.key] = value
		}
	}
	return q, errors.Join(errs...)
}

// number returns the value of a numeric parameter.
func (q query) number(key string) int {
	n, _ := strconv.Atoi(q[key]) // parseQuery has checked it
	return n
}

// outlasts returns an error if the profile would take as long as the server's WriteTimeout, or longer: then the server
// would close the connection without an explanation.
func (q query) outlasts(r *http.Request) error {
	server, ok := r.Context().Value(http.ServerContextKey).(*http.Server)
	if !ok || server.WriteTimeout <= 0 || time.Duration(q.number("seconds"))*time.Second < server.WriteTimeout {
		return nil
	}
	return fmt.Errorf("seconds is %q; allowed: less than the WriteTimeout of the server, %v",
		q["seconds"], server.WriteTimeout)
}
