package deadlock

import (
	"cmp"
	"slices"
	"time"

	"github.com/lockdog/lockdog/lock/internal/waitgraph"
)

// Waits are the client's waits.
type Waits interface {
	// Long returns the waits that began at or before a time, when the first of the others began (zero if there is
	// none), and whether the client has any wait.
	Long(by time.Time) (long []Wait, next time.Time, any bool)
	// Any reports whether the client has a wait.
	Any() bool
}

// Wait is a wait at one moment.
type Wait struct {
	Waiter
	Owner       string // for which the lock is requested now; a wait may change its owner
	Traceparent string
}

// Waiter identifies a wait, as long as the wait lasts. It is comparable.
type Waiter interface {
	// Describe returns the part of the wait that doesn't change, and the leases that its ctx carries, or its Multi has
	// taken, also those that have ended. It calls methods of the program's contexts, so it may panic.
	Describe() (waitgraph.Wait, []Lease)
	// Deadlocked reports a deadlock to the waiter. If fail is true, the wait must end with an error.
	Deadlocked(cycle waitgraph.Cycle, fail bool)
}

// Lease is a lease of this client.
type Lease interface {
	// Hold returns the lease in the form of the wait graph, and whether it lives.
	Hold() (waitgraph.Hold, bool)
}

// longWait is a wait that is long enough to be written into Redis.
type longWait struct {
	waiter  Waiter
	leases  []Lease        // see Waiter.Describe
	record  waitgraph.Wait // updated by each pass
	follows bool           // the wait may be part of a deadlock; set by each pass
	search  searchState
}

const maxRecorded = 1000 // waits of a client in Redis

// collect updates f.long. It returns when the next wait becomes long, zero if there is none, and whether there is any
// wait.
func (f *Finder) collect(now time.Time) (soonest time.Time, any bool) {
	all, next, any := f.cfg.Waits.Long(now.Add(-f.cfg.After))
	if !next.IsZero() {
		soonest = next.Add(f.cfg.After)
	}
	before := f.long
	f.long = make(map[Waiter]*longWait, len(all))
	for _, w := range all {
		known := before[w.Waiter]
		if known == nil {
			known = &longWait{waiter: w.Waiter}
			known.record, known.leases = w.Describe()
			f.budget.tokens += budgetStart
		}
		known.record.Waiter, known.record.Traceparent = w.Owner, w.Traceparent
		f.long[w.Waiter] = known
	}
	return soonest, any
}

// update sets record.Holds to the leases that live, MaxHolds at most, and follows.
func (w *longWait) update() {
	w.record.Holds = w.record.Holds[:0:0]
	for _, l := range w.leases {
		if len(w.record.Holds) == waitgraph.MaxHolds {
			break
		}
		if hold, lives := l.Hold(); lives {
			w.record.Holds = append(w.record.Holds, hold)
		}
	}
	w.follows = len(w.record.Holds) > 0 && waitgraph.Followed(w.record.Kind)
}

// inOrder returns the waits to write, maxRecorded at most: first those with leases, among these first those that may be
// chosen to fail, then by age.
func inOrder(long map[Waiter]*longWait) []*longWait {
	all := make([]*longWait, 0, len(long))
	for _, w := range long {
		all = append(all, w)
	}
	rank := func(w *longWait) int {
		switch {
		case len(w.record.Holds) == 0:
			return 2
		case !w.record.Breaks:
			return 1
		}
		return 0
	}
	slices.SortFunc(all, func(a, b *longWait) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)),
			a.record.Since.Compare(b.record.Since), cmp.Compare(a.record.Waiter, b.record.Waiter))
	})
	return all[:min(len(all), maxRecorded)]
}
