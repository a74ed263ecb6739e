package lockdebug

import (
	"context"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/lockdog/lockdog/lock"
)

const (
	reach      = time.Hour // ended leases are shown for so long
	remembered = 1000      // ended leases, other than released ones, that a client remembers: see lock.Client.Recent
)

// snapshot is the JSON document of a response.
type snapshot struct {
	Time     time.Time `json:"time"`
	Host     string    `json:"host,omitempty"`
	PID      int       `json:"pid"`
	Clients  int       `json:"clients"`
	Warnings []string  `json:"warnings"`
	Summary  summary   `json:"summary"`
	Groups   []string  `json:"groups"`
	Page     int       `json:"page"`
	PerPage  int       `json:"per_page"`
	Held     list      `json:"held"`
	Waiting  list      `json:"waiting"`
	Ended    list      `json:"ended"`
	Graph    *graph    `json:"graph,omitempty"`
	Busiest  []*busy   `json:"busiest"`
}

// summary counts everything, independent of the query.
type summary struct {
	Held       int       `json:"held"`
	Waiting    int       `json:"waiting"`
	Failing    int       `json:"failing"`
	Expiring   int       `json:"expiring"`
	Degraded   int       `json:"degraded"`
	Canceled   int       `json:"canceled"`
	Lost       int       `json:"lost_last_hour"`
	Stopped    int       `json:"canceled_last_hour"`
	Oldest     float64   `json:"oldest_hold_seconds"`
	OldestName string    `json:"oldest_hold_name,omitempty"`
	EndedSince time.Time `json:"ended_since"`
}

// list is one page of the rows that match the query.
type list struct {
	Total int    `json:"total"`
	Pages int    `json:"pages"`
	Items []*row `json:"items"`
}

// view makes the snapshot of one request.
type view struct {
	*handler
	redactor
	query   query
	text    string // q of the query, in lower case
	now     time.Time
	waiters map[string]int // number of waiters by the owner that they wait for
}

// snapshot collects what the clients hold, wait for and have lost.
func (h *handler) snapshot(ctx context.Context, q query) *snapshot {
	v := &view{
		handler: h, redactor: h.redactor(), query: q, text: strings.ToLower(q["q"]),
		now: time.Now(), waiters: map[string]int{},
	}
	s := &snapshot{
		Time: utc(v.now), Host: h.host, PID: os.Getpid(), Clients: len(h.Clients), Warnings: h.warnings,
		Page: q.number("page"), PerPage: q.number("per"), Busiest: v.busiest(),
	}
	ended, known := v.ended()
	s.Summary.EndedSince = utc(known)
	var held, waiting, gone []*row
	groups := map[string]bool{}
	for _, r := range append(v.leases(), ended...) {
		into := &held
		switch {
		case !r.Ended.IsZero():
			into = &gone
		case r.State == stateWaiting:
			v.waiters[r.WaitsFor]++
			into = &waiting
		}
		s.Summary.count(r)
		groups[r.Group] = true
		if v.matches(r) {
			*into = append(*into, r)
		}
	}
	s.Groups = slices.AppendSeq([]string{}, maps.Keys(groups))
	slices.Sort(s.Groups)
	sort := q["sort"]
	s.Held = v.list(held, sort)
	for _, r := range s.Held.Items {
		r.Waiters = new(r.countWaiters(v.waiters))
	}
	if sort != sortName {
		sort = sortAge
	}
	s.Waiting, s.Ended = v.list(waiting, sort), v.list(gone, sort)
	if h.graphs != nil && (q["state"] == "" || q["state"] == stateWaiting) {
		s.Graph = v.graph(ctx)
	}
	return s
}

// list sorts rows, and returns those of the requested page with the texts of their errors.
func (v *view) list(all []*row, sort string) list {
	slices.SortFunc(all, compareBy(sort))
	page, per := v.query.number("page"), v.query.number("per")
	first := min((page-1)*per, len(all))
	out := list{
		Total: len(all), Pages: max(1, (len(all)+per-1)/per),
		Items: append([]*row{}, all[first:min(first+per, len(all))]...),
	}
	for _, r := range out.Items {
		v.tell(r)
	}
	return out
}

// leases returns what all clients hold and wait for. Several clients may know the same composite: it is returned once.
func (v *view) leases() (out []*row) {
	seen := map[uint64]bool{}
	for _, c := range v.Clients {
		infos := c.Leases()
		for i := range infos {
			if of := infos[i].Composite; of == nil {
				out = append(out, v.lease(&infos[i]))
			} else if !seen[of.ID] {
				seen[of.ID] = true
				out = append(out, v.composite(of))
			}
		}
	}
	return out
}

// ended returns what was lost, canceled or closed within the last hour, and the time since when that is complete.
func (v *view) ended() (out []*row, known time.Time) {
	since := v.now.Add(-reach)
	known = since
	composites := map[uint64][]*lock.EndedLease{}
	for _, c := range v.Clients {
		recent := slices.DeleteFunc(c.Recent(), func(e lock.EndedLease) bool { return e.End == stateReleased })
		if len(recent) >= remembered && recent[0].Ended.After(known) {
			known = recent[0].Ended // the client has forgotten earlier ends
		}
		for i := range recent {
			e := &recent[i]
			switch {
			case e.Ended.Before(since):
			case e.Composite != nil:
				composites[e.Composite.ID] = append(composites[e.Composite.ID], e)
			default:
				out = append(out, v.end(e))
			}
		}
	}
	for _, members := range composites {
		out = append(out, v.endOfComposite(members))
	}
	return out, known
}

func (s *summary) count(r *row) {
	ended, waiting := !r.Ended.IsZero(), r.State == stateWaiting
	held := !ended && !waiting
	for n, is := range map[*int]bool{
		&s.Held:     held,
		&s.Waiting:  waiting,
		&s.Failing:  held && r.Failing,
		&s.Expiring: held && r.Expiring,
		&s.Degraded: held && r.Degraded,
		&s.Canceled: held && r.over(),
		&s.Lost:     ended && r.State == stateLost,
		&s.Stopped:  ended && r.State != stateLost && r.State != stateDegraded,
	} {
		if is {
			*n++
		}
	}
	if held && r.Age != nil && (s.OldestName == "" || *r.Age > s.Oldest) {
		s.Oldest, s.OldestName = *r.Age, r.Name
	}
}

// seconds converts a duration for the JSON: rounded to the millisecond.
func seconds(d time.Duration) float64 { return math.Round(d.Seconds()*1000) / 1000 }

// since returns the seconds between two times, nil if the first isn't known. It returns 0 if the first is later: a lock
// may be acquired after now was read.
func since(then, now time.Time) *float64 {
	if then.IsZero() {
		return nil
	}
	return new(seconds(max(now.Sub(then), 0)))
}

// utc converts a time for the JSON: in UTC, to the millisecond.
func utc(t time.Time) time.Time { return t.UTC().Truncate(time.Millisecond) }
