package lock

import (
	"time"

	"github.com/lockdog/lockdog/lock/internal/contention"
)

// grantExtra is the part of a grant that most grants don't need: a process may hold a million. The grant's mu guards it.
type grantExtra struct {
	canceled *CanceledError // nil if it wasn't
	err      error          // how it ended, nil if it was released
	failures failureStreak  // of its renewals
	beat     time.Duration  // the last heartbeat, after the grant
	warned   bool

	forced   error     // the ForceUnlock that the control channel reported, nil if none
	forcedAt time.Time // when it was reported

	unlimited bool     // another lock of the Multi enforces WithMaxHold and WithHeartbeat
	joined    []*Lease // handles besides the first, without those that were released

	sample *contention.Sample // nil for most
}

// reason is why the grant was canceled, "" if it wasn't.
func (e *grantExtra) reason() Reason {
	if e.canceled == nil {
		return ""
	}
	return e.canceled.Reason
}

// extra returns a copy of the grantExtra. It is called with mu held.
func (g *grant) extra() grantExtra {
	if g.extras == nil {
		return grantExtra{}
	}
	return *g.extras
}

// ensureExtra returns the grantExtra, to be changed. It is called with mu held.
func (g *grant) ensureExtra() *grantExtra {
	if g.extras == nil {
		g.extras = new(grantExtra)
	}
	return g.extras
}

// end returns how the grant has ended, nil while it lives. It is not nil as soon as the end is certain. It is called with mu held.
func (g *grant) end() error {
	if err := g.extra().err; err != nil {
		return err
	}
	if g.state == grantEnded {
		return ErrReleased
	}
	return nil
}
