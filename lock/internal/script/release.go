package script

import (
	"cmp"
	"time"

	"github.com/lockdog/lockdog/lock/internal/backend"
)

// receiptLife is how long the receipt of an operation is kept: longer than the operation is repeated by its caller, for about a lease (of the
// default lease at most), and by the cleanup.
const receiptLife = 5 * time.Minute

// Releaser is a script that releases a lock of one owner, or changes a counter once for one owner.
type Releaser struct {
	*backend.Script
	keys    layout
	holding Holding
	channel func(key string) string         // nil: the script makes it of the key, which takes less than sending it
	more    func(r *Request, a ReleaseArgs) // adds the arguments that not all have
}

// The scripts that release.
var (
	Release = &Releaser{
		Script: build("release", read("channel", "marks", "tell", "entry"), release("clock", "token", "give")), keys: lockKey,
		more: wake,
	}
	HandOver = &Releaser{
		Script: build("hand_over", read("channel", "marks", "tell"), handOver("clock", "token", "give")), keys: lockAndCounter,
		more: func(r *Request, a ReleaseArgs) {
			wake(r, a)
			r.Args = append(r.Args, a.Next.Owner, a.Next.Lease)
			r.addNotAfter()
			r.Args = append(r.Args, a.Next.Traceparent, a.Next.Subscribed)
		},
	}
	// Retain ends a lease whose lock stays taken for a while.
	Retain           = &Releaser{Script: load("retain", "tell"), keys: lockKey, channel: Channel, more: keep}
	FairRetain       = &Releaser{Script: load("retain", "clock", "after", "tell", "owner", "fair_queue"), keys: fairKeys, channel: Channel, more: keep}
	FairRelease      = &Releaser{Script: load("fair_release", "clock", "after", "tell", "owner", "fair_queue", "fair_expiry"), keys: fairKeys, channel: Channel}
	WriteRelease     = &Releaser{Script: load("write_release", "clock", "token", "after", "tell", "owner", "number", "rw"), keys: rwKeys, channel: RWChannel}
	ReadRelease      = &Releaser{Script: load("read_release", "clock", "token", "after", "tell", "owner", "number", "rw"), keys: rwKeys, channel: RWChannel}
	SemaphoreRelease = &Releaser{Script: load("semaphore_release", "clock", "tell"), keys: permitKeys, holding: HoldsPermit, channel: SemaphoreChannel}
	UnleasedUndo     = &Releaser{
		Script: load("unleased_undo", "clock", "tell"), keys: receiptKeys, channel: SemaphoreChannel,
		more: func(r *Request, a ReleaseArgs) {
			r.Keys = append(r.Keys, a.Spent...)
			r.Args = append(r.Args, receiptLife.Milliseconds())
		},
	}
)

// The scripts that change a counter.
var (
	SemaphoreAdd    = &Releaser{Script: load("semaphore_add", "clock", "tell", "number", "once"), keys: receiptKeys, channel: SemaphoreChannel, more: amount}
	SemaphoreSet    = &Releaser{Script: load("semaphore_set", "clock", "tell", "number", "once"), keys: receiptKeys, channel: SemaphoreChannel, more: amount}
	SemaphoreEnsure = &Releaser{Script: load("semaphore_ensure", "clock", "tell", "number", "permits", "once"), keys: receiptAndPermitKeys, channel: SemaphoreChannel, more: amount}
	LatchSet        = &Releaser{Script: load("latch_set", "clock", "tell", "number", "once"), keys: receiptKeys, channel: LatchChannel, more: amount}
	LatchCountDown  = &Releaser{Script: load("latch_count_down", "clock", "tell", "number", "once"), keys: receiptKeys, channel: LatchChannel, more: once}
)

func wake(r *Request, a ReleaseArgs) {
	if a.NumSub == "shardnumsub" { // constants aren't boxed anew each time, as a variable would be
		r.Args = append(r.Args, "shardnumsub", int(a.Wake))
	} else {
		r.Args = append(r.Args, "numsub", int(a.Wake))
	}
	r.Args = append(r.Args, cmp.Or(a.Counter, any("")))
	if e := a.Entries; e != (Entries{}) || a.Next.Owner != "" {
		r.Args = append(r.Args, e.TakeOut, e.Add, cmp.Or(e.Lease, any(0)))
	}
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

// ReleaseArgs are what these scripts are told. Each takes what it needs.
type ReleaseArgs struct {
	Lock
	Owner   string
	Publish any // the command to publish with: a string, boxed

	Wake    Wake          // of a Mutex
	NumSub  string        // of a Mutex: the PUBSUB subcommand that counts a channel's subscribers
	Entries Entries       // of a Mutex: what is added is for the next waiter of this client, if others wait
	Next    Next          // of a Mutex that is handed over
	Amount  int           // by how much a counter is changed, or to how much it is set
	Spent   []string      // of a counter: receipts that are to be deleted
	Keep    time.Duration // of Retain and FairRetain: how long the lock stays taken
}

// Wake is whom a release of a Mutex wakes.
type Wake int

// The ways to wake waiters. The numbers are those that release.lua takes.
const (
	WakeAll          Wake = iota
	WakeOneAnnounced      // one client, and all others hear of it
	WakeOneSilent         // one client, and nobody else hears of it
)

// Next is the waiter to whom a Mutex is handed over.
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
	r.Args = append(r.Args, s.holding.Member(a.Owner))
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
	Outcome Outcome
	Late    bool  // the call came after its not-after, and wrote nothing
	Now     int64 // Redis's time, µs; 0 if it isn't in the reply
	Token   int64 // of the waiter who got the lock
	Refused error // released, but the server refused a step that tells waiters of it
	Granted bool  // released, and granted to a waiter of another client: see RemoteGrant

	OthersWait bool // another client is known to wait: it was told, or the lock was handed over although it waits, too
}

// Outcome is what a release came to.
type Outcome uint8

// The outcomes.
const (
	Done       Outcome = iota // released, kept until its time, or the counter is changed
	HandedOver                // to a waiter
	Missing                   // the owner doesn't have the lock any more, nor does anybody else
	Taken                     // somebody else has it
)

// NotOurs reports whether nothing was released, as the owner doesn't have the lock any more.
func (o Outcome) NotOurs() bool { return o == Missing || o == Taken }

// ParseRelease reads the reply of release.lua, hand_over.lua and all scripts that release one lock or change a counter.
func ParseRelease(reply any) (ReleaseReply, error) {
	switch n, _ := reply.(int64); {
	case n == 1:
		return ReleaseReply{Outcome: Done}, nil
	case n == 2:
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
	case 1:
		r.Outcome, r.Refused = Done, refused(list, 2)
		return r, nil
	case 2, 5, 0:
		_, more, err := ints(reply, 3)
		switch {
		case err != nil:
			return ReleaseReply{}, err
		case nums[0] != 0:
			r.Outcome, r.Token, r.OthersWait = HandedOver, more[2], nums[0] == 5
		case more[2] != 0:
			r.Outcome = Taken
		default:
			r.Outcome = Missing
		}
		return r, nil
	case 3:
		r.Late = true
		return r, nil
	case 4:
		r.Outcome, r.Granted = Done, true
		return r, nil
	}
	return ReleaseReply{}, unreadable(reply)
}
