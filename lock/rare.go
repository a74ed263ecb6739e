package lock

import "time"

// rare is what most grants never need: a process may hold a million. It is guarded by the grant's mu.
type rare struct {
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

// told is what there is to say that is rare. It is called with mu held, to read.
func (g *grant) told() rare {
	if g.rare == nil {
		return rare{}
	}
	return *g.rare
}

// uncommon is where to say something rare. It is called with mu held.
func (g *grant) uncommon() *rare {
	if g.rare == nil {
		g.rare = new(rare)
	}
	return g.rare
}

// end is what Lease.Err says: not nil once the end is certain. It is called with mu held.
func (g *grant) end() error {
	if err := g.told().err; err != nil {
		return err
	}
	if g.state == grantEnded {
		return ErrReleased
	}
	return nil
}
