// Package history is what the clients of a chaos run saw, and the checks it has to pass: each check is one function over a
// history. It knows neither Redis nor lockdog, so that each can be shown to find what it is for.
package history

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"
)

// Time is a reading of the machine's monotonic clock, in ns: the same for all of its processes, and set by nobody.
type Time int64

// Add is t a while later.
func (t Time) Add(d time.Duration) Time { return t + Time(d) }

// Sub is the time from u to t.
func (t Time) Sub(u Time) time.Duration { return time.Duration(t - u) }

// What an event says.
const (
	Call     = "call"     // a call of Lock or TryLock begins
	Grant    = "grant"    // ... has returned a lease
	Refuse   = "refuse"   // ... has returned an error: Why
	Live     = "live"     // the lease's Context was live when last asked, at the time of the event
	Renewed  = "renewed"  // the lease's deadline was seen to have moved, to Until
	Overdue  = "overdue"  // the lease's Context called itself live at the time of the event, although the deadline had been at Until
	Dead     = "dead"     // the lease's Context was seen to have ended, for Why
	Freeing  = "freeing"  // a call of Release begins
	Freed    = "freed"    // ... has returned: Why
	Over     = "over"     // the lease itself has ended: Why
	Write    = "write"    // the store was written to with Token; Why: what it answered
	Idle     = "idle"     // the process holds nothing and waits for nothing, having got everything it wants once more
	Summary  = "summary"  // what the process's own telemetry says
	FaultOn  = "fault"    // a fault begins to be put on: Name
	FaultOff = "heal"     // ... has been taken away
	Settle   = "settle"   // all faults are over: from here on every waiter has to get in
	Restart  = "restart"  // a client process was killed, and another takes its place
	Signal   = "signal"   // a client process was stopped, or continued: Why
	Forced   = "forced"   // ForceUnlock of Name, which began at Since, returned: Why is WhyYes, WhyNo, or the error
	Counted  = "counted"  // a latch, Name, began to be counted down; Room times in all
	Left     = "left"     // of the permits of Name, Room in all, so many were there at the end: Counts[CountLeft]
	Peek     = "peek"     // Redis was looked at, from Since to At, and had Name taken by Owners
	Unclear  = "unclear"  // a request that may take the lock for Owner was given up at the time of the event, or one after that was answered; Delay: how long it may yet be done
	Stat     = "stat"     // goroutines, connections: Counts
	Note     = "note"     // for the reader only
	Skew     = "skew"     // the servers' clock was set off by Delay
	Switch   = "switch"   // in the course of the fault ID another primary took the place of Server, some time from Since to At
	Where    = "where"    // from At on, the Redis client of the process sends the commands for Name, all names if that is "", to Server
	Complain = "complain" // the process failed at what it has to be able to do: Why
)

// Why a call was refused, or how a lease ended, when lockdog's errors leave one.
const (
	WhyHeld     = "held"
	WhyContext  = "context"
	WhyClosed   = "closed"
	WhyLost     = "lost"     // followed by a colon and the cause
	WhyCanceled = "canceled" // followed by a colon and the reason
	WhyReleased = "released"
	WhyStale    = "stale"  // the store refused a write
	WhyError    = "error:" // followed by the kind of error
	WhyDeadlock = "deadlock"
	WhyYes      = "true"  // it was held, and is no more
	WhyNo       = "false" // nobody held it
)

// The kinds that aren't locks.
const (
	KindSemaphore = "semaphore"
	KindLatch     = "latch"
)

// The orders in which locks are taken while others are held: in one that all keep to, or in any, which deadlocks now and then.
const (
	NestOrdered   = "ordered"
	NestUnordered = "unordered"
)

// CountLeft is what a Left counts.
const CountLeft = "left"

// Event is one line of a history. What isn't said is left out.
type Event struct {
	At   Time   `json:"t"`
	What string `json:"e"`
	Proc int    `json:"p,omitempty"` // 0 is the test itself
	ID   string `json:"id,omitempty"`
	Name string `json:"n,omitempty"`
	Why  string `json:"why,omitempty"`

	// Of a call.
	Kind   string        `json:"kind,omitempty"`
	How    string        `json:"how,omitempty"`    // lock, wait or try
	Weight int           `json:"w,omitempty"`      // how much of the name's room a grant takes
	Room   int           `json:"room,omitempty"`   // what all grants of the name that live at one time may take together
	Lease  time.Duration `json:"lease,omitempty"`  // ns
	Fixed  bool          `json:"fixed,omitempty"`  // it is never renewed
	Quick  bool          `json:"settle,omitempty"` // the call was made after Settle
	Names  []string      `json:"ns,omitempty"`     // all of those it is for, where they are several
	Shared bool          `json:"shared,omitempty"` // others may be in it, too, with smaller and with larger tokens
	Apart  bool          `json:"apart,omitempty"`  // it isn't for a lock but for a number; who else holds leases then isn't told by calls
	Whole  bool          `json:"whole,omitempty"`  // it is for a lock of several members, which are leases, too
	Nest   string        `json:"nest,omitempty"`   // it is made while its worker holds another lock: see NestOrdered

	// Of a grant and of writes.
	Owner  string           `json:"o,omitempty"`
	Token  int64            `json:"k,omitempty"`
	Tokens map[string]int64 `json:"ks,omitempty"` // by name, where they are several
	Owners []string         `json:"os,omitempty"`
	Server string           `json:"at,omitempty"`
	Until  Time             `json:"until,omitempty"`
	Since  Time             `json:"since,omitempty"`
	Delay  time.Duration    `json:"d,omitempty"`
	Last   int64            `json:"last,omitempty"` // the largest token the store has seen

	// Of a fault: what Redis does not keep up meanwhile.
	Loses bool `json:"loses,omitempty"` // writes may be lost, or done where nobody will see them
	Clock bool `json:"clock,omitempty"` // a server's clock steps
	Back  bool `json:"back,omitempty"`  // ... backwards, by Delay
	// Connections die without either end being told.
	Silent bool `json:"silent,omitempty"`

	Counts map[string]float64 `json:"c,omitempty"` // of a stat or summary
	Ended  []Ended            `json:"ended,omitempty"`
}

// Ended is how a client says that a lease ended: lock.EndedLease.
type Ended struct {
	Owner string `json:"o"`
	End   string `json:"end"`
	Why   string `json:"why,omitempty"`
	// It was a member of a lock of several, or came too late to be one. It isn't said of those that were released.
	Member bool `json:"m,omitempty"`
}

// Read reads the events of one process. The last line may be cut off, when the process was killed.
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

// Violation is something that must not happen and did.
type Violation struct {
	Check string
	Name  string // of the lock, where it is about one
	From  Time   // when to look in the timeline
	To    Time
	Text  string
}

func (v Violation) String() string { return v.Check + ": " + v.Text }

func violation(check, name string, from, to Time, format string, args ...any) Violation {
	return Violation{Check: check, Name: name, From: from, To: to, Text: fmt.Sprintf(format, args...)}
}
