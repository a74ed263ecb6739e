// Package history has what the clients of a chaos run saw, and the checks that it must pass. Each check is one function
// over a History. The package doesn't know Redis or lockdog, so tests can show that each check finds its kind of
// violation.
package history

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"
)

// Time is a reading of the machine's monotonic clock, in ns. All processes share that clock, and nobody can set it.
type Time int64

// Add returns t plus d.
func (t Time) Add(d time.Duration) Time { return t + Time(d) }

// Sub returns the time from u to t.
func (t Time) Sub(u Time) time.Duration { return time.Duration(t - u) }

// The kinds of events. Why, Name and the like are fields of Event.
const (
	Call    = "call"    // a call of Lock or TryLock begins, or one with Apart
	Grant   = "grant"   // the call has returned a lease or, with Apart, has succeeded
	Refuse  = "refuse"  // the call has returned an error: Why
	Live    = "live"    // the lease's Context was live when last asked; with Apart: the permits were held
	Renewed = "renewed" // the lease's deadline was seen to have moved to Until
	Overdue = "overdue" // the lease's Context says that it is live, although its deadline was Until
	Dead    = "dead"    // the lease's Context was seen to have ended because of Why
	Freeing = "freeing" // a call of Release begins; Why: how the lease had ended before, if it had
	Freed   = "freed"   // Release has returned Why
	Over    = "over"    // the lease itself has ended: Why
	Write   = "write"   // a write to the store with Token; Why: WhyStale if the store refused it
	// Idle: after Settle, the process's workers have taken their last locks and given them back. It holds nothing and
	// waits for nothing.
	Idle    = "idle"
	Summary = "summary" // what the process's own telemetry says

	FaultOn  = "fault"   // a fault begins: Name
	FaultOff = "heal"    // the fault has ended, and so has a failover that it may have caused
	Settle   = "settle"  // all faults have ended: from now on every waiter must get its lock
	Restart  = "restart" // a client process was killed, and another replaces it
	Signal   = "signal"  // a client process was stopped or continued: Why
	Forced   = "forced"  // ForceUnlock of Name, which began at Since, has returned: Why is WhyYes, WhyNo, or the error
	Counted  = "counted" // a count-down of the latch Name begins; there are Room in all
	Left     = "left"    // at the end Counts[CountLeft] of the permits of Name were left or held, of Room in all
	Peek     = "peek"    // Redis was read between Since and At; the owners whose GrantID is in Owners held Name
	// Unclear: a request that may take the lock for the owner with the GrantID Owner got no answer, or a later request
	// of that owner got one; Delay: how long after At the owner may still get the lock, by the request or by its entry
	// in the wait set; Why, if not "": there is no limit for that
	Unclear = "unclear"
	Stat    = "stat"   // goroutines, connections, delays: Counts
	Note    = "note"   // only for the reader
	Switch  = "switch" // during the fault ID another primary replaced Server, at some time between Since and At
	// Where: from now on the process's Redis client sends the commands for Name to Server; Name "" means all names
	Where    = "where"
	Complain = "complain" // something failed that must work: Why. Only the timeline shows it: no check reads it
)

// The values of Why for a failed call, the end of a lease, a refused write, and (WhyYes, WhyNo) a ForceUnlock.
const (
	WhyHeld = "held"
	// WhyContext is followed by ":unavailable" if Redis had failed when ctx ended, by ":deadline" if the deadline of ctx
	// had passed, or by ":unclear" if ctx ended with a lost lease: that Redis is unavailable may be why it was lost, or
	// what the call failed with before.
	WhyContext  = "context"
	WhyClosed   = "closed"
	WhyLost     = "lost"     // followed by a colon and the cause
	WhyCanceled = "canceled" // followed by a colon and the reason
	WhyReleased = "released"
	WhyStale    = "stale"  // the store refused a write
	WhyError    = "error:" // followed by the error's text, or its beginning
	WhyDeadlock = "deadlock"
	WhyYes      = "true"  // it was held, and isn't any more
	WhyNo       = "false" // nobody held it
)

// The kinds without leases: UnleasedSemaphore and Latch.
const (
	KindSemaphore = "semaphore"
	KindLatch     = "latch"
)

