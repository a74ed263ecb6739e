package tracking

import "time"

const (
	// A check of a hash is in vain if it finds the same expiry as the previous check: the watched entries have most
	// likely not changed. A few such checks are normal: others may change their own fields, and a newly added entry is
	// checked, too. maxVain such checks in vainWindow mean that there are more keys than the server's
	// tracking-table-max-keys: to track one more key, the server then forgets another, and reports the forgotten key as
	// changed. Reading that key again makes the server forget the next.
	maxVain    = 500
	vainWindow = time.Second
	// Two expiries that differ by less are the same: the reply may take time. A renewal makes a larger difference.
	sameExpiry = 250 * time.Millisecond

	firstCrowdPause = time.Second
	maxCrowdPause   = time.Minute
)

// crowd detects that a server can't track all keys, and decides for how long to read no keys.
type crowd struct {
	since  time.Time // start of the window
	vain   int       // checks in vain, in the window
	pauses int       // in a row
}

// pause counts checks that were in vain, and returns how long to check nothing; 0: go on.
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

// countVain notes when the checked hashes expire, and returns how many checks were in vain.
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
