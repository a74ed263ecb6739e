package lock

import (
	"time"

	"github.com/lockdog/lockdog/lock/internal/script"
	"github.com/lockdog/lockdog/lock/internal/tracking"
	"github.com/lockdog/lockdog/watchdog"
)

func newTrackers(c *Client) *tracking.Trackers {
	return tracking.New(tracking.Config{
		Backend: c.backend, Recorder: c.rec, Verify: c.verify,
		Refused: func(err error) {
			c.logger().Warn("lockdog: Redis refuses WithLossNotifications; holders are told of a loss at the next renewal",
				"error", err.Error())
		},
		Crowded: func() {
			c.logger().Warn("lockdog: Redis doesn't track as many keys as WithLossNotifications has; see tracking-table-max-keys; holders are told of a loss at the next renewal")
		},
	})
}

// verify renews grants at once: the reply to a renewal tells whether the grant is lost.
func (c *Client) verify(entries []tracking.Watched) {
	leases := make([]*watchdog.Lease, len(entries))
	for i, e := range entries {
		leases[i] = &e.(*grant).wd
	}
	c.renewer.Verify(leases...)
}

// watchKey makes a client with WithLossNotifications read the grant's key after each change, and verify the grant if
// its owner is missing there or will expire too early. A fixed lease can't be verified.
func (g *grant) watchKey() {
	t := g.client().trackers
	if t == nil || g.lock.cfg.fixed {
		return
	}
	t.Watch(tracking.Key{Name: g.lock.renewedKey(), Sorted: g.lock.kind.holding == script.HoldsPermit}, g)
	if g.whyEnded() != nil { // unwatchKey may have been called before Watch
		g.unwatchKey()
	}
}

func (g *grant) unwatchKey() {
	if t := g.client().trackers; t != nil {
		t.Unwatch(g.lock.renewedKey(), g)
	}
}

// StoredOwner implements tracking.Watched.
func (g *grant) StoredOwner() string { return g.claim.storedOwner() }

// Deadline implements tracking.Watched.
func (g *grant) Deadline() time.Time { return g.wd.Deadline() }
