package script

import (
	"strconv"
	"strings"
	"time"

	"github.com/lockdog/lockdog/lock/internal/backend"
)

// Acquirer is a script that acquires a lock for one owner. LatchWait only finds out whether a latch is open.
type Acquirer struct {
	*backend.Script
	keys    layout
	holding Holding
	more    func(r *Request, a AcquireArgs) // adds the keys and arguments of this script only; nil: there are none
}

// The scripts that acquire.
var (
	Acquire = &Acquirer{
		Script: load("acquire", "clock", "token", "holder", "owner", "foreign", "marks"), keys: lockAndCounter,
		more: func(r *Request, a AcquireArgs) {
			if e := a.Entry; e.Add != "" {
				r.Keys = append(r.Keys, WaitSetKey(a.Key))
				r.Args = append(r.Args, e.Add, e.Since, e.Remove)
			}
		},
	}
	FairAcquire = &Acquirer{
		Script: load("fair_acquire",
			"clock", "token", "holder", "owner", "foreign", "marks", "after", "tell", "fair_queue", "fair_expiry"),
		keys: fairKeys,
		more: func(r *Request, a AcquireArgs) {
			r.Args = append(r.Args, a.Keep.Milliseconds(), Channel(a.Key), a.Publish)
		},
	}
	WriteAcquire = &Acquirer{
		Script: load("write_acquire", "clock", "token", "after", "tell", "owner", "number", "rw"), keys: rwKeys,
		more: func(r *Request, a AcquireArgs) { r.Args = append(r.Args, a.Keep.Milliseconds()) },
	}
	ReadAcquire = &Acquirer{
		Script: load("read_acquire", "clock", "token", "after", "tell", "owner", "number", "rw"), keys: rwKeys,
		more: func(r *Request, a AcquireArgs) { r.Args = append(r.Args, a.Under, a.Waited.Milliseconds()) },
	}
	UnleasedAcquire = &Acquirer{
		Script: load("unleased_acquire", "clock", "number"), keys: receiptKeys,
		more: func(r *Request, a AcquireArgs) {
			r.Keys = append(r.Keys, a.Spent...)
			r.Args = append(r.Args, a.Permits, receiptLife.Milliseconds())
		},
	}
	SemaphoreAcquire = &Acquirer{
		Script: load("semaphore_acquire", "clock", "token", "after", "tell", "number", "permits"), keys: permitKeys,
		holding: HoldsPermit,
		more:    func(r *Request, a AcquireArgs) { r.Args = append(r.Args, SemaphoreChannel(a.Key), a.Publish) },
	}
	LatchWait = &Acquirer{Script: load("latch_wait", "clock", "number"), keys: lockKey}
)

// AcquireArgs are the arguments of an Acquirer. Each script uses the fields that it needs.
type AcquireArgs struct {
	Lock
	Owner       string
	Lease       any // in ms: an int64, boxed
	Traceparent string
	Publish     any // the command to publish with: a string, boxed

	Entry   EntryChange   // Mutex: Add is the entry of Owner
	Keep    time.Duration // FairMutex, writer: how long its place in the queue lasts without another call; 0: no place
	Under   string        // reader: the owner of the write lease that its caller holds
	Waited  time.Duration // reader: since it began to wait
	Permits int           // semaphore without leases: how many
	Spent   []string      // semaphore without leases: receipts to delete
}

// Args makes r a call of the script.
func (s *Acquirer) Args(r *Request, a AcquireArgs) {
	r.start(s.Script)
	s.keys(r, a.Lock, a.Owner)
	r.Args = append(r.Args, s.holding.StoredOwner(a.Owner), a.Lease)
	r.addNotAfter()
	r.Args = append(r.Args, a.Traceparent)
	if s.more != nil {
		s.more(r, a)
	}
}

// AcquireReply is the reply of a script that acquires a lock.
type AcquireReply struct {
	Granted bool
	Late    bool  // the call came after its not-after, and wrote nothing
	Now     int64 // Redis's time, µs

	Token int64 // if granted
	Left  int64 // if granted by a semaphore: the number of permits that are left; by any other lock: 1

	Owner string // if not granted: the holder, or a waiting writer; "": unknown
	// Remaining is the rest of the holder's lease, or of the place of a waiter that goes first. A writer gets the rest
	// of the longest lease of all holders. A semaphore's Remaining is the rest of the lease that ends first, also after
	// a grant. Negative: no lease will end, or a lock other than a semaphore was granted.
	Remaining   time.Duration
	Traceparent string // of the holder's acquire
	Released    bool   // the holder has released the lock, which stays taken for a while
}

// The first number of a reply, unless the reply is the time alone, which grants the lock.
const (
	acquireHeld    = 0
	acquireGranted = 1
	acquireLate    = 2
)

// ParseAcquire parses the reply of any script that acquires one lock.
func ParseAcquire(reply any) (AcquireReply, error) {
	if now, ok := reply.(int64); ok && now > LeastTime {
		return AcquireReply{Granted: true, Now: now, Token: now, Left: 1, Remaining: -1}, nil
	}
	list, nums, err := ints(reply, 2)
	if err != nil {
		return AcquireReply{}, err
	}
	r := AcquireReply{Now: nums[1]}
	switch nums[0] {
	case acquireGranted:
		_, nums, err = ints(reply, 3)
		if err != nil {
			return AcquireReply{}, err
		}
		r.Granted, r.Token, r.Left, r.Remaining = true, nums[2], 1, -1
		if _, more, err := ints(reply, 5); err == nil {
			r.Left, r.Remaining = more[3], Millis(more[4])
		}
		return r, nil
	case acquireHeld:
		if _, nums, err = ints(reply, 3); err != nil || len(list) < 5 {
			return AcquireReply{}, unreadable(reply)
		}
		owner, ok1 := list[3].(string)
		meta, ok2 := list[4].(string)
		if !ok1 || !ok2 {
			return AcquireReply{}, unreadable(reply)
		}
		r.Remaining = Millis(nums[2])
		r.Owner, r.Released = CutReleased(owner)
		_, r.Traceparent = ParseMeta(meta)
		return r, nil
	case acquireLate:
		r.Late = true
		return r, nil
	}
	return AcquireReply{}, unreadable(reply)
}

// MetaField is the field of a lock's hash with its holder's token and traceparent. Redisson's scripts ignore it.
const MetaField = "@lockdog"

// waitMarks are the marks that may precede the token in MetaField: see acquire.lua.
const waitMarks = "+~"

// ParseMarks reports whether a release has to look for waiters in the wait set, and in the queue of a FairMutex. s is
// the value of MetaField.
func ParseMarks(s string) (waiting, queued bool) {
	return strings.HasPrefix(s, "+"), strings.HasPrefix(s, waitMarks)
}

// ParseMeta parses the value of MetaField. Anybody may have written it: the token is 0 if it doesn't parse, and the
// traceparent may be any text.
func ParseMeta(s string) (token int64, traceparent string) {
	text, traceparent, _ := strings.Cut(strings.TrimLeft(s, waitMarks), " ")
	token, err := strconv.ParseInt(text, 10, 64)
	if err != nil || token < 0 {
		token = 0
	}
	return token, traceparent
}
