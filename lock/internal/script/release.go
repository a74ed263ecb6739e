package script

import (
	"cmp"
	"time"

	"github.com/lockdog/lockdog/lock/internal/backend"
)

// receiptLife is how long the receipt of an operation is kept, unless a later operation deletes it. It is longer than
// the operation can be repeated: by its caller for about a lease, 30 s at most, and then by the cleanup for two
// minutes.
const receiptLife = 5 * time.Minute

// Releaser is a script that releases one owner's lock, or changes a counter once for one owner.
type Releaser struct {
	*backend.Script
	keys    layout
	holding Holding
	channel func(key string) string         // nil: the script derives it from the key, which costs less than sending it
	more    func(r *Request, a ReleaseArgs) // adds the keys and arguments of this script only; nil: there are none
}

// The scripts that release. Retain and FairRetain end a lease whose lock stays taken for a while.
var (
	Release = &Releaser{
		Script: build("release",
			read("channel", "marks", "tell", "release_begin"), releaseRest("clock", "token", "transfer")),
		keys: lockKey, more: passOn,
	}
	HandOver = &Releaser{
		Script: build("hand_over", read("channel", "marks", "tell"), handOver("clock", "token", "transfer")),
		keys:   lockAndCounter, more: handNext,
	}
	Retain     = &Releaser{Script: load("retain", "tell"), keys: lockKey, channel: Channel, more: keep}
	FairRetain = &Releaser{
		Script: build("fair_retain",
			read("clock", "after", "tell", "owner", "fair_queue", "fair_expiry"), read("retain")),
		keys: fairKeys, channel: Channel, more: keep,
	}
	FairRelease = &Releaser{
		Script: load("fair_release", "clock", "after", "tell", "owner", "fair_queue", "fair_expiry"),
		keys:   fairKeys, channel: Channel,
	}
	WriteRelease = &Releaser{
		Script: load("write_release", "clock", "token", "after", "tell", "owner", "number", "rw"),
		keys:   rwKeys, channel: RWChannel,
	}
	ReadRelease = &Releaser{
		Script: load("read_release", "clock", "token", "after", "tell", "owner", "number", "rw"),
		keys:   rwKeys, channel: RWChannel,
	}
	SemaphoreRelease = &Releaser{
		Script: load("semaphore_release", "clock", "tell"),
		keys:   permitKeys, holding: HoldsPermit, channel: SemaphoreChannel,
	}
	UnleasedUndo = &Releaser{
		Script: load("unleased_undo", "clock", "tell"), keys: receiptKeys, channel: SemaphoreChannel,
		more: func(r *Request, a ReleaseArgs) {
			r.Keys = append(r.Keys, a.Spent...)
			r.Args = append(r.Args, receiptLife.Milliseconds())
		},
	}
)

// The scripts that change the number of a semaphore or a latch without granting or ending a lease.
var (
	SemaphoreAdd = &Releaser{
		Script: load("semaphore_add", "clock", "tell", "number", "once"),
		keys:   receiptKeys, channel: SemaphoreChannel, more: amount,
	}
	SemaphoreSet = &Releaser{
		Script: load("semaphore_set", "clock", "tell", "number", "once"),
		keys:   receiptKeys, channel: SemaphoreChannel, more: amount,
	}
	SemaphoreEnsure = &Releaser{
		Script: load("semaphore_ensure", "clock", "tell", "number", "permits", "once"),
		keys:   receiptAndPermitKeys, channel: SemaphoreChannel, more: amount,
	}
	LatchSet = &Releaser{
		Script: load("latch_set", "clock", "tell", "number", "once"),
		keys:   receiptKeys, channel: LatchChannel, more: amount,
	}
	LatchCountDown = &Releaser{
		Script: load("latch_count_down", "clock", "tell", "number", "once"),
		keys:   receiptKeys, channel: LatchChannel, more: once,
	}
)

// ReleaserNamed returns the script that ends a lease with the given name, nil if there is none.
func ReleaserNamed(name string) *Releaser {
	for _, s := range []*Releaser{Release, FairRelease, WriteRelease, ReadRelease, SemaphoreRelease} {
		if s.Name == name {
			return s
		}
	}
	return nil
}

// passOn adds the arguments of release.lua, from ARGV[3] to ARGV[5] or ARGV[8].
func passOn(r *Request, a ReleaseArgs) {
	if a.NumSub == "shardnumsub" { // boxing a constant doesn't allocate, boxing a variable does
		r.Args = append(r.Args, "shardnumsub", int(a.PassOn))
	} else {
		r.Args = append(r.Args, "numsub", int(a.PassOn))
	}
	r.Args = append(r.Args, cmp.Or(a.Counter, any("")))
	if e := a.Entry; e != (EntryChange{}) || a.Next.Owner != "" { // a hand-over has arguments after them
		if e.MayHaveAdd {
			e.Remove = e.Add // see ARGV[6]
		}
		r.Args = append(r.Args, e.Remove, e.Add, cmp.Or(e.Lease, any(0)))
	}
}

// handNext adds the arguments of hand_over.lua: those of release.lua up to ARGV[8], then ARGV[9] to ARGV[13].
func handNext(r *Request, a ReleaseArgs) {
	passOn(r, a)
	r.Args = append(r.Args, a.Next.Owner, a.Next.Lease)
	r.addNotAfter()
	r.Args = append(r.Args, a.Next.Traceparent, a.Next.Subscribed)
}

