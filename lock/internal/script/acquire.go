package script

import (
	"strconv"
	"strings"
	"time"
)

// AcquireReply is the reply of a script that acquires a lock.
type AcquireReply struct {
	Granted bool
	Late    bool  // the call came after its not-after, and wrote nothing
	Now     int64 // Redis's time, µs

	Token int64 // when granted
	Left  int64 // when granted: what is left for others, if it can be shared

	Owner       string        // of the holder, when not granted
	Remaining   time.Duration // of its lease; negative: none will run out. When granted: of the next lease that runs out, if it can be shared
	Traceparent string        // of the holder's acquire
}

// ParseAcquire reads the reply of acquire.lua and of all scripts that acquire one lock.
func ParseAcquire(reply any) (AcquireReply, error) {
	if now, ok := reply.(int64); ok && now > leastTime {
		return AcquireReply{Granted: true, Now: now, Token: now, Left: 1, Remaining: -1}, nil
	}
	list, nums, err := ints(reply, 2)
	if err != nil {
		return AcquireReply{}, err
	}
	r := AcquireReply{Now: nums[1]}
	switch nums[0] {
	case 1:
		_, nums, err = ints(reply, 3)
		if err != nil {
			return AcquireReply{}, err
		}
		r.Granted, r.Token, r.Left, r.Remaining = true, nums[2], 1, -1 // there may be more
		if _, more, err := ints(reply, 5); err == nil {
			r.Left, r.Remaining = more[3], millis(more[4])
		}
		return r, nil
	case 0:
		if _, nums, err = ints(reply, 3); err != nil || len(list) < 5 {
			return AcquireReply{}, Unreadable(reply)
		}
		owner, ok1 := list[3].(string)
		meta, ok2 := list[4].(string)
		if !ok1 || !ok2 {
			return AcquireReply{}, Unreadable(reply)
		}
		r.Owner, r.Remaining = owner, millis(nums[2])
		_, r.Traceparent = ParseMeta(meta)
		return r, nil
	case 2:
		r.Late = true
		return r, nil
	}
	return AcquireReply{}, Unreadable(reply)
}

// MetaField is the field of a lock's hash that has more about its holder. Redisson's scripts don't look at it.
const MetaField = "@lockdog"

// marks are what may stand before the token in that field: a release of the lock has to look for waiters. See acquire.lua.
const marks = "+~"

// ParseMeta reads that field. Anybody may have written it: what doesn't parse counts as absent.
func ParseMeta(s string) (token int64, traceparent string) {
	text, traceparent, _ := strings.Cut(strings.TrimLeft(s, marks), " ")
	token, err := strconv.ParseInt(text, 10, 64)
	if err != nil || token < 0 {
		token = 0
	}
	return token, traceparent
}
