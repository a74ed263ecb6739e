package script

import (
	"fmt"
	"strconv"
	"time"
)

// InspectReply is the reply of inspect.lua and rw_inspect.lua. It is zero if nobody holds the lock.
type InspectReply struct {
	Held        bool
	Owner       string
	Count       int           // how often the owner has entered
	Remaining   time.Duration // negative: the lease has no end
	Token       int64
	Traceparent string
	Mode        string // of a read-write lock
	Readers     int    // of a read-write lock
}

// ParseInspect reads the reply.
func ParseInspect(reply any) (InspectReply, error) {
	list, nums, err := ints(reply, 2)
	if err != nil {
		return InspectReply{}, err
	}
	r := InspectReply{Remaining: millis(nums[1])}
	for i := 2; i+1 < len(list); i += 2 {
		field, ok1 := list[i].(string)
		value, ok2 := list[i+1].(string)
		if !ok1 || !ok2 {
			return InspectReply{}, Unreadable(reply)
		}
		switch {
		case field == MetaField:
			r.Token, r.Traceparent = ParseMeta(value)
		case field == "mode": // of a read-write lock; without one before it, of somebody who took it for another kind
			if r.Owner != "" {
				r.Mode = value
			}
		case r.Owner != "" && field == "readers":
			r.Readers, _ = strconv.Atoi(value)
		case r.Owner == "":
			r.Held, r.Owner = true, field
			r.Count, _ = strconv.Atoi(value)
		}
	}
	if !r.Held {
		return InspectReply{}, nil
	}
	return r, nil
}

// ForceReply is the reply of force.lua and rw_force.lua.
type ForceReply struct {
	Held    bool
	Owners  []string // from whom the lock was taken, at most ten
	Refused error    // the server refused a message
}

// ParseForce reads the reply.
func ParseForce(reply any) (ForceReply, error) {
	if reply == int64(0) {
		return ForceReply{}, nil
	}
	list, nums, err := ints(reply, 1)
	if err != nil || nums[0] != 1 || len(list) < 2 {
		return ForceReply{}, Unreadable(reply)
	}
	r := ForceReply{Held: true, Refused: refused(list, 1)}
	for _, owner := range list[2:] {
		r.Owners = append(r.Owners, fmt.Sprint(owner))
	}
	return r, nil
}

// ParseCount reads the reply of count.lua.
func ParseCount(reply any) (int, error) {
	n, ok := reply.(int64)
	if !ok {
		return 0, Unreadable(reply)
	}
	return int(n), nil
}

// ParseRaise reads the reply of raise.lua: whether the lock is still the owner's.
func ParseRaise(reply any) bool { return reply == int64(1) }
