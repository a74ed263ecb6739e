package history

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Op is one call of Lock or TryLock, and its lease, or one call with Event.Apart. A zero Time means that the event
// wasn't seen.
type Op struct {
	Call         Event
	Returned     Time
	Granted      bool
	Refused      string // why the call failed, if it did
	Owner        string
	Token        int64
	Tokens       map[string]int64
	LastLive     Time // last time at which the Context was seen live
	LastUntil    Time // last deadline seen
	RenewedAt    []Time
	Untils       []Time // all deadlines seen
	DeadAt       Time
	Dead         string
	FreeCalled   Time
	KnownLost    bool // at FreeCalled the lease was known to have ended, as a rule lost
	FreeReturned Time
	Freed        string // what Release returned, "" for nil
	Over         string // what Lease.Err returned at the end
	Overdue      []Event
}

// Live returns from when to when the lease's Context is known to have been live. It may have been live for longer.
func (o *Op) Live() (from, to Time, ok bool) {
	return o.Returned, o.LastLive, o.Granted && o.LastLive >= o.Returned
}

// Window is a period of time.
type Window struct {
	From, To Time
	Fault    string // ID of the fault that it belongs to, if any
}

func (w Window) meets(from, to Time) bool { return from <= w.To && to >= w.From }

// History has everything that was seen in one run.
type History struct {
	Events    []Event // by time
	Ops       []*Op   // by the time of the call
	Writes    []Event
	Summaries map[int]Event // by process
	Stats     map[int]Event // of processes, at their end; 0 is the test itself
	Idle      map[int]Time  // since then a process has had everything it wants
	Killed    map[int]Time  // when client processes were killed
	Started   map[int]bool  // client processes that made a call
	Loose     []Window      // periods in which Redis may have lost writes, or a server's clock stepped
	Switches  []Event
	Wheres    map[int][]Event // by process
	Lost      bool            // Redis may have lost writes at some time
	Forces    map[string][]Force
	Back      bool          // the servers' time may have gone back: a clock stepped, or a server ahead was replaced
	Behind    time.Duration // by how much at most, in total
	Silence   Time          // end of the last fault in which connections died silently
	Settle    Time          // end of the last fault; 0: faults never ended
	End       Time          // of the last event
}

// New merges the events of all processes.
func New(events []Event) (*History, error) {
	h := &History{
		Events: slices.Clone(events), Summaries: map[int]Event{}, Stats: map[int]Event{}, Idle: map[int]Time{},
		Killed: map[int]Time{}, Started: map[int]bool{}, Forces: map[string][]Force{}, Wheres: map[int][]Event{},
	}
	slices.SortStableFunc(h.Events, func(a, b Event) int { return cmp.Compare(a.At, b.At) })
	ops := make(map[string]*Op)
	loose := make(map[string]int) // id of a fault -> index in h.Loose
	silent := make(map[string]bool)
	ahead := time.Duration(0) // how far the clocks of servers that a failover led to are ahead of the others
	for _, e := range h.Events {
		h.End = max(h.End, e.At)
		switch e.What {
		case Call:
			if ops[e.ID] != nil {
				return nil, fmt.Errorf("call %s is there twice", e.ID)
			}
			ops[e.ID] = &Op{Call: e}
			h.Ops = append(h.Ops, ops[e.ID])
			h.Started[e.Proc] = true
		case Write:
			h.Writes = append(h.Writes, e)
		case Summary:
			h.Summaries[e.Proc] = e
		case Stat:
			h.Stats[e.Proc] = merged(h.Stats[e.Proc], e)
		case Idle:
			h.Idle[e.Proc] = e.At
		case Restart:
			h.Killed[e.Proc] = e.At
		case Settle:
			h.Settle = e.At
		case Switch:
			h.Switches = append(h.Switches, e)
		case Where:
			h.Wheres[e.Proc] = append(h.Wheres[e.Proc], e)
		case Forced:
			h.Forces[e.Name] = append(h.Forces[e.Name],
				Force{Window{From: e.Since, To: e.At}, e.Why == WhyYes || e.Why == WhyNo})
		case FaultOn:
			h.Lost = h.Lost || e.Loses
			h.Back = h.Back || e.Back
			h.Behind += max(0, -e.Delay)
			if e.Loses && ahead > 0 { // this failover may lead back to a server whose clock isn't ahead
				h.Back = true
				h.Behind += ahead
			}
			if e.Loses && e.Clock {
				ahead += max(0, e.Delay)
			}
			silent[e.ID] = e.Silent
			if e.Loses || e.Clock {
				loose[e.ID] = len(h.Loose)
				h.Loose = append(h.Loose, Window{From: e.At, To: 1<<63 - 1, Fault: e.ID})
			}
		case FaultOff:
			if silent[e.ID] {
				h.Silence = e.At
			}
			if i, ok := loose[e.ID]; ok {
				h.Loose[i].To = e.At
			}
		case Grant, Refuse, Live, Renewed, Overdue, Dead, Freeing, Freed, Over:
			if ops[e.ID] == nil {
				return nil, fmt.Errorf("%s of %s, which was never called", e.What, e.ID)
			}
			ops[e.ID].note(e)
		}
	}
	return h, nil
}

