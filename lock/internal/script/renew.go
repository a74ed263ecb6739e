package script

import (
	"fmt"

	"github.com/lockdog/lockdog/lock/internal/backend"
	"github.com/lockdog/lockdog/lock/internal/redisfail"
)

// Renew renews many leases of one node.
var Renew = load("renew", "clock", "demoted")

// RenewArgs are the leases that one call renews.
type RenewArgs struct{ args []any }

// NewRenewArgs has room for some leases. The not-after is the server time in µs after which the script must write nothing; 0 = unknown.
func NewRenewArgs(notAfter int64, leases int) RenewArgs {
	return RenewArgs{append(make([]any, 0, 1+3*leases), notAfter)}
}

// Add adds a lease, which is in ms.
func (a *RenewArgs) Add(h Holding, lock, owner string, lease any) {
	a.args = append(a.args, h.Key(lock), h.Member(owner), h.lease(lease))
}

// Call is the call at a node. The key of the first lease routes it.
func (a *RenewArgs) Call(node string) backend.Call {
	return backend.Call{Script: Renew, Renew: true, Node: node, Keys: []string{a.args[1].(string)}, Args: a.args}
}

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
		return 0, redisfail.ReplyError(v)
	default:
		return 0, unreadable(v)
	}
}
