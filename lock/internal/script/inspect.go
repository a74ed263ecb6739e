package script

import (
	"strconv"
	"time"

	"github.com/lockdog/lockdog/lock/internal/backend"
)

// Inspector is a script that reports who holds a lock.
type Inspector struct {
	*backend.Script
	keys layout
}

// The scripts that inspect.
var (
	inspect = load("inspect", "clock", "owner", "foreign")

	Inspect     = &Inspector{inspect, lockKey}
	FairInspect = &Inspector{inspect, fairKeys}
	RWInspect   = &Inspector{
		load("rw_inspect", "clock", "token", "after", "tell", "owner", "number", "rw"), rwKeys,
	}
)

// Args makes r a call of the script.
func (s *Inspector) Args(r *Request, l Lock) {
	r.start(s.Script)
	s.keys(r, l, "")
}

// InspectReply is the reply of inspect.lua and rw_inspect.lua. It is zero if nobody holds the lock.
type InspectReply struct {
	Held        bool
	Owner       string
	Released    bool          // as in AcquireReply
	Count       int           // how many times the owner has entered
	Remaining   time.Duration // negative: the lease has no end
	Token       int64
	Traceparent string
	Mode        string // of a read-write lock
	Readers     int    // of a read-write lock
}

// ParseInspect parses the reply of an Inspector.
func ParseInspect(reply any) (InspectReply, error) {
	list, nums, err := ints(reply, 2)
	if err != nil {
		return InspectReply{}, err
	}
	r := InspectReply{Remaining: Millis(nums[1])}
	for i := 2; i+1 < len(list); i += 2 {
		field, ok1 := list[i].(string)
		value, ok2 := list[i+1].(string)
		if !ok1 || !ok2 {
			return InspectReply{}, unreadable(reply)
		}
		switch {
		case field == MetaField:
			r.Token, r.Traceparent = ParseMeta(value)
		case field == "mode":
			// rw_inspect.lua sends the owner first. If no owner comes before the mode, inspect.lua has read the hash of
			// a read-write lock: the mode is then ignored.
			if r.Owner != "" {
				r.Mode = value
			}
		case r.Owner != "" && field == "readers":
			r.Readers, _ = strconv.Atoi(value)
		case r.Owner == "":
			r.Held = true
			r.Owner, r.Released = CutReleased(field)
			r.Count, _ = strconv.Atoi(value)
		}
	}
	if !r.Held {
		return InspectReply{}, nil
	}
	return r, nil
}
