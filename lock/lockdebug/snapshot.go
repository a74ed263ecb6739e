package lockdebug

import (
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/lockdog/lockdog/lock"
)

const (
	reach      = time.Hour // how far back ended leases are shown
	remembered = 1000      // leases whose End isn't released, in the memory of a client: see lock.Client.Recent
)

// snapshot is the JSON, and most of what the page shows.
type snapshot struct {
	Time     time.Time `json:"time"`
	Host     string    `json:"host,omitempty"`
	PID      int       `json:"pid"`
	Clients  int       `json:"clients"`
	Warnings []string  `json:"warnings"`
	Summary  summary   `json:"summary"`
	Page     int       `json:"page"`
	PerPage  int       `json:"per_page"`
	Held     list      `json:"held"`
	Waiting  list      `json:"waiting"`
	Ended    list      `json:"ended"`
	Graph    *graph    `json:"graph,omitempty"`
	Busiest  []busy    `json:"busiest"`
	Profiled bool      `json:"-"` // a client has a contention profile

	Groups []string `json:"-"`
}

// summary counts everything, whatever the query.
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

// list is one page of the leases that match the query.
type list struct {
	Total int   `json:"total"`
	Pages int   `json:"pages"`
	Items []row `json:"items"`

	Number int   `json:"-"` // of the page
	First  int   `json:"-"` // number of the first item, from 1
	Query  query `json:"-"`
}

// snapshot collects what the clients hold, wait for and have lost.
func (h *handler) snapshot(q query, now time.Time) snapshot {
	s := snapshot{
		Time: utc(now), Host: h.host, PID: os.Getpid(), Clients: len(h.clients), Warnings: h.warnings,
		Page: q.number("page"), PerPage: q.number("per"),
	}
	r := &rows{h: h, redactor: h.redactor(), query: q, waiters: map[string]int{}, now: now}
	leases := h.leases(r.redactor, now)
	ended, known := h.ended(r.redactor, now)
	s.Summary.EndedSince, s.Summary.Partial = utc(known), known.After(now.Add(-reach))

	var held, waiting, gone []*lease
	groups := map[string]bool{}
	text := strings.ToLower(q["q"])
	for _, all := range [][]lease{leases, ended} {
		for i := range all {
			l, into := &all[i], &held
			s.Summary.count(l, now)
			groups[l.Group] = true
			switch {
			case !l.ended.IsZero():
				into = &gone
			case l.State == lock.StateWaiting:
				r.waiters[l.WaitsFor]++
				into = &waiting
			}
			if l.matches(q["group"], q["state"], text) {
				*into = append(*into, l)
			}
		}
	}
	s.Groups = slices.Sorted(maps.Keys(groups))
	sort := q["sort"]
	s.Held = r.list(held, sort)
	if sort != sortName {
		sort = sortAge
	}
	s.Waiting, s.Ended = r.list(waiting, sort), r.list(gone, sort)
	s.Busiest, s.Profiled = h.busiest(r.redactor, q, text)
	return s
}

// leases returns what all clients hold and wait for. A composite may be known to several clients; it is taken once.
func (h *handler) leases(r *redactor, now time.Time) []lease {
	var out []lease
	seen := map[uint64]bool{}
	for _, c := range h.clients {
		infos := c.Leases()
		out = slices.Grow(out, len(infos))
		for i := range infos {
			if of := infos[i].Composite; of != nil {
				if seen[of.ID] {
					continue
				}
				seen[of.ID] = true
			}
			l := newLease(&infos[i], now)
			r.lease(&l)
			out = append(out, l)
		}
	}
	return out
}

// ended returns what was lost or canceled within the last hour, and since when all of it is known.
func (h *handler) ended(r *redactor, now time.Time) (out []lease, known time.Time) {
	since := now.Add(-reach)
	known = since
	composites := map[uint64][]lock.EndedLease{}
	for _, c := range h.clients {
		recent := slices.DeleteFunc(c.Recent(), func(e lock.EndedLease) bool { return e.End == stateReleased })
		if len(recent) >= remembered && recent[0].Ended.After(known) {
			known = recent[0].Ended // the client has forgotten older ones
		}
		for i := range recent {
			e := &recent[i]
			switch {
			case e.Ended.Before(since):
			case e.Composite != nil:
				composites[e.Composite.ID] = append(composites[e.Composite.ID], *e)
			default:
				out = append(out, newEnded(e))
			}
		}
	}
	for _, members := range composites {
		out = append(out, newEndedComposite(members))
	}
	for i := range out {
		r.lease(&out[i])
	}
	return out, known
}

func (s *summary) count(l *lease, now time.Time) {
	if !l.ended.IsZero() {
		switch string(l.State) {
		case stateLost:
			s.Lost++
		case stateDegraded:
		default:
			s.Stopped++
		}
		return
	}
	if l.State == lock.StateWaiting {
		s.Waiting++
		return
	}
	s.Held++
	if l.over() {
		s.Canceled++
	}
	if l.degraded {
		s.Degraded++
	}
	if l.failing {
		s.Failing++
	}
	if l.expiring {
		s.Expiring++
	}
	if age := since(l.Since, now); s.OldestName == "" || age > s.Oldest {
		s.Oldest, s.OldestName = age, l.Name
	}
}
