// Package changes compares looks at all locks, and says what happened to each lock between two of them. It only knows what the looks found: what
// began and ended between two looks, it doesn't see, and several changes between two looks are one to it.
package changes

import (
	"cmp"
	"slices"
	"time"

	"github.com/lockdog/lockdog/lock/fleet"
)

// Look is what one reading of all locks found.
type Look struct {
	Began, Ended time.Time
	Locks        []Seen
	Err          error // why some locks may be missing; nil if none is
}

// Seen is a lock, as it was when it was read.
type Seen struct {
	fleet.Lock
	At     time.Time // when it was read
	Unseen bool      // the last look was incomplete and didn't find it: this is what an earlier one found

	// LongestWait is since when the one who has waited longest waits, as far as Redis says. Of a queue Redis doesn't: then it is since when that
	// waiter has been seen, and WaitsLonger is set.
	LongestWait time.Time
	WaitsLonger bool

	began     time.Time            // of the look that read it
	longest   time.Duration        // the most that was left of this grant's lease in any look
	shortened bool                 // this grant's lease ends earlier than a look found before, as after a release with WithMinHold
	firstSeen map[string]time.Time // of waiters in a queue, by owner
}

// What is the name of an event. It is API: --json prints it.
type What string

// The events. LeaseOver is a conclusion: that the last look found the lease in its second half, which no renewed lease reaches, and that its end had come before
// the next look. A release between that look and that end looks the same, and so does the end of what WithMinHold adds to a lease.
const (
	Held      What = "held"       // the first look found it held
	Acquired  What = "acquired"   // it was free
	HandOver  What = "hand_over"  // another lease holds it; it may be the same client's
	Holders   What = "holders"    // of readers, or permits: another number
	Gone      What = "gone"       // nobody holds it any more: it was released, or deleted
	LeaseOver What = "lease_over" // its lease wasn't renewed, and has run out; Acquired follows if another holds it now
	WaitBegan What = "wait_began" // somebody waits, where nobody did
	WaitEnded What = "wait_ended" // nobody waits any more
)

// Event is a change of a lock between two looks.
type Event struct {
	What  What
	At    time.Time // when it was seen
	After time.Time // when it hadn't happened yet; zero if that isn't known
	Was   Seen      // before; zero if nobody held it
	Is    Seen      // now; zero if nobody holds it

	// MayHaveExpired is set of Gone and HandOver, where the lease may have ended before the change was seen.
	MayHaveExpired bool
}

// Lock is the lock that the event is about.
func (e *Event) Lock() *Seen {
	if e.Is.Key != "" {
		return &e.Is
	}
	return &e.Was
}

// mostUnseen is how many locks are remembered that incomplete looks miss, the last seen first. While a node is away for long, locks of others come and go, and no
// look is complete: without a limit they would all be remembered.
const mostUnseen = 200_000

// Tracker remembers what the last looks found. The zero value is ready.
type Tracker struct {
	known    map[string]Seen // by key
	complete time.Time       // when the last complete look began; zero: none yet
	most     int             // instead of mostUnseen, for tests
	waits    waitTime
}

// Add takes the next look. It returns all locks that are held or awaited, those included that an incomplete look missed, and what happened since the look
// before.
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

// compare says what happened to a lock that is there.
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
		e := ended(was, is.began, is.At)
		e.Is = is
		events = append(events, e)
	case was.Mode != is.Mode, was.Held == 1 && is.Held == 1 && grant(&was) != grant(&is):
		e := ended(was, is.began, is.At)
		e.Is = is
		if e.What == LeaseOver {
			events = append(events, e)
			add(Acquired)
			break
		}
		e.What = HandOver
		events = append(events, e)
	case was.Held != is.Held:
		add(Holders)
	}
	switch {
	case was.Waiting == 0 && is.Waiting > 0 && (was.Key != "" || !t.complete.IsZero()): // at first, it isn't known when that began
		add(WaitBegan)
	case was.Waiting > 0 && is.Waiting == 0:
		add(WaitEnded)
	}
	return events
}

// vanished says what happened to a lock that a complete look didn't find.
func vanished(was Seen, look Look) []Event {
	var events []Event
	if was.Held > 0 {
		events = append(events, ended(was, look.Began, look.Ended))
	}
	if was.Waiting > 0 {
		events = append(events, Event{What: WaitEnded, At: look.Ended, After: was.At, Was: was})
	}
	return events
}

// ended says how a hold ended, of which a look that began and saw the change at these times found nothing. See LeaseOver for what it claims, which it does only of
// one holder that is known, and never after looks that couldn't see the lock.
func ended(was Seen, began, at time.Time) Event {
	e := Event{What: Gone, At: at, After: was.At, Was: was}
	remaining := left(&was)
	if remaining < 0 {
		return e
	}
	// The server was asked after the look began and before it was done with the lock, and counted from then.
	earliest, latest := was.began.Add(remaining), was.At.Add(remaining)
	switch {
	case grant(&was) != holding{} && !was.Unseen && !was.shortened && !latest.After(began) && remaining <= was.longest/2:
		e.What = LeaseOver
	case !earliest.After(at):
		e.MayHaveExpired = true
	}
	return e
}

// left is what was left of the lease; of one holder of several keys, of its own.
func left(l *Seen) time.Duration {
	if l.Held == 1 && len(l.Holders) == 1 {
		return l.Holders[0].Remaining
	}
	return l.Remaining
}

// slack is by how much an end of a lease that is computed twice may differ, for Redis's rounding and clock.
const slack = 100 * time.Millisecond

// follow takes over what earlier looks found of the same grant, and of the same waiters.
func (s *Seen) follow(was *Seen) {
	s.longest = left(s)
	if was.Held == s.Held && grant(was) == grant(s) {
		s.longest = max(s.longest, was.longest)
		s.shortened = was.shortened || left(was) >= 0 && left(s) >= 0 && s.At.Add(left(s)).Add(slack).Before(was.began.Add(left(was)))
	}
	for _, w := range s.Waiters {
		since, longer := w.Since, false
		if since.IsZero() {
			if w.Owner == "" || w.Redisson { // may have left and come back between two looks
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

// holding is what tells one grant from another.
type holding struct {
	owner string
	token int64
}

// grant is that of a lock that one holder has, and otherwise zero.
func grant(l *Seen) holding {
	if l.Held != 1 || len(l.Holders) != 1 {
		return holding{}
	}
	return holding{l.Holders[0].Owner, l.Holders[0].Token}
}
