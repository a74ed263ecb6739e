package lockdebug

import (
	"crypto/sha256"
	_ "embed" // for the page and its style
	"encoding/base64"
	"html/template"
	"slices"
	"strings"
	"time"
)

var (
	//go:embed page.html
	pageHTML string
	//go:embed style.css
	styleCSS string

	pages = template.Must(template.New("page.html").Funcs(template.FuncMap{
		"visible": visible, "thousands": thousands, "stamp": stamp, "explain": explain,
	}).Parse(pageHTML))

	contentSecurity = contentSecurityOf(styleCSS)
)

// contentSecurityOf allows the page its own style, its forms, and nothing else: no script, no frame, nothing fetched.
func contentSecurityOf(style string) string {
	sum := sha256.Sum256([]byte(style))
	return strings.Join([]string{
		"default-src 'none'",
		"style-src 'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'",
		"img-src data:", // the empty icon, without which browsers ask for /favicon.ico
		"form-action 'self'",
		"base-uri 'none'",
		"frame-ancestors 'none'",
	}, "; ")
}

// view is what the page is made of.
type view struct {
	snapshot
	Query   query
	Refused string // why there is nothing to see
}

// Style is the stylesheet, byte for byte: its hash is in the Content-Security-Policy.
func (*view) Style() template.CSS { return template.CSS(styleCSS) }

// Filtered says whether the query leaves anything out.
func (v *view) Filtered() bool { return v.Query.filtered() }

// Trouble is how many leases are failing or expiring, at least: the title tells it to who has the page in another tab.
func (v *view) Trouble() int { return max(v.Summary.Failing, v.Summary.Expiring) }

// States and Sorts are the choices of the form.
func (*view) States() []string { return states }

// Sorts are those of ?sort=.
func (*view) Sorts() []string { return sorts }

// GroupChoices are the groups there are, and the one asked for.
func (v *view) GroupChoices() []string {
	if v.Query.Group == "" || slices.Contains(v.Groups, v.Query.Group) {
		return v.Groups
	}
	return append([]string{v.Query.Group}, v.Groups...)
}

// Reach is how far back the ended are known.
func (v *view) Reach() seconds { return seconds(v.Time.Sub(v.Summary.EndedSince)) }

// Ago is how long ago that was.
func (v *view) Ago(t time.Time) seconds { return since(t, v.Time) }

// Empty says why a list has nothing to show.
func (v *view) Empty(none string, total int) string {
	switch {
	case total > 0:
		return "Nothing is on this page."
	case v.Filtered():
		return "Nothing here matches the filter."
	default:
		return none + "."
	}
}

// LowMark and HighMark are where the bar of a lease changes its colour: at the bottom it is expiring; below the half a
// renewal is late, as it should have come with two thirds left.
func (h held) LowMark() float64 { return (h.Lease / expiryShare).Float() }

// HighMark is the upper of both.
func (h held) HighMark() float64 { return (h.Lease / 2).Float() }

// Last is the number of a list's last item on this page.
func (l list[T]) Last() int { return l.First + len(l.Items) - 1 }

// pager leads to the pages of one list.
type pager struct {
	Query  query
	Anchor string
	Page   int
	Pages  int
}

// Pager is what the lists have below them; nil where one page is all, and it is this one.
func (v *view) Pager(anchor string, pages int) *pager {
	if pages == 1 && v.Page == 1 {
		return nil
	}
	return &pager{v.Query, anchor, v.Page, pages}
}

// To is the link to a page.
func (p *pager) To(n int) string { return p.Query.ToPage(n) + "#" + p.Anchor }

// Previous is the page before, or the last that has anything.
func (p *pager) Previous() int { return min(p.Page-1, p.Pages) }

// Next is the page behind, 0 if there is none.
func (p *pager) Next() int {
	if p.Page >= p.Pages {
		return 0
	}
	return p.Page + 1
}

// stamp is a time as machines write it.
func stamp(t time.Time) string { return t.Format("2006-01-02T15:04:05.000Z07:00") }

// explain says what the reason of an end means.
func explain(why string) string { return explanations[why] }

// explanations are for who does not know package lock: its causes and reasons.
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