// The orders in which a worker takes locks while it holds others: the same order for all workers, or any order, which
// sometimes deadlocks.
const (
	NestOrdered   = "ordered"
	NestUnordered = "unordered"
)

// CountLeft is the key of Counts in a Left.
const CountLeft = "left"

// Event is one line of a history. Fields without a value are omitted.
type Event struct {
	At   Time   `json:"t"`
	What string `json:"e"`
	Proc int    `json:"p,omitempty"` // 0 is the test itself
	ID   string `json:"id,omitempty"`
	Name string `json:"n,omitempty"`
	Why  string `json:"why,omitempty"`

	// For a call.
	Kind   string        `json:"kind,omitempty"`
	How    string        `json:"how,omitempty"`    // lock, wait or try
	Weight int           `json:"w,omitempty"`      // how much of the name's room a grant takes
	Room   int           `json:"room,omitempty"`   // the maximum of Weight of all live grants of the name together
	Lease  time.Duration `json:"lease,omitempty"`  // ns
	Fixed  bool          `json:"fixed,omitempty"`  // the lease is never renewed
	Quick  bool          `json:"settle,omitempty"` // the call was made after Settle
	Names  []string      `json:"ns,omitempty"`     // all names of the call, if there are several
	Shared bool          `json:"shared,omitempty"` // others may hold it too, with smaller and with larger tokens
	// Apart: the call is Acquire or TryAcquire of an UnleasedSemaphore, or Wait of a Latch. These grant no lease.
	Apart bool   `json:"apart,omitempty"`
	Whole bool   `json:"whole,omitempty"` // the call is for a composite lock, whose members have leases too
	Nest  string `json:"nest,omitempty"`  // the worker holds another lock during the call: see NestOrdered

	// For a grant, a write, and the kinds of events that name these fields.
	Owner  string           `json:"o,omitempty"`
	Token  int64            `json:"k,omitempty"`
	Tokens map[string]int64 `json:"ks,omitempty"` // by name, if there are several
	Owners []string         `json:"os,omitempty"`
	Server string           `json:"at,omitempty"`
	Until  Time             `json:"until,omitempty"`
	Since  Time             `json:"since,omitempty"`
	Delay  time.Duration    `json:"d,omitempty"`
	Last   int64            `json:"last,omitempty"` // the largest token of the name that the store had accepted before

	// For a fault: what Redis doesn't guarantee during it.
	Loses bool `json:"loses,omitempty"` // writes may be lost, or done where nobody will see them
	Clock bool `json:"clock,omitempty"` // a server's clock steps
	Back  bool `json:"back,omitempty"`  // it steps backwards: Delay is negative
	// Connections die without either end noticing.
	Silent bool `json:"silent,omitempty"`

	Counts map[string]float64 `json:"c,omitempty"` // for a Stat, a Summary or a Left
	Ended  []Ended            `json:"ended,omitempty"`
}

// Ended is the end of a lease according to the client: lock.EndedLease.
type Ended struct {
	Owner string `json:"o"`
	End   string `json:"end"`
	Why   string `json:"why,omitempty"`
	// It was a member of a composite lease, or was granted too late to be a member. Not set if a Multi released it.
	Member bool `json:"m,omitempty"`
}

// Read reads the events of one process. It ignores an incomplete last line: the process may have been killed.
func Read(r io.Reader) ([]Event, error) {
	lines := bufio.NewReader(r)
	var all []Event
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return all, err
		}
		var e Event
		if err := json.Unmarshal(line, &e); err != nil {
			return all, fmt.Errorf("event %d: %w: %s", len(all), err, line)
		}
		all = append(all, e)
	}
}

// Violation is a violation of what a check demands.
type Violation struct {
	Check string
	Name  string // of the lock, if it is about one
	From  Time   // start of the relevant part of the timeline
	To    Time
	Text  string
}

func (v Violation) String() string { return v.Check + ": " + v.Text }

func violation(check, name string, from, to Time, format string, args ...any) Violation {
	return Violation{Check: check, Name: name, From: from, To: to, Text: fmt.Sprintf(format, args...)}
}
