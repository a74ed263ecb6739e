package script

// ReleaseReply is the reply of a script that releases a lock, or changes a counter.
type ReleaseReply struct {
	Outcome Outcome
	Late    bool  // the call came after its not-after, and wrote nothing
	Now     int64 // Redis's time, µs; 0 if it isn't in the reply
	Token   int64 // of the waiter who got the lock
	Refused error // released, but the server refused a step that tells waiters of it
}

// Outcome is what a release came to.
type Outcome uint8

// The outcomes. From Missing on, nothing was released.
const (
	Published  Outcome = iota // released, and waiters were told
	HandedOver                // to a waiter
	Missing                   // the owner doesn't have the lock any more, nor does anybody else
	Taken                     // somebody else has it
)

// ParseRelease reads the reply of release.lua, hand_over.lua and all scripts that release one lock or change a counter.
func ParseRelease(reply any) (ReleaseReply, error) {
	switch n, _ := reply.(int64); {
	case n == 1:
		return ReleaseReply{Outcome: Published}, nil
	case n > leastTime:
		return ReleaseReply{Outcome: HandedOver, Token: n, Now: n}, nil
	}
	list, nums, err := ints(reply, 2)
	if err != nil {
		return ReleaseReply{}, err
	}
	r := ReleaseReply{Now: nums[1]}
	switch nums[0] {
	case 1:
		r.Outcome, r.Refused = Published, refused(list, 2)
		return r, nil
	case 2, 0:
		_, more, err := ints(reply, 3)
		switch {
		case err != nil:
			return ReleaseReply{}, err
		case nums[0] == 2:
			r.Outcome, r.Token = HandedOver, more[2]
		case more[2] != 0:
			r.Outcome = Taken
		default:
			r.Outcome = Missing
		}
		return r, nil
	case 3:
		r.Late = true
		return r, nil
	}
	return ReleaseReply{}, Unreadable(reply)
}
