package script

// MultiAcquireReply is the reply of multi_acquire.lua.
type MultiAcquireReply struct {
	AcquireReply
	Tokens []int64 // when granted
	At     int     // when not granted: which lock is held
}

// ParseMultiAcquire reads the reply for n locks.
func ParseMultiAcquire(reply any, n int) (MultiAcquireReply, error) {
	one, err := ParseAcquire(reply)
	r := MultiAcquireReply{AcquireReply: one}
	switch {
	case err != nil || r.Late:
		return r, err
	case r.Granted:
		list, nums, err := ints(reply, 2+n)
		if err != nil || len(list) != 2+n {
			return MultiAcquireReply{}, Unreadable(reply)
		}
		r.Tokens = nums[2:]
		return r, nil
	}
	list, _ := reply.([]any)
	at, ok := list[len(list)-1].(int64)
	if !ok || at < 1 || int(at) > n {
		return MultiAcquireReply{}, Unreadable(reply)
	}
	r.At = int(at) - 1
	return r, nil
}

// MultiReleaseReply is the reply of multi_release.lua.
type MultiReleaseReply struct {
	Now     int64
	results []any
}

// ParseMultiRelease reads the reply for n locks.
func ParseMultiRelease(reply any, n int) (MultiReleaseReply, error) {
	list, nums, err := ints(reply, 1)
	if err != nil || len(list) != 1+n {
		return MultiReleaseReply{}, Unreadable(reply)
	}
	return MultiReleaseReply{nums[0], list[1:]}, nil
}

// At is what became of one lock.
func (r MultiReleaseReply) At(i int) (ReleaseReply, error) {
	switch v := r.results[i].(type) {
	case int64:
		switch v {
		case 0:
			return ReleaseReply{Outcome: Missing}, nil
		case 1:
			return ReleaseReply{Outcome: Published}, nil
		case 2:
			return ReleaseReply{Outcome: Taken}, nil
		}
	case string:
		return ReleaseReply{}, Error(v)
	case []any:
		if len(v) == 2 && v[0] == int64(1) {
			return ReleaseReply{Outcome: Published, Refused: refused(v, 1)}, nil
		}
	}
	return ReleaseReply{}, Unreadable(r.results[i])
}
