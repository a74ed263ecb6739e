package lockdebug

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// The bounds of a query.
const (
	maxPage        = 1_000_000
	defaultPer     = 100
	maxPer         = 1000
	defaultRefresh = 5
	maxRefresh     = 3600
	maxTextBytes   = 1024 // as long as a name can be
)

// states are the values of ?state=, sorts those of ?sort=, formats those of ?format=.
var (
	states  = []string{stateHeld, stateFailing, stateExpiring, stateDegraded, stateCanceled, stateWaiting, stateLost, stateClosed}
	sorts   = []string{sortTrouble, sortAge, sortRemaining, sortName}
	formats = []string{formatHTML, formatJSON}
)

// query is what was asked for.
type query struct {
	Text    string
	Group   string
	State   string
	Sort    string
	Page    int
	Per     int
	Refresh int // seconds, 0 for off
	Format  string
}

func (q query) defaults() query {
	q.Sort, q.Page, q.Per, q.Refresh = sortTrouble, 1, defaultPer, defaultRefresh
	return q
}

// parseQuery reads a query. The error says what is allowed instead of each bad value; the format is right even so, where that
// was given.
func parseQuery(raw string) (query, error) {
	q := query{}.defaults()
	values, err := url.ParseQuery(raw)
	if err != nil {
		return q, fmt.Errorf("the query can't be read: %w", err)
	}
	var errs []error
	text := func(key string, into *string) {
		v := values.Get(key)
		if len(v) > maxTextBytes {
			errs = append(errs, fmt.Errorf("%s has %d bytes; at most %d are allowed", key, len(v), maxTextBytes))
			return
		}
		*into = v
	}
	choice := func(key string, allowed []string, into *string) {
		switch v := values.Get(key); {
		case v == "":
		case slices.Contains(allowed, v):
			*into = v
		default:
			errs = append(errs, fmt.Errorf("%s is %.64q; allowed: %s", key, v, strings.Join(allowed, ", ")))
		}
	}
	number := func(key string, most int, into *int, or string) {
		v := values.Get(key)
		if v == "" {
			return
		}
		n, err := strconv.Atoi(v)
		if err != nil || n < 1 || n > most {
			errs = append(errs, fmt.Errorf("%s is %.64q; allowed: %s1 to %d", key, v, or, most))
			return
		}
		*into = n
	}
	text("q", &q.Text)
	text("group", &q.Group)
	choice("state", states, &q.State)
	choice("sort", sorts, &q.Sort)
	choice("format", formats, &q.Format)
	number("page", maxPage, &q.Page, "")
	number("per", maxPer, &q.Per, "")
	if values.Get("refresh") == "off" {
		q.Refresh = 0
	} else {
		number("refresh", maxRefresh, &q.Refresh, "off, or ")
	}
	return q, errors.Join(errs...)
}

// String is the query as a relative link, without what is the default anyway: it works wherever the page is mounted.
func (q query) String() string {
	v, d := url.Values{}, query{}.defaults()
	set := func(key, value, normal string) {
		if value != normal {
			v.Set(key, value)
		}
	}
	set("q", q.Text, d.Text)
	set("group", q.Group, d.Group)
	set("state", q.State, d.State)
	set("sort", q.Sort, d.Sort)
	set("page", strconv.Itoa(q.Page), strconv.Itoa(d.Page))
	set("per", strconv.Itoa(q.Per), strconv.Itoa(d.Per))
	set("refresh", q.RefreshValue(), strconv.Itoa(d.Refresh))
	set("format", q.Format, d.Format)
	return "?" + v.Encode()
}

// RefreshValue is the value of ?refresh=.
func (q query) RefreshValue() string {
	if q.Refresh == 0 {
		return "off"
	}
	return strconv.Itoa(q.Refresh)
}

// filtered says whether the query leaves anything out.
func (q query) filtered() bool { return q.Text != "" || q.Group != "" || q.State != "" }

// ToPage, ToState, ToGroup, ToText, ToRefresh and ToJSON are links to what is next to this query. What changes the choice goes
// back to the first page.

// ToPage keeps all but the page.
func (q query) ToPage(n int) string { q.Page = n; return q.String() }

// ToState leaves text and group behind: the numbers that it is for are those of everything.
func (q query) ToState(state string) string {
	q.Text, q.Group, q.State, q.Page = "", "", state, 1
	return q.String()
}

// ToGroup shows one group.
func (q query) ToGroup(group string) string { q.Group, q.Page = group, 1; return q.String() }

// ToText shows one owner, and who waits for it.
func (q query) ToText(text string) string {
	q.Text, q.Group, q.State, q.Page = text, "", "", 1
	return q.String()
}

// ToRefresh changes only how often the page is loaded.
func (q query) ToRefresh(seconds int) string { q.Refresh = seconds; return q.String() }

// ToJSON is the same for programs.
func (q query) ToJSON() string { q.Format, q.Refresh = formatJSON, defaultRefresh; return q.String() }