func keep(r *Request, a ReleaseArgs) { r.Args = append(r.Args, a.Keep.Milliseconds()) }

func once(r *Request, a ReleaseArgs) {
	r.Keys = append(r.Keys, a.Spent...)
	r.addNotAfter()
	r.Args = append(r.Args, receiptLife.Milliseconds())
}

func amount(r *Request, a ReleaseArgs) {
	once(r, a)
	r.Args = append(r.Args, a.Amount)
}

// ReleaseArgs are the arguments of a Releaser. Each script uses the fields that it needs.
type ReleaseArgs struct {
	Lock
	Owner   string
	Publish any // the command to publish with: a string, boxed

	PassOn PassOn        // Mutex
	NumSub string        // Mutex: the PUBSUB subcommand that counts a channel's subscribers
	Entry  EntryChange   // Mutex: Add is the entry of this client's next waiter; added if another client is chosen
	Next   Next          // HandOver
	Amount int           // counter: the change, or the new value
	Spent  []string      // counter: receipts to delete
	Keep   time.Duration // Retain, FairRetain: how long the lock stays taken
}

// PassOn says to which waiting clients a release of a Mutex passes the lock on. If the lock is passed on to one client,
// that client's waiter is granted the lock if the client's entry has an owner and next.lua allows it. Otherwise the
// client is only woken. If no client can be chosen, all are woken.
type PassOn int

// The numbers are the values of ARGV[4] of release.lua.
const (
	WakeAll         PassOn = iota
	PassOnAnnounced        // to one client; all others get a message that says so
	PassOnSilently         // to one client; the others get no message
)

// Next is the waiter to which a Mutex is handed over.
type Next struct {
	Owner       string
	Lease       any // in ms: an int64, boxed
	Traceparent string
	Subscribed  int // how many of the channel's subscribers are this client's
}

// Args makes r a call of the script.
func (s *Releaser) Args(r *Request, a ReleaseArgs) {
	r.start(s.Script)
	s.keys(r, a.Lock, a.Owner)
	r.Args = append(r.Args, s.holding.StoredOwner(a.Owner))
	if s.channel != nil {
		r.Args = append(r.Args, s.channel(a.Key))
	}
	r.Args = append(r.Args, a.Publish)
	if s.more != nil {
		s.more(r, a)
	}
}

// ReleaseReply is the reply of a script that releases a lock, or changes a counter.
type ReleaseReply struct {
	Outcome         Outcome
	Late            bool  // the call came after its not-after, and wrote nothing; Outcome isn't set then
	Now             int64 // Redis's time, µs; 0 if it isn't in the reply
	Token           int64 // if handed over: the waiter's
	Refused         error // released, but the server refused a step that follows, such as a message to waiters
	GrantedRemotely bool  // released, and granted to a waiter by a RemoteGrant

	OthersWait bool // another client was woken, or others still wait after a hand-over to a waiter of this client
}

// Outcome is the outcome of a release.
type Outcome uint8

// The outcomes.
const (
	Done       Outcome = iota // released or retained; or a counter was changed, or a latch was open already
	HandedOver                // to a waiter of this client
	Missing                   // the lock isn't the owner's any more, nor another owner's; or a counter wasn't changed
	Taken                     // the lock is another owner's
)

// NotOurs reports whether nothing was released, as the lock isn't the owner's any more.
func (o Outcome) NotOurs() bool { return o == Missing || o == Taken }

// The number that is a reply, or comes first in it. Each script's file says which it returns.
const (
	releaseNotOurs            = 0
	releaseDone               = 1
	releaseDoneOthersWoken    = 2 // the whole reply
	releaseHandedOver         = 2 // the first of a list
	releaseLate               = 3
	releaseGrantedRemotely    = 4
	releaseHandedOverMoreWait = 5
)

// ParseRelease parses the reply of any script that releases one lock or changes a counter.
func ParseRelease(reply any) (ReleaseReply, error) {
	switch n, _ := reply.(int64); {
	case n == releaseDone:
		return ReleaseReply{Outcome: Done}, nil
	case n == releaseDoneOthersWoken:
		return ReleaseReply{Outcome: Done, OthersWait: true}, nil
	case n > LeastTime:
		return ReleaseReply{Outcome: HandedOver, Token: n, Now: n}, nil
	}
	list, nums, err := ints(reply, 2)
	if err != nil {
		return ReleaseReply{}, err
	}
	r := ReleaseReply{Now: nums[1]}
	switch nums[0] {
	case releaseDone:
		r.Outcome, r.Refused = Done, refused(list, 2)
		return r, nil
	case releaseHandedOver, releaseHandedOverMoreWait:
		_, more, err := ints(reply, 3)
		if err != nil {
			return ReleaseReply{}, err
		}
		r.Outcome, r.Token, r.OthersWait = HandedOver, more[2], nums[0] == releaseHandedOverMoreWait
		return r, nil
	case releaseNotOurs:
		_, more, err := ints(reply, 3)
		if err != nil {
			return ReleaseReply{}, err
		}
		r.Outcome = Missing
		if taken := more[2] != 0; taken {
			r.Outcome = Taken
		}
		return r, nil
	case releaseLate:
		r.Late = true
		return r, nil
	case releaseGrantedRemotely:
		r.Outcome, r.GrantedRemotely = Done, true
		return r, nil
	}
	return ReleaseReply{}, unreadable(reply)
}
