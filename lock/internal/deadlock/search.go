package deadlock

import (
	"context"
	"time"

	"github.com/lockdog/lockdog/lock/internal/dispatch"
	"github.com/lockdog/lockdog/lock/internal/script"
	"github.com/lockdog/lockdog/lock/internal/waitgraph"
)

// The wait that closes a cycle is the last to become long, so its client sees the cycle first, and notifies the clients of the
// others. Each of them finds the cycle by itself.

const (
	searchPause    = 500 * time.Millisecond // between the first two searches for a wait; each pause is twice the one before
	maxSearchPause = 10 * time.Second
	notifiedPause  = 200 * time.Millisecond // after the last search, before one that a notification asks for

	maxParallel = 8  // calls at once
	maxTold     = 16 // deadlocks of one wait
)

// searchState is what was found for a wait so far.
type searchState struct {
	next     time.Time // when to search again
	last     time.Time
	count    int  // of searches
	notified bool // since the last one

	sighting waitgraph.Sighting
	told     map[string]bool // by key of the cycle
}

// unconfirmed reports whether a cycle was seen once.
func (s *searchState) unconfirmed() bool { return s.sighting.Key != "" && !s.told[s.sighting.Key] }

// urgent reports whether this search may find a deadlock that no earlier one could. The wait that closes a cycle is the last to
// become long. So what sees the cycle is the first search for that wait, those of the clients that are notified then, and a
// second one of each.
func (s *searchState) urgent() bool { return s.count == 0 || s.notified || s.unconfirmed() }

// later returns the later of two times.
func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// searched notes a search, and when to search again.
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

// search searches for deadlocks of the waits for which it is time. It returns when to search again, zero if there is no wait to
// search for. It fails only if the ACL doesn't allow to read what clients have written.
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
		// A server that hangs mustn't delay the refresh of the client's own waits.
		ctx, cancel := context.WithTimeout(f.ctx, callTimeout)
		defer cancel()
		r := newReader(ctx, f)
		r.from(due)
		at := time.Now()
		f.searched = at
		for _, w := range due {
			if f.ctx.Err() != nil { // Close waits
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

// conclude acts on what was found for a wait.
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

// notify has the other clients of cycles search for them now. Each is told once: it searches for all its waits.
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
		_ = f.call(ctx, callTimeout, 0, func(q *script.Request) { script.WaitsNotifyArgs(q, keys[i], channels[i], Notification) },
			func(*dispatch.Call) error { return nil }) // else it searches by itself, later
	})
}
