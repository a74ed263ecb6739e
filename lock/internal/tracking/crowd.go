package tracking

import "time"

const (
	// A check of a hash is in vain if the hash was reported as changed, but is as it was, and expires when it did. A few are: somebody else's
	// field. So many in a second mean that the server tracks no more keys than tracking-table-max-keys, and reports each that it forgets for
	// another. To read one again has it forget the next.
	maxVain    = 500
	vainWindow = time.Second
	sameExpiry = 250 * time.Millisecond // apart at most: the time is counted from when the reply was read; a renewal moves it by more

	firstCrowdPause = time.Second
	maxCrowdPause   = time.Minute
)

// crowd tells when a server can't track all keys, and for how long to let it be.
type crowd struct {
	since  time.Time // the window's start
	vain   int       // in the window
	pauses int       // one after the other
}

// pause counts checks that were in vain, and returns for how long to check nothing; 0: go on.
func (c *crowd) pause(vain int, now time.Time) time.Duration {
	if now.Sub(c.since) > vainWindow {
		if c.vain < maxVain { // otherwise the window ended with a pause
			c.pauses = 0
		}
		c.since, c.vain = now, 0
	}
	if c.vain += vain; c.vain < maxVain {
		return 0
	}
	c.pauses++
	return min(firstCrowdPause<<min(c.pauses-1, 10), maxCrowdPause)
}

// countVain notes when the keys expire that were checked, and returns how many of them were checked in vain.
func (t *Trackers) countVain(checks []*keyCheck, now time.Time) (vain int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, check := range checks {
		k := t.keys[check.Name]
		if k == nil || check.ttl == nil || check.ttl.Err() != nil || check.ttl.Val() < 0 {
			continue
		}
		expiry := now.Add(check.ttl.Val())
		if !k.expiry.IsZero() && expiry.Sub(k.expiry).Abs() <= sameExpiry {
			vain++
		}
		k.expiry = expiry
	}
	return vain
}
