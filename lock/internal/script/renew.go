package script

import (
	"fmt"
	"slices"

	"github.com/lockdog/lockdog/lock/internal/backend"
	"github.com/lockdog/lockdog/lock/internal/redisfail"
)

// Renew is a script that renews many leases of one node.
var Renew = load("renew", "clock", "demoted")

// RenewArgs are the leases that one call renews.
type RenewArgs struct {
	args    []any
	section int // the index of the last section in args
	leases  int // in the last section
}

// The numbers of arguments: see renew.lua.
const (
	renewHead    = 1 // before the sections
	sectionHead  = 3 // before the leases of a section
	sectionLease = 2 // of a lease
)

// NewRenewArgs returns arguments with room for some leases. notAfter is the server time in µs after which the script
// must write nothing; 0 = unknown.
func NewRenewArgs(notAfter int64, leases int) RenewArgs {
	return RenewArgs{args: append(make([]any, 0, renewHead+sectionHead+sectionLease*leases), notAfter)}
}

// Add adds a lease. The argument lease is its length in ms, boxed. Successive leases with the same Holding and length
// share a section, which costs less.
func (a *RenewArgs) Add(h Holding, lock, owner string, lease any) {
	if kind := h.kind(); a.leases == 0 || a.args[a.section] != kind || a.args[a.section+1] != lease {
		a.count()
		a.section, a.leases = len(a.args), 0
		a.args = append(a.args, kind, lease, nil)
	}
	a.args = append(a.args, h.Key(lock), h.StoredOwner(owner))
	a.leases++
}

// count writes the number of leases into the last section.
func (a *RenewArgs) count() {
	if a.leases > 0 {
		a.args[a.section+2] = a.leases
	}
}

// Call returns the call for a node. The key of the first lease routes it.
func (a *RenewArgs) Call(node string) backend.Call {
	a.count()
	return backend.Call{
		Script: Renew, Renew: true, Node: node,
		Keys: []string{a.args[renewHead+sectionHead].(string)}, Args: a.args,
	}
}

// RenewReply is the reply of renew.lua.
type RenewReply struct {
	Now     int64 // Redis's time, µs
	results []any
}

// RenewOutcome is the outcome of the renewal of one lease.
type RenewOutcome uint8

// The numbers are those of renew.lua's reply.
const (
	RenewMissing RenewOutcome = iota // the lock or the permit is gone, or the permit's lease has run out
	Renewed
	RenewTaken // the lock has another owner
	RenewLate  // the call came after its not-after, and wrote nothing
)

// ParseRenew parses the reply for n leases.
func ParseRenew(reply any, n int) (RenewReply, error) {
	list, nums, err := ints(reply, 2)
	if err != nil {
		return RenewReply{}, err
	}
	others := list[2:]
	if len(others)%2 != 0 || nums[1]+int64(len(others)/2) != int64(n) {
		return RenewReply{}, fmt.Errorf(
			"%w: %d leases renewed and %d words of others, of %d leases", ErrReply, nums[1], len(others), n)
	}
	r := RenewReply{nums[0], slices.Repeat([]any{int64(Renewed)}, n)}
	last := int64(0)
	for i := 0; i < len(others); i += 2 {
		lease, ok := others[i].(int64)
		if !ok {
			return RenewReply{}, unreadable(others[i])
		}
		if lease <= last || lease > int64(n) {
			return RenewReply{}, fmt.Errorf(
				"%w: a result of lease %d after that of %d, of %d leases", ErrReply, lease, last, n)
		}
		r.results[lease-1], last = others[i+1], lease
	}
	return r, nil
}

// At returns the outcome of one lease. The error is a redisfail.ReplyError if the result is the text of an error.
func (r RenewReply) At(i int) (RenewOutcome, error) {
	switch v := r.results[i].(type) {
	case int64:
		if v < 0 || v > int64(RenewLate) {
			return 0, fmt.Errorf("%w: renewal result %d", ErrReply, v)
		}
		return RenewOutcome(v), nil
	case string:
		return 0, redisfail.ReplyError(v)
	default:
		return 0, unreadable(v)
	}
}
