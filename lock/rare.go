package lock

import "time"

// grantExtra is what most grants never need: a process may hold a million. It is guarded by the grant's mu.
type grantExtra struct {
	reason  Reason        // canceled: why
	err     error         // the end, unless it was the release
	failing trouble       // of its renewals
	beat    time.Duration // the last heartbeat, after the grant
	warned  bool

	forced   error     // what the control channel says of a ForceUnlock; nil: nothing
	forcedAt time.Time // when it said so

	unlimited bool // another lock looks after WithMaxHold and WithHeartbeat
	joined    []*Lease
}

// extra is what there is to say that is rare. It is called with mu held, to read.
func (g *grant) extra() grantExtra {
	if g.extras == nil {
		return grantExtra{}
	}
	return *g.extras
}

// ensureExtra is where to say something rare. It is called with mu held.
func (g *grant) ensureExtra() *grantExtra {
	if g.extras == nil {
		g.extras = new(grantExtra)
	}
	return g.extras
}

// end is what Lease.Err says: not nil once the end is certain. It is called with mu held.
func (g *grant) end() error {
	if err := g.extra().err; err != nil {
		return err
	}
	if g.state == grantEnded {
		return ErrReleased
	}
	return nil
}
