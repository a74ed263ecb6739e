// Package changes compares successive looks at all locks, and reports what happened to each lock between two looks. It
// knows only what the looks found. A hold that began and ended between two looks isn't seen, and several changes
// between two looks count as one.
package changes

import (
	"cmp"
	"slices"
	"time"

	"github.com/lockdog/lockdog/lock/fleet"
)

// Look is the result of one reading of all locks.
type Look struct {
	Began, Ended time.Time
	Locks        []Seen
	Err          error // why some locks may be missing; nil if none is
}

// Seen is a lock as a look found it.
type Seen struct {
	fleet.Lock
	At     time.Time // when it was read
	Unseen bool      // the last look was incomplete and didn't find it: this is the result of an earlier one

	// LongestWait is when the longest of the current waits began. For a waiter in a queue, Redis doesn't store this
	// time. Then LongestWait is when a look first saw that waiter, and WaitsLonger is set. Zero: not known, or nobody
	// waits.
	LongestWait time.Time
	WaitsLonger bool

	began     time.Time            // start of the look that read it
	longest   time.Duration        // maximum remaining time of this grant's lease in any look
	firstSeen map[string]time.Time // by owner, for waiters in a queue
}

// What is the name of an event. It is API: --json prints it.
type What string

// The events. LeaseOver is inferred: the previous look found the lease in its second half, which a renewed lease
// doesn't reach, and the lease ended before the next look. A release in between can't be told apart from this.
const (
	Held      What = "held"       // found held, and no earlier look was complete: it may have been acquired long ago
	Acquired  What = "acquired"   // it was free before
	HandOver  What = "hand_over"  // another lease holds it, perhaps of the same client
	Holders   What = "holders"    // the number of readers or of held permits has changed
	Gone      What = "gone"       // nobody holds it any more: it was released or deleted, or see MayHaveExpired
	LeaseOver What = "lease_over" // its lease wasn't renewed, and has run out; Acquired follows if another holds it now
	WaitBegan What = "wait_began" // it has waiters, and had none before
	WaitEnded What = "wait_ended" // it has no waiters any more
)

// Event is a change of a lock between two looks.
type Event struct {
	What  What
	At    time.Time // when it was seen
	After time.Time // it happened after this time; zero: unknown
	Was   Seen      // before; zero if it was neither held nor awaited, or no look had read it
	Is    Seen      // now; zero if the look found it neither held nor awaited

	// MayHaveExpired is set for Gone and HandOver if the lease may have run out before the change was seen.
	MayHaveExpired bool
}

// Lock returns the lock that the event is about.
func (e *Event) Lock() *Seen {
	if e.Is.Key != "" {
		return &e.Is
	}
	return &e.Was
}

// mostUnseen is the maximum number of locks that are remembered although incomplete looks didn't find them. Those seen
// last are kept. While a node is down, no look is complete, and locks on other nodes come and go. Without a limit all
// of them would be remembered.
const mostUnseen = 200_000

// Tracker remembers what the last looks found. Its zero value is ready to use.
type Tracker struct {
	known    map[string]Seen // by key
	complete time.Time       // start of the last complete look; zero: none yet
	most     int             // not 0: used instead of mostUnseen, for tests
	waits    waitTime
}

// Add adds the next look. It returns the locks that are held or awaited, sorted by name, and what has happened since
// the previous look. After the first look, the events say which locks it found held. If the look is incomplete, the
// locks that only earlier looks found are returned too, mostUnseen at most.
func (t *Tracker) Add(look Look) ([]Seen, []Event) {
	now := make(map[string]Seen, len(look.Locks))
	var events []Event
	var unseen []string
	for _, is := range look.Locks {
		if is.Held == 0 && is.Waiting == 0 {
			continue
		}
		was := t.known[is.Key]
		is.began = look.Began
		is.follow(&was)
		now[is.Key] = is
		events = append(events, t.compare(was, is)...)
	}
	for key, was := range t.known {
		if _, found := now[key]; found {
			continue
		}
		if look.Err != nil {
			was.Unseen = true
			now[key] = was
			unseen = append(unseen, key)
			continue
		}
		events = append(events, vanished(was, look)...)
	}
	if most := cmp.Or(t.most, mostUnseen); len(unseen) > most {
		slices.SortFunc(unseen, func(a, b string) int { return now[b].At.Compare(now[a].At) })
		for _, key := range unseen[most:] {
			delete(now, key)
		}
	}
	t.addWaits(look, now)
	t.known = now
	if look.Err == nil {
		t.complete = look.Began
	}
	locks := make([]Seen, 0, len(now))
	for _, l := range now {
		locks = append(locks, l)
	}
	slices.SortFunc(locks, func(a, b Seen) int { return cmp.Compare(a.Name, b.Name) })
	slices.SortStableFunc(events, func(a, b Event) int {
		return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.Lock().Name, b.Lock().Name))
	})
	return locks, events
}

