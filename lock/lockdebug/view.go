package lockdebug

import (
	"cmp"
	"crypto/sha256"
	_ "embed" // for the page and its style
	"encoding/base64"
	"fmt"
	"html/template"
	"slices"
	"strings"
	"time"

	"github.com/lockdog/lockdog/lock"
)

var (
	//go:embed page.html
	pageHTML string
	//go:embed style.css
	styleCSS string

	pages = template.Must(template.New("page.html").Funcs(template.FuncMap{
		"visible": visible, "thousands": thousands, "stamp": stamp, "clock": clock, "explain": explain,
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

// Class is how a row stands out.
func (h held) Class() string {
	switch {
	case h.Failing, h.Expiring, h.State == stateLost:
		return "bad"
	case h.Degraded, h.Reason != "":
		return "warn"
	}
	return ""
}

// Shown is the state that matters most.
func (h held) Shown() string {
	switch {
	case h.Failing:
		return stateFailing
	case h.Expiring:
		return stateExpiring
	case h.Degraded:
		return stateDegraded
	}
	return h.State
}

// Class is how a row stands out.
func (w waiting) Class() string {
	if w.LastError != "" {
		return "warn"
	}
	return ""
}

// Parts is p itself, nil for a lock that has none: the page asks for it by this name.
func (p *parts) Parts() *parts { return p }

// MemberRows are the rows below that of the whole.
func (h held) MemberRows() []memberRow { return h.rows(h.Class()) }

// MemberRows are the rows below that of the whole.
func (w waiting) MemberRows() []memberRow { return w.rows(w.Class()) }

// rows are those of the members. What is wrong with one is as bad as it is for the whole.
func (p *parts) rows(whole string) []memberRow {
	if p == nil {
		return nil
	}
	rows := make([]memberRow, len(p.Members))
	for i, m := range p.Members {
		rows[i] = memberRow{member: m, ofNodes: p.Nodes}
		if m.LastError != "" || m.State == stateLost || p.Nodes && m.State == string(lock.StateAbsent) {
			rows[i].Class = cmp.Or(whole, "warn")
		}
	}
	return rows
}

// String says how many are held.
func (p *parts) String() string {
	return fmt.Sprintf("%s of %s, needs %s", thousands(p.Have), p.Where(), thousands(p.Need))
}

// Where is how many there are.
func (p *parts) Where() string {
	if p.Nodes {
		return thousands(p.Of) + " nodes"
	}
	return thousands(p.Of) + " names"
}

// memberRow is the row of a member.
type memberRow struct {
	member
	Class   string // how it stands out
	ofNodes bool
}

// Shown is what tells the member from others.
func (m memberRow) Shown() string {
	if m.ofNodes {
		return m.Node
	}
	return m.Name
}

// ShownState is the state that matters most.
func (m memberRow) ShownState() string {
	if m.Failing {
		return stateFailing
	}
	return m.State
}

// Timed reports whether there is a lease.
func (m memberRow) Timed() bool { return m.timing != nil && m.State != stateLost }

// MemberRows are the rows below that of the whole.
func (e ended) MemberRows() []endedRow {
	rows := make([]endedRow, len(e.Members))
	for i, m := range e.Members {
		rows[i] = endedRow{m, e.Kind == kindQuorum}
	}
	return rows
}

// endedRow is the row of a member that ended.
type endedRow struct {
	endedMember
	ofNodes bool
}

// Shown is what tells the member from others.
func (m endedRow) Shown() string {
	if m.ofNodes {
		return m.Node
	}
	return m.Name
}

// LowMark and HighMark are where the bar of a lease changes its colour: at the bottom it is expiring; below the half a
// renewal is late, as it should have come with two thirds left.
func (t timing) LowMark() float64 { return (t.Lease / expiryShare).Float() }

// HighMark is the upper of both.
func (t timing) HighMark() float64 { return (t.Lease / 2).Float() }

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

// clock is its time of day.
func clock(t time.Time) string { return t.Format("15:04:05Z07:00") }

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
