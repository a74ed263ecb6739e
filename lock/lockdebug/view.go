package lockdebug

import (
	"crypto/sha256"
	_ "embed" // the page and its style
	"encoding/base64"
	"html/template"
	"slices"
)

var (
	//go:embed page.html
	pageHTML string
	//go:embed style.css
	styleCSS string

	pages = template.Must(template.New("page.html").Funcs(template.FuncMap{
		"visible": visible, "thousands": thousands, "stamp": stamp, "clock": clock,
		"explain": func(why string) string { return explanations[why] },
	}).Parse(pageHTML))

	styleHash = sha256.Sum256([]byte(styleCSS))

	// contentSecurity allows the page its style and its form, and no script, no frame, and nothing from elsewhere. Without the
	// empty icon, browsers would request /favicon.ico.
	contentSecurity = "default-src 'none'; style-src 'sha256-" + base64.StdEncoding.EncodeToString(styleHash[:]) + "'; " +
		"img-src data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)

// view is what the page shows.
type view struct {
	snapshot
	Query   query
	Refused string // why the request was refused
}

// Style is the stylesheet, byte for byte: its hash is in the Content-Security-Policy.
func (*view) Style() template.CSS { return template.CSS(styleCSS) }

// Trouble is the least number of leases that are failing or expiring. The title has it, for a tab in the background.
func (v *view) Trouble() int { return max(v.Summary.Failing, v.Summary.Expiring) }

// Choices are the values of a parameter.
func (*view) Choices(key string) []string {
	i := slices.IndexFunc(parameters, func(p parameter) bool { return p.key == key })
	return parameters[i].choices
}

// GroupChoices are all groups, and the one asked for.
func (v *view) GroupChoices() []string {
	if group := v.Query["group"]; group != "" && !slices.Contains(v.Groups, group) {
		return append([]string{group}, v.Groups...)
	}
	return v.Groups
}

// Reach is how far back the ended leases are known.
func (v *view) Reach() seconds { return seconds(v.Time.Sub(v.Summary.EndedSince)) }

// ShowsHeld, ShowsWaiting and ShowsEnded report whether a list can have leases of the state asked for.
func (v *view) ShowsHeld() bool {
	return v.shows(stateHeld, stateFailing, stateExpiring, stateDegraded, stateCanceled)
}
func (v *view) ShowsWaiting() bool { return v.shows(stateWaiting) }
func (v *view) ShowsEnded() bool {
	return v.shows(stateLost, stateDegraded, stateCanceled, stateClosed)
}

// ShowsBusiest reports whether the busiest locks are listed: they have no state.
func (v *view) ShowsBusiest() bool { return v.Profiled && v.Query["state"] == "" }

func (v *view) shows(states ...string) bool {
	return v.Query["state"] == "" || slices.Contains(states, v.Query["state"])
}

// Last is the number of the last item on the page.
func (l list) Last() int { return l.First + len(l.Items) - 1 }

// Previous is the page before this one, or the last one that has items; 0 if there is none.
func (l list) Previous() int { return min(l.Number-1, l.Pages) }

// Next is the page after this one; 0 if there is none.
func (l list) Next() int {
	if l.Number >= l.Pages {
		return 0
	}
	return l.Number + 1
}

// explanations are of causes and reasons of package lock.
var explanations = map[string]string{
	"missing":     "gone from Redis: deleted, evicted, or lost in a failover",
	"taken":       "another owner has it",
	"expired":     "a lease that isn't renewed ran out",
	"unreachable": "no renewal succeeded before the deadline",
	"stalled":     "this process was too late to renew: no CPU, or stopped",
	"forced":      "taken away by ForceUnlock; the error says by whom",
	"context":     "the ctx that the lease follows ended",
	"max_hold":    "held for longer than WithMaxHold allows",
	"heartbeat":   "no Heartbeat for as long as WithHeartbeat allows",
	"closed":      "the client was closed",
}
