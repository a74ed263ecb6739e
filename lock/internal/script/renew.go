package script

import "fmt"

// RenewReply is the reply of renew.lua.
type RenewReply struct {
	Now     int64 // Redis's time, µs
	results []any
}

// Renewal is what became of one lease.
type Renewal uint8

// The outcomes. They are the numbers in the reply.
const (
	RenewMissing Renewal = iota // the lock is gone
	Renewed
	RenewTaken // it has another owner
	RenewLate  // the call came after its not-after, and wrote nothing
)

// ParseRenew reads the reply for n leases.
func ParseRenew(reply any, n int) (RenewReply, error) {
	list, nums, err := ints(reply, 1)
	if err != nil {
		return RenewReply{}, err
	}
	if len(list) != n+1 {
		return RenewReply{}, fmt.Errorf("%w: %d results for %d leases", ErrReply, len(list)-1, n)
	}
	return RenewReply{nums[0], list[1:]}, nil
}

// At is what became of one lease. The error is an Error if the server refused it.
func (r RenewReply) At(i int) (Renewal, error) {
	switch v := r.results[i].(type) {
	case int64:
		if v < 0 || v > int64(RenewLate) {
			return 0, fmt.Errorf("%w: renewal result %d", ErrReply, v)
		}
		return Renewal(v), nil
	case string:
		return 0, Error(v)
	default:
		return 0, Unreadable(v)
	}
}
