package waitgraph

import "time"

// Sighting is a cycle that was seen once. It is a deadlock if all of it was true at one moment. It is seen by reading one thing after the other, and what others
// have written may be old. So it is seen twice, some time apart, with the same leases and waits, and the second time every wait of another client in a hash that
// was refreshed since the first time. Then each of the waits lasted, and each of the leases was held, when it had been seen for the first time. A lease that is
// released between the two, a wait that ends, a client that dies or can't be reached: each of them leaves a cycle that isn't seen twice so.
type Sighting struct {
	Key  string    // of the cycle; "": none was seen
	Next time.Time // when to look again

	seen  time.Time     // when it had been seen for the first time
	pause time.Duration // until it is looked at again, unless all in it were refreshed
}

const confirmPause = 250 * time.Millisecond // after a refresh was due, until all in the cycle are refreshed; each pause is twice the one before

// Sight notes that a cycle had been seen for the first time at that time. It must not be that of the beginning of the reading: a wait that was read first may have
// ended after a refresh in the middle of the reading, before another wait of the cycle began.
func Sight(c Cycle, at time.Time) Sighting {
	s := Sighting{Key: c.Key(), Next: at.Add(SightingsApart), seen: at, pause: confirmPause}
	for _, step := range c {
		if due := step.Wait.Refreshed.Add(RefreshEvery + RefreshLag); due.After(s.Next) {
			s.Next = due
		}
	}
	return s
}

// Confirmed reports whether the cycle, which was seen again at that time, is a deadlock. Otherwise it says when to look again.
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
