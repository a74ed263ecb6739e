package deadlock

import (
	"context"
	"time"

	"github.com/lockdog/lockdog/lock/internal/dispatch"
	"github.com/lockdog/lockdog/lock/internal/script"
	"github.com/lockdog/lockdog/lock/internal/waitgraph"
)

// The wait that closes a cycle is, as a rule, the last to become long. So its client sees the cycle first, and notifies
// the clients of the others. Each of them finds the cycle by itself.

const (
	searchPause    = 500 * time.Millisecond // between the first two searches for a wait; then doubled each time
	maxSearchPause = 10 * time.Second
	notifiedPause  = 200 * time.Millisecond // at least, from the last search to one that a notification asks for

	maxParallel = 8  // calls at a time
	maxTold     = 16 // deadlocks of one wait that are remembered
)

// searchState has the searches for a wait, and what they found.
type searchState struct {
	next     time.Time // when to search again
	last     time.Time // the last search
	count    int       // of searches, except those to confirm a cycle
	notified bool      // since the last search

	sighting waitgraph.Sighting
	told     map[string]bool // by the cycle's key: the deadlocks that were reported to the waiter
}

// unconfirmed reports whether a cycle was seen, and isn't confirmed yet.
func (s *searchState) unconfirmed() bool { return s.sighting.Key != "" && !s.told[s.sighting.Key] }

// urgent reports whether the next search may find a deadlock that no earlier search could find. The wait that closes a
// cycle is, as a rule, the last to become long. So the cycle is found by the first search for that wait, by the
// searches of the clients that are then notified, and by the second search of each client, which confirms it.
func (s *searchState) urgent() bool { return s.count == 0 || s.notified || s.unconfirmed() }

// searched notes a search, and sets the time of the next one.
func (s *searchState) searched(now time.Time) {
	pause := searchPause
	for range s.count {
		pause = min(2*pause, maxSearchPause)
	}
	if !s.unconfirmed() {
		s.count++
	}
	s.last, s.next, s.notified = now, now.Add(pause), false
}

// search searches for deadlocks of the waits that are due. It returns when to search again, zero if there is no wait to
// search for. It fails only if the ACL forbids what every search needs.
func (f *Finder) search(now time.Time) (next time.Time, err error) {
	var due []*longWait
	for _, w := range f.long {
		state := &w.search
		if f.lookNow && !state.unconfirmed() {
			state.notified = true
			if soon := state.last.Add(notifiedPause); soon.Before(state.next) {
				state.next = soon
			}
		}
		if w.follows && !now.Before(f.due(state, now)) {
			due = append(due, w)
		}
	}
	f.lookNow = false
	if len(due) > 0 {
		// A server that hangs must not delay the refresh of this client's waits.
		ctx, cancel := context.WithTimeout(f.ctx, callTimeout)
		defer cancel()
		r := f.read(ctx, due)
		at := time.Now()
		f.searched = at
		for _, w := range due {
			if f.ctx.Err() != nil { // Close waits for this pass
				break
			}
			w.search.searched(at)
			f.conclude(w, r, at)
		}
		f.notify(r.sighted)
		if r.forbidden != nil {
			return time.Time{}, r.forbidden
		}
	}
	for _, w := range f.long {
		if !w.follows {
			continue
		}
		if due := f.due(&w.search, now); next.IsZero() || due.Before(next) {
			next = due
		}
	}
	return next, nil
}

// conclude handles the cycle that was found for a wait: the first time it is noted; once confirmed, it is reported.
func (f *Finder) conclude(w *longWait, r *reader, at time.Time) {
	cycle, state := r.graph.Through(w.record.Waiter), &w.search
	if cycle == nil {
		if !r.partial {
			state.sighting = waitgraph.Sighting{}
		}
		return
	}
	key := cycle.Key()
	switch {
	case state.told[key]:
		return
	case state.sighting.Key != key:
		state.sighting = waitgraph.Sight(cycle, at)
		state.next = state.sighting.Next
		r.sighted = append(r.sighted, cycle)
		return
	case !state.sighting.Confirmed(cycle, at):
		state.next = state.sighting.Next
		return
	}
	if state.told == nil || len(state.told) >= maxTold {
		state.told = make(map[string]bool)
	}
	state.told[key] = true
	victim := cycle.Victim()
	w.waiter.Deadlocked(cycle, victim >= 0 && cycle[victim].Wait.Waiter == w.record.Waiter)
}

// notify asks the other clients of cycles to search now. Each gets one message, and searches soon for all its long
// waits, except those whose cycle it is about to confirm. An error is ignored: the client then finds the cycle by its
// next regular search.
func (f *Finder) notify(cycles []waitgraph.Cycle) {
	var channels, keys []string
	known := make(map[string]bool)
	for _, cycle := range cycles {
		for _, step := range cycle {
			id, random := script.ClientOf(step.Wait.Waiter)
			channel := f.cfg.Prefix + f.cfg.Control + id + ":" + random
			if random == f.random || known[channel] {
				continue
			}
			known[channel] = true
			channels, keys = append(channels, channel), append(keys, f.cfg.Prefix+step.Hold.Name)
		}
	}
	ctx, cancel := context.WithTimeout(f.ctx, callTimeout)
	defer cancel()
	f.budget.tokens -= float64(len(channels))
	inParallel(len(channels), func(i int) {
		_ = f.call(ctx, callTimeout, 0,
			func(q *script.Request) { script.WaitsNotifyArgs(q, keys[i], channels[i], Notification) },
			func(dispatch.Reply) error { return nil })
	})
}
