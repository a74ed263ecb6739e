package waitgraph

import "time"

// Sighting is a cycle that was seen once. The cycle is a deadlock if all of it was true at one moment. But its waits
// and leases are read one after the other, and what other clients have written may be old. So the cycle must be seen a
// second time, at least SightingsApart later, with the same leases and waits, and every wait of another client must
// have been refreshed after the first time. Then, at the end of the first reading, all waits were going on and all
// leases were held. (A wait may have ended before, if its refresh was under way at that moment. That makes a false
// deadlock only if it was under way for as long as another wait of the cycle has lasted.) If a lease is released, a
// wait ends, or a client dies or is cut off before it refreshes its waits, the cycle isn't confirmed.
type Sighting struct {
	Key  string    // of the cycle; "": none was seen
	Next time.Time // when to read again

	seen  time.Time     // the end of the first reading
	pause time.Duration // before the next reading, if a wait wasn't refreshed
}

// confirmPause is the first Sighting.pause; each pause is twice the one before.
const confirmPause = 250 * time.Millisecond

// Sight returns the sighting of a cycle by a reading that ended at the given time. The time when the reading began
// won't do: a wait that was read first may have been refreshed during the reading, and have ended before another wait
// of the cycle began.
func Sight(c Cycle, at time.Time) Sighting {
	s := Sighting{Key: c.Key(), Next: at.Add(SightingsApart), seen: at, pause: confirmPause}
	for _, step := range c {
		s.Next = Later(s.Next, step.Wait.Refreshed.Add(RefreshEvery+RefreshLag))
	}
	return s
}

// Confirmed reports whether the cycle, which was seen again at a time, is a deadlock. If not, it sets Next.
func (s *Sighting) Confirmed(c Cycle, at time.Time) bool {
	if at.Sub(s.seen) < SightingsApart {
		s.Next = s.seen.Add(SightingsApart)
		return false
	}
	for _, step := range c {
		if refreshed := step.Wait.Refreshed; !refreshed.IsZero() && !refreshed.After(s.seen) {
			s.Next = at.Add(s.pause)
			s.pause *= 2
			return false
		}
	}
	return true
}

// Later returns the later one of two times.
func Later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
