package script

import "github.com/lockdog/lockdog/lock/internal/redisfail"

// The scripts for several locks. Raise raises the token of a lock on one node to that of its quorum.
var (
	MultiAcquire = load("multi_acquire", "clock", "token", "holder", "owner", "foreign", "marks")
	MultiRelease = load("multi_release",
		"clock", "demoted", "channel", "marks", "tell", "owner", "fair_queue", "fair_wake")
	Raise = load("raise", "marks")
)

// OwnedLock is one of several locks, with the owner that is to get it or has it.
type OwnedLock struct {
	Lock
	Owner       string
	Traceparent string
}

// MultiAcquireArgs makes r a call of multi_acquire.lua. The lease is in ms.
func MultiAcquireArgs(r *Request, lease any, locks []OwnedLock) {
	r.start(MultiAcquire)
	r.Args = append(r.Args, lease)
	r.addNotAfter()
	for _, c := range locks {
		r.Keys = append(r.Keys, c.Key, c.Counter.(string))
		r.Args = append(r.Args, c.Owner, c.Traceparent)
	}
}

// MultiReleaseArgs makes r a call of multi_release.lua.
func MultiReleaseArgs(r *Request, publish any, locks []OwnedLock) {
	r.start(MultiRelease)
	r.Args = append(r.Args, publish)
	for _, c := range locks {
		r.Keys = append(r.Keys, c.Key)
		r.Args = append(r.Args, c.Owner, Channel(c.Key))
	}
}

// RaiseArgs makes r a call of raise.lua.
func RaiseArgs(r *Request, c OwnedLock, token int64) {
	r.start(Raise)
	lockAndCounter(r, c.Lock, c.Owner)
	r.Args = append(r.Args, c.Owner, token, c.Traceparent)
}

// ParseRaise reports whether the lock is still the owner's.
func ParseRaise(reply any) bool { return reply == int64(1) }

// MultiAcquireReply is the reply of multi_acquire.lua. If granted, Left and Remaining aren't valid.
type MultiAcquireReply struct {
	AcquireReply
	Tokens []int64 // if granted
	At     int     // if not granted: the index of the lock that is held
}

// ParseMultiAcquire parses the reply for n locks.
func ParseMultiAcquire(reply any, n int) (MultiAcquireReply, error) {
	one, err := ParseAcquire(reply)
	r := MultiAcquireReply{AcquireReply: one}
	switch {
	case err != nil || r.Late:
		return r, err
	case r.Granted:
		list, nums, err := ints(reply, 2+n)
		if err != nil || len(list) != 2+n {
			return MultiAcquireReply{}, unreadable(reply)
		}
		r.Tokens = nums[2:]
		return r, nil
	}
	list, _ := reply.([]any)
	at, ok := list[len(list)-1].(int64)
	if !ok || at < 1 || int(at) > n {
		return MultiAcquireReply{}, unreadable(reply)
	}
	r.At = int(at) - 1
	return r, nil
}

// MultiReleaseReply is the reply of multi_release.lua.
type MultiReleaseReply struct {
	Now     int64
	results []any
}

// ParseMultiRelease parses the reply for n locks.
func ParseMultiRelease(reply any, n int) (MultiReleaseReply, error) {
	list, nums, err := ints(reply, 1)
	if err != nil || len(list) != 1+n {
		return MultiReleaseReply{}, unreadable(reply)
	}
	return MultiReleaseReply{nums[0], list[1:]}, nil
}

// At returns the result of one lock.
func (r MultiReleaseReply) At(i int) (ReleaseReply, error) {
	switch v := r.results[i].(type) {
	case int64:
		switch v {
		case 0:
			return ReleaseReply{Outcome: Missing}, nil
		case 1:
			return ReleaseReply{Outcome: Done}, nil
		case 2:
			return ReleaseReply{Outcome: Taken}, nil
		}
	case string:
		return ReleaseReply{}, redisfail.ReplyError(v)
	case []any:
		if len(v) == 2 && v[0] == int64(1) {
			return ReleaseReply{Outcome: Done, Refused: refused(v, 1)}, nil
		}
	}
	return ReleaseReply{}, unreadable(r.results[i])
}
