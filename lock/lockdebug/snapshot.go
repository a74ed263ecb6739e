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
	var holds, waits []*lock.LeaseInfo
	for _, c := range h.clients {
		all := c.Leases()
		for i := range all {
			l := &all[i]
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
	}
	gone := h.ended(&s.Summary, want, groups, now)
	sortHeld(holds, q.Sort, now)
	sortWaiting(waits, q.Sort)
	sortEnded(gone, q.Sort)

	s.Groups = slices.Sorted(maps.Keys(groups))
	s.Held = page(holds, q, func(l *lock.LeaseInfo) held { return h.held(l, waiters[l.Owner], now) })
	s.Waiting = page(waits, q, func(l *lock.LeaseInfo) waiting { return h.waiting(l, now) })
	s.Ended = page(gone, q, h.endedRow)
	return s
}

// ended is what was lost or canceled within the last hour, as far as the clients remember.
func (h *handler) ended(sum *summary, want filter, groups map[string]bool, now time.Time) []*lock.EndedLease {
	since := now.Add(-reach)
	known := since
	var out []*lock.EndedLease
	for _, c := range h.clients {
		recent := slices.DeleteFunc(c.Recent(), func(e lock.EndedLease) bool { return e.End == stateReleased })
		if len(recent) >= remembered && recent[0].Ended.After(known) {
			known = recent[0].Ended // older ones were forgotten
		}
		for i := range recent {
			e := &recent[i]
			switch {
			case e.Ended.Before(since):
				continue
			case e.End == stateLost:
				sum.Lost++
			default:
				sum.Stopped++
			}
			groups[e.Group] = true
			if want.ended(e) {
				out = append(out, e)
			}
		}
	}
	sum.EndedSince, sum.Partial = utc(known), known.After(since)
	return out
}

func (s *summary) count(l *lock.LeaseInfo, now time.Time) {
	if l.State == lock.StateWaiting {
		s.Waiting++
		return
	}
	s.Held++
	if l.State == lock.StateCanceled {
		s.Canceled++
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
