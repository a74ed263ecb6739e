package lock

import (
	"time"

	"github.com/lockdog/lockdog/lock/internal/contention"
)

// grantExtra is the part of a grant that most grants don't need. It saves memory: a process may hold a million grants.
// The grant's mu guards it.
type grantExtra struct {
	canceled *CanceledError // nil if it wasn't
	err      error          // how it ended; nil: it was released, or lives
	failures failureStreak  // of its renewals
	beat     time.Duration  // when the last heartbeat was, counted from the grant
	warned   bool           // the warning of WithHoldWarning was due, and isn't due again

	forced   error     // see noteForced; nil: no message of a ForceUnlock
	forcedAt time.Time // when that message came

	unused    bool     // the program didn't get its lease: see noteUnused
	unlimited bool     // another lock of the Multi enforces WithMaxHold and WithHeartbeat
	joined    []*Lease // the handles that joined, except those that were released

	sample *contention.Sample // nil for most

	pendingReport func() // of a loss: what reportLoss does; nil: nothing
}

// reason returns why the grant was canceled, "" if it wasn't.
func (e *grantExtra) reason() Reason {
	if e.canceled == nil {
		return ""
	}
	return e.canceled.Reason
}

// extraCopy returns a copy of the grantExtra. mu must be held.
func (g *grant) extraCopy() grantExtra {
	if g.extras == nil {
		return grantExtra{}
	}
	return *g.extras
}

// ensureExtra returns the grantExtra itself. If there is none, it makes one. mu must be held.
func (g *grant) ensureExtra() *grantExtra {
	if g.extras == nil {
		g.extras = new(grantExtra)
	}
	return g.extras
}

// endErr returns how the grant has ended, nil while it lives. It returns a loss even before state is grantEnded. mu
// must be held.
func (g *grant) endErr() error {
	if err := g.extraCopy().err; err != nil {
		return err
	}
	if g.state == grantEnded {
		return ErrReleased
	}
	return nil
}
