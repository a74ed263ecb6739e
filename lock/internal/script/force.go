package script

import (
	"fmt"

	"github.com/lockdog/lockdog/lock/internal/backend"
)

// Forcer is a script that takes a lock away from its holders.
type Forcer struct {
	*backend.Script
	keys    layout
	channel func(key string) string
}

// The scripts that force.
var (
	force = load("force", "owner", "foreign", "channel", "marks", "tell", "forced", "fair_queue", "fair_wake")

	Force     = &Forcer{force, lockKey, Channel}
	FairForce = &Forcer{force, fairKeys, Channel}
	RWForce   = &Forcer{
		load("rw_force", "clock", "token", "after", "tell", "owner", "number", "rw", "forced"), rwKeys, RWChannel,
	}
)

// ForceArgs are the arguments of a Forcer.
type ForceArgs struct {
	Lock
	Publish any    // the command to publish with: a string, boxed
	Control string // the prefix of the control channels
	Client  string // the calling client, to be named to the holder
}

// Args makes r a call of the script.
func (s *Forcer) Args(r *Request, a ForceArgs) {
	r.start(s.Script)
	s.keys(r, a.Lock, "")
	r.Args = append(r.Args, s.channel(a.Key), a.Publish, a.Control, a.Client)
}

// ForceReply is the reply of force.lua and rw_force.lua.
type ForceReply struct {
	Held    bool
	Owners  []string // that held the lock, at most ten
	Refused error    // the server's error if it refused a message; nil: it refused none
}

// ParseForce parses the reply of a Forcer.
func ParseForce(reply any) (ForceReply, error) {
	if reply == int64(0) {
		return ForceReply{}, nil
	}
	list, nums, err := ints(reply, 1)
	if err != nil || nums[0] != 1 || len(list) < 2 {
		return ForceReply{}, unreadable(reply)
	}
	r := ForceReply{Held: true, Refused: refused(list, 1)}
	for _, owner := range list[2:] {
		name, _ := CutReleased(fmt.Sprint(owner))
		r.Owners = append(r.Owners, name)
	}
	return r, nil
}
