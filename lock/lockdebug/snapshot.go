package lockdebug

import (
	"maps"
	"os"
	"slices"
	"time"

	"github.com/lockdog/lockdog/lock"
)

const (
	reach       = time.Hour // how far back the ended are shown
	remembered  = 1000      // how many leases that weren't released a client remembers, see lock.Client.Recent
	expiryShare = 5         // a lease is expiring when less than a fifth of it is left: so late no renewal should be
)

// snapshot is everything there is to see at one time: the JSON, and what the page is made of.
type snapshot struct {
	Time     time.Time     `json:"time"`
	Host     string        `json:"host,omitempty"`
	PID      int           `json:"pid"`
	Clients  int           `json:"clients"`
	Warnings []string      `json:"warnings"`
	Summary  summary       `json:"summary"`
	Page     int           `json:"page"`
	PerPage  int           `json:"per_page"`
	Held     list[held]    `json:"held"`
	Waiting  list[waiting] `json:"waiting"`
	Ended    list[ended]   `json:"ended"`

	Groups []string `json:"-"`
}

// summary counts everything, filtered or not.
type summary struct {
	Held       int       `json:"held"`
	Waiting    int       `json:"waiting"`
	Failing    int       `json:"failing"`
	Expiring   int       `json:"expiring"`
	Degraded   int       `json:"degraded"`
	Canceled   int       `json:"canceled"`
	Lost       int       `json:"lost_last_hour"`
	Stopped    int       `json:"canceled_last_hour"`
	Oldest     seconds   `json:"oldest_hold_seconds"`
	OldestName string    `json:"oldest_hold_name,omitempty"`
	EndedSince time.Time `json:"ended_since"`
	Partial    bool      `json:"-"` // EndedSince is less than an hour ago
}

// list is one page of what matches.
type list[T any] struct {
	Total int `json:"total"`
	Pages int `json:"pages"`
	Items []T `json:"items"`
	First int `json:"-"` // number of the first item, from 1
}

// look sees what the clients hold, wait for and have lost.
func (h *handler) look(q query, now time.Time) snapshot {
	s := snapshot{
		Time: utc(now), Host: h.host, PID: os.Getpid(), Clients: len(h.clients), Warnings: h.warnings,
		Page: q.Page, PerPage: q.Per,
	}
	want := newFilter(q)
	groups := map[string]bool{}
	waiters := map[string]int{} // by whom they wait for
	r := h.redactor()
	var holds, waits []*lease
	for _, l := range h.leases(r) {
		s.Summary.count(l, now)
		groups[l.Group] = true
		switch {
		case l.State != lock.StateWaiting:
			if want.held(l, now) {
				holds = append(holds, l)
			}
		default:
			waiters[l.WaitsFor]++
			if want.waiting(l) {
				waits = append(waits, l)
			}
		}
	}
	gone := h.ended(r, &s.Summary, want, groups, now)
	sortHeld(holds, q.Sort, now)
	sortWaiting(waits, q.Sort)
	sortEnded(gone, q.Sort)

	s.Groups = slices.Sorted(maps.Keys(groups))
	rows := &rows{h: h, redactor: r, waiters: waiters, now: now}
	s.Held = page(holds, q, rows.held)
	s.Waiting = page(waits, q, rows.waiting)
	s.Ended = page(gone, q, rows.ended)
	return s
}

// ended is what was lost or canceled within the last hour, as far as the clients remember.
func (h *handler) ended(r *redactor, sum *summary, want filter, groups map[string]bool, now time.Time) []*endedLease {
	since := now.Add(-reach)
	known := since
	var all, out []*endedLease
	members := map[uint64][]lock.EndedLease{}
	for _, c := range h.clients {
		recent := slices.DeleteFunc(c.Recent(), func(e lock.EndedLease) bool { return e.End == stateReleased })
		if len(recent) >= remembered && recent[0].Ended.After(known) {
			known = recent[0].Ended // older ones were forgotten
		}
		for _, e := range recent {
			if e.Ended.Before(since) {
				continue
			}
			e.Name, e.Owner = r.name(e.Name), r.owner(e.Owner)
			if of := e.Composite; of != nil {
				members[of.ID] = append(members[of.ID], e)
			} else {
				all = append(all, &endedLease{EndedLease: e})
			}
		}
	}
	for _, of := range members {
		e := whole(of)
		e.Name = r.joined(e.Kind, e.Name)
		all = append(all, e)
	}
	for _, e := range all {
		switch e.state() {
		case stateLost:
			sum.Lost++
		case stateDegraded:
		default:
			sum.Stopped++
		}
		groups[e.Group] = true
		if want.ended(e) {
			out = append(out, e)
		}
	}
	sum.EndedSince, sum.Partial = utc(known), known.After(since)
	return out
}

func (s *summary) count(l *lease, now time.Time) {
	if l.State == lock.StateWaiting {
		s.Waiting++
		return
	}
	s.Held++
	if over(l) {
		s.Canceled++
	}
	if degraded(l) {
		s.Degraded++
	}
	if failing(l) {
		s.Failing++
	}
	if expiring(l, now) {
		s.Expiring++
	}
	if age := since(l.Since, now); s.OldestName == "" || age > s.Oldest {
		s.Oldest, s.OldestName = age, l.Name
	}
}

// page cuts out the page that was asked for, and makes rows of it.
func page[T, R any](all []T, q query, row func(T) R) list[R] {
	out := list[R]{Total: len(all), Pages: max(1, (len(all)+q.Per-1)/q.Per), Items: []R{}}
	from := min((q.Page-1)*q.Per, len(all))
	out.First = from + 1
	for _, one := range all[from:min(from+q.Per, len(all))] {
		out.Items = append(out.Items, row(one))
	}
	return out
}