// merged adds a stat to an earlier one of the same process.
func merged(a, b Event) Event {
	if a.Counts == nil {
		a = Event{At: b.At, What: Stat, Proc: b.Proc, Counts: map[string]float64{}}
	}
	maps.Copy(a.Counts, b.Counts)
	a.Why += b.Why
	return a
}

func (o *Op) note(e Event) {
	switch e.What {
	case Grant:
		o.Granted, o.Returned, o.Owner, o.Token, o.Tokens, o.LastUntil = true, e.At, e.Owner, e.Token, e.Tokens, e.Until
		o.Untils = append(o.Untils, e.Until)
	case Refuse:
		o.Returned, o.Refused = e.At, e.Why
	case Live:
		o.LastLive = max(o.LastLive, e.At)
	case Renewed:
		o.LastUntil = e.Until
		o.RenewedAt = append(o.RenewedAt, e.At)
		o.Untils = append(o.Untils, e.Until)
	case Overdue:
		o.Overdue = append(o.Overdue, e)
	case Dead:
		o.DeadAt, o.Dead = e.At, e.Why
	case Freeing:
		o.FreeCalled, o.KnownLost = e.At, e.Why != ""
	case Freed:
		o.FreeReturned, o.Freed = e.At, e.Why
	case Over:
		o.Over = e.Why
	}
}

// excused reports whether, within the period, Redis may have forgotten what it had granted. A lost write has an effect
// until the lease that it granted or renewed has run out.
func (h *History) excused(from, to Time, lease time.Duration) bool {
	return len(h.excuses(from, to, lease)) > 0
}

// excuses returns the faults for which excused reports true.
func (h *History) excuses(from, to Time, lease time.Duration) (faults []string) {
	for _, w := range h.Loose {
		if w.To < 1<<63-1 {
			w.To = w.To.Add(lease + looseSlack)
		}
		if w.meets(from, to) {
			faults = append(faults, w.Fault)
		}
	}
	return faults
}

// looseSlack allows for requests that were under way when Redis recovered.
const looseSlack = time.Second

// byName returns the granted calls of each name, except those for latches. A call for several names is listed under
// each of them.
func (h *History) byName() map[string][]*Op {
	names := make(map[string][]*Op)
	for _, o := range h.Ops {
		switch {
		case !o.Granted || o.Call.Kind == KindLatch: // a latch excludes nobody
		case o.Call.Names == nil:
			names[o.Call.Name] = append(names[o.Call.Name], o)
		default:
			for _, n := range o.Call.Names {
				part := *o
				part.Call.Name, part.Token = n, o.Tokens[n]
				names[n] = append(names[n], &part)
			}
		}
	}
	return names
}

// Force is one call of ForceUnlock. Unless Sure reports true, its effect may also have come after it returned.
type Force struct {
	Window
	sure bool
}

// soon is less than any ReadTimeout of the clients: in a call that took less, no try timed out. A try that timed out
// may have its effect later.
const soon = 250 * time.Millisecond

// Sure reports whether the call had its effect, if any, within its window.
func (f Force) Sure() bool { return f.sure && f.To.Sub(f.From) < soon }

// forced reports whether a ForceUnlock may have taken away a lease of the name between from, when the lease was
// requested, and to.
func (h *History) forced(name string, from, to Time) bool {
	return slices.ContainsFunc(h.Forces[name], func(f Force) bool {
		if !f.Sure() {
			f.To = 1<<63 - 1
		}
		return f.meets(from, to)
	})
}

// cause splits a text such as "lost:unreachable".
func cause(why string) (how, what string) {
	how, what, _ = strings.Cut(why, ":")
	return how, what
}