// compare returns the events of a lock that a look found.
func (t *Tracker) compare(was, is Seen) []Event {
	var events []Event
	add := func(what What) {
		events = append(events, Event{What: what, At: is.At, After: cmp.Or(was.At, t.complete), Was: was, Is: is})
	}
	switch {
	case was.Held == 0 && is.Held > 0 && t.complete.IsZero():
		add(Held)
	case was.Held == 0 && is.Held > 0:
		add(Acquired)
	case was.Held > 0 && is.Held == 0:
		events = append(events, ended(was, is, is.began, is.At))
	case was.Mode != is.Mode, was.Held == 1 && is.Held == 1 && grant(&was) != grant(&is):
		events = append(events, ended(was, is, is.began, is.At))
		if events[0].What == LeaseOver {
			add(Acquired)
		} else {
			events[0].What = HandOver
		}
	case was.Held != is.Held:
		add(Holders)
	}
	switch {
	// Until a look was complete, we don't know whether the wait of a new lock has just begun.
	case was.Waiting == 0 && is.Waiting > 0 && (was.Key != "" || !t.complete.IsZero()):
		add(WaitBegan)
	case was.Waiting > 0 && is.Waiting == 0:
		add(WaitEnded)
	}
	return events
}

// vanished returns the events of a lock that a complete look didn't find.
func vanished(was Seen, look Look) []Event {
	var events []Event
	if was.Held > 0 {
		events = append(events, ended(was, Seen{}, look.Began, look.Ended))
	}
	if was.Waiting > 0 {
		events = append(events, Event{What: WaitEnded, At: look.Ended, After: was.At, Was: was})
	}
	return events
}

// ended returns the event for the end of a hold. began is the start of the look that didn't find the hold. at is when
// that look read the lock. If it didn't find the lock, at is when the look ended. The event is LeaseOver only if the
// lock had one known holder, and the previous look saw the lock.
func ended(was, is Seen, began, at time.Time) Event {
	e := Event{What: Gone, At: at, After: was.At, Was: was, Is: is}
	remaining := left(&was)
	if remaining < 0 || len(was.Holders) == 1 && was.Holders[0].Released {
		return e
	}
	// Redis computed the remaining time at some moment between was.began, the start of that look, and was.At. So the
	// lease ends between these two:
	earliest, latest := was.began.Add(remaining), was.At.Add(remaining)
	switch {
	case grant(&was) != holding{} && !was.Unseen && !latest.After(began) && remaining <= was.longest/2:
		e.What = LeaseOver
	case !earliest.After(at.Add(slack)):
		e.MayHaveExpired = true
	}
	return e
}

// left returns the remaining time of the holder's lease if there is one known holder, otherwise that of the lock.
func left(l *Seen) time.Duration {
	if l.Held == 1 && len(l.Holders) == 1 {
		return l.Holders[0].Remaining
	}
	return l.Remaining
}

// slack is the tolerance when the end of a lease is computed: Redis rounds the time that is left, and its clock may be
// faster or slower than ours.
const slack = 100 * time.Millisecond

// follow copies what earlier looks found about the same grant and the same waiters.
func (s *Seen) follow(was *Seen) {
	s.longest = left(s)
	if was.Held == s.Held && grant(was) == grant(s) {
		s.longest = max(s.longest, was.longest)
	}
	for _, w := range s.Waiters {
		since, longer := w.Since, false
		if since.IsZero() {
			if w.Owner == "" || w.Redisson { // such an owner may have left and come back between two looks
				continue
			}
			since, longer = cmp.Or(was.firstSeen[w.Owner], s.At), true
			if s.firstSeen == nil {
				s.firstSeen = map[string]time.Time{}
			}
			s.firstSeen[w.Owner] = since
		}
		if s.LongestWait.IsZero() || since.Before(s.LongestWait) {
			s.LongestWait, s.WaitsLonger = since, longer
		}
	}
}

// holding identifies a grant.
type holding struct {
	owner string
	token int64
}

// grant returns the grant of a lock with one known holder, otherwise zero.
func grant(l *Seen) holding {
	if l.Held != 1 || len(l.Holders) != 1 {
		return holding{}
	}
	return holding{l.Holders[0].Owner, l.Holders[0].Token}
}
